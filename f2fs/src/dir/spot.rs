//! Where is an entry of a directory, and which inode does it point to?

use format::Ino;
use vfs::FileKind;

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// In the inode.
    Inline {
        /// First slot.
        slot: usize,
    },
    /// In a block.
    Block {
        /// The directory's block.
        index: u64,
        /// First slot.
        slot: usize,
    },
}

/// An entry that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The inode it points to.
    pub ino: Ino,
    /// The type that the entry records.
    pub kind: Option<FileKind>,
    /// Where it is.
    pub spot: Spot,
}
