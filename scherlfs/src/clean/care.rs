//! Data of cleaning: victims, the inodes in them, and counters. Independent of a volume.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use scherlfs_format::{Addr, Ino, Run, Seq};
use vfs::Power;

use super::strategy::{Clean, Strategy, Target};
use crate::cause::Cause;

/// An inode with blocks in victims.
pub(crate) struct Owned {
    pub ino: Ino,
    pub is_dir: bool,
    /// Address of its first block in a victim.
    pub first: Addr,
    /// Blocks of the piece that moving makes of it.
    pub piece: u64,
}

/// Work of cleaning since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Passes over victims.
    pub passes: u64,
    /// Segments cleaned.
    pub segments: u64,
    /// Blocks moved for that.
    pub moved: u64,
    /// Files defragmented.
    pub files: u64,
    /// Blocks written for that.
    pub gathered: u64,
}

/// Progress of a pass.
pub(crate) enum Phase {
    /// Searching for inodes in the victims, up to this block of the inode map.
    Looking(u64),
    /// Moving their blocks.
    Moving,
}

/// Victims being cleaned.
pub(crate) struct Pass {
    pub victims: Victims,
    pub target: Target,
    /// Blocks in holes at its start.
    pub holes: u64,
    pub phase: Phase,
    pub found: Vec<Owned>,
    pub queue: VecDeque<Ino>,
    /// Sizes of the pieces in the queue, if they go into holes.
    pub pieces: Vec<u64>,
}

/// Segments in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Victims {
    pub indexes: Vec<u64>,
    pub segment: u64,
}

impl Victims {
    /// The parts of a run of blocks inside a victim: start, blocks.
    pub fn of_run(&self, start: Addr, blocks: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = start.0 + blocks;
        let first = self.indexes.partition_point(|i| (i + 1) * self.segment <= start.0);
        let hits = self.indexes[first..].iter().take_while(move |i| *i * self.segment < end);
        hits.map(move |i| {
            let from = (i * self.segment).max(start.0);
            (from, end.min((i + 1) * self.segment) - from)
        })
    }
    /// True if a run overlaps a victim.
    pub fn touch(&self, run: Run) -> bool {
        self.of_run(run.start, run.blocks.into()).next().is_some()
    }
}

/// State of cleaning on a volume.
pub(crate) struct Care {
    pub clean: Clean,
    pub power: Power,
    /// Cause of current writes.
    pub cause: Cause,
    pub done: Done,
    pub pass: Option<Pass>,
    /// Blocks in holes that passes could not fill.
    pub rest: u64,
    /// The last write of each segment since the mount.
    pub written: FxHashMap<u64, Seq>,
}

impl Care {
    pub fn new(clean: Clean, power: Power) -> Self {
        Care {
            clean,
            power,
            cause: Cause::Log,
            done: Done::default(),
            pass: None,
            rest: 0,
            written: FxHashMap::default(),
        }
    }
    /// The current strategy.
    pub fn strategy(&self) -> Strategy {
        self.clean.strategy(self.power)
    }
}
