//! Which unit of flash holds which block of the host, and what must a power cut undo?
//!
//! The map and its reverse are dense arrays that take memory only where they were used. A change that leaves no mark on
//! flash (a discard, a remap) is durable once the journal is written. Until then the table remembers what the change
//! replaced, and no block is erased (see [`super::clean`]).
//!
//! A unit may hold several blocks of the host, if a remap had them share it. It is valid as long as one of them is mapped
//! to it, and all move with it. Which they are beside one is kept in memory, as the reverse map is.

use std::collections::BTreeMap;

use super::map::ENTRIES;
use super::nand::Geometry;

/// An entry that was changed without programming anything.
#[derive(Debug, Clone, Copy)]
struct Change {
    block: u32,
    was: u32,
    is: u32,
    /// False if undoing it loses only contents that the host had given up.
    written: bool,
}

/// The map. Units are counted from 1 in its arrays, so that memory never used means "nowhere".
#[derive(Debug)]
pub struct Table {
    geometry: Geometry,
    /// By block of the host.
    map: Vec<u32>,
    /// By unit.
    reverse: Vec<u32>,
    /// Of a unit that several blocks share: those beside the one of `reverse`.
    others: BTreeMap<u32, Vec<u32>>,
    /// A bit for each unit: it is valid.
    valid: Vec<u64>,
    /// Valid units, by flash block.
    live: Vec<u32>,
    /// Valid units, by die.
    on_die: Vec<u32>,
    /// Blocks of the host that have a unit, by translation page.
    mapped: Vec<u32>,
    journal: Vec<Change>,
    /// Entries in the journal, one for each request.
    entries: u64,
    /// Which write of the host a unit holds; only kept on demand.
    generations: Option<Vec<u64>>,
}

impl Table {
    /// A map that maps nothing.
    pub fn new(geometry: Geometry, blocks: u64, generations: bool) -> Self {
        let units = geometry.units() as usize;
        Table {
            geometry,
            map: vec![0; blocks as usize],
            reverse: vec![0; units],
            others: BTreeMap::new(),
            valid: vec![0; units.div_ceil(64)],
            live: vec![0; geometry.all_blocks() as usize],
            on_die: vec![0; geometry.dies as usize],
            mapped: vec![0; blocks.div_ceil(ENTRIES) as usize],
            journal: Vec::new(),
            entries: 0,
            generations: generations.then(|| vec![0; units]),
        }
    }
    /// Blocks of the host.
    pub fn blocks(&self) -> u64 {
        self.map.len() as u64
    }
    /// Where a block is.
    pub fn unit(&self, block: u32) -> Option<u32> {
        self.map[block as usize].checked_sub(1)
    }
    /// The block that a unit holds, if the unit is valid; one of those that share it.
    pub fn block(&self, unit: u32) -> Option<u32> {
        let counts = self.valid[unit as usize / 64] >> (unit % 64) & 1 == 1;
        counts.then(|| self.reverse[unit as usize])
    }
    /// The others that share a unit.
    pub fn sharers(&self, unit: u32) -> &[u32] {
        self.others.get(&unit).map_or(&[], Vec::as_slice)
    }
    /// Valid units in a flash block.
    pub fn live(&self, block: u32) -> u32 {
        self.live[block as usize]
    }
    /// Valid units on a die.
    pub fn on_die(&self, die: u32) -> u32 {
        self.on_die[die as usize]
    }
    /// Blocks mapped by a translation page.
    pub fn mapped(&self, page: u32) -> u32 {
        self.mapped[page as usize]
    }
    /// Which write of the host a unit holds.
    pub fn generation(&self, unit: u32) -> Option<u64> {
        self.generations.as_ref().map(|g| g[unit as usize])
    }
    /// Notes in a unit's out-of-band area which write of which block it is programmed with; 0 for none.
    pub fn stamp(&mut self, unit: u32, block: u32, generation: u64) {
        if let Some(g) = &mut self.generations {
            g[unit as usize] = generation;
            self.reverse[unit as usize] = block;
        }
    }
    /// A block of flash is erased, out-of-band areas too.
    pub fn erased(&mut self, block: u32) {
        if let Some(g) = &mut self.generations {
            let first = self.geometry.unit(block, 0) as usize;
            g[first..first + self.geometry.block_units() as usize].fill(0);
        }
    }
    /// What the out-of-band areas say: the newest write of each block that is on flash.
    pub fn scan(&self) -> BTreeMap<u32, u64> {
        let mut newest = BTreeMap::new();
        for (unit, generation) in self.generations.iter().flatten().enumerate().filter(|(_, g)| **g > 0) {
            let held = newest.entry(self.reverse[unit]).or_insert(0);
            *held = (*held).max(*generation);
        }
        newest
    }
    /// Compares the numbers that are kept twice; the error names the first difference.
    pub fn audit(&self) -> Result<(), String> {
        let (mut live, mut on_die) = (vec![0; self.live.len()], vec![0; self.on_die.len()]);
        let (mut mapped, mut shared) = (vec![0; self.mapped.len()], 0);
        for block in 0..self.map.len() as u32 {
            let Some(unit) = self.unit(block) else { continue };
            mapped[(u64::from(block) / ENTRIES) as usize] += 1;
            if self.block(unit).is_some() && self.sharers(unit).contains(&block) {
                shared += 1;
                continue;
            }
            if self.block(unit) != Some(block) {
                return Err(format!("block {block} is at unit {unit}, which holds {:?}", self.block(unit)));
            }
            let at = self.geometry.block_of(unit);
            live[at as usize] += 1;
            on_die[self.geometry.die_of(at) as usize] += 1;
        }
        if shared != self.others.values().map(Vec::len).sum::<usize>() || self.others.values().any(Vec::is_empty) {
            return Err(format!("{shared} blocks share a unit, which are not those that are listed"));
        }
        let valid = self.valid.iter().map(|w| w.count_ones()).sum::<u32>() as usize;
        let all = mapped.iter().sum::<u32>() as usize;
        match live == self.live && on_die == self.on_die && mapped == self.mapped && valid + shared == all {
            true => Ok(()),
            false => Err("counts of what is valid are wrong".into()),
        }
    }

