//! How far bringing files together is.

use std::collections::VecDeque;

use scherlfs_format::Ino;

/// What there is to do.
#[derive(Default)]
pub(crate) struct Gathering {
    /// The next block of the inode map to be looked at.
    pub looked: u64,
    pub jobs: VecDeque<Vec<Ino>>,
    /// A file that is under way, and its next block.
    pub rest: Option<(Ino, u64)>,
}
