//! Which block is cleaned when erased ones run short, and where does what counts in it go?
//!
//! Greedy: of the blocks of a die, the one in which least counts, cleaned onto the same die. Now and then
//! the least worn block instead, if others are worn much more: what lies in it is never overwritten, and
//! goes to the most worn block. Cleaning happens when the host needs a block and only then.
//!
//! Everything cleaning does to a die waits in that die's queue in order, so that a block is erased after
//! its contents are programmed elsewhere; the map is changed at once, since both copies are alike and a
//! power cut between finds one of them.

use super::ftl::{NONE, Use};
use super::map::ENTRIES;
use super::{Flash, dies::OWN};
use crate::energy::{Bill, Nanos, Part};

/// Erased blocks a die keeps: one to clean into, one for the host.
const KEPT: usize = 2;
/// Cleanings of a die between two that level wear.
const LEVELLING: u32 = 8;

impl Flash {
    /// Cleans a die until the host may take an erased block of it.
    pub(super) fn make_room(&mut self, die: u32, at: &mut Nanos, bill: &mut Bill) {
        while self.blocks.erased[die as usize].len() < KEPT {
            let victim = loop {
                if let Some(victim) = self.victim(die) {
                    break victim;
                }
                // Everything there is to gain is in blocks that are still being programmed.
                assert!(self.step(at), "die {die} has nothing to clean");
            };
            self.write_journal(*at, bill);
            self.clean(die, victim, *at, bill);
        }
    }

    /// The block to clean.
    fn victim(&mut self, die: u32) -> Option<u32> {
        let first = die * self.geometry.blocks;
        let (mut greedy, mut coldest, mut wear) = (None, None, 0);
        for block in first..first + self.geometry.blocks {
            let erases = self.nand.erases(block);
            wear = wear.max(erases);
            let b = block as usize;
            if self.blocks.uses[b] != Use::Closed || self.blocks.pending[b] > 0 {
                continue;
            }
            let live = self.table.live(block);
            if live < self.geometry.block_units() && greedy.is_none_or(|(l, _)| live < l) {
                greedy = Some((live, block));
            }
            if coldest.is_none_or(|(e, _)| erases < e) {
                coldest = Some((erases, block));
            }
        }
        let (_, greedy) = greedy?;
        let cleanings = &mut self.blocks.cleanings[die as usize];
        *cleanings += 1;
        match coldest {
            Some((e, cold)) if *cleanings > LEVELLING && wear > e + self.wear_spread => {
                *cleanings = 0;
                self.counts.levelled += 1;
                Some(cold)
            }
            _ => Some(greedy),
        }
    }

    /// Copies what counts in a block, and erases it.
    fn clean(&mut self, die: u32, victim: u32, at: Nanos, bill: &mut Bill) {
        let g = self.geometry;
        let mut moving = std::mem::take(&mut self.moving);
        let first = g.unit(victim, 0);
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
        let mut rest = &moving[..];
        while !rest.is_empty() {
            let (block, page) = self.copy_block(die);
            let room = (g.planes - page % g.planes) * g.page_units;
            let (now, later) = rest.split_at((room as usize).min(rest.len()));
            let pages = (now.len() as u32).div_ceil(g.page_units);
            let right = self.nand.program(block, page, pages);
            self.check(right);
            let to = g.unit(block, page);
            for (&(from, host), to) in now.iter().zip(to..) {
                self.table.relocate(host, from, to);
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
        // Each translation page is changed once for all its blocks that moved.
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

    /// The block and page that cleaning goes on with.
    fn copy_block(&mut self, die: u32) -> (u32, u32) {
        let block = self.blocks.copy[die as usize];
        if block != NONE && self.nand.programmed(block) < self.geometry.block_pages() {
            return (block, self.nand.programmed(block));
        }
        if block != NONE {
            self.blocks.uses[block as usize] = Use::Closed;
        }
        // What survived a cleaning is likely to stay: it goes where there was most wear.
        let block = self.take_erased(die, true);
        self.blocks.copy[die as usize] = block;
        (block, 0)
    }
}
