//! When what waits is written, and what is done beside the callers: settings and memory, no work.

use std::time::Duration;

use vfs::Commit;

use crate::reorganise::work::Gathering;

/// What paces writing.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Blocks that may wait in memory.
    pub dirty: u64,
    /// What waits is written after so long.
    pub writeback: Duration,
    /// When changes become durable though nobody asks.
    pub commit: Option<Commit>,
    /// A checkpoint is due after so many blocks of log, as [`crate::MountOptions`] says.
    pub checkpoint_blocks: u64,
    /// And so long after the last one.
    pub checkpoint_every: Option<Duration>,
}

/// Work beside the callers'.
#[derive(Default)]
pub(crate) struct Background {
    pub gathering: Option<Gathering>,
    /// Callers' changes and opens when nothing was left to do.
    pub settled: Option<(u64, u64)>,
    /// How many passes over victims there had been when files were last brought together after a change. Another pass may have
    /// split a file since: then that is done once more.
    pub passes: Option<u64>,
    /// Callers' changes.
    pub changes: u64,
    /// Whoever holds the volume wants none of it done.
    pub paused: bool,
}
