//! Which sources is a program built from? A change to them may change its results.
//!
//! Left out: texts for people and results kept from earlier runs, which affect no computation. The programs' build
//! scripts include this file, so it uses no other module.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The sources of a program, by paths relative to the source root.
pub struct Program {
    /// Crates linked into it: `src` and the manifest of each.
    pub rooms: &'static [&'static str],
    /// Files and directories compiled into them, and the versions of external crates.
    pub data: &'static [&'static str],
}

/// `joulefs`.
pub const JOULEFS: Program = Program {
    rooms: &[
        "cli",
        "device",
        "f2fs",
        "format",
        "fsck",
        "fuse",
        "host",
        "inspect",
        "record",
        "rescue",
        "scherlfs",
        "scherlfs/format",
        "scherlfs/fsck",
        "sim",
        "terminal",
        "trace",
        "vfs",
        "victim",
        "volume",
    ],
    data: &["Cargo.lock", "Cargo.toml", "device/profiles", "recipes"],
};

/// `joulefs-lab`.
pub const LAB: Program = Program {
    rooms: &[
        "device",
        "f2fs",
        "format",
        "inspect",
        "lab",
        "record",
        "scherlfs",
        "scherlfs/format",
        "sim",
        "terminal",
        "trace",
        "vfs",
        "victim",
        "volume",
    ],
    data: &["Cargo.lock", "Cargo.toml", "experiments", "device/profiles", "published", "recipes"],
};

/// True if a computation may depend on the file.
pub fn counts(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    let is_words = file.extension().is_some_and(|e| e == "md" || e == "pyc");
    !is_words && name != "ours.csv" && name != "took.csv"
}

impl Program {
    /// The files and directories to read, relative to the source root.
    pub fn places(&self) -> Vec<PathBuf> {
        let rooms = self.rooms.iter().flat_map(|room| [format!("{room}/src"), format!("{room}/Cargo.toml")]);
        rooms.map(PathBuf::from).chain(self.data.iter().map(PathBuf::from)).collect()
    }

    /// Every file that counts, sorted, relative to the source root.
    pub fn files(&self, root: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut left = self.places();
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

    /// A hash of the names and contents of these files, independent of the location of `root`.
    pub fn digest(&self, root: &Path) -> io::Result<String> {
        let mut all = blake3::Hasher::new();
        for file in self.files(root)? {
            let name = file.to_string_lossy();
            let bytes = fs::read(root.join(&file))?;
            all.update(&(name.len() as u64).to_le_bytes());
            all.update(name.as_bytes());
            all.update(&(bytes.len() as u64).to_le_bytes());
            all.update(&bytes);
        }
        Ok(all.finalize().to_hex()[..32].to_owned())
    }

    /// Passes the build to cargo; called from a build script in a crate's directory.
    pub fn announce(&self, root: &Path) -> io::Result<()> {
        for place in self.places() {
            println!("cargo::rerun-if-changed={}", root.join(place).display());
        }
        println!("cargo::rustc-env=JOULEFS_SOURCES={}", self.digest(root)?);
        Ok(())
    }
}
