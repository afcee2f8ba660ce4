//! Passes the fingerprint of the sources to the program.

#[path = "../terminal/src/program/sources.rs"]
#[allow(dead_code)]
mod sources;

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    sources::LAB.announce(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}