    fn invalidate(&mut self, unit: u32) {
        self.valid[unit as usize / 64] &= !(1 << (unit % 64));
        let block = self.geometry.block_of(unit);
        self.live[block as usize] -= 1;
        self.on_die[self.geometry.die_of(block) as usize] -= 1;
    }
    fn validate(&mut self, unit: u32, block: u32) {
        self.reverse[unit as usize] = block;
        self.valid[unit as usize / 64] |= 1 << (unit % 64);
        let at = self.geometry.block_of(unit);
        self.live[at as usize] += 1;
        self.on_die[self.geometry.die_of(at) as usize] += 1;
    }

    /// A block is no longer at a unit, which becomes invalid unless others share it.
    fn leave(&mut self, block: u32, unit: u32) {
        let Some(others) = self.others.get_mut(&unit) else { return self.invalidate(unit) };
        if self.reverse[unit as usize] == block {
            // OK: an entry is never empty.
            self.reverse[unit as usize] = others.pop().unwrap_or(block);
        } else {
            others.retain(|b| *b != block);
        }
        if others.is_empty() {
            self.others.remove(&unit);
        }
    }
    /// A unit holds another block in place of one.
    fn rename(&mut self, unit: u32, from: u32, to: u32) {
        match self.others.get_mut(&unit).and_then(|all| all.iter_mut().find(|b| **b == from)) {
            Some(other) => *other = to,
            None => self.reverse[unit as usize] = to,
        }
    }

    /// Maps a block to a unit, and no longer to the unit before.
    pub fn set(&mut self, block: u32, unit: u32) {
        match std::mem::replace(&mut self.map[block as usize], unit + 1) {
            0 => self.mapped[(u64::from(block) / ENTRIES) as usize] += 1,
            was => self.leave(block, was - 1),
        }
        self.validate(unit, block);
    }

