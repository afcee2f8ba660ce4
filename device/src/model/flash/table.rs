//! Which unit of flash holds which block of the host, and what does a power cut undo?
//!
//! The map and its reverse are dense arrays that take memory only where they were used. On a filled device their
//! entries are computed from the places of the fill's rows ([`Placement`]) and stored piece by piece when something
//! changes. A change without a mark on flash (a discard, a remap) is durable when the journal is written. Until
//! then the table remembers the replaced entry, and no block is erased (see [`super::clean`]).
//!
//! After a remap a unit may hold several shared blocks of the host. It is valid while one of them is mapped to it,
//! and all move with it. The additional ones are kept in memory, like the reverse map.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::map::ENTRIES;
use super::nand::Geometry;
use super::placement::Placement;

/// An entry changed without programming a unit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Change {
    block: u32,
    was: u32,
    is: u32,
    /// False if undoing it loses only contents that the host had discarded.
    written: bool,
}

/// Entries of the map, or of its reverse, that are stored together.
const PIECE: usize = ENTRIES as usize;

/// Which pieces of an array are stored. The others are as the fill left them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Written(Vec<u64>);

impl Written {
    fn none(entries: usize) -> Self {
        Written(vec![0; entries.div_ceil(PIECE).div_ceil(64)])
    }
    fn is(&self, piece: usize) -> bool {
        self.0[piece / 64] >> (piece % 64) & 1 == 1
    }
    fn set(&mut self, piece: usize) {
        self.0[piece / 64] |= 1 << (piece % 64);
    }
}

/// Sets `count` bits from `first` on.
fn set_bits(words: &mut [u64], first: usize, count: usize) {
    let (mut at, end) = (first, first + count);
    while at < end {
        let n = (64 - at % 64).min(end - at);
        words[at / 64] |= (u64::MAX >> (64 - n)) << (at % 64);
        at += n;
    }
}

/// The result of a fill, and which parts of it are stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Filled {
    placement: Placement,
    map: Written,
    reverse: Written,
}

/// The map. Its arrays count units from 1, so that unused memory means "no unit".
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    geometry: Geometry,
    /// By the host's block.
    map: Vec<u32>,
    /// By unit.
    reverse: Vec<u32>,
    /// For shared units: the blocks other than the one in `reverse`.
    others: BTreeMap<u32, Vec<u32>>,
    /// A bit for each unit, set if it is valid.
    valid: Vec<u64>,
    /// Valid units, by flash block.
    live: Vec<u32>,
    /// Valid units, by die.
    on_die: Vec<u32>,
    /// The host's blocks with a unit, by translation page.
    mapped: Vec<u32>,
    journal: Vec<Change>,
    /// Entries in the journal, one per request.
    entries: u64,
    /// The host's write in each unit; recorded only on demand.
    generations: Option<Vec<u64>>,
    /// `None` if `map` and `reverse` are complete.
    filled: Option<Filled>,
}

