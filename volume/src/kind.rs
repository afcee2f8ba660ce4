//! The kinds of file systems.

use std::fmt;
use std::str::FromStr;

use device::{BLOCK, BlockDevice, Lba, Tag};
use format::Block;
use format::superblock::SuperBlock;
use scherlfs_format::superblock::{MAGIC, Superblock};
use serde::{Deserialize, Serialize};
use vfs::Reason;

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Linux's F2FS, for flash.
    #[default]
    F2fs,
    /// ScherlFS, a log for disks.
    ScherlFs,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::F2fs, Kind::ScherlFs];

    /// The name for display.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F2fs => "F2FS",
            Kind::ScherlFs => "ScherlFS",
        }
    }

    /// The name in commands.
    pub fn type_name(self) -> &'static str {
        match self {
            Kind::F2fs => "f2fs",
            Kind::ScherlFs => "scherlfs",
        }
    }

    /// Causes of its requests.
    pub fn reasons(self) -> Vec<Reason> {
        match self {
            Kind::F2fs => f2fs::cause::Cause::reasons(),
            Kind::ScherlFs => scherlfs::cause::Cause::reasons(),
        }
    }
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Kind::ALL.map(Kind::type_name).join(" and ");
        let kind = Kind::ALL.into_iter().find(|kind| kind.type_name() == text);
        kind.ok_or_else(|| format!("no file system {text:?}; choose {}", known()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The file system of a device, by a superblock in either place. A valid one takes precedence over one with only a
/// correct magic, which a checker may still want to identify. `None`: neither, or unreadable.
pub fn probe(dev: &dyn BlockDevice) -> Option<Kind> {
    let read = |at| {
        let mut block = [0; BLOCK];
        dev.read(Lba(at), &mut block, Tag::default()).ok().map(|()| block)
    };
    let blocks: Vec<Block> = [0, 1].into_iter().filter(|at| *at < dev.blocks()).filter_map(read).collect();
    let whole = |block: &Block| match () {
        () if Superblock::read(block).is_ok() => Some(Kind::ScherlFs),
        () if SuperBlock::check(block).is_ok() => Some(Kind::F2fs),
        () => None,
    };
    let begins = |block: &Block| block.starts_with(&MAGIC).then_some(Kind::ScherlFs);
    blocks.iter().find_map(whole).or_else(|| blocks.iter().find_map(begins))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{Memory, RealClock};

    use super::*;

    fn formatted(kind: Kind) -> Arc<Memory> {
        let dev = Arc::new(Memory::new(64 << 8));
        match kind {
            Kind::F2fs => drop(f2fs::mkfs::format(&*dev, &RealClock::new(), &f2fs::mkfs::Options::default()).unwrap()),
            Kind::ScherlFs => {
                scherlfs::make::format(dev.clone(), &RealClock::new(), &scherlfs::make::Options::default()).unwrap();
            }
        }
        dev
    }

    #[test]
    fn a_volume_is_what_was_made_last_and_stays_it_without_its_first_block() {
        for (kind, other) in [(Kind::F2fs, Kind::ScherlFs), (Kind::ScherlFs, Kind::F2fs)] {
            let dev = formatted(kind);
            assert_eq!(probe(&*dev), Some(kind));
            dev.write(Lba(0), &[0; BLOCK], Tag::default()).unwrap();
            assert_eq!(probe(&*dev), Some(kind), "by the other copy");
            dev.write(Lba(1), &[0; BLOCK], Tag::default()).unwrap();
            assert_eq!(probe(&*dev), None);
            let over = formatted(other);
            let mut block = [0; BLOCK];
            for at in 0..over.blocks() {
                over.read(Lba(at), &mut block, Tag::default()).unwrap();
                if block.iter().any(|b| *b != 0) {
                    dev.write(Lba(at), &block, Tag::default()).unwrap();
                }
            }
            assert_eq!(probe(&*dev), Some(other), "made over {kind}");
        }
    }

    #[test]
    fn a_damaged_superblock_of_scherlfs_is_still_its() {
        let dev = formatted(Kind::ScherlFs);
        for at in [0, 1] {
            let mut block = [0; BLOCK];
            dev.read(Lba(at), &mut block, Tag::default()).unwrap();
            block[100] ^= 1;
            dev.write(Lba(at), &block, Tag::default()).unwrap();
        }
        assert_eq!(probe(&*dev), Some(Kind::ScherlFs));
        assert_eq!(probe(&Memory::new(0)), None);
        assert_eq!(probe(&Memory::new(1)), None);
    }
}
