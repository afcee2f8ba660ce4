//! Tells the program which sources it is built of.

#[path = "src/program/sources.rs"]
mod sources;

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // A package of this crate alone has no others beside it; the program then knows itself by its own file.
    let is_whole = sources::places().iter().all(|place| root.join(place).exists());
    if is_whole {
        for place in sources::places() {
            println!("cargo::rerun-if-changed={}", root.join(place).display());
        }
        println!("cargo::rustc-env=JOULEFS_SOURCES={}", sources::digest(&root)?);
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
    Ok(())
}
