//! Any bytes through the driver `perfetto`.
#![no_main]

#[path = "../../trace/tests/drivers/tracepoints.rs"]
#[allow(dead_code, reason = "two of them are other targets'")]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::perfetto(bytes));
