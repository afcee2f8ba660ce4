//! Which sources is a program made of? What it computes may change with them.
//!
//! Left out: words for people and numbers kept of earlier runs, on which nothing that is computed depends. The build scripts
//! of the programs include this file: it uses no other module.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a program is made of, by its names below the root of the sources.
pub struct Program {
    /// Crates that it is linked of: `src` and the manifest of each.
    pub rooms: &'static [&'static str],
    /// Files and directories that are built into them, and the versions of foreign crates.
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
        "nbd",
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

/// Whether anything that is computed may depend on a file.
pub fn counts(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    let is_words = file.extension().is_some_and(|e| e == "md" || e == "pyc");
    !is_words && name != "ours.csv" && name != "took.csv"
}

impl Program {
    /// The files and directories below the root of the sources that are read.
    pub fn places(&self) -> Vec<PathBuf> {
        let rooms = self.rooms.iter().flat_map(|room| [format!("{room}/src"), format!("{room}/Cargo.toml")]);
        rooms.map(PathBuf::from).chain(self.data.iter().map(PathBuf::from)).collect()
    }

    /// Every file that counts, in order, by its name below the root.
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

    /// The hash of the names and bytes of these files; wherever they lie.
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

    /// Tells cargo the build of the program: the work of a build script in a directory of a room.
    pub fn announce(&self, root: &Path) -> io::Result<()> {
        for place in self.places() {
            println!("cargo::rerun-if-changed={}", root.join(place).display());
        }
        println!("cargo::rustc-env=JOULEFS_SOURCES={}", self.digest(root)?);
        Ok(())
    }
}
