//! Progress of defragmentation.

use std::collections::VecDeque;

use scherlfs_format::Ino;

/// Remaining work.
#[derive(Default)]
pub(crate) struct Gathering {
    /// The next block of the inode map to examine.
    pub looked: u64,
    pub jobs: VecDeque<Vec<Ino>>,
    /// A file in progress, and its next block.
    pub rest: Option<(Ino, u64)>,
}
