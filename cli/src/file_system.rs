//! Which file system was requested, and which sizes are valid for it?

use std::path::Path;

use device::BlockDevice;
use f2fs::mkfs::Options;
use scherlfs_format::BLOCKS_MAX;
use scherlfs_format::superblock::BLOCKS_MIN;
use volume::Kind;

use crate::{Failure, size};

/// File system of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Type {
    /// Linux's file system for flash.
    #[default]
    F2fs,
    /// A log-structured file system for disks.
    Scherlfs,
}

impl From<Type> for Kind {
    fn from(asked: Type) -> Kind {
        match asked {
            Type::F2fs => Kind::F2fs,
            Type::Scherlfs => Kind::ScherlFs,
        }
    }
}

/// Parses `--size` for a volume with the default options of its file system.
pub fn size_of(kind: Kind, text: &str) -> Result<u64, Failure> {
    match kind {
        Kind::F2fs => size::of_volume(text, &Options::default()),
        Kind::ScherlFs => size_of_scherlfs(text),
    }
}

/// Parses `--size` for ScherlFS with any options.
pub fn size_of_scherlfs(text: &str) -> Result<u64, Failure> {
    size::within("--size", text, BLOCKS_MIN * 4096..=BLOCKS_MAX * 4096).map(|bytes| bytes & !4095)
}

/// The file system of an image; it must match the requested one, if any.
pub fn kind_of(image: &dyn BlockDevice, path: &Path, asked: Option<Type>) -> Result<Kind, Failure> {
    let there = volume::probe(image).unwrap_or_default();
    match asked.map(Kind::from) {
        Some(asked) if asked != there => {
            let (path, asked) = (path.display(), asked.type_name());
            Err(Failure::Usage(format!("--fs {asked}: {path} is a {there} volume; leave out --fs")))
        }
        _ => Ok(there),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_its_own_smallest_volume() {
        assert_eq!(size_of(Kind::ScherlFs, "1M").unwrap(), 1 << 20);
        assert_eq!(size_of(Kind::F2fs, "1M").unwrap_err().code(), 2);
        assert_eq!(size_of(Kind::ScherlFs, "4K").unwrap_err().code(), 2);
    }
}
