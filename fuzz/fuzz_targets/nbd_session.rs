//! Any bytes through the driver `session`.
#![no_main]

#[path = "../../nbd/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::session(bytes));
