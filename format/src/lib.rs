//! The on-disk format of F2FS.
//!
//! Every structure is decoded under its on-disk name (`Raw*`, little-endian, unaligned, its size asserted at
//! compile time), then converted to a checked type with our names by one constructor. Numbers of different kinds
//! have different types ([`addr`]). Encoding is the reverse.
//!
//! Left out on purpose: I/O, allocation policy, and consistency between structures in different places (the
//! business of the file system and fsck).
//!
//! A block of any content is either understood, or refused by an error that names the field:
//!
//! ```
//! use joulefs_format::{BLOCK, superblock::SuperBlock};
//!
//! let error = SuperBlock::check(&[0; BLOCK]).unwrap_err();
//! assert!(error.to_string().contains("magic"));
//! ```
#![forbid(unsafe_code)]

pub mod acl;
pub mod addr;
pub mod bits;
pub mod casefold;
pub mod checkpoint;
pub mod compress;
pub mod crc;
pub mod dentry;
pub mod hash;
pub mod inode;
pub mod nat;
pub mod nat_bits;
pub mod node;
pub mod orphan;
pub mod quota;
pub mod sit;
pub mod summary;
pub mod superblock;
pub mod xattr;

mod error;

pub use addr::{BlockAddr, Ino, Nid, SegNo};
pub use error::FormatError;
pub use inode::delta;

/// The file system's magic (kernel `F2FS_SUPER_MAGIC`).
pub const MAGIC: u32 = 0xF2F5_2010;
/// The magic of a volume whose inodes may hold [`delta`]s, so that no other system mistakes it for plain F2FS.
pub const DELTA_MAGIC: u32 = 0x4A4F_F2F5;
/// Bytes in a block.
pub const BLOCK: usize = 4096;
/// Blocks in a segment (2 MiB).
pub const BLOCKS_PER_SEG: u32 = 512;
/// One block's bytes.
pub type Block = [u8; BLOCK];

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
