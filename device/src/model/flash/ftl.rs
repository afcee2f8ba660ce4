//! How do written blocks get from the host to flash?
//!
//! Waiting blocks become a row when there are enough of them (a page for each plane); the row goes to the die that
//! is free first. Blocks with different handles (`Flash::place`) share neither a row nor a block of flash until
//! cleaning moves them. The map changes when the row is programmed. Until then the buffer answers reads, and the
//! previous unit stays valid, so that cleaning cannot erase it too early.

use serde::{Deserialize, Serialize};

use super::Flash;
use super::buffer::Taken;
use super::dies::OWN;
use super::map::ENTRIES;
use super::nand::Misuse;
use crate::energy::{Bill, Nanos, Part};
use crate::model::Remap;

/// Pending journal changes that force a journal write without a flush, to bound memory.
const JOURNAL: usize = 1 << 18;
/// Journal entries (a range and its new place) in a page of the size of a translation page.
const JOURNAL_ENTRIES: u64 = 256;

pub(super) const NONE: u32 = u32::MAX;

/// Use of a flash block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Use {
    Erased,
    /// Being filled by the host or by cleaning.
    Open,
    Closed,
    /// Closed, and filled with rarely changing contents because it was worn.
    Parked,
}

/// Erased blocks and blocks being filled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Blocks {
    pub uses: Vec<Use>,
    /// Erased blocks of each die.
    pub erased: Vec<Vec<u32>>,
    /// The block on each die for the host's rows, by handle.
    pub host: Vec<Vec<u32>>,
    /// The block of each die that cleaning fills.
    pub copy: Vec<u32>,
    /// Units of a block that are being programmed with the host's writes.
    pub pending: Vec<u32>,
    /// The same per die.
    pub pending_on: Vec<u32>,
    /// Cleanings of a die since wear was last levelled.
    pub cleanings: Vec<u32>,
}

impl Blocks {
    /// All blocks erased.
    pub fn new(dies: u32, on_die: u32, handles: u32) -> Self {
        let (dies_n, all) = (dies as usize, (dies * on_die) as usize);
        Blocks {
            uses: vec![Use::Erased; all],
            erased: (0..dies).map(|d| (d * on_die..(d + 1) * on_die).rev().collect()).collect(),
            host: vec![vec![NONE; dies_n]; handles as usize],
            copy: vec![NONE; dies_n],
            pending: vec![0; all],
            pending_on: vec![0; dies_n],
            cleanings: vec![0; dies_n],
        }
    }
}

impl Flash {
    /// Advances to `until`: programmed rows leave the buffer.
    pub(super) fn run(&mut self, until: Nanos) {
        self.dies.run(until);
        self.commit();
    }

    /// Removes programmed rows from the buffer and updates the map.
    pub(super) fn commit(&mut self) {
        while let Some(row) = self.dies.done.pop() {
            let r = self.buffer.row(row);
            let (block, count) = (self.geometry.block_of(r.unit), r.slots.len() as u32);
            self.blocks.pending[block as usize] -= count;
            self.blocks.pending_on[self.geometry.die_of(block) as usize] -= count;
            let table = &mut self.table;
            self.buffer.programmed(row, |block, unit| table.set(block, unit));
        }
    }

    /// Advances to the next completed job; false if there is none.
    pub(super) fn step(&mut self, at: &mut Nanos) -> bool {
        let Some(next) = self.dies.next() else { return false };
        *at = next.max(*at);
        self.run(*at);
        true
    }

    /// Reads or changes a map page; returns when that is possible.
    pub(super) fn map(&mut self, page: u32, change: bool, at: Nanos, bill: &mut Bill) -> Nanos {
        let access = self.map.touch(page, change);
        if let Some(out) = access.written {
            self.counts.map_writes += 1;
            bill.add(Part::FlashMap, self.prices.map_energy);
            self.dies.push(out % self.geometry.dies, at, Nanos(0), self.times.program[0], OWN);
        }
        if !access.fetched {
            return at;
        }
        self.counts.map_reads += 1;
        bill.add(Part::FlashMap, self.prices.map_energy);
        self.dies.read(page % self.geometry.dies, at, self.prices.map, Nanos(0))
    }

