//! What does a mounted volume count for its users?

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters that users can read.
#[derive(Debug, Default)]
pub struct Counters {
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Sections cleaned in the foreground, because space ran out.
    pub foreground_gc: AtomicU64,
    /// Sections cleaned in the background.
    pub background_gc: AtomicU64,
    /// Times the background found nothing worth cleaning.
    pub nothing_to_clean: AtomicU64,
    /// Cleaned sections of file contents and directories.
    pub data_victims: AtomicU64,
    /// Cleaned sections of nodes.
    pub node_victims: AtomicU64,
    /// Blocks moved in the foreground.
    pub moved_foreground: AtomicU64,
    /// Blocks moved in the background.
    pub moved_background: AtomicU64,
    /// Moved blocks of both kinds that went into holes of used segments.
    pub moved_threaded: AtomicU64,
    /// The longest step of background cleaning, during which changes waited, in microseconds.
    pub longest_pause: AtomicU64,
    /// All periods in which background cleaning blocked changes: steps, and the checkpoints of its batches.
    pub waits: crate::gc::waits::Stretches,
    /// Dirty pages that became deltas.
    pub deltas: AtomicU64,
    /// Accounts of files that fell too low for further deltas.
    pub delta_barred: AtomicU64,
    /// Database pages kept in delta nodes, for blocks of journals and logs.
    pub kept: AtomicU64,
    /// New pages of small files packed into delta nodes.
    pub packed: AtomicU64,
    /// Bytes of these deltas in zones.
    pub delta_bytes: AtomicU64,
    /// Deltas whose pages were written as whole blocks.
    pub folded: AtomicU64,
    /// Deltas moved from an inode to delta nodes because the file grew.
    pub deltas_moved: AtomicU64,
    /// Folded deltas of files that are only read.
    pub restored: AtomicU64,
    /// Clusters written packed.
    pub packed_clusters: AtomicU64,
    /// Blocks saved by packing.
    pub packed_saved: AtomicU64,
    /// Blocks that defragmentation moved.
    pub defragmented: AtomicU64,
    /// Bytes written by users.
    pub user_bytes: AtomicU64,
    /// Blocks overwritten in place.
    pub in_place: AtomicU64,
    /// fsyncs that wrote only nodes for roll-forward.
    pub fast_fsyncs: AtomicU64,
    /// fsyncs of directories that needed no checkpoint.
    pub fast_dir_fsyncs: AtomicU64,
    /// Files written by the fsync of a directory, or of another file, because of their names.
    pub names_put: AtomicU64,
    /// Deleted files whose names an fsync withdrew from the chain.
    pub names_withdrawn: AtomicU64,
    /// fsyncs that needed a checkpoint.
    pub slow_fsyncs: AtomicU64,
}

impl Counters {
    /// Sections cleaned, for any reason.
    pub fn sections_cleaned(&self) -> u64 {
        self.foreground_gc.load(Ordering::Relaxed) + self.background_gc.load(Ordering::Relaxed)
    }
    /// Blocks moved by cleaning, for any reason.
    pub fn moved_blocks(&self) -> u64 {
        self.moved_foreground.load(Ordering::Relaxed) + self.moved_background.load(Ordering::Relaxed)
    }
    pub(crate) fn cleaned(&self, foreground: bool, of_nodes: bool) {
        let when = if foreground { &self.foreground_gc } else { &self.background_gc };
        when.fetch_add(1, Ordering::Relaxed);
        let what = if of_nodes { &self.node_victims } else { &self.data_victims };
        what.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn moved(&self, foreground: bool, blocks: u64, threaded: u64) {
        let when = if foreground { &self.moved_foreground } else { &self.moved_background };
        when.fetch_add(blocks, Ordering::Relaxed);
        self.moved_threaded.fetch_add(threaded, Ordering::Relaxed);
    }
    pub(crate) fn held_off(&self, pause: Duration) {
        self.longest_pause.fetch_max(pause.as_micros() as u64, Ordering::Relaxed);
        self.waits.count(pause);
    }
}
