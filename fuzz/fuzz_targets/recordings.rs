//! Any bytes through the driver `recordings`.
#![no_main]

#[path = "../../record/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::recordings(bytes));
