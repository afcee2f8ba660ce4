//! How many blocks of the main area are valid, of contents and of nodes?
//!
//! The sums are updated as blocks change, so that a checkpoint can compare its counts with them ([`crate::invariant`])
//! without a look at each segment. A segment's log type says whether it holds nodes or contents, as Linux counts
//! (`SE_PAGETYPE`).

use format::sit::LogType;

/// Valid blocks by what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Contents of files and directories.
    pub data: u64,
    /// Nodes.
    pub nodes: u64,
}

impl Sums {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.data + self.nodes
    }
    fn of(&mut self, log: LogType) -> &mut u64 {
        if log.is_node() { &mut self.nodes } else { &mut self.data }
    }
    /// So many more in a segment of this log.
    pub(crate) fn add(&mut self, log: LogType, blocks: u16) {
        *self.of(log) += u64::from(blocks);
    }
    /// So many fewer.
    pub(crate) fn sub(&mut self, log: LogType, blocks: u16) {
        *self.of(log) -= u64::from(blocks);
    }
}
