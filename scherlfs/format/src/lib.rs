//! What do the bytes of a ScherlFS volume mean?
//!
//! A log for disks after Scherl 2004: data and inode of a file stand side by side, inodes list extents, and where each
//! inode is stands in a file, the `.ifile`. Everything is little-endian and in blocks of 4 KiB; `docs/scherlfs-format.md`
//! specifies it. Writer and checker share this crate and nothing else.
//!
//! Pure: bytes to checked values and back. No panic on any bytes. Left out: I/O, allocation, and which of two copies of
//! the superblock counts (each says its own number).
#![forbid(unsafe_code)]

pub mod archive;
pub mod chain;
pub mod directory;
pub mod extent;
pub mod history;
pub mod ifile;
pub mod inode;
pub mod keep;
pub mod lists;
pub mod superblock;
pub mod time;

use std::fmt;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// A block's bytes.
pub type Block = [u8; BLOCK];
/// Blocks 0 and 1 hold the superblock, by turns.
pub const FIRST: u64 = 2;
/// Addresses have 48 bits.
pub const BLOCKS_MAX: u64 = 1 << 48;
/// The highest number of a transaction or a checkpoint: nobody comes so far, and one more is a number, too.
pub const COUNT_MAX: u64 = 1 << 62;
/// The longest name.
pub const NAME_MAX: usize = 255;

/// The place of a block: its number from the start of the volume. 0 is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

/// The number of an inode. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u32);

/// The inode map, a regular file that everybody may read as `/.ifile`.
pub const IFILE: Ino = Ino(1);
/// The root directory.
pub const ROOT: Ino = Ino(2);
/// The list of free blocks, hidden.
pub const FREE_LIST: Ino = Ino(3);
/// The list of inodes in use without a name, hidden.
pub const ORPHANS: Ino = Ino(4);
/// The list of what can be undone, hidden.
pub const HISTORY: Ino = Ino(5);
/// The first number of a user's inode.
pub const FIRST_INO: Ino = Ino(8);

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of neighbouring blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Run {
    /// The first.
    pub start: Addr,
    /// How many; over 0 but for "no run".
    pub blocks: u32,
}

impl Run {
    /// The block behind the last.
    pub fn end(self) -> Addr {
        Addr(self.start.0.saturating_add(self.blocks.into()))
    }
    /// Its blocks, in order.
    pub fn addrs(self) -> impl Iterator<Item = Addr> {
        (self.start.0..self.end().0).map(Addr)
    }
}

/// Which of two events is later: numbers of transactions count up over a volume's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// What a mount that wrote signs its blocks of the log with. What an earlier one left in the log is none of a later one's, and what
/// a user stores is nobody's: only who knows the volume's secret knows the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch {
    /// Which mount.
    pub count: u32,
    /// 24 bits that follow from the count and the secret; 0 on a volume without one.
    pub mark: u32,
}

impl Epoch {
    /// The epoch with this number on the volume with this secret.
    pub fn of(count: u32, secret: u64) -> Self {
        let mark = || {
            let mut key = [0; blake3::KEY_LEN];
            key[..8].copy_from_slice(&secret.to_le_bytes());
            let hash = blake3::keyed_hash(&key, &count.to_le_bytes());
            let [a, b, c, ..] = *hash.as_bytes();
            u32::from_le_bytes([a, b, c, 0])
        };
        Epoch { count, mark: if secret == 0 { 0 } else { mark() } }
    }
}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Another magic number than the structure's.
    #[error("{what}: no magic number")]
    Magic {
        /// The structure.
        what: &'static str,
    },
    /// The checksum is another.
    #[error("{what}: checksum is {stored:#010x}, contents have {computed:#010x}")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// What it says.
        stored: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A volume made by a later version, or with a feature that is not known here.
    #[error("superblock: {what} {value:#x} is not known")]
    Unknown {
        /// "version" or the word of features.
        what: &'static str,
        /// The version, or the features that are not known.
        value: u64,
    },
    /// A field has a value that no writer gives it.
    #[error("{what}: {field} is {value}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

/// The checksum of all structures: CRC-32 (IEEE).
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|p| crc.update(p));
    crc.finalize()
}

/// A checksum of bytes that come one after the other.
#[derive(Debug, Clone, Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// What [`checksum`] is of all of them.
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// The checksum of a block in which it stands itself at `at`, counted as zeroes.
fn sealed(block: &Block, at: usize) -> u32 {
    checksum(&[&block[..at], &[0; 4], &block[at + 4..]])
}

/// Puts a block's checksum at `at`.
fn seal(block: &mut Block, at: usize) {
    let crc = sealed(block, at);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the checksum at `at` is the block's.
fn check_seal(block: &Block, at: usize, what: &'static str) -> Result<(), FormatError> {
    let stored = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let computed = sealed(block, at);
    if stored == computed { Ok(()) } else { Err(FormatError::Checksum { what, stored, computed }) }
}