    /// Adds a written block to the buffer at `at`, or when there is room; returns when.
    pub(super) fn accept(&mut self, block: u32, mut at: Nanos, bill: &mut Bill) -> Nanos {
        self.generation += 1;
        let handle = self.handle(block);
        loop {
            match self.buffer.take(block, self.generation, handle) {
                Taken::Absorbed => {
                    self.counts.absorbed += 1;
                    return at;
                }
                Taken::Slot => {
                    // Each written block pays for programming it, whichever write completes the row.
                    match self.paid_ahead {
                        0 => bill.add(Part::FlashProgram, self.prices.unit_program),
                        _ => self.paid_ahead -= 1,
                    }
                    if self.buffer.waiting_of(handle) >= self.row {
                        self.issue_of(handle, at, false, bill);
                    }
                    return at;
                }
                Taken::Full => {
                    self.counts.stalls += 1;
                    while self.buffer.is_full() && self.step(&mut at) {}
                    // All buffered blocks wait for more of their own handles.
                    if self.buffer.is_full() {
                        self.issue_of(self.buffer.fullest(), at, true, bill);
                    }
                }
            }
        }
    }

    /// Issues all waiting blocks to dies, in rows of one handle each, full ones first.
    pub(super) fn issue(&mut self, mut at: Nanos, bill: &mut Bill) {
        for handle in 0..self.blocks.host.len() {
            at = self.issue_of(handle as u8, at, true, bill);
        }
    }

    /// Issues waiting blocks of a handle to dies in full rows; if `all`, also in partial rows. Returns when.
    fn issue_of(&mut self, handle: u8, mut at: Nanos, all: bool, bill: &mut Bill) -> Nanos {
        let g = self.geometry;
        while self.buffer.waiting_of(handle) >= self.row || all && self.buffer.waiting_of(handle) > 0 {
            let die = self.least_busy(&mut at);
            let (block, page) = self.open(handle, die, &mut at, bill);
            let room = (g.planes - page % g.planes) * g.page_units;
            let count = self.buffer.waiting_of(handle).min(self.row).min(room);
            let pages = count.div_ceil(g.page_units);
            let padding = pages * g.page_units - count;
            let unit = g.unit(block, page);
            let right = self.nand.program(block, page, pages);
            self.check(right);
            let row = self.buffer.issue(handle, count, unit);
            let mut ready = at;
            let mut last = NONE;
            for i in 0..count {
                let slot = self.buffer.slot(self.buffer.row(row).slots[i as usize]);
                self.table.stamp(unit + i, slot.block, slot.generation);
                let map_page = (u64::from(slot.block) / ENTRIES) as u32;
                if std::mem::replace(&mut last, map_page) != map_page {
                    ready = ready.max(self.map(map_page, true, at, bill));
                }
            }
            self.blocks.pending[block as usize] += count;
            self.blocks.pending_on[die as usize] += count;
            self.counts.programmed += u64::from(count);
            self.counts.padding += u64::from(padding);
            if padding > 0 {
                bill.add(Part::FlashProgram, self.prices.unit_program.times(u64::from(padding)));
            }
            let transfer = self.times.transfer.times(u64::from(pages * g.page_units));
            let busy = self.times.program[g.bit(g.row_of(unit), self.times.program.len())];
            self.dies.push(die, ready, transfer, busy, row);
        }
        at
    }

    /// The die that can begin a new row first, among those with room for it.
    fn least_busy(&mut self, at: &mut Nanos) -> u32 {
        loop {
            let within = |d: u32| {
                let held = self.table.on_die(d) + self.blocks.pending_on[d as usize];
                held + self.geometry.row_units() <= self.geometry.limit
            };
            let best = self.dies.least_busy(*at, within);
            // All dies together have room for the host's data and a row each; units beyond that are being
            // overwritten by rows in progress.
            match best {
                Some(die) => return die,
                None => assert!(self.step(at), "dies hold more than the host wrote"),
            }
        }
    }

    /// The block and page of a die for the host's next row of a handle.
    fn open(&mut self, handle: u8, die: u32, at: &mut Nanos, bill: &mut Bill) -> (u32, u32) {
        let (handle, d) = (usize::from(handle), die as usize);
        let block = self.blocks.host[handle][d];
        if block != NONE && self.nand.programmed(block) < self.geometry.block_pages() {
            return (block, self.nand.programmed(block));
        }
        if block != NONE {
            self.blocks.uses[block as usize] = Use::Closed;
            self.blocks.host[handle][d] = NONE;
        }
        self.make_room(die, at, bill);
        let block = self.take_erased(die);
        self.blocks.host[handle][d] = block;
        (block, 0)
    }

