//! Which blocks does the log fill next, and how does a reader follow it?
//!
//! The path is a list of all free runs, in an order that [`crate::order`] chose at the last checkpoint. A
//! checkpoint writes its beginning into the superblock. The last block of the known path never holds data: when the
//! log reaches it, it lists the next runs there.

use std::sync::Arc;

use scherlfs_format::chain::RUNS_MAX;
use scherlfs_format::superblock::PATH_MAX;
use scherlfs_format::{Addr, FIRST, Run};

use crate::order::Order;

/// Kind of a log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// For an inode, contents, or a list.
    Block(Addr),
    /// A path block with the next runs.
    Path(Addr, Vec<Run>),
}

impl Slot {
    /// Its address.
    pub fn addr(&self) -> Addr {
        match self {
            Slot::Block(a) | Slot::Path(a, _) => *a,
        }
    }
}

/// The path of the log.
#[derive(Debug, Clone, Default)]
pub struct Path {
    /// The current run, as far as it is known to readers and unused.
    here: Option<Run>,
    /// The runs announced together with it, from `next` on. Shared, since every transaction begins with a copy of
    /// the path.
    known: Arc<[Run]>,
    next: usize,
    /// Number of blocks in all these.
    left: u64,
    /// The path behind that, from `at` on.
    plan: Arc<[Run]>,
    at: usize,
    /// Blocks before the path leaves its preferred runs.
    preferred: u64,
    /// The block after the last used one.
    head: u64,
}

impl Path {
    /// The path for an order of all free blocks.
    pub fn through(order: Order) -> Self {
        let head = order.runs.first().map_or(FIRST, |r| r.start.0);
        let mut path = Path { plan: order.runs.into(), preferred: order.preferred, head, ..Path::default() };
        let first = path.more(PATH_MAX);
        path.take_on(&first);
        path
    }

    /// The path in a superblock, for following the log.
    pub fn given(runs: &[Run]) -> Self {
        let head = runs.first().map_or(FIRST, |r| r.start.0);
        let mut path = Path { head, ..Path::default() };
        path.take_on(runs);
        path
    }

    /// The path with these runs, known to readers, and then this order. Without runs it begins anew.
    pub fn go_on(&self, known: Vec<Run>, rest: Order) -> Self {
        if known.is_empty() {
            return Path::through(rest);
        }
        let here: u64 = known.iter().map(|r| u64::from(r.blocks)).sum();
        let mut path =
            Path { plan: rest.runs.into(), preferred: here + rest.preferred, head: self.head, ..Path::default() };
        path.take_on(&known);
        path
    }

    /// Its runs, for the superblock.
    pub fn runs(&self) -> Vec<Run> {
        self.here.into_iter().chain(self.known[self.next..].iter().copied()).collect()
    }

    /// Where the log continues, or where a search for free blocks should begin.
    pub fn head(&self) -> u64 {
        self.here.map_or(self.head, |r| r.start.0)
    }

    /// Number of blocks before the runs that the order puts last.
    pub fn preferred(&self) -> u64 {
        self.preferred
    }

    /// Continues with these runs when the known ones are used up: the last known block lists them.
    fn take_on(&mut self, runs: &[Run]) {
        self.left = runs.iter().map(|r| u64::from(r.blocks)).sum::<u64>();
        (self.known, self.next, self.here) = (runs.into(), runs.len().min(1), runs.first().copied());
    }

    /// The next runs after the known ones.
    fn more(&mut self, most: usize) -> Vec<Run> {
        let to = self.plan.len().min(self.at + most);
        let more = self.plan[self.at..to].to_vec();
        self.at = to;
        more
    }

    fn pop(&mut self) -> Option<Addr> {
        let Run { start: addr, blocks } = self.here?;
        self.left -= 1;
        self.preferred = self.preferred.saturating_sub(1);
        self.head = addr.0 + 1;
        self.here = if blocks > 1 {
            Some(Run { start: Addr(addr.0 + 1), blocks: blocks - 1 })
        } else {
            let run = self.known.get(self.next).copied();
            self.next += usize::from(run.is_some());
            run
        };
        Some(addr)
    }

