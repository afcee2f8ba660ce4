//! Any bytes through the driver `zones`.
#![no_main]

#[allow(dead_code)] // the other drivers
#[path = "../../format/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::zones(bytes));