    /// A block moves from unit to unit, and those that share the unit with it.
    pub fn relocate(&mut self, block: u32, from: u32, to: u32) {
        if let Some(g) = &mut self.generations {
            g[to as usize] = g[from as usize];
        }
        let others = self.others.remove(&from);
        self.set(block, to);
        if let Some(others) = others {
            others.iter().for_each(|b| self.map[*b as usize] = to + 1);
            self.others.insert(to, others);
        }
    }

    fn change(&mut self, block: u32, is: u32, written: bool) {
        let was = std::mem::replace(&mut self.map[block as usize], is);
        let mapped = &mut self.mapped[(u64::from(block) / ENTRIES) as usize];
        *mapped = *mapped + u32::from(is != 0) - u32::from(was != 0);
        self.journal.push(Change { block, was, is, written });
    }

    /// Maps a block to no unit, durably once the journal is written.
    pub fn forget(&mut self, block: u32) {
        if let Some(unit) = self.unit(block) {
            self.leave(block, unit);
            self.change(block, 0, false);
        }
    }

    /// Exchanges the units of two blocks, durably once the journal is written.
    pub fn exchange(&mut self, a: u32, b: u32) {
        let (at_a, at_b) = (self.map[a as usize], self.map[b as usize]);
        if at_a == at_b && at_a != 0 {
            return;
        }
        for (unit, from, to) in [(at_a, a, b), (at_b, b, a)] {
            if let Some(unit) = unit.checked_sub(1) {
                self.rename(unit, from, to);
            }
        }
        self.change(a, at_b, true);
        self.change(b, at_a, true);
    }

    /// Gives the unit of block `from` to block `to`, durably once the journal is written.
    pub fn move_to(&mut self, from: u32, to: u32) {
        if let Some(unit) = self.unit(to) {
            self.leave(to, unit);
        }
        if let Some(unit) = self.unit(from) {
            self.rename(unit, from, to);
        }
        let is = self.map[from as usize];
        self.change(to, is, true);
        self.change(from, 0, false);
    }

    /// Maps block `to` to the unit of block `from` as well, durably once the journal is written.
    pub fn share(&mut self, from: u32, to: u32) {
        let (is, was) = (self.map[from as usize], self.map[to as usize]);
        if is == was && is != 0 {
            return;
        }
        if let Some(unit) = was.checked_sub(1) {
            self.leave(to, unit);
        }
        if let Some(unit) = is.checked_sub(1) {
            self.others.entry(unit).or_default().push(to);
        }
        self.change(to, is, true);
    }

    /// Counts a request that the journal records.
    pub fn note(&mut self) {
        self.entries += 1;
    }
    /// How many entries the journal has now, and how many changes a power cut would undo until it is written.
    pub fn unwritten(&self) -> (u64, usize) {
        (self.entries, self.journal.len())
    }
    /// The journal is written: its changes are durable.
    pub fn written(&mut self) {
        self.journal.clear();
        self.entries = 0;
    }

    /// After a power cut: undoes the journal and builds the map anew from flash. Blocks to which a remap gave new
    /// contents and which have the old contents again are added to `lost`.
    pub fn restart(&mut self, lost: &mut Vec<u32>) {
        for c in std::mem::take(&mut self.journal).into_iter().rev() {
            // A unit programmed after the change is newer than the unit that the change replaced.
            if self.map[c.block as usize] == c.is {
                self.map[c.block as usize] = c.was;
                if c.written {
                    lost.push(c.block);
                }
            }
        }
        self.entries = 0;
        self.valid.fill(0);
        self.live.fill(0);
        self.on_die.fill(0);
        self.mapped.fill(0);
        self.others.clear();
        for block in 0..self.map.len() as u32 {
            if let Some(unit) = self.unit(block) {
                self.mapped[(u64::from(block) / ENTRIES) as usize] += 1;
                match self.block(unit) {
                    Some(_) => self.others.entry(unit).or_default().push(block),
                    None => self.validate(unit, block),
                }
            }
        }
    }
}
