//! How does the log work?
//!
//! F2FS with Linux's layout: six logs, node and segment tables, checkpoints, roll-forward. [`Volume`] is a mounted
//! volume; it implements `vfs::FileSystem`. [`mkfs`] makes one.
//!
//! ```
//! use std::sync::Arc;
//!
//! use joulefs_f2fs::device::{Memory, RealClock};
//! use joulefs_f2fs::vfs::{Caller, FileSystem, path};
//! use joulefs_f2fs::{MountOptions, Volume, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Arc::new(Memory::new(16 << 10)); // 64 MiB in blocks of 4 KiB
//! mkfs::format(&*memory, &RealClock::new(), &mkfs::Options::modern())?;
//! let volume = Volume::mount(memory, Arc::new(RealClock::new()), MountOptions::default())?;
//! volume.mkdir(Caller::default(), volume.root(), b"music", 0o755, 0)?;
//! assert!(path::walk(&*volume, b"/music").is_ok());
//! volume.unmount()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod acl;
mod attr;
pub mod cause;
mod changes;
mod chattr;
mod checkpoint;
pub mod compress;
mod context;
mod counters;
pub mod delta;
pub mod dir;
mod error;
mod fields;
pub mod file;
mod fsync;
pub mod gc;
mod health;
mod host_room;
mod inode;
mod invariant;
pub mod mkfs;
pub mod mount;
mod names;
mod nat;
mod no_key;
mod node;
mod options;
mod orphan;
pub mod owners;
mod pack;
mod promises;
mod recovery;
mod replacement;
#[cfg(test)]
mod rig;
mod segment;
mod served;
pub mod settle;
mod space;
pub mod streams;
pub mod superblocks;
mod tick;
mod trim;
mod vfs_impl;
mod volume;
mod xattr;

/// The device below a volume, and its clock.
pub use ::device;
/// The traits that a volume implements, and their types.
pub use ::vfs;
pub use mount::MountError;
pub use options::{CheckpointChoice, FsyncMode, Holes, InPlace, MountOptions, RollForward};
pub use segment::temperature::Mode;
pub use volume::Volume;

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
