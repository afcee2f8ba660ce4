//! What is this program made of, so that what it computes may change with it?
//!
//! Left out: words for people and numbers kept of earlier runs, on which nothing that is computed depends. The build script
//! reads this file too: it knows no other module.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Crates that the program is linked of: each one's `src`, and its manifest.
const ROOMS: [&str; 19] = [
    "cli",
    "device",
    "f2fs",
    "format",
    "fsck",
    "fuse",
    "inspect",
    "lab",
    "nbd",
    "record",
    "rescue",
    "scherlfs",
    "scherlfs/format",
    "scherlfs/fsck",
    "sim",
    "trace",
    "vfs",
    "victim",
    "volume",
];
/// What is built into them, and which crates of others are.
const DATA: [&str; 6] = ["Cargo.lock", "Cargo.toml", "device/profiles", "experiments", "published", "recipes"];

/// Whether anything that is computed may depend on a file.
pub fn counts(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    let is_words = file.extension().is_some_and(|e| e == "md" || e == "pyc");
    !is_words && name != "ours.csv" && name != "took.csv"
}

/// The files and directories below the root of the sources that are looked at.
pub fn places() -> Vec<PathBuf> {
    let of_rooms = ROOMS.iter().flat_map(|room| [format!("{room}/src"), format!("{room}/Cargo.toml")]);
    of_rooms.map(PathBuf::from).chain(DATA.iter().map(PathBuf::from)).collect()
}

/// Every file that counts, in order, as it is called below the root.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left = places();
    while let Some(place) = left.pop() {
        if fs::metadata(root.join(&place))?.is_dir() {
            for entry in fs::read_dir(root.join(&place))? {
                left.push(place.join(entry?.file_name()));
            }
        } else if counts(&place) {
            files.push(place);
        }
    }
    files.sort();
    Ok(files)
}

/// The hash of the names and bytes of these files; wherever they lie.
pub fn digest(root: &Path) -> io::Result<String> {
    let mut all = blake3::Hasher::new();
    for file in files(root)? {
        let name = file.to_string_lossy();
        let bytes = fs::read(root.join(&file))?;
        all.update(&(name.len() as u64).to_le_bytes());
        all.update(name.as_bytes());
        all.update(&(bytes.len() as u64).to_le_bytes());
        all.update(&bytes);
    }
    Ok(all.finalize().to_hex()[..32].to_owned())
}
