//! The on-disk format of ScherlFS.
//!
//! A log for disks after Scherl 2004: data and inode of a file are adjacent, inodes list extents, and a file, the
//! `.ifile`, holds the address of each inode. Everything is little-endian and in blocks of 4 KiB;
//! `docs/scherlfs-format.md` specifies it. Writer and checker share this crate and nothing else.
//!
//! Pure: converts bytes to checked values and back. No panic on any bytes. Left out: I/O, allocation, and which of
//! two superblock copies is current (each has its number).
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
/// Blocks 0 and 1 hold the superblock alternately.
pub const FIRST: u64 = 2;
/// Addresses have 48 bits.
pub const BLOCKS_MAX: u64 = 1 << 48;
/// Largest number of a transaction or a checkpoint: unreachable in practice, and the next number does not overflow.
pub const COUNT_MAX: u64 = 1 << 62;
/// The longest name.
pub const NAME_MAX: usize = 255;

/// Address of a block: its number from the start of the volume. 0 is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

/// Inode number. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u32);

/// The inode map, a world-readable regular file `/.ifile`.
pub const IFILE: Ino = Ino(1);
/// The root directory.
pub const ROOT: Ino = Ino(2);
/// The list of free blocks, hidden.
pub const FREE_LIST: Ino = Ino(3);
/// The list of inodes in use without a name, hidden.
pub const ORPHANS: Ino = Ino(4);
/// The list of undoable transactions, hidden.
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

/// A run of consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Run {
    /// The first.
    pub start: Addr,
    /// Their number; 0 only for "no run".
    pub blocks: u32,
}

impl Run {
    /// The block after the last.
    pub fn end(self) -> Addr {
        Addr(self.start.0.saturating_add(self.blocks.into()))
    }
    /// Its blocks, in order.
    pub fn addrs(self) -> impl Iterator<Item = Addr> {
        (self.start.0..self.end().0).map(Addr)
    }
}

/// Transaction number, which increases over a volume's life and orders events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// Signature of a mount in its log blocks. It excludes log remains of earlier mounts, and data of users, who do not
/// know the volume's secret and so cannot compute the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch {
    /// Number of the mount.
    pub count: u32,
    /// 24 bits computed from the count and the secret; 0 on a volume without one.
    pub mark: u32,
}

impl Epoch {
    /// The epoch with this number on the volume with this secret.
    pub fn new(count: u32, secret: u64) -> Self {
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

/// Invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The magic number is wrong.
    #[error("{what}: no magic number")]
    Magic {
        /// The structure.
        what: &'static str,
    },
    /// The checksum is wrong.
    #[error("{what}: checksum is {stored:#010x}, contents have {computed:#010x}")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// The stored value.
        stored: u32,
        /// The computed value.
        computed: u32,
    },
    /// A volume of a later version, or with an unknown feature.
    #[error("superblock: {what} {value:#x} is not known")]
    Unknown {
        /// "version" or the feature word.
        what: &'static str,
        /// The version, or the unknown features.
        value: u64,
    },
    /// A field with an invalid value.
    #[error("{what}: {field} is {value}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// The checksum of all structures: CRC-32 (IEEE).
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|p| crc.update(p));
    crc.finalize()
}

/// A checksum computed incrementally.
#[derive(Debug, Clone, Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The [`checksum`] of all bytes.
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// Checksum of a block that stores it at `at`, counted as zeroes.
fn sealed(block: &Block, at: usize) -> u32 {
    checksum(&[&block[..at], &[0; 4], &block[at + 4..]])
}

/// Stores a block's checksum at `at`.
fn seal(block: &mut Block, at: usize) {
    let crc = sealed(block, at);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a block's checksum at `at`.
fn check_seal(block: &Block, at: usize, what: &'static str) -> Result<(), FormatError> {
    let stored = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let computed = sealed(block, at);
    if stored == computed { Ok(()) } else { Err(FormatError::Checksum { what, stored, computed }) }
}
