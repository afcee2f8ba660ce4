//! Flash behind a translation layer: chips, map, write buffer, link.
//!
//! | question | where |
//! |---|---|
//! | places of pages, rules for programming, wear | [`nand`] |
//! | when a die or a channel is free | `dies.rs` |
//! | cost of the map | [`map`] |
//! | contents of the map, and what a power cut undoes | `table.rs` |
//! | written blocks that are not on flash | `buffer.rs` |
//! | writing them to flash; discards, remaps | `ftl.rs` |
//! | data written before the first request, and its places | `fill.rs`, `placement.rs` |
//! | cleaning and wear levelling | `clean.rs` |
//! | occupancy of the link | `link.rs` |
//! | cleaning in idle time | `ahead.rs` |
//! | sleeping and waking | `idle.rs` |
//!
//! Times: a request takes its time in the controller (queued requests in parallel), then its bytes cross the only
//! link. A read's bytes follow as they come from flash; a write is done when its bytes are in the buffer. If the
//! queue is full, a request waits outside of it. Prices are the profile's and are charged to the request that
//! causes them; a write pays for programming its own blocks.
//!
//! A host may use handles of reclaim units, as in NVMe's flexible data placement (TP4146): each handle has its own
//! open block on every die, and `nand.handles` is their number. Cleaning copies into a separate block, whichever
//! handle wrote the data (an *initially isolated* handle). A flush pads a row for each handle with waiting blocks.
//!
//! A flush is not interrupted: a concurrent read waits for the programs of its die.
//!
//! Left out: a faster region for writes (single-level cells in a triple-level chip), suspending a program for a
//! read, the time of reading the map after a power cut.

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

use serde::{Deserialize, Serialize};

use self::buffer::Buffer;
use self::dies::Dies;
use self::ftl::{Blocks, NONE};
use self::idle::Idle;
use self::link::Link;
use self::map::{ENTRIES, MapCache};
use self::nand::{Geometry, Nand, Times};
use self::prices::Prices;
use self::table::Table;
use super::{Ask, Model, ModelState};
use crate::energy::profile::FlashSpec;
use crate::energy::{Bill, Nanos, Part};
use crate::{BLOCK, Lba, Tag};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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

/// The model of a flash device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flash {
    prices: Prices,
    geometry: Geometry,
    times: Times,
    nand: Nand,
    dies: Dies,
    map: MapCache,
    table: Table,
    buffer: Buffer,
    /// The handle of each of the host's blocks; empty until the host uses a handle.
    placed: Vec<u8>,
    blocks: Blocks,
    idle: Idle,
    /// Blocks per row.
    row: u32,
    /// Difference in erases between blocks that triggers wear levelling.
    wear_spread: u32,
    /// Number of block writes so far.
    generation: u64,
    /// Blocks whose programming was paid for but that were discarded first.
    paid_ahead: u64,
    link: Link,
    /// End times of the requests in the queue.
    queue: BinaryHeap<Reverse<Nanos>>,
    /// When the last request ended.
    last: Nanos,
    /// When the last write ended.
    written: Nanos,
    /// Units being cleaned, with their blocks.
    moving: Vec<(u32, u32)>,
    counts: Counts,
}

/// Erase counts of the flash blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wear {
    /// Of the least worn block.
    pub least: u32,
    /// Of the most worn block.
    pub most: u32,
    /// Of all blocks together.
    pub total: u64,
    /// Number of flash blocks.
    pub blocks: u64,
}

impl Flash {
    /// An unwritten device like `spec` with `blocks` blocks.
    ///
    /// # Panics
    /// If it has more than 2^31 blocks.
    pub fn new(spec: &FlashSpec, blocks: u64) -> Self {
        Self::build(spec, blocks, false)
    }

    /// The same, but each unit's out-of-band area also records its write, which costs eight bytes of memory per
    /// unit: for [`generation`](Self::generation).
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
        // A hundredth of the rated erase cycles.
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

    /// The geometry of its chips.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The number of the host's write (counting written blocks from 1) that a read of this block would find; `None`
    /// if there is none, or if the device does not record it.
    pub fn generation(&self, at: Lba) -> Option<u64> {
        let block = at.0 as u32;
        self.buffer.generation(block).or_else(|| self.table.generation(self.table.unit(block)?))
    }

    /// The newest write of each block according to the out-of-band areas, if the device records them: the basis for
    /// rebuilding a lost map, without discards and remaps.
    pub fn scan(&self) -> BTreeMap<Lba, u64> {
        self.table.scan().into_iter().map(|(block, write)| (Lba(block.into()), write)).collect()
    }

    /// Compares redundant state; returns the first difference. Slow.
    pub fn audit(&self) -> Result<(), String> {
        self.table.audit()
    }

    /// Wear of the flash.
    pub fn wear(&self) -> Wear {
        let erases = self.nand.all_erases();
        Wear {
            least: erases.iter().copied().min().unwrap_or(0),
            most: erases.iter().copied().max().unwrap_or(0),
            total: erases.iter().map(|e| u64::from(*e)).sum(),
            blocks: erases.len() as u64,
        }
    }

    /// The handle for writes of this block.
    fn handle(&self, block: u32) -> u8 {
        self.placed.get(block as usize).copied().unwrap_or(0)
    }

    /// When the device finished its last work; `now` if it is still working.
    fn rest(&self, now: Nanos) -> Nanos {
        self.dies.quiet_since().map_or(now, |t| t.max(self.last))
    }

    /// Advances to a request at `now`; returns when the device begins with it.
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

    /// Programs buffered blocks that have waited longer than the drain time.
    fn drain(&mut self, now: Nanos, bill: &mut Bill) {
        let due = self.prices.drain.map(|after| Nanos(self.written.0.saturating_add(after.0)));
        if let Some(due) = due.filter(|due| *due <= now && self.buffer.waiting() > 0) {
            self.run(due);
            self.idle.pay(due, self.rest(due), bill);
            self.issue(due, bill);
        }
    }

    /// Fills the device block by block.
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
        // A run of blocks in one row is read in one operation.
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
        self.link.reserve(first, self.prices.read.of(bytes)).max(last + self.prices.read.of(BLOCK as u64))
    }

    /// Reads units of a row; returns when the controller has them.
    fn read_row(&mut self, row: u32, units: u64, ready: Nanos) -> Nanos {
        if row == NONE {
            return ready;
        }
        let die = self.geometry.die_of(row / self.geometry.rows);
        let busy = self.times.read[self.geometry.bit(row, self.times.read.len())];
        self.dies.read(die, ready, busy, self.times.transfer.times(units))
    }

    /// When the first of `units` units arrived, if all were there at `came`.
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
        // The device requests bytes when it has room: a request that waits for room leaves the link to others.
        let moving = self.prices.write.of(bytes);
        let begin = Nanos(self.link.reserve(start + self.prices.write_request, moving).0 - moving.0);
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

    fn state(&self) -> Option<ModelState> {
        Some(ModelState::Flash(Box::new(self.clone())))
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
