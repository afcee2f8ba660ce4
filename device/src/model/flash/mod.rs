//! Flash behind a translation layer: chips, map, write buffer, link.
//!
//! | question | where |
//! |---|---|
//! | where pages are, whether they may be programmed, wear | [`nand`] |
//! | when a die or a channel is done | `dies.rs` |
//! | what the map costs | [`map`] |
//! | what the map says, what a power cut undoes | `table.rs` |
//! | what was written and is not on flash | `buffer.rs` |
//! | how it gets there; discards, remaps | `ftl.rs` |
//! | how data gets there that was written before the first request, and where that lies | `fill.rs`, `placement.rs` |
//! | cleaning and wear levelling | `clean.rs` |
//! | when the link moves whose bytes | `link.rs` |
//! | cleaning while nobody asks | `ahead.rs` |
//! | sleeping and waking | `idle.rs` |
//!
//! Times: a request takes its time in the controller (requests in the queue at the same time), then its
//! bytes go over the link, which is one. A read's bytes follow as they come from flash; a write is done
//! when its bytes are in the buffer. A request that finds the queue full waits outside of it. Prices are
//! the profile's and go to the request that causes them; a write pays for programming its own blocks.
//!
//! A host may name handles of reclaim units, as NVMe's flexible data placement has them (TP4146): each handle has a
//! block of its own open on every die, and `nand.handles` says how many there are. Cleaning copies what it finds into a
//! block of its own, whatever handle wrote it (an *initially isolated* handle). A flush fills up a row for each handle that has
//! something waiting.
//!
//! A flush is not interrupted: a read that comes meanwhile waits for the programs of its die.
//!
//! Left out: a faster region written first (single-level cells in a triple-level chip), suspending a program
//! for a read, the time to read the map after a power cut.

mod ahead;
mod buffer;
mod clean;
mod dies;
mod fill;
mod ftl;
mod idle;
mod link;
pub mod map;
pub mod nand;
mod placement;
mod prices;
mod table;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use self::buffer::Buffer;
use self::dies::Dies;
use self::ftl::{Blocks, NONE};
use self::idle::Idle;
use self::link::Link;
use self::map::{ENTRIES, MapCache};
use self::nand::{Geometry, Nand, Times};
use self::prices::Prices;
use self::table::Table;
use super::{Ask, Model};
use crate::energy::profile::FlashSpec;
use crate::energy::{Bill, Nanos, Part};
use crate::{BLOCK, Lba, Tag};

#[derive(Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
    discards: u64,
    remaps: u64,
    blocks_read: u64,
    blocks_written: u64,
    read_from_buffer: u64,
    flash_reads: u64,
    absorbed: u64,
    programmed: u64,
    padding: u64,
    copied: u64,
    cleanings: u64,
    levelled: u64,
    erases: u64,
    map_reads: u64,
    map_writes: u64,
    journal: u64,
    stalls: u64,
    misuses: u64,
}

/// The inside of a flash device.
#[derive(Debug)]
pub struct Flash {
    prices: Prices,
    geometry: Geometry,
    times: Times,
    nand: Nand,
    dies: Dies,
    map: MapCache,
    table: Table,
    buffer: Buffer,
    /// The handle of each of the host's blocks; empty as long as the host has named none.
    placed: Vec<u8>,
    blocks: Blocks,
    idle: Idle,
    /// Waiting blocks that make a row.
    row: u32,
    /// Erases by which blocks may differ before wear is levelled.
    wear_spread: u32,
    /// Writes of blocks so far.
    generation: u64,
    /// Blocks whose programming was paid for and that were discarded before it.
    paid_ahead: u64,
    link: Link,
    /// When the requests in the queue are done.
    queue: BinaryHeap<Reverse<Nanos>>,
    /// When the last request was done.
    last: Nanos,
    /// When the last write was done.
    written: Nanos,
    /// Units being cleaned, and their blocks.
    moving: Vec<(u32, u32)>,
    counts: Counts,
}

/// Erases of the blocks of flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wear {
    /// Of the least worn block.
    pub least: u32,
    /// Of the most worn one.
    pub most: u32,
    /// Of all together.
    pub total: u64,
    /// Blocks of flash.
    pub blocks: u64,
}

impl Flash {
    /// A device like `spec` with so many blocks, nothing written.
    ///
    /// # Panics
    /// If it has more than 2^31 blocks.
    pub fn new(spec: &FlashSpec, blocks: u64) -> Self {
        Self::build(spec, blocks, false)
    }

