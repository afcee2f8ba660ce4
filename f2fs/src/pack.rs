//! The checkpoint that counts, while the volume is mounted.
//!
//! It lies behind [`Volume::cp`], so a reference to it is a witness: `&PackState` shows that whoever calls holds
//! off checkpoints and cleaning (or is alone), `&mut PackState` that nobody changes anything meanwhile. Functions
//! that rest on that take it as an argument.
//!
//! [`Volume::cp`]: crate::volume::Volume

use std::collections::BTreeMap;

use format::SegNo;
use format::checkpoint::Checkpoint;
use format::sit::RawSitEntry;

/// The checkpoint that counts, and what of it lives on in memory.
pub struct PackState {
    /// As last written or read.
    pub checkpoint: Checkpoint,
    /// It is in the second pack.
    pub second: bool,
    /// SIT entries that are in the journal and not in the table's blocks.
    pub sit_journal: BTreeMap<SegNo, RawSitEntry>,
    /// Kilobytes written over the volume's life, as Linux counts them.
    pub kbytes_written: u64,
}

/// Why a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The volume goes on.
    Running,
    /// It is being unmounted: node summaries go into the pack.
    Unmount,
}
