//! When waiting blocks are written, and what runs in the background: settings and state only.

use std::time::Duration;

use vfs::Commit;

use crate::reorganise::work::Gathering;

/// Pace of writing.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Most blocks that may wait in memory.
    pub dirty: u64,
    /// Longest time that blocks wait.
    pub writeback: Duration,
    /// When changes become durable without a sync.
    pub commit: Option<Commit>,
    /// Log blocks after which a checkpoint is due, see [`crate::MountOptions`].
    pub checkpoint_blocks: u64,
    /// Time after the last checkpoint at which one is due.
    pub checkpoint_every: Option<Duration>,
}

/// State of background work.
#[derive(Default)]
pub(crate) struct Background {
    pub gathering: Option<Gathering>,
    /// Callers' changes and opens when no work was left.
    pub settled: Option<(u64, u64)>,
    /// Number of passes when files were last defragmented after a change. A later pass may have split a file: then
    /// defragmentation runs again.
    pub passes: Option<u64>,
    /// Number of callers' changes.
    pub changes: u64,
    /// True if the user of the volume disabled background work.
    pub paused: bool,
}
