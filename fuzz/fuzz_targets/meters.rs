//! Any bytes through the driver `meters`: Monsoon and our own CSV of joules.
#![no_main]

#[path = "../../trace/tests/drivers/meters.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::meters(bytes));
