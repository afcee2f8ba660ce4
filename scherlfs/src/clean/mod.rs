//! Cleaning: making long free runs, so that the log meets few holes.
//!
//! [`strategy`] chooses the victims, [`owners`] finds the inodes in them, and [`pass`] moves their blocks: it loads
//! them into memory as if they had been written, and the next transaction puts them at the end of the log. So moved
//! blocks need no special treatment after a power cut.

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

    /// The order in which the log uses free blocks.
    pub(crate) fn order(&self, free: &Blocks, head: u64) -> Order {
        let least = self.segment();
        let Some(pass) = &self.care.pass else {
            return match self.care.strategy() {
                Strategy::Threading => order(free, head, &Way::Threading),
                _ => order(free, head, &Way::Whole { least }),
            };
        };
        // Free blocks in victims come last: blocks moved out of a victim must not return to it.
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

    /// Records that the log used these blocks.
    pub(crate) fn note_written(&mut self, at: Addr, blocks: u64) {
        let segment = self.segment();
        let segments = at.0 / segment..(at.0 + blocks).div_ceil(segment);
        segments.for_each(|n| _ = self.care.written.insert(n, self.seq));
    }

    /// Segments that are neither empty nor full, except those that cannot be cleaned: the first, with the
    /// superblocks, a partial last one, and the one at the log's head.
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
        // Blocks kept for undo are not moved.
        let keeps = |i: &u64| self.history.kept.within(i * segment, (i + 1) * segment).next().is_some();
        let some = some.filter(|(i, _)| !keeps(i));
        some.map(|(index, free)| Segment { index, free, age: age(index) }).collect()
    }
}
