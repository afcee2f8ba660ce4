//! What must be true whenever a checkpoint is written?
//!
//! Three invariants that Linux or a power cut would find broken, but too late:
//!
//! * The volume counts as many nodes as there are valid blocks of nodes (Linux refuses to mount any other volume).
//! * It counts as many used blocks as there are valid ones and slots with room and no block ([`crate::space`]).
//! * No log hands out a block that the last checkpoint or an fsync since may need.
//!
//! A checkpoint tests the first two after all nodes are written, while no other thread changes anything. A log tests
//! the last whenever it hands out a block. If one is broken, memory and medium disagree for an unknown reason. Then no
//! pack is written: the volume fails with a [`Violation`], and the next mount finds the last checkpoint.
//!
//! *Cost*: sums that follow every change of the segment table, and a few comparisons at a checkpoint. With debug
//! assertions the sums themselves are counted anew, which looks at each segment (about a millisecond for 400,000).
//!
//! Counts that were wrong at mount are not tested; they are fsck's business. Left out on purpose: whether maps, tables
//! and nodes agree block by block (`fsck`, `Volume::audit_segments`).

pub mod sums;

use format::SegNo;
use format::checkpoint::Checkpoint;

use sums::Sums;

/// An invariant that is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The number of nodes.
    #[error("{counted} nodes are counted, but {valid} blocks of nodes are valid")]
    Nodes {
        /// As the volume counts them.
        counted: u64,
        /// As the segment table has them.
        valid: u64,
    },
    /// The number of used blocks.
    #[error(
        "{counted} blocks are counted as used, but {valid} are valid and {unwritten} have room alone, and there is room \
         for {room}"
    )]
    Blocks {
        /// As the volume counts them.
        counted: u64,
        /// As the segment table has them.
        valid: u64,
        /// Slots with room and no block, as they were followed since the mount.
        unwritten: i64,
        /// As many as users may fill.
        room: u64,
    },
    /// A block was about to be overwritten too early.
    #[error("segment {seg}, block {off} was allocated while the last checkpoint still needs it")]
    Held {
        /// Its segment.
        seg: SegNo,
        /// Its place there.
        off: u16,
    },
    /// The sums do not follow the segments.
    #[error("{kept:?} are kept as sums of the segment table, but its segments come to {anew:?}")]
    Sums {
        /// As they are kept.
        kept: Sums,
        /// Counted anew.
        anew: Sums,
    },
}

/// Counts that were right when the volume was mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sound {
    pub(crate) nodes: bool,
    pub(crate) blocks: bool,
}

impl Sound {
    /// Compares a checkpoint's counts with its segment table.
    pub(crate) fn of(cp: &Checkpoint, sums: Sums) -> Self {
        let blocks = sums.total() <= cp.valid_blocks && cp.valid_blocks <= cp.user_blocks;
        Sound { nodes: u64::from(cp.valid_nodes) == sums.nodes, blocks }
    }
}
