//! Any bytes as changes to a volume of ScherlFS, through the driver `repaired`.
#![no_main]

#[allow(dead_code)] // the other drivers
#[path = "../../scherlfs/fsck/tests/drivers/mod.rs"]
mod drivers;
#[path = "../../scherlfs/fsck/tests/rig/mod.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::repaired(bytes));
