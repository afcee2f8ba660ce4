//! Any bytes through the driver `log_writes`.
#![no_main]

#[path = "../../trace/tests/drivers/blocks.rs"]
#[allow(dead_code, reason = "two of them are other targets'")]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::log_writes(bytes));