    /// The same, that also keeps in each unit's out-of-band area which write it was programmed with, at
    /// eight bytes of memory for each: for [`generation`](Self::generation).
    ///
    /// # Panics
    /// If it has more than 2^31 blocks.
    pub fn with_generations(spec: &FlashSpec, blocks: u64) -> Self {
        Self::build(spec, blocks, true)
    }

    fn build(spec: &FlashSpec, blocks: u64, generations: bool) -> Self {
        let geometry = Geometry::new(&spec.nand, blocks);
        let room = (spec.buffer.value / BLOCK as u64).clamp(u64::from(geometry.page_units), 1 << 24) as u32;
        let row = geometry.row_units().min(room / geometry.page_units * geometry.page_units);
        // A hundredth of what a block is made for.
        let wear_spread = (spec.nand.endurance.value / 100).clamp(4, 1 << 20) as u32;
        Flash {
            prices: Prices::new(spec, &geometry),
            times: Times::new(&spec.nand, &geometry),
            nand: Nand::new(geometry),
            dies: Dies::new(geometry.dies, geometry.channels),
            map: MapCache::new(blocks, spec.map.cached_pages.value),
            table: Table::new(geometry, blocks, generations),
            buffer: Buffer::new(room, geometry.handles),
            placed: Vec::new(),
            blocks: Blocks::new(geometry.dies, geometry.blocks, geometry.handles),
            idle: Idle::new(spec.ready.value, spec.busy.as_ref().map(|q| q.value), &spec.idle),
            row,
            wear_spread,
            generation: 0,
            paid_ahead: 0,
            link: Link::default(),
            queue: BinaryHeap::new(),
            last: Nanos(0),
            written: Nanos(0),
            moving: Vec::new(),
            counts: Counts::default(),
            geometry,
        }
    }

    /// Its chips.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Which write of the host, counting written blocks from 1, a read of this block would find; none if
    /// none, or if the device does not keep it.
    pub fn generation(&self, at: Lba) -> Option<u64> {
        let block = at.0 as u32;
        self.buffer.generation(block).or_else(|| self.table.generation(self.table.unit(block)?))
    }

    /// The newest write of each block that the out-of-band areas know of, if the device keeps them: what a
    /// map would be built from that was lost, were it not for discards and remaps.
    pub fn scan(&self) -> BTreeMap<Lba, u64> {
        self.table.scan().into_iter().map(|(block, write)| (Lba(block.into()), write)).collect()
    }

    /// Compares what the device keeps twice; says what differs. Takes long.
    pub fn audit(&self) -> Result<(), String> {
        self.table.audit()
    }

    /// How worn the flash is.
    pub fn wear(&self) -> Wear {
        let erases = self.nand.all_erases();
        Wear {
            least: erases.iter().copied().min().unwrap_or(0),
            most: erases.iter().copied().max().unwrap_or(0),
            total: erases.iter().map(|e| u64::from(*e)).sum(),
            blocks: erases.len() as u64,
        }
    }

    /// The handle whose reclaim unit a write of this block goes to.
    fn handle(&self, block: u32) -> u8 {
        self.placed.get(block as usize).copied().unwrap_or(0)
    }

    /// When the device had nothing more to do; `now` if it still has.
    fn rest(&self, now: Nanos) -> Nanos {
        self.dies.quiet_since().map_or(now, |t| t.max(self.last))
    }

    /// Lets time come to a request at `now`; says when the device begins with it.
    fn admit(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        self.wait(now, bill);
        self.link.passed(now);
        while self.queue.peek().is_some_and(|t| t.0 <= now) {
            self.queue.pop();
        }
        let mut start = self.idle.wake(now, self.rest(now), bill);
        while self.queue.len() >= self.prices.queue {
            start = self.queue.pop().map_or(start, |t| t.0.max(start));
        }
        start
    }

    /// Programs what has waited for more so long that the device does not wait any more.
    fn drain(&mut self, now: Nanos, bill: &mut Bill) {
        let due = self.prices.drain.map(|after| Nanos(self.written.0.saturating_add(after.0)));
        if let Some(due) = due.filter(|due| *due <= now && self.buffer.waiting() > 0) {
            self.run(due);
            self.idle.pay(due, self.rest(due), bill);
            self.issue(due, bill);
        }
    }

