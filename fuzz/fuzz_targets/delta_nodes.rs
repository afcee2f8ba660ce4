//! Any bytes through the driver `delta_nodes`.
#![no_main]

#[allow(dead_code)] // the other drivers
#[path = "../../format/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::delta_nodes(bytes));
