//! How many content blocks and node blocks of the main area are valid?
//!
//! The sums are updated as blocks change, so that a checkpoint can compare its counts with them ([`crate::invariant`])
//! without a scan of all segments. A segment's log type determines whether it holds nodes or contents, as Linux counts
//! (`SE_PAGETYPE`).

use format::sit::LogType;

/// Valid blocks by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Contents of files and directories.
    pub data: u64,
    /// Nodes.
    pub nodes: u64,
}

impl Sums {
    /// The total.
    pub fn total(&self) -> u64 {
        self.data + self.nodes
    }
    fn of(&mut self, log: LogType) -> &mut u64 {
        if log.is_node() { &mut self.nodes } else { &mut self.data }
    }
    /// Adds blocks in a segment of this log.
    pub(crate) fn add(&mut self, log: LogType, blocks: u16) {
        *self.of(log) += u64::from(blocks);
    }
    /// Subtracts blocks in a segment of this log.
    pub(crate) fn sub(&mut self, log: LogType, blocks: u16) {
        *self.of(log) -= u64::from(blocks);
    }
}
