//! Possible findings.

use std::fmt;

use scherlfs_format::{Addr, Ino};

/// The state in which a fault was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last checkpoint.
    Checkpoint,
    /// The state after the log behind it.
    Log,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the fields explain them
#[non_exhaustive]
pub enum Finding {
    /// A superblock copy is unusable.
    Superblock { at: Addr, why: String },
    /// A hidden file or the inode map is unusable.
    Hidden { ino: Ino, why: String },
    /// An inode is unusable.
    Inode { ino: Ino, at: Addr, state: State, why: String },
    /// A block has a second owner.
    Twice { at: Addr, ino: Ino, state: State },
    /// A damaged block of the log behind the checkpoint: a mount would take it for the end of the log, or refuse
    /// the volume.
    Log { at: Addr, why: String },
    /// A used block is listed as free.
    FreeAndUsed { at: Addr },
    /// Unused blocks are not listed as free.
    Lost { at: Addr, blocks: u64 },
    /// A stored count is wrong.
    Count { what: &'static str, stored: u64, counted: u64 },
    /// A directory block is unusable.
    Directory { ino: Ino, block: u64, state: State, why: String },
    /// A name leads to no inode, or to one of another kind.
    Name { dir: Ino, name: Vec<u8>, state: State, why: String },
    /// A link count is wrong.
    Links { ino: Ino, stored: u32, counted: u32, state: State },
    /// An inode with links is in no directory.
    Unreachable { ino: Ino, state: State },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |state: &State| match state {
            State::Checkpoint => "",
            State::Log => " (in the log after the checkpoint)",
        };
        match self {
            Finding::Superblock { at, why } => write!(f, "superblock {at}: {why}"),
            Finding::Hidden { ino, why } => write!(f, "hidden file {ino}: {why}"),
            Finding::Inode { ino, at, state, why } => write!(f, "inode {ino}, block {at}{}: {why}", of(state)),
            Finding::Twice { at, ino, state } => {
                write!(f, "block {at}{}: inode {ino} and another inode have it", of(state))
            }
            Finding::Log { at, why } => write!(f, "block {at} of the log after the checkpoint: {why}"),
            Finding::FreeAndUsed { at } => write!(f, "block {at}: it is listed as free, but in use"),
            Finding::Lost { at, blocks } => write!(f, "{blocks} blocks from {at} on: neither free nor in use"),
            Finding::Count { what, stored, counted } => write!(f, "{what}: {stored} are stored, {counted} counted"),
            Finding::Directory { ino, block, state, why } => {
                write!(f, "directory {ino}, block {block}{}: {why}", of(state))
            }
            Finding::Name { dir, name, state, why } => {
                write!(f, "directory {dir}, name {:?}{}: {why}", String::from_utf8_lossy(name), of(state))
            }
            Finding::Links { ino, stored, counted, state } => {
                write!(f, "inode {ino}{}: {stored} links, {counted} names", of(state))
            }
            Finding::Unreachable { ino, state } => write!(f, "inode {ino}{}: it is in no directory", of(state)),
        }
    }
}
