//! Any bytes through ScherlFS's driver `continuations`.
#![no_main]

extern crate scherlfs_format as format;

#[allow(dead_code)] // the other drivers
#[path = "../../scherlfs/format/tests/drivers/mod.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::continuations(bytes));
