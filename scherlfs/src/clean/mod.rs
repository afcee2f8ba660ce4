//! How is room made in long runs, so that the log has few holes to go through?
//!
//! [`strategy`] chooses whom to clear, [`owners`] finds whose blocks those are, [`pass`] moves them: it brings them into
//! memory as if they had been written, and the next transaction puts them where the log goes. So nothing about moving is
//! special after a power cut.

pub mod owners;
pub mod pass;
pub mod strategy;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use scherlfs_format::{Addr, Ino, Run, Seq};
use vfs::Power;

use crate::cause::Cause;
use crate::order::{Order, Way, order};
use crate::space::Blocks;
use crate::volume::State;
use strategy::{Clean, Segment, Strategy, Target};

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
enum Phase {
    /// Looks who lives in the victims: so far up to this block of the inode map.
    Looking(u64),
    /// Moves them.
    Moving,
}

/// Victims that are being cleared.
pub(crate) struct Pass {
    victims: Victims,
    target: Target,
    /// Blocks in holes when it began.
    holes: u64,
    phase: Phase,
    found: Vec<owners::Owned>,
    queue: VecDeque<Ino>,
    /// Blocks of the pieces that the queue will make, if they go into holes.
    pieces: Vec<u64>,
}

/// Segments, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Victims {
    indexes: Vec<u64>,
    segment: u64,
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
    pass: Option<Pass>,
    /// Blocks in holes that passes could do nothing about.
    rest: u64,
    /// When each segment was written last, since the mount.
    written: FxHashMap<u64, Seq>,
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

impl State {
    pub(crate) fn segment(&self) -> u64 {
        u64::from(self.sb.segment_blocks)
    }

    /// The order in which the log goes through what is free.
    pub(crate) fn order(&self, free: &Blocks, head: u64) -> Order {
        let least = self.segment();
        let Some(pass) = &self.care.pass else {
            return match self.care.strategy() {
                Strategy::Threading => order(free, head, &Way::Threading),
                _ => order(free, head, &Way::Whole { least }),
            };
        };
        // What is free in victims comes after everything else: who is moved out of one must not come back to it.
        let mut open = free.clone();
        let mut shut = Vec::new();
        for index in &pass.victims.indexes {
            for (start, blocks) in free.within(index * least, (index + 1) * least) {
                open.take(start, blocks);
                shut.push(Run { start: Addr(start), blocks: u32::try_from(blocks).unwrap_or(u32::MAX) });
            }
        }
        let way = match pass.target {
            Target::Log => Way::Whole { least },
            Target::Holes => Way::Plugging { pieces: pass.pieces.clone(), least },
        };
        let mut found = order(&open, head, &way);
        found.runs.extend(shut);
        found
    }

    /// The log took these blocks.
    pub(crate) fn note_written(&mut self, at: Addr) {
        let segment = self.segment();
        self.care.written.insert(at.0 / segment, self.seq);
    }

    /// Segments that are neither empty nor full, but for those that nothing can clear: the first, in which the superblocks
    /// are, one that the volume ends in, and the one in which the log stands.
    fn segments(&self) -> Vec<Segment> {
        let segment = self.segment();
        let (whole, head) = (self.sb.blocks / segment, self.path.head() / segment);
        let mut free: Vec<(u64, u64)> = Vec::new();
        for run in self.free.iter() {
            let (mut at, end) = (run.start.0, run.end().0);
            while at < end {
                let (index, until) = (at / segment, end.min((at / segment + 1) * segment));
                match free.last_mut() {
                    Some((last, blocks)) if *last == index => *blocks += until - at,
                    _ => free.push((index, until - at)),
                }
                at = until;
            }
        }
        let some = free.into_iter().filter(|(i, f)| *i > 0 && *i < whole && *i != head && *f < segment);
        let age = |i: u64| self.seq.0 - self.care.written.get(&i).map_or(0, |s| s.0);
        // What is kept for who goes back is not moved.
        let keeps = |i: &u64| self.history.kept.within(i * segment, (i + 1) * segment).next().is_some();
        let some = some.filter(|(i, _)| !keeps(i));
        some.map(|(index, free)| Segment { index, free, age: age(index) }).collect()
    }
}