impl Table {
    /// An empty map.
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
            filled: None,
        }
    }
    /// True if no block was ever mapped, and generations are not recorded.
    pub fn is_blank(&self) -> bool {
        let unused = self.filled.is_none() && self.generations.is_none() && self.unwritten() == (0, 0);
        unused && self.mapped.iter().all(|n| *n == 0)
    }
    /// Fills a blank table, with the number of rows on each die.
    pub fn fill(&mut self, placement: Placement, rows: &[u32]) {
        let g = self.geometry;
        let rest = (placement.blocks() % u64::from(g.row_units())) as u32;
        let missing = if rest == 0 { 0 } else { g.row_units() - rest };
        for (die, rows) in rows.iter().enumerate() {
            let first = g.unit(die as u32 * g.blocks, 0);
            let missing = if placement.last_die() == die as u32 { missing } else { 0 };
            let units = rows * g.row_units() - missing;
            self.on_die[die] = units;
            set_bits(&mut self.valid, first as usize, units as usize);
            for (n, live) in self.live[die * g.blocks as usize..].iter_mut().take(g.blocks as usize).enumerate() {
                *live = units.saturating_sub(n as u32 * g.block_units()).min(g.block_units());
            }
        }
        for (first, blocks) in placement.runs() {
            for page in first / ENTRIES..=(first + blocks - 1) / ENTRIES {
                let (from, to) = ((page * ENTRIES).max(first), ((page + 1) * ENTRIES).min(first + blocks));
                self.mapped[page as usize] += (to - from) as u32;
            }
        }
        let (map, reverse) = (Written::none(self.map.len()), Written::none(self.reverse.len()));
        self.filled = Some(Filled { placement, map, reverse });
    }
    /// An entry of the map.
    fn entry(&self, block: u32) -> u32 {
        match &self.filled {
            Some(f) if !f.map.is(block as usize / PIECE) => f.placement.unit(block).map_or(0, |unit| unit + 1),
            _ => self.map[block as usize],
        }
    }
    /// The same, mutable.
    fn entry_mut(&mut self, block: u32) -> &mut u32 {
        let piece = block as usize / PIECE;
        if let Some(f) = self.filled.as_mut().filter(|f| !f.map.is(piece)) {
            let from = piece * PIECE;
            let part = &mut self.map[from..];
            let count = part.len().min(PIECE);
            f.placement.units(from as u32, count, |i, unit| part[i] = unit + 1);
            f.map.set(piece);
        }
        &mut self.map[block as usize]
    }
    /// The reverse entry of a valid unit.
    fn holder(&self, unit: u32) -> u32 {
        match &self.filled {
            Some(f) if !f.reverse.is(unit as usize / PIECE) => f.placement.held(unit).unwrap_or_default(),
            _ => self.reverse[unit as usize],
        }
    }
    /// The same, mutable, for any unit.
    fn holder_mut(&mut self, unit: u32) -> &mut u32 {
        let piece = unit as usize / PIECE;
        if let Some(f) = self.filled.as_mut().filter(|f| !f.reverse.is(piece)) {
            let from = piece * PIECE;
            let part = &mut self.reverse[from..];
            let count = part.len().min(PIECE);
            f.placement.holders(from as u32, count, |i, block| part[i] = block);
            f.reverse.set(piece);
        }
        &mut self.reverse[unit as usize]
    }
    /// Stores the contents of a flash block's units before they are examined one by one.
    pub fn open(&mut self, block: u32) {
        let first = self.geometry.unit(block, 0) as usize;
        let last = first + self.geometry.block_units() as usize - 1;
        for piece in first / PIECE..=last / PIECE {
            self.holder_mut((piece * PIECE) as u32);
        }
    }
    /// Stores everything.
    fn write_down(&mut self) {
        if self.filled.is_some() {
            (0..self.map.len()).step_by(PIECE).for_each(|block| {
                self.entry_mut(block as u32);
            });
            (0..self.reverse.len()).step_by(PIECE).for_each(|unit| {
                self.holder_mut(unit as u32);
            });
            self.filled = None;
        }
    }
    /// Number of the host's blocks.
    pub fn blocks(&self) -> u64 {
        self.map.len() as u64
    }
    /// The unit of a block.
    pub fn unit(&self, block: u32) -> Option<u32> {
        self.entry(block).checked_sub(1)
    }
    /// The block in a unit, if the unit is valid; one of them if it is shared.
    pub fn block(&self, unit: u32) -> Option<u32> {
        let counts = self.valid[unit as usize / 64] >> (unit % 64) & 1 == 1;
        counts.then(|| self.holder(unit))
    }
    /// The other blocks in a shared unit.
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
    /// The number of the host's write in a unit.
    pub fn generation(&self, unit: u32) -> Option<u64> {
        self.generations.as_ref().map(|g| g[unit as usize])
    }
    /// Records write and block in a unit's out-of-band area; 0 for none.
    pub fn stamp(&mut self, unit: u32, block: u32, generation: u64) {
        if let Some(g) = &mut self.generations {
            g[unit as usize] = generation;
            self.reverse[unit as usize] = block;
        }
    }
    /// Erases a flash block with its out-of-band areas.
    pub fn erased(&mut self, block: u32) {
        if let Some(g) = &mut self.generations {
            let first = self.geometry.unit(block, 0) as usize;
            g[first..first + self.geometry.block_units() as usize].fill(0);
        }
    }
    /// The newest write of each block on flash according to the out-of-band areas.
    pub fn scan(&self) -> BTreeMap<u32, u64> {
        let mut newest = BTreeMap::new();
        for (unit, generation) in self.generations.iter().flatten().enumerate().filter(|(_, g)| **g > 0) {
            let held = newest.entry(self.reverse[unit]).or_insert(0);
            *held = (*held).max(*generation);
        }
        newest
    }
    /// Compares redundant numbers; the error names the first difference.
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
        *self.holder_mut(unit) = block;
        self.valid[unit as usize / 64] |= 1 << (unit % 64);
        let at = self.geometry.block_of(unit);
        self.live[at as usize] += 1;
        self.on_die[self.geometry.die_of(at) as usize] += 1;
    }

    /// Unmaps a block from a unit, which becomes invalid unless it is shared.
    fn leave(&mut self, block: u32, unit: u32) {
        if !self.others.contains_key(&unit) {
            return self.invalidate(unit);
        }
        let holder = self.holder(unit);
        let others = self.others.entry(unit).or_default();
        if holder == block {
            // OK: an entry is never empty.
            let next = others.pop().unwrap_or(block);
            *self.holder_mut(unit) = next;
        } else {
            others.retain(|b| *b != block);
        }
        if self.others.get(&unit).is_some_and(Vec::is_empty) {
            self.others.remove(&unit);
        }
    }
    /// Replaces a block in a unit by another.
    fn rename(&mut self, unit: u32, from: u32, to: u32) {
        match self.others.get_mut(&unit).and_then(|all| all.iter_mut().find(|b| **b == from)) {
            Some(other) => *other = to,
            None => *self.holder_mut(unit) = to,
        }
    }

    /// Maps a block to a unit instead of its old one.
    pub fn set(&mut self, block: u32, unit: u32) {
        match std::mem::replace(self.entry_mut(block), unit + 1) {
            0 => self.mapped[(u64::from(block) / ENTRIES) as usize] += 1,
            was => self.leave(block, was - 1),
        }
        self.validate(unit, block);
    }

    /// Moves a block, and those that share its unit, from unit to unit.
    pub fn relocate(&mut self, block: u32, from: u32, to: u32) {
        if let Some(g) = &mut self.generations {
            g[to as usize] = g[from as usize];
        }
        let others = self.others.remove(&from);
        self.set(block, to);
        if let Some(others) = others {
            others.iter().for_each(|b| *self.entry_mut(*b) = to + 1);
            self.others.insert(to, others);
        }
    }

    fn change(&mut self, block: u32, is: u32, written: bool) {
        let was = std::mem::replace(self.entry_mut(block), is);
        let mapped = &mut self.mapped[(u64::from(block) / ENTRIES) as usize];
        *mapped = *mapped + u32::from(is != 0) - u32::from(was != 0);
        self.journal.push(Change { block, was, is, written });
    }

    /// Unmaps a block; durable when the journal is written.
    pub fn forget(&mut self, block: u32) {
        if let Some(unit) = self.unit(block) {
            self.leave(block, unit);
            self.change(block, 0, false);
        }
    }

    /// Exchanges the units of two blocks; durable when the journal is written.
    pub fn exchange(&mut self, a: u32, b: u32) {
        let (at_a, at_b) = (self.entry(a), self.entry(b));
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

    /// Moves the unit of block `from` to block `to`; durable when the journal is written.
    pub fn move_to(&mut self, from: u32, to: u32) {
        if let Some(unit) = self.unit(to) {
            self.leave(to, unit);
        }
        if let Some(unit) = self.unit(from) {
            self.rename(unit, from, to);
        }
        let is = self.entry(from);
        self.change(to, is, true);
        self.change(from, 0, false);
    }

    /// Maps block `to` to the unit of block `from` too; durable when the journal is written.
    pub fn share(&mut self, from: u32, to: u32) {
        let (is, was) = (self.entry(from), self.entry(to));
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

    /// Counts a request in the journal.
    pub fn note(&mut self) {
        self.entries += 1;
    }
    /// Number of journal entries, and of changes that a power cut would undo before the journal is written.
    pub fn unwritten(&self) -> (u64, usize) {
        (self.entries, self.journal.len())
    }
    /// Marks the journal as written: its changes are durable.
    pub fn written(&mut self) {
        self.journal.clear();
        self.entries = 0;
    }

    /// After a power cut: undoes unwritten changes and rebuilds the map from flash. Blocks that lose the contents
    /// of a remap and revert to old ones are added to `lost`.
    pub fn restart(&mut self, lost: &mut Vec<u32>) {
        self.write_down();
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