    /// Writes what is filled, block by block.
    fn fill_blocks(&mut self, now: Nanos, runs: &[(Lba, u64)]) {
        let (mut at, mut free) = (now, Bill::default());
        for (first, blocks) in runs {
            self.link.passed(at);
            at = self.write(at, first.0, *blocks, &mut free);
        }
        at = self.settle(at, &mut free);
        while self.step(&mut at) {}
        self.cut(now);
        self.counts = Counts::default();
    }

    fn read(&mut self, start: Nanos, at: u64, blocks: u64, bill: &mut Bill) -> Nanos {
        let begin = start + self.prices.request;
        let bytes = blocks * BLOCK as u64;
        self.counts.reads += 1;
        self.counts.blocks_read += blocks;
        bill.add(Part::Controller, self.prices.request_energy);
        bill.add(Part::Link, self.prices.read_energy.of(bytes));
        if blocks == 0 {
            return begin;
        }
        let (mut first, mut last, mut from_flash) = (None, begin, 0);
        let (mut map_page, mut mapped_at) = (NONE, begin);
        // A run of blocks in one row is read at once.
        let (mut row, mut units, mut ready) = (NONE, 0, begin);
        for block in at as u32..(at + blocks) as u32 {
            let mut unit = None;
            if self.buffer.holds(block) {
                self.counts.read_from_buffer += 1;
            } else {
                let page = (u64::from(block) / ENTRIES) as u32;
                if std::mem::replace(&mut map_page, page) != page {
                    mapped_at = self.map(page, false, begin, bill);
                }
                unit = self.table.unit(block);
            }
            let this = unit.map_or(NONE, |u| self.geometry.row_of(u));
            if this != row {
                let came = self.read_row(row, units, ready);
                last = last.max(came);
                if block > at as u32 {
                    first.get_or_insert(self.begins(came, units));
                }
                (row, units, ready) = (this, 0, mapped_at);
            }
            if let Some(u) = unit {
                self.check(self.nand.read(u));
                (units, from_flash) = (units + 1, from_flash + 1);
            } else {
                ready = begin;
            }
        }
        let came = self.read_row(row, units, ready);
        self.commit();
        if from_flash > 0 {
            self.counts.flash_reads += from_flash;
            bill.add(Part::FlashRead, self.prices.unit_read.times(from_flash));
        }
        let last = last.max(came);
        let first = first.unwrap_or(self.begins(came, units));
        self.link.take(first, self.prices.read.of(bytes)).max(last + self.prices.read.of(BLOCK as u64))
    }

    /// Reads units of a row; says when they are with the controller.
    fn read_row(&mut self, row: u32, units: u64, ready: Nanos) -> Nanos {
        if row == NONE {
            return ready;
        }
        let die = self.geometry.die_of(row / self.geometry.rows);
        let busy = self.times.read[self.geometry.bit(row, self.times.read.len())];
        self.dies.read(die, ready, busy, self.times.transfer.times(units))
    }

    /// When the first of so many units that are there at `came` was there.
    fn begins(&self, came: Nanos, units: u64) -> Nanos {
        Nanos(came.0 - self.times.transfer.times(units.saturating_sub(1)).0)
    }

    fn write(&mut self, start: Nanos, at: u64, blocks: u64, bill: &mut Bill) -> Nanos {
        let bytes = blocks * BLOCK as u64;
        self.counts.writes += 1;
        self.counts.blocks_written += blocks;
        bill.add(Part::Controller, self.prices.request_energy);
        bill.add(Part::Link, self.prices.write_energy.of(bytes));
        if blocks == 0 {
            return start + self.prices.write_request;
        }
        // The device asks for bytes when it has room: one that waits for room leaves the link to others.
        let moving = self.prices.write.of(bytes);
        let begin = Nanos(self.link.take(start + self.prices.write_request, moving).0 - moving.0);
        let mut taken = begin;
        for i in 0..blocks {
            let came = begin + self.prices.write.of((i + 1) * BLOCK as u64);
            self.run(came);
            taken = self.accept((at + i) as u32, came.max(taken), bill);
        }
        taken
    }
}

impl Model for Flash {
    fn blocks(&self) -> u64 {
        self.table.blocks()
    }

    fn queue(&self) -> usize {
        self.prices.queue
    }

