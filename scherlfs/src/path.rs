//! Which blocks does the log fill next, and how does who follows it find them?
//!
//! The path is a list of free runs in the order of their addresses, from where the log stands on and round the end of
//! the volume: threading (Scherl 2004, section 4.2.2.1). A checkpoint writes its beginning into the superblock. The last
//! block of what is known of the path is never filled: where the log reaches it, it says in it which runs come next.

use std::collections::VecDeque;

use scherlfs_format::chain::RUNS_MAX;
use scherlfs_format::{Addr, FIRST, Run};

use crate::space::Blocks;

/// What a block of the log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// For an inode, its contents, or a list.
    Block(Addr),
    /// Where the log goes on: these runs.
    Path(Addr, Vec<Run>),
}

impl Slot {
    /// Where it is.
    pub fn addr(&self) -> Addr {
        match self {
            Slot::Block(a) | Slot::Path(a, _) => *a,
        }
    }
}

/// Where the log goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    runs: VecDeque<Run>,
    left: u64,
    /// Where it began: what is planned goes round the volume up to here.
    start: u64,
    /// Where the search for more goes on.
    tail: u64,
    wrapped: bool,
}

impl Path {
    /// The path from a block on through what is free, of at most so many runs.
    pub fn from(start: u64, free: &Blocks, runs: usize) -> Self {
        let mut path = Path { start, tail: start, ..Path::default() };
        let more = path.more(free, runs);
        path.take_on(more);
        path
    }

    /// A path that a superblock gives.
    pub fn given(runs: &[Run]) -> Self {
        let start = runs.first().map_or(0, |r| r.start.0);
        let tail = runs.last().map_or(0, |r| r.end().0);
        let mut path = Path { start, tail, wrapped: tail <= start, ..Path::default() };
        path.take_on(runs.to_vec());
        path
    }

    /// Its runs, as a superblock keeps them.
    pub fn runs(&self) -> Vec<Run> {
        self.runs.iter().copied().collect()
    }

    /// Where the log goes on, or where a search for free blocks should begin.
    pub fn head(&self) -> u64 {
        self.runs.front().map_or(self.tail.max(FIRST), |r| r.start.0)
    }

    fn take_on(&mut self, runs: Vec<Run>) {
        self.left += runs.iter().map(|r| u64::from(r.blocks)).sum::<u64>();
        self.runs.extend(runs);
    }

    /// The next free runs behind what is known.
    fn more(&mut self, free: &Blocks, most: usize) -> Vec<Run> {
        let mut out = Vec::new();
        let mut push = |start: u64, len: u64, tail: &mut u64| {
            let mut at = start;
            while at < start + len && out.len() < most {
                let blocks = u32::try_from(start + len - at).unwrap_or(u32::MAX);
                out.push(Run { start: Addr(at), blocks });
                at += u64::from(blocks);
                *tail = at;
            }
            out.len() < most
        };
        if !self.wrapped {
            let mut room = true;
            for (start, len) in free.from(self.tail) {
                room = push(start, len, &mut self.tail);
                if !room {
                    break;
                }
            }
            if !room {
                return out;
            }
            (self.wrapped, self.tail) = (true, FIRST);
        }
        for (start, len) in free.from(self.tail).take_while(|(s, _)| *s < self.start) {
            if !push(start, len.min(self.start - start), &mut self.tail) {
                break;
            }
        }
        out
    }

    fn pop(&mut self) -> Option<Addr> {
        let run = self.runs.front_mut()?;
        let addr = run.start;
        self.left -= 1;
        if run.blocks == 1 {
            self.runs.pop_front();
        } else {
            *run = Run { start: Addr(addr.0 + 1), blocks: run.blocks - 1 };
        }
        Some(addr)
    }

    /// The next block for contents; into `slots` goes what is used up to it. `None`: nothing is free.
    pub fn next(&mut self, free: &Blocks, slots: &mut Vec<Slot>) -> Option<Addr> {
        while self.left == 1 {
            let more = self.more(free, RUNS_MAX);
            if more.is_empty() {
                return None;
            }
            let addr = self.pop()?;
            slots.push(Slot::Path(addr, more.clone()));
            self.take_on(more);
        }
        let addr = self.pop()?;
        slots.push(Slot::Block(addr));
        Some(addr)
    }

    /// The next block for who follows the log; at the last one known, `read` says which runs it names.
    pub fn follow(&mut self, mut read: impl FnMut(Addr) -> Option<Vec<Run>>) -> Option<(Addr, Vec<Addr>)> {
        let mut paths = Vec::new();
        while self.left == 1 {
            let addr = self.runs.front()?.start;
            if paths.contains(&addr) {
                // It leads to itself.
                return None;
            }
            let more = read(addr).filter(|m| !m.is_empty())?;
            self.pop()?;
            paths.push(addr);
            self.take_on(more);
        }
        Some((self.pop()?, paths))
    }
}

/// Blocks of path that are needed beside so many others where free runs are short, at most.
pub fn overhead(blocks: u64, free_runs: usize) -> u64 {
    // One for each RUNS_MAX runs, and the one that is never filled. The first runs are the superblock's.
    let runs = blocks.min(free_runs as u64);
    runs / (RUNS_MAX as u64 - 1) + 2
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    /// Takes all that can be taken, in portions; a reader of the superblock's runs and of path blocks goes the same way.
    #[test]
    fn who_follows_goes_where_the_log_went_and_every_free_block_but_the_last_is_used() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut free = Blocks::default();
            let short = rng.below(3) > 0;
            while free.count() < 3000 {
                let len = if short { 1 + rng.below(2) } else { 1 + rng.below(900) };
                free.add(FIRST + rng.below(20_000), len);
            }
            let all = free.clone();
            let start = FIRST + rng.below(20_000);
            let mut path = Path::from(start, &free, 1 + rng.below(128) as usize);
            let mut reader = Path::given(&path.runs());
            if rng.below(2) == 0 {
                // Who mounts a volume knows of the path what the superblock says.
                path = Path::given(&path.runs());
            }
            let mut used = Vec::new();
            while let Some(addr) = {
                let mut slots = Vec::new();
                let addr = path.next(&free, &mut slots);
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
            assert!(paths < overhead(used.len() as u64, all.runs() + 1), "seed {seed}: {paths} of {}", all.runs());
        }
    }
}
