//! ScherlFS: a log-structured file system for disks (Scherl, Design and Implementation of an Energy-Aware File
//! System, 2004)
//!
//! Data and inode of a file are written together at the end of one log, so that a disk seeks as little as possible;
//! the inode map is a file; extents are in the inode. The on-disk format is in `scherlfs_format` and
//! `docs/scherlfs-format.md`.
//!
//! Left out: FUSE, images, the command line, and costs on devices.
#![forbid(unsafe_code)]

mod archive;
mod attributes;
pub mod cause;
mod checkpoint;
mod clean;
mod commit;
pub mod control;
mod directory;
mod extents;
mod file;
mod fill;
mod gone;
mod history;
mod host_room;
mod imap;
mod inode;
mod known_names;
mod load;
pub mod make;
mod marks;
mod mount;
mod names;
mod order;
mod pace;
mod page;
mod path;
mod placement;
mod plan;
mod read_ahead;
mod recovery;
mod remember;
mod reorganise;
mod series;
mod served;
mod space;
mod superblock;
pub mod undo;
mod vfs_impl;
mod volume;

pub use archive::{Beside, ProgramOf, index_blocks, keep_blocks};
pub use clean::care::Done;
pub use clean::strategy::{Clean, Strategy};
pub use scherlfs_format::superblock::Placement;
pub use superblock::superblock;
pub use volume::{MountOptions, Sync, Volume};
