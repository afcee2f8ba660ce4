//! Which transactions can be undone, and which blocks are kept for that? (Scherl 2004, section 7.5.)
//!
//! A log does not overwrite: replaced blocks remain until they are reused. The history prevents that, up to a
//! budget; the oldest transactions are dropped first. For each transaction it records where each inode was before,
//! and which blocks are needed only for undo. [`crate::undo`] performs it.

use std::collections::VecDeque;

use scherlfs_format::history::{Past, bytes};
use scherlfs_format::{BLOCK, Run, Seq};
use vfs::{Error, Result};

use crate::space::Blocks;

/// Most bytes of the list, which is written with every checkpoint.
pub(crate) const LIST: usize = 1 << 20;
/// Default budget in blocks for a volume with a history: 64 MiB.
const USUAL: u64 = 16_384;

/// Undoable transactions.
#[derive(Default)]
pub(crate) struct History {
    /// Most blocks to keep. 0: nothing can be undone.
    pub budget: u64,
    pub all: VecDeque<Past>,
    /// Blocks that only the history needs: neither free nor dead.
    pub kept: Blocks,
    /// Blocks that the next transaction replaces.
    pub dying: Vec<Run>,
    pub bytes: usize,
    /// The last recorded transaction.
    pub last: Seq,
}

impl History {
    /// A volume's history, with a new budget if given.
    pub fn open(all: Vec<Past>, budget: Option<u64>) -> Result<Self> {
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

    /// The transaction to which undo can return at most.
    pub fn floor(&self, now: Seq) -> Seq {
        self.all.front().map_or(now, |p| Seq(p.seq.0.saturating_sub(1)))
    }

    /// Most blocks of its list after `inodes` inodes and `blocks` waiting blocks are written: each inode is a
    /// change and a few runs, each block may replace a separate run.
    pub fn list_blocks(&self, inodes: u64, blocks: u64) -> u64 {
        if self.budget == 0 {
            return 0;
        }
        let more = 64 * inodes + 12 * (blocks + self.dying.len() as u64) + 64;
        (self.bytes as u64 + more).min(LIST as u64 + 64).div_ceil(BLOCK as u64) + 1
    }

    /// Records blocks that become free with the next transaction.
    pub fn replaced(&mut self, run: Run) {
        if self.budget > 0 {
            self.dying.push(run);
        }
    }

    /// Removes kept blocks that belong to a file again.
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
