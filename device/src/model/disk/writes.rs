//! Writes that are not on the platter yet.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::platter::{Femto, Platter};
use crate::Lba;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Write {
    at: u64,
    blocks: u64,
    /// When its first block begins to pass under the head.
    starts: Femto,
}

/// Pending writes in the order in which they reach the platter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Writes {
    queue: VecDeque<Write>,
}

impl Writes {
    /// Adds a write that the arm begins at `starts`.
    pub fn push(&mut self, at: u64, blocks: u64, starts: Femto) {
        self.queue.push_back(Write { at, blocks, starts });
    }

    /// Drops writes that are on the platter by `now`.
    pub fn prune(&mut self, now: Femto, platter: &Platter) {
        while self.queue.front().is_some_and(|w| w.starts + platter.passing(w.at, w.at + w.blocks) <= now) {
            self.queue.pop_front();
        }
    }

    /// The first moment with at most `room` pending blocks; 0 if there were never more.
    pub fn fits(&self, room: u64, platter: &Platter) -> Femto {
        let waiting: u64 = self.queue.iter().map(|w| w.blocks).sum();
        let mut excess = waiting.saturating_sub(room);
        for w in &self.queue {
            if excess == 0 {
                break;
            }
            if excess <= w.blocks {
                return w.starts + platter.passing(w.at, w.at + excess);
            }
            excess -= w.blocks;
        }
        0
    }

    /// Returns the blocks that are not on the platter at `now`, and drops all.
    pub fn lose(&mut self, now: Femto, platter: &Platter) -> Vec<Lba> {
        let mut lost = BTreeSet::new();
        for w in self.queue.drain(..) {
            let done = if now > w.starts { platter.passed(w.at, now - w.starts).min(w.blocks) } else { 0 };
            lost.extend(w.at + done..w.at + w.blocks);
        }
        lost.into_iter().map(Lba).collect()
    }
}
