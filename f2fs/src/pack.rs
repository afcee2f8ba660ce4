//! Which checkpoint is valid while the volume is mounted?
//!
//! Its state lies behind [`Volume::cp`], so a reference to it is a witness that the lock is held. `&PackState` shows
//! that no checkpoint or cleaning can begin while the function runs (or that the caller is alone); `&mut PackState`
//! shows that no other thread changes anything meanwhile. A function that relies on this takes the reference as an
//! argument.
//!
//! [`Volume::cp`]: crate::volume::Volume

use std::collections::BTreeMap;

use format::SegNo;
use format::checkpoint::Checkpoint;
use format::sit::RawSitEntry;

use crate::cause::Cause;

/// The valid checkpoint, and the parts of it that live on in memory.
pub struct PackState {
    /// As last written or read.
    pub checkpoint: Checkpoint,
    /// True if it is in the second pack.
    pub second: bool,
    /// SIT entries that are in the journal and not in the table's blocks.
    pub sit_journal: BTreeMap<SegNo, RawSitEntry>,
    /// True if an attempt to write the other pack failed: that pack may be valid, and what it refers to is about to be
    /// written over.
    pub torn: bool,
    /// Kilobytes written over the volume's life, as Linux counts them.
    pub kbytes_written: u64,
}

/// Why a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The volume goes on.
    Running,
    /// The volume goes on, and `commit=` bounds how long a change may stay in memory.
    Commit,
    /// It is being unmounted: node summaries go into the pack.
    Unmount,
}

impl Reason {
    /// What blocks of a checkpoint are counted as that are otherwise counted as `usual`.
    pub(crate) fn cause(self, usual: Cause) -> Cause {
        match self {
            Reason::Commit => Cause::Commit,
            Reason::Running | Reason::Unmount => usual,
        }
    }
}
