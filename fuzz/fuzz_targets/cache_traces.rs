//! Any bytes through the driver `cache_traces`.
#![no_main]

#[path = "../../trace/tests/drivers/lines.rs"]
#[allow(dead_code, reason = "the others are other targets'")]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::cache_traces(bytes));
