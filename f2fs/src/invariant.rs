//! What must be true whenever a checkpoint is written?
//!
//! Three invariants whose violation Linux or a power cut would reveal too late:
//!
//! * The node count equals the number of valid node blocks (Linux refuses to mount any other volume).
//! * The count of used blocks equals valid blocks plus reserved slots without a block ([`crate::space`]).
//! * No log allocates a block that the last checkpoint or a later fsync may need.
//!
//! A checkpoint tests the first two after all nodes are written, while no other thread changes anything. A log tests
//! the last at every allocation. If an invariant is broken, memory and medium disagree for an unknown reason. Then no
//! pack is written: the volume fails with a [`Violation`], and the next mount reads the last checkpoint.
//!
//! *Cost*: sums updated with every change of the segment table, and a few comparisons at a checkpoint. With debug
//! assertions the sums are also recounted over all segments (about a millisecond for 400,000).
//!
//! Counts that were wrong at mount are not tested; fsck repairs them. Left out on purpose: whether maps, tables and
//! nodes agree block by block (`fsck`, `Volume::audit_segments`).

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
        /// The volume's count.
        counted: u64,
        /// The segment table's count.
        valid: u64,
    },
    /// The number of used blocks.
    #[error(
        "{counted} blocks are counted as used, but {valid} are valid and {unwritten} have room alone, and there is room \
         for {room}"
    )]
    Blocks {
        /// The volume's count.
        counted: u64,
        /// The segment table's count.
        valid: u64,
        /// Reserved slots without a block, as tracked since the mount.
        unwritten: i64,
        /// Blocks available to users.
        room: u64,
    },
    /// A block was about to be overwritten too early.
    #[error("segment {seg}, block {off} was allocated while the last checkpoint still needs it")]
    Held {
        /// The segment.
        seg: SegNo,
        /// The block's offset in it.
        off: u16,
    },
    /// The sums disagree with the segments.
    #[error("{kept:?} are kept as sums of the segment table, but its segments come to {anew:?}")]
    Sums {
        /// Maintained sums.
        kept: Sums,
        /// Recounted sums.
        anew: Sums,
    },
}

/// Which counts were right when the volume was mounted.
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
