//! Which checkpoint is valid while the volume is mounted?
//!
//! Its state is behind [`Context::cp`], so a reference to it proves that the lock is held. `&PackState` proves that no
//! checkpoint or cleaning can begin while the function runs (or that the caller is alone); `&mut PackState` proves that
//! no other thread makes changes meanwhile. A function that relies on this takes the reference as an argument.
//!
//! [`Context::cp`]: crate::context::Context

use std::collections::BTreeMap;

use format::SegNo;
use format::checkpoint::Checkpoint;
use format::sit::RawSitEntry;

use crate::cause::Cause;

/// The valid checkpoint, and the parts of it that are kept in memory.
pub struct PackState {
    /// As last written or read.
    pub checkpoint: Checkpoint,
    /// True if it is in the second pack.
    pub second: bool,
    /// SIT entries that are in the journal and not in the table's blocks.
    pub sit_journal: BTreeMap<SegNo, RawSitEntry>,
    /// True if writing the other pack failed: that pack may be valid, although the blocks it refers to will be
    /// overwritten.
    pub torn: bool,
    /// Kilobytes written over the volume's life, as Linux counts them.
    pub kbytes_written: u64,
}

/// Reason for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The volume stays mounted.
    Running,
    /// The volume stays mounted; `commit=` limits how long a change may stay only in memory.
    Commit,
    /// Unmount: node summaries go into the pack.
    Unmount,
}

impl Reason {
    /// The cause of a checkpoint's blocks that otherwise have the cause `usual`.
    pub(crate) fn cause(self, usual: Cause) -> Cause {
        match self {
            Reason::Commit => Cause::Commit,
            Reason::Running | Reason::Unmount => usual,
        }
    }
}
