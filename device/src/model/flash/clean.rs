//! Which block is cleaned when erased ones run short, and where do its valid units go?
//!
//! Greedy: the block of a die with the fewest valid units is cleaned onto the same die. Occasionally, if wear
//! differs strongly, the contents of the least worn block, which seldom change, move to the most worn one. This
//! file cleans when the host needs a block; `ahead.rs` cleans in idle time.
//!
//! All steps of cleaning on a die wait in that die's queue in order, so a block is erased only after its contents
//! are programmed elsewhere. The map changes immediately: both copies are identical, and a power cut in between
//! finds one of them.

use super::ftl::{NONE, Use};
use super::map::ENTRIES;
use super::{Flash, dies::OWN};
use crate::energy::{Bill, Nanos, Part};

/// Erased blocks that a die keeps: one for cleaning, one for the host.
pub(super) const KEPT: usize = 2;
/// Cleanings of a die between two wear-levelling moves.
const LEVELLING: u32 = 8;

/// Cleanable blocks of a die.
pub(super) struct Found {
    /// The fewest valid units, and the block with them.
    pub emptiest: (u32, u32),
    /// The most erases, and the block with them, among blocks without parked contents.
    worn: (u32, u32),
    /// The fewest erases, and the block with them.
    unworn: (u32, u32),
}

impl Flash {
    /// Cleans a die until the host may take an erased block.
    pub(super) fn make_room(&mut self, die: u32, at: &mut Nanos, bill: &mut Bill) {
        while self.blocks.erased[die as usize].len() < KEPT {
            let found = loop {
                if let Some(found) = self.look(die) {
                    break found;
                }
                // All invalid units are in blocks that are still being programmed.
                assert!(self.step(at), "die {die} has nothing to clean");
            };
            self.write_journal(*at, bill);
            let cleanings = &mut self.blocks.cleanings[die as usize];
            *cleanings += 1;
            if *cleanings <= LEVELLING || found.worn.0 <= found.unworn.0 + self.wear_spread {
                self.clean(die, found.emptiest.1, None, *at, bill);
                continue;
            }
            *cleanings = 0;
            self.counts.levelled += 1;
            let (_, worn) = found.worn;
            self.clean(die, worn, None, *at, bill);
            self.blocks.erased[die as usize].retain(|b| *b != worn);
            self.clean(die, found.unworn.1, Some(worn), *at, bill);
            self.blocks.uses[worn as usize] = Use::Parked;
        }
    }

    /// Examines the cleanable blocks of a die; `None` if cleaning none of them gains room.
    pub(super) fn look(&self, die: u32) -> Option<Found> {
        let first = die * self.geometry.blocks;
        let mut found: Option<Found> = None;
        for block in first..first + self.geometry.blocks {
            let b = block as usize;
            let closed = self.blocks.uses[b] == Use::Closed;
            if !closed && self.blocks.uses[b] != Use::Parked || self.blocks.pending[b] > 0 {
                continue;
            }
            let (live, wear) = ((self.table.live(block), block), (self.nand.erases(block), block));
            let f = found.get_or_insert(Found { emptiest: live, worn: (0, NONE), unworn: wear });
            f.emptiest = f.emptiest.min(live);
            f.unworn = f.unworn.min(wear);
            if closed {
                f.worn = f.worn.max(wear);
            }
        }
        found.filter(|f| f.emptiest.0 < self.geometry.block_units())
    }

    /// Copies a block's valid units, into the given erased block if any, and erases the block.
    pub(super) fn clean(&mut self, die: u32, victim: u32, into: Option<u32>, at: Nanos, bill: &mut Bill) {
        let g = self.geometry;
        let mut moving = std::mem::take(&mut self.moving);
        let first = g.unit(victim, 0);
        self.table.open(victim);
        moving.clear();
        moving.extend((first..first + g.block_units()).filter_map(|u| Some((u, self.table.block(u)?))));
        let mut row = NONE;
        for &(unit, _) in &moving {
            if std::mem::replace(&mut row, g.row_of(unit)) != g.row_of(unit) {
                self.check(self.nand.read(unit));
                let busy = self.times.read[g.bit(row, self.times.read.len())];
                self.dies.push(die, at, Nanos(0), busy, OWN);
            }
        }
        let mut programmed = 0;
        let mut sharers: Vec<(u32, u32)> = Vec::new();
        let mut rest = &moving[..];
        while !rest.is_empty() {
            let (block, page) = match into {
                Some(block) => (block, self.nand.programmed(block)),
                None => self.copy_block(die),
            };
            let room = (g.planes - page % g.planes) * g.page_units;
            let (now, later) = rest.split_at((room as usize).min(rest.len()));
            let pages = (now.len() as u32).div_ceil(g.page_units);
            let right = self.nand.program(block, page, pages);
            self.check(right);
            let to = g.unit(block, page);
            for (&(from, host), to) in now.iter().zip(to..) {
                self.table.relocate(host, from, to);
                sharers.extend(self.table.sharers(to).iter().map(|host| (to, *host)));
            }
            let transfer = self.times.transfer.times(2 * u64::from(pages * g.page_units));
            let busy = self.times.program[g.bit(g.row_of(to), self.times.program.len())];
            self.dies.push(die, at, transfer, busy, OWN);
            programmed += u64::from(pages * g.page_units);
            rest = later;
        }
        debug_assert_eq!(self.table.live(victim), 0, "block {victim} erased with data in it");
        self.nand.erase(victim);
        self.table.erased(victim);
        self.dies.push(die, at, Nanos(0), self.times.erase, OWN);
        self.blocks.uses[victim as usize] = Use::Erased;
        self.blocks.erased[die as usize].push(victim);

        let copied = moving.len() as u64;
        self.counts.copied += copied;
        self.counts.padding += programmed - copied;
        self.counts.cleanings += 1;
        self.counts.erases += 1;
        bill.add(Part::FlashErase, self.prices.erase);
        if copied > 0 {
            bill.add(Part::FlashClean, self.prices.unit_read.times(copied));
            bill.add(Part::FlashClean, self.prices.unit_program.times(programmed));
        }
        // Each translation page changes once for all its moved blocks.
        moving.extend(sharers);
        moving.sort_unstable_by_key(|(_, host)| *host);
        let mut page = NONE;
        for &(_, host) in &moving {
            let this = (u64::from(host) / ENTRIES) as u32;
            if std::mem::replace(&mut page, this) != this {
                self.map(this, true, at, bill);
            }
        }
        self.moving = moving;
    }

    /// The block and page for the next copy of cleaning.
    fn copy_block(&mut self, die: u32) -> (u32, u32) {
        let block = self.blocks.copy[die as usize];
        if block != NONE && self.nand.programmed(block) < self.geometry.block_pages() {
            return (block, self.nand.programmed(block));
        }
        if block != NONE {
            self.blocks.uses[block as usize] = Use::Closed;
        }
        let block = self.take_erased(die);
        self.blocks.copy[die as usize] = block;
        (block, 0)
    }
}
