//! Which die gets which row when a device is filled before its first request?
//!
//! A fill sends blocks through the same buffer to the same dies at the same times as writes of the host, but only
//! the places of the blocks matter afterwards. So it is enough to track rows: free slots of the buffer, rows on
//! each die, when dies finish ([`Dies`](super::dies::Dies)), and map pages that are written back. Nothing is
//! cleaned, since every die has room for its part, and nothing is overwritten, since runs do not overlap.
//!
//! Each die gets its rows in order, so the dies of all rows determine the place of every block ([`Placement`]).
//! Tables of a large device are created on demand.

use super::Flash;
use super::dies::OWN;
use super::ftl::Use;
use super::map::ENTRIES;
use super::placement::Placement;
use crate::energy::{Bill, Nanos};
use crate::{BLOCK, Lba};

/// A fill in progress.
struct Filling {
    placement: Placement,
    /// Rows of each die.
    held: Vec<u32>,
    /// Free slots of the buffer.
    free: u64,
    /// Blocks that wait for a row.
    waiting: u32,
    /// The map pages of these blocks, deduplicated within a sequence.
    pages: Vec<u32>,
    bill: Bill,
}

impl Filling {
    /// Removes programmed rows from the buffer.
    fn commit(&mut self, flash: &mut Flash) {
        self.free += u64::from(flash.row) * flash.dies.done.len() as u64;
        flash.dies.done.clear();
    }

    /// Advances the time to `until`.
    fn run(&mut self, flash: &mut Flash, until: Nanos) {
        flash.dies.run(until);
        self.commit(flash);
    }

    /// Advances to the next completed job; false if there is none.
    fn step(&mut self, flash: &mut Flash, at: &mut Nanos) -> bool {
        let Some(next) = flash.dies.next() else { return false };
        *at = next.max(*at);
        self.run(flash, *at);
        true
    }

    /// Queues blocks from `first` on for a row.
    fn wait(&mut self, first: u64, blocks: u64) {
        self.waiting += blocks as u32;
        self.free -= blocks;
        for page in first / ENTRIES..=(first + blocks - 1) / ENTRIES {
            if self.pages.last() != Some(&(page as u32)) {
                self.pages.push(page as u32);
            }
        }
    }

    /// Issues the waiting blocks to a die.
    fn issue(&mut self, flash: &mut Flash, at: Nanos) {
        let g = flash.geometry;
        let row_units = g.row_units();
        let limit = g.limit / row_units;
        let best = flash.dies.least_busy(at, |die| self.held[die as usize] < limit);
        let die = best.expect("all dies together have room for a row more than is filled");
        self.placement.push(die, &self.held);
        let nth = &mut self.held[die as usize];
        let bit = g.bit(*nth % g.rows, flash.times.program.len());
        *nth += 1;
        let mut ready = at;
        for page in &self.pages {
            ready = ready.max(flash.map(*page, true, at, &mut self.bill));
        }
        self.pages.clear();
        self.bill.clear();
        let pages = self.waiting.div_ceil(g.page_units);
        let transfer = flash.times.transfer.times(u64::from(pages * g.page_units));
        let busy = flash.times.program[bit];
        flash.dies.push(die, ready, transfer, busy, OWN - 1);
        self.waiting = 0;
    }
}

impl Flash {
    /// Fills an unwritten device at `now`, with the same result as [`write`](Flash::write). Returns false and
    /// changes nothing if that is not possible.
    pub(super) fn fill_rows(&mut self, now: Nanos, runs: &[(Lba, u64)]) -> bool {
        let g = self.geometry;
        if self.generation > 0 || !self.table.is_blank() || self.row != g.row_units() {
            return false;
        }
        let Some(placement) = Placement::new(g, runs) else { return false };
        let (mut f, mut at) = (
            Filling {
                placement,
                held: vec![0; g.dies as usize],
                free: self.buffer.room().into(),
                waiting: 0,
                pages: Vec::new(),
                bill: Bill::default(),
            },
            now,
        );
        // Equals the link's time for the bytes, in 64-bit arithmetic if that suffices.
        let link = self.prices.write;
        let femto_block = link.0.saturating_mul(BLOCK as u64);
        let came_after = |begin: Nanos, blocks: u64| match blocks.checked_mul(femto_block) {
            Some(femto) => begin + Nanos(femto / 1_000_000),
            None => begin + link.of(blocks * BLOCK as u64),
        };
        // A lower bound on the blocks beyond `done` that arrive before `next`.
        let before = |next: Nanos, begin: Nanos, done: u64| match next.since(begin).0.checked_mul(1_000_000) {
            Some(femto @ 1..) => ((femto - 1) / femto_block.max(1)).saturating_sub(done),
            _ => 0,
        };
        for &(first, blocks) in runs {
            let begin = at + self.prices.write_request;
            at = begin;
            let mut done = 0;
            while done < blocks {
                let together = (blocks - done).min(u64::from(self.row - f.waiting));
                // All blocks that fit and arrive before the next event are handled in one step.
                let next = self.dies.next().unwrap_or(Nanos(u64::MAX));
                let n = if !self.dies.done.is_empty() || came_after(begin, done + 1) >= next {
                    1
                } else if came_after(begin, done + together) < next {
                    together.min(f.free.max(1))
                } else {
                    before(next, begin, done).min(f.free).clamp(1, together)
                };
                let came = came_after(begin, done + n);
                f.run(self, came);
                at = at.max(came);
                while f.free == 0 && f.step(self, &mut at) {}
                f.wait(first.0 + done, n);
                done += n;
                if f.waiting == self.row {
                    f.issue(self, at);
                }
            }
        }
        if f.waiting > 0 {
            f.issue(self, at);
        }
        self.filled(now, f);
        true
    }

    /// Marks everything as long since programmed.
    fn filled(&mut self, now: Nanos, f: Filling) {
        let g = self.geometry;
        // In the last row only pages with blocks are programmed.
        let rest = (f.placement.blocks() % u64::from(g.row_units())) as u32;
        let unprogrammed = if rest == 0 { 0 } else { g.planes - rest.div_ceil(g.page_units) };
        for (die, rows) in f.held.iter().enumerate() {
            let first = die as u32 * g.blocks;
            for n in 0..rows.div_ceil(g.rows) {
                let left = rows - n * g.rows;
                let (block, rows_here) = (first + n, left.min(g.rows));
                let cut = if left <= g.rows && f.placement.last_die() == die as u32 { unprogrammed } else { 0 };
                let right = self.nand.program(block, 0, rows_here * g.planes - cut);
                self.check(right);
                let open = left <= g.rows;
                self.blocks.uses[block as usize] = if open { Use::Open } else { Use::Closed };
                if open {
                    self.blocks.host[0][die] = block;
                }
            }
            let erased = &mut self.blocks.erased[die];
            erased.truncate(erased.len() - rows.div_ceil(g.rows) as usize);
        }
        self.generation += f.placement.blocks();
        self.table.fill(f.placement, &f.held);
        self.dies.stop(now);
        let table = &self.table;
        self.map.restart(|page| table.mapped(page) > 0);
        (self.last, self.written) = (now, now);
        self.idle.passed(now);
    }
}
