//! How is room made in long runs, so that the log has few holes to go through?
//!
//! [`strategy`] chooses whom to clear, [`owners`] finds whose blocks those are, [`pass`] moves them: it brings them into
//! memory as if they had been written, and the next transaction puts them where the log goes. So nothing about moving is
//! special after a power cut.

pub mod care;
pub mod owners;
pub mod pass;
pub mod strategy;

use scherlfs_format::{Addr, Run};

use crate::order::{Order, Way, order};
use crate::space::Blocks;
use crate::volume::State;
use strategy::{Segment, Strategy, Target};

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
    pub(crate) fn note_written(&mut self, at: Addr, blocks: u64) {
        let segment = self.segment();
        let segments = at.0 / segment..(at.0 + blocks).div_ceil(segment);
        segments.for_each(|n| _ = self.care.written.insert(n, self.seq));
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
