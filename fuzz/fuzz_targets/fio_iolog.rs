//! Any bytes through the driver `fio_iolog`.
#![no_main]

#[path = "../../trace/tests/drivers/lines.rs"]
#[allow(dead_code, reason = "the others are other targets'")]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::fio_iolog(bytes));
