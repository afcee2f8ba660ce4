//! How does the log work?
//!
//! F2FS as Linux lays it out: six logs, node and segment tables, checkpoints, roll-forward.
//! [`Volume`] is a mounted volume; it implements `vfs::FileSystem`. [`mkfs`] makes one.
#![forbid(unsafe_code)]

mod acl;
mod attr;
pub mod cause;
mod changes;
mod chattr;
pub mod checkpoint;
pub mod compress;
pub mod delta;
pub mod dir;
pub mod error;
mod fields;
pub mod file;
pub mod fsync;
pub mod gc;
mod health;
mod host_room;
pub mod inode;
pub mod invariant;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod nat;
mod no_key;
pub mod node;
pub mod orphan;
pub mod owners;
pub mod pack;
mod placed;
mod promises;
pub mod recovery;
mod replacement;
#[cfg(test)]
mod rig;
pub mod segment;
mod served;
pub mod space;
pub mod streams;
pub mod superblocks;
pub mod tick;
mod trim;
mod vfs_impl;
pub mod volume;
mod xattr;

pub use mount::MountError;
pub use segment::temperature::Mode;
pub use volume::{CheckpointChoice, MountOptions, RollForward, Volume};
