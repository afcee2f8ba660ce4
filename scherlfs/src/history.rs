//! Which transactions can be undone, and which blocks are kept for that? (Scherl 2004, section 7.5.)
//!
//! A log does not overwrite: what a transaction replaced is still there until its blocks are used again. The history keeps them
//! from that, up to a budget, the oldest first to go. For each transaction it knows where each inode was before, and which
//! blocks nobody would need but for going back. Going back is [`crate::undo`]'s.

use std::collections::VecDeque;

use scherlfs_format::history::{Past, bytes};
use scherlfs_format::{BLOCK, Run, Seq};
use vfs::{Error, Result};

use crate::space::Blocks;

/// Bytes of the list at most: it is written with every checkpoint.
pub(crate) const LIST: usize = 1 << 20;
/// Blocks that are kept where a volume has a history and nobody says how much: 64 MiB.
const USUAL: u64 = 16_384;

/// What can be undone.
#[derive(Default)]
pub(crate) struct History {
    /// Blocks that may be kept. 0: nothing can be undone.
    pub budget: u64,
    pub all: VecDeque<Past>,
    /// Blocks that only the history needs: neither free nor dead.
    pub kept: Blocks,
    /// What the next transaction replaces.
    pub dying: Vec<Run>,
    pub bytes: usize,
    /// The transaction that was remembered last.
    pub last: Seq,
}

impl History {
    /// What a volume has, with a budget; without one, as before.
    pub fn of(all: Vec<Past>, budget: Option<u64>) -> Result<Self> {
        let mut history = History::default();
        for run in all.iter().flat_map(|p| &p.runs) {
            if !history.kept.add_run(*run) {
                return Err(Error::corrupt(format_args!("history: block {} is kept twice", run.start)));
            }
        }
        let usual = if all.is_empty() { 0 } else { USUAL.max(history.kept.count()) };
        history.budget = budget.unwrap_or(usual);
        history.bytes = bytes(&all);
        history.all = all.into();
        Ok(history)
    }

    /// The transaction up to which one can go back.
    pub fn floor(&self, now: Seq) -> Seq {
        self.all.front().map_or(now, |p| Seq(p.seq.0.saturating_sub(1)))
    }

    /// Blocks that its list will have, at most, once so many inodes and so many blocks that wait are written: each inode is a
    /// change and a few runs, each block may replace a run of its own.
    pub fn list_blocks(&self, inodes: u64, blocks: u64) -> u64 {
        if self.budget == 0 {
            return 0;
        }
        let more = 64 * inodes + 12 * (blocks + self.dying.len() as u64) + 64;
        (self.bytes as u64 + more).min(LIST as u64 + 64).div_ceil(BLOCK as u64) + 1
    }

    /// A block will be nobody's once the next transaction is written.
    pub fn replaced(&mut self, run: Run) {
        if self.budget > 0 {
            self.dying.push(run);
        }
    }

    /// Blocks of a file again: nobody else's any more.
    pub fn give_back(&mut self, new: &Blocks) {
        let parts: Vec<(u64, u64)> =
            new.iter().flat_map(|r| self.kept.within(r.start.0, r.end().0).collect::<Vec<_>>()).collect();
        for &(start, blocks) in &parts {
            self.kept.take(start, blocks);
        }
        if parts.is_empty() {
            return;
        }
        for past in &mut self.all {
            let mut left = Blocks::default();
            past.runs.iter().for_each(|run| _ = left.add_run(*run));
            let before = left.count();
            for run in new.iter() {
                for (start, blocks) in left.within(run.start.0, run.end().0).collect::<Vec<_>>() {
                    left.take(start, blocks);
                }
            }
            if left.count() != before {
                past.runs = left.iter().collect();
            }
        }
        self.bytes = bytes(&self.all);
    }
}