    /// The next block for contents; appends the slots used up to it to `slots`. `None`: no block is free.
    pub fn next(&mut self, slots: &mut Vec<Slot>) -> Option<Addr> {
        while self.left == 1 {
            let more = self.more(RUNS_MAX);
            if more.is_empty() {
                return None;
            }
            let addr = self.pop()?;
            self.take_on(&more);
            slots.push(Slot::Path(addr, more));
        }
        let addr = self.pop()?;
        slots.push(Slot::Block(addr));
        Some(addr)
    }

    /// The next block for following the log; at the last known block `read` returns the runs listed there.
    pub fn follow(&mut self, mut read: impl FnMut(Addr) -> Option<Vec<Run>>) -> Option<(Addr, Vec<Addr>)> {
        let mut paths = Vec::new();
        while self.left == 1 {
            let addr = self.here?.start;
            if paths.contains(&addr) {
                // It points to itself.
                return None;
            }
            let more = read(addr).filter(|m| !m.is_empty())?;
            self.pop()?;
            paths.push(addr);
            self.take_on(&more);
        }
        Some((self.pop()?, paths))
    }
}

/// Most path blocks needed for `blocks` other blocks if free runs are short.
pub fn overhead(blocks: u64, free_runs: usize) -> u64 {
    // One for every RUNS_MAX runs, and the one that is never filled. The first runs are in the superblock.
    let runs = blocks.min(free_runs as u64);
    runs / (RUNS_MAX as u64 - 1) + 2
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;
    use crate::order::{Way, order};
    use crate::space::Blocks;

    /// Takes all available blocks, in portions; a reader of the superblock's runs and of path blocks goes the same
    /// way.
    #[test]
    fn a_reader_follows_the_log_and_every_free_block_but_the_last_is_used() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut free = Blocks::default();
            let short = rng.below(3) > 0;
            while free.count() < 3000 {
                let len = if short { 1 + rng.below(2) } else { 1 + rng.below(900) };
                free.add(FIRST + rng.below(20_000), len);
            }
            let all = free.clone();
            let way = match rng.below(3) {
                0 => Way::Threading,
                1 => Way::Whole { least: 64 },
                _ => Way::Plugging { pieces: (0..rng.below(500)).map(|_| 1 + rng.below(9)).collect(), least: 64 },
            };
            let mut path = Path::through(order(&free, FIRST + rng.below(20_000), &way));
            let mut reader = Path::given(&path.runs());
            if rng.below(2) == 0 {
                // A mount knows the superblock's path and continues in an order of its own.
                let (known, mut rest) = (path.runs(), free.clone());
                known.iter().for_each(|run| assert!(rest.take(run.start.0, run.blocks.into())));
                path = path.go_on(known, order(&rest, FIRST + rng.below(20_000), &way));
            }
            let mut used = Vec::new();
            while let Some(addr) = {
                let mut slots = Vec::new();
                let addr = path.next(&mut slots);
                used.extend(slots);
                addr
            } {
                let paths = used.clone();
                let read = |at: Addr| {
                    paths.iter().find_map(|s| match s {
                        Slot::Path(a, runs) if *a == at => Some(runs.clone()),
                        _ => None,
                    })
                };
                assert_eq!(reader.follow(read).unwrap().0, addr);
            }
            used.iter().for_each(|s| assert!(free.take(s.addr().0, 1), "seed {seed}: {s:?} twice or not free"));
            assert!(free.count() <= 1, "seed {seed}: {} left", free.count());
            let paths = used.iter().filter(|s| matches!(s, Slot::Path(..))).count() as u64;
            let runs = all.runs() + way.cuts();
            assert!(paths < overhead(used.len() as u64, runs + 1), "seed {seed}: {paths} of {runs}");
        }
    }
}