    fn serve(&mut self, now: Nanos, ask: Ask, _: Tag, bill: &mut Bill) -> Nanos {
        let start = self.admit(now, bill);
        let request = start + self.prices.request;
        let done = match ask {
            Ask::Read { at, blocks } => self.read(start, at.0, blocks, bill),
            Ask::Write { at, blocks } => {
                let done = self.write(start, at.0, blocks, bill);
                self.written = self.written.max(done);
                done
            }
            Ask::Flush => {
                self.counts.flushes += 1;
                bill.add(Part::Flush, self.prices.flush_energy);
                let programmed = self.settle(start, bill);
                self.write_journal(programmed, bill) + self.prices.flush
            }
            Ask::Discard { at, blocks } => {
                self.counts.discards += 1;
                bill.add(Part::Controller, self.prices.request_energy);
                match blocks {
                    0 => request,
                    _ => self.discard(at.0, blocks, request, bill),
                }
            }
            Ask::Remap { from, to, blocks, how } => {
                self.counts.remaps += 1;
                bill.add(Part::Controller, self.prices.request_energy);
                match blocks {
                    0 => request,
                    _ => self.remap([from.0, to.0], blocks, how, request, bill),
                }
            }
        };
        self.queue.push(Reverse(done));
        self.last = self.last.max(done);
        self.idle.busy(done, bill);
        done
    }

    fn wait(&mut self, now: Nanos, bill: &mut Bill) {
        self.drain(now, bill);
        self.clean_ahead(now, bill);
        self.run(now);
        self.idle.pay(now, self.rest(now), bill);
    }

    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        let start = self.admit(now, bill);
        let programmed = self.settle(start, bill);
        let mut done = self.write_journal(programmed, bill);
        self.write_map(done, bill);
        while self.step(&mut done) {}
        let done = done.max(self.rest(done));
        let lost = self.cut(done);
        debug_assert_eq!(lost, []);
        done
    }

    fn fill(&mut self, now: Nanos, runs: &[(Lba, u64)]) {
        if self.fill_rows(now, runs) {
            self.counts = Counts::default();
            return;
        }
        self.fill_blocks(now, runs);
    }

    fn place(&mut self, at: Lba, blocks: u64, handle: u8) {
        let handle = if u32::from(handle) < self.geometry.handles { handle } else { 0 };
        if self.placed.is_empty() && handle > 0 {
            self.placed = vec![0; self.table.blocks() as usize];
        }
        let range = at.0 as usize..(at.0 + blocks) as usize;
        if let Some(placed) = self.placed.get_mut(range) {
            placed.fill(handle);
        }
    }

    fn cut(&mut self, now: Nanos) -> Vec<Lba> {
        self.run(now);
        self.dies.stop(now);
        self.blocks.pending.fill(0);
        self.blocks.pending_on.fill(0);
        for torn in self.buffer.in_flight() {
            self.table.stamp(torn, 0, 0);
        }
        let mut lost = self.buffer.lose();
        self.table.restart(&mut lost);
        let table = &self.table;
        self.map.restart(|page| table.mapped(page) > 0);
        self.queue.clear();
        self.link = Link::default();
        (self.last, self.written, self.paid_ahead) = (now, now, 0);
        self.idle.passed(now);
        lost.sort_unstable();
        lost.dedup();
        lost.into_iter().map(|b| Lba(b.into())).collect()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (c, wear) = (&self.counts, self.wear());
        vec![
            ("reads", c.reads),
            ("writes", c.writes),
            ("flushes", c.flushes),
            ("discards", c.discards),
            ("remaps", c.remaps),
            ("blocks_read", c.blocks_read),
            ("blocks_written", c.blocks_written),
            ("blocks_read_from_buffer", c.read_from_buffer),
            ("blocks_read_from_flash", c.flash_reads),
            ("writes_absorbed", c.absorbed),
            ("blocks_programmed", c.programmed),
            ("blocks_padded", c.padding),
            ("blocks_copied", c.copied),
            ("cleanings", c.cleanings),
            ("wear_levellings", c.levelled),
            ("erases", c.erases),
            ("map_pages_fetched", c.map_reads),
            ("map_pages_written", c.map_writes),
            ("journal_pages", c.journal),
            ("buffer_stalls", c.stalls),
            ("wakes", self.idle.wakes),
            ("wear_least", u64::from(wear.least)),
            ("wear_most", u64::from(wear.most)),
            ("misuses", c.misuses),
        ]
    }
}
