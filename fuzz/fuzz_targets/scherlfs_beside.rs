//! Any bytes through the driver `beside`: the index and the stage of a ScherlFS volume.
#![no_main]

extern crate scherlfs_format as format;

#[path = "../../scherlfs/format/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drivers::beside(bytes);
});
