//! What can be wrong.

use std::fmt;

use scherlfs_format::{Addr, Ino};

/// Of which state something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last checkpoint.
    Checkpoint,
    /// What the log behind it leads to.
    Log,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are what their names say.
#[non_exhaustive]
pub enum Finding {
    /// A copy of the superblock cannot be used.
    Superblock { at: Addr, why: String },
    /// A hidden file or the inode map cannot be used.
    Hidden { ino: Ino, why: String },
    /// An inode cannot be used.
    Inode { ino: Ino, at: Addr, state: State, why: String },
    /// A block has a second owner.
    Twice { at: Addr, ino: Ino, state: State },
    /// A block of the log behind the checkpoint: a mount would take it for the end of the log, or refuse the volume.
    Log { at: Addr, why: String },
    /// A block that is somebody's is listed as free.
    FreeAndUsed { at: Addr },
    /// Blocks that are nobody's are not listed as free.
    Lost { at: Addr, blocks: u64 },
    /// A count disagrees with what it counts.
    Count { what: &'static str, stored: u64, counted: u64 },
    /// A directory's block cannot be used.
    Directory { ino: Ino, block: u64, state: State, why: String },
    /// A name leads nowhere, or to something else than it says.
    Name { dir: Ino, name: Vec<u8>, state: State, why: String },
    /// A count of names is wrong.
    Links { ino: Ino, stored: u32, counted: u32, state: State },
    /// An inode with names is in no directory.
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