    /// Takes the least worn erased block of a die.
    pub(super) fn take_erased(&mut self, die: u32) -> u32 {
        let erased = &mut self.blocks.erased[die as usize];
        let least = (0..erased.len()).min_by_key(|i| (self.nand.erases(erased[*i]), erased[*i]));
        let block = erased.swap_remove(least.expect("cleaning left an erased block"));
        self.blocks.uses[block as usize] = Use::Open;
        block
    }

    /// Programs everything in the buffer; returns when that is done.
    pub(super) fn settle(&mut self, mut at: Nanos, bill: &mut Bill) -> Nanos {
        self.issue(at, bill);
        while !self.buffer.is_empty() && self.step(&mut at) {}
        at
    }

    /// Writes pending discards and remaps to the journal to make them durable; returns when that is done.
    pub(super) fn write_journal(&mut self, at: Nanos, bill: &mut Bill) -> Nanos {
        let (entries, changes) = self.table.unwritten();
        if entries == 0 && changes == 0 {
            return at;
        }
        self.table.written();
        let pages = entries.div_ceil(JOURNAL_ENTRIES).max(1);
        self.counts.journal += pages;
        bill.add(Part::FlashMap, self.prices.map_energy.times(pages));
        let die = self.dies.least_busy(at, |_| true).unwrap_or(0);
        self.dies.read(die, at, self.times.program[0].times(pages), Nanos(0))
    }

    /// Writes back every changed translation page.
    pub(super) fn write_map(&mut self, at: Nanos, bill: &mut Bill) {
        for page in self.map.changed() {
            self.counts.map_writes += 1;
            bill.add(Part::FlashMap, self.prices.map_energy);
            self.dies.push(page % self.geometry.dies, at, Nanos(0), self.times.program[0], OWN);
        }
    }

    /// Discards blocks; returns when that is done.
    pub(super) fn discard(&mut self, from: u64, blocks: u64, at: Nanos, bill: &mut Bill) -> Nanos {
        let (to, mut done, mut changed) = (from + blocks, at, false);
        for block in self.buffer.within(from, to) {
            changed = true;
            self.paid_ahead += u64::from(self.buffer.discard(block));
        }
        for page in from / ENTRIES..to.div_ceil(ENTRIES) {
            let (first, last) = ((page * ENTRIES).max(from), ((page + 1) * ENTRIES).min(to));
            if self.table.mapped(page as u32) == 0 {
                continue;
            }
            changed = true;
            if last - first == ENTRIES.min(self.table.blocks() - page * ENTRIES) {
                self.map.drop(page as u32);
            } else {
                done = done.max(self.map(page as u32, true, at, bill));
            }
            for block in first..last {
                self.table.forget(block as u32);
            }
            if self.table.unwritten().1 > JOURNAL {
                done = done.max(self.write_journal(at, bill));
            }
        }
        if changed {
            self.table.note();
        }
        done
    }

    /// Remaps blocks; returns when that is done.
    pub(super) fn remap(&mut self, pair: [u64; 2], blocks: u64, how: Remap, at: Nanos, bill: &mut Bill) -> Nanos {
        let mut at = at;
        // A unit's out-of-band area records the block for which it was programmed, so waiting blocks are programmed
        // first.
        if pair.iter().any(|from| !self.buffer.within(*from, from + blocks).is_empty()) {
            at = self.settle(at, bill);
        }
        if self.table.unwritten().1 > JOURNAL {
            at = self.write_journal(at, bill);
        }
        let mut done = at;
        let [from, to] = pair;
        for (first, changes) in [(from, how != Remap::Share), (to, true)] {
            for page in first / ENTRIES..(first + blocks).div_ceil(ENTRIES) {
                done = done.max(self.map(page as u32, changes, at, bill));
            }
        }
        for i in 0..blocks {
            match how {
                Remap::Exchange => self.table.exchange((from + i) as u32, (to + i) as u32),
                Remap::Move => self.table.move_to((from + i) as u32, (to + i) as u32),
                Remap::Share => self.table.share((from + i) as u32, (to + i) as u32),
            }
        }
        self.table.note();
        done
    }

    /// Counts an error of this layer (not of the host), and stops a test.
    pub(super) fn check(&mut self, right: Result<(), Misuse>) {
        debug_assert_eq!(right, Ok(()));
        self.counts.misuses += u64::from(right.is_err());
    }
}
