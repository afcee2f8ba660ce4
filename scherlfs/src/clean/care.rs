//! What is known while room is made: victims, who lives in them, and what was done. Nothing here looks at a volume.

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
    /// Where its first block in a victim is.
    pub first: Addr,
    /// Blocks of the piece that moving makes of it.
    pub piece: u64,
}

/// What was done to make room, since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Passes over victims.
    pub passes: u64,
    /// Segments that were cleared.
    pub segments: u64,
    /// Blocks that were moved for it.
    pub moved: u64,
    /// Files that were brought together.
    pub files: u64,
    /// Blocks that were written for that.
    pub gathered: u64,
}

/// How far a pass is.
pub(crate) enum Phase {
    /// Looks who lives in the victims: so far up to this block of the inode map.
    Looking(u64),
    /// Moves them.
    Moving,
}

/// Victims that are being cleared.
pub(crate) struct Pass {
    pub victims: Victims,
    pub target: Target,
    /// Blocks in holes when it began.
    pub holes: u64,
    pub phase: Phase,
    pub found: Vec<Owned>,
    pub queue: VecDeque<Ino>,
    /// Blocks of the pieces that the queue will make, if they go into holes.
    pub pieces: Vec<u64>,
}

/// Segments, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Victims {
    pub indexes: Vec<u64>,
    pub segment: u64,
}

impl Victims {
    /// The parts of a run of blocks that lie in a victim: start, blocks.
    pub fn of_run(&self, start: Addr, blocks: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = start.0 + blocks;
        let first = self.indexes.partition_point(|i| (i + 1) * self.segment <= start.0);
        let hits = self.indexes[first..].iter().take_while(move |i| *i * self.segment < end);
        hits.map(move |i| {
            let from = (i * self.segment).max(start.0);
            (from, end.min((i + 1) * self.segment) - from)
        })
    }
    /// Whether a run touches one.
    pub fn touch(&self, run: Run) -> bool {
        self.of_run(run.start, run.blocks.into()).next().is_some()
    }
}

/// What a volume knows of making room.
pub(crate) struct Care {
    pub clean: Clean,
    pub power: Power,
    /// Why what is written now is written.
    pub cause: Cause,
    pub done: Done,
    pub pass: Option<Pass>,
    /// Blocks in holes that passes could do nothing about.
    pub rest: u64,
    /// When each segment was written last, since the mount.
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
    /// How room is made now.
    pub fn strategy(&self) -> Strategy {
        self.clean.strategy(self.power)
    }
}
