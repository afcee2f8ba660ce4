//! Which unit is best by its valid blocks, fragments and age, of hundreds of thousands?
//!
//! Units of about as many valid blocks, as many fragments and as large ones share a cell, in order of age. How
//! high a cell's best could rank follows from its edges and its oldest; cells are looked into from the
//! oldest on, and only as far as that could beat what was found. Left out on purpose: how units rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use format::SegNo;

use crate::view::{AgeCut, Bounds, Candidate};

/// Valid blocks of a segment that make no difference.
const VALID: u32 = 16;
/// Fragments of a segment that make no difference.
const FRAGMENTS: u32 = 4;
/// Fragments of so many blocks in the mean, and more, make no difference to each other.
const SIZES: [u32; 6] = [1, 2, 3, 5, 8, 12];
/// Rows of cells by valid blocks, up to 512 of a segment.
const ROWS: usize = (512 / VALID) as usize + 1;
/// Columns by fragments, up to 256 of a segment.
const COLUMNS: usize = (256 / FRAGMENTS) as usize + 1;
/// Units after which a cell's limit is looked at again.
const STEP: usize = 8;

/// In place of a write time: no unit.
const NOBODY: u64 = u64::MAX;

/// The cells of one range of fragments and one of their sizes: from the emptiest row on.
#[derive(Debug, Clone)]
struct Group {
    /// In order of age, with their fragments.
    cells: [BTreeMap<AgeCut, (Candidate, u32)>; ROWS],
    /// At most the write time of the oldest of each cell, or [`NOBODY`].
    oldest: [u64; ROWS],
    /// The first row with units, and the write time of the oldest of all.
    corner: Option<(usize, u64)>,
    /// Fragments of the most fragmented there ever was.
    most: u32,
}

impl Group {
    fn new() -> Self {
        Group { cells: [const { BTreeMap::new() }; ROWS], oldest: [NOBODY; ROWS], corner: None, most: 0 }
    }
    /// Notes who is the oldest of a row now.
    fn note(&mut self, row: usize) {
        let oldest = self.cells[row].first_key_value().map_or(NOBODY, |(place, _)| place.0.min(NOBODY - 1));
        if std::mem::replace(&mut self.oldest[row], oldest) != oldest {
            let emptiest = self.oldest.iter().position(|&oldest| oldest < NOBODY);
            let oldest = self.oldest.iter().copied().min().unwrap_or(NOBODY);
            self.corner = emptiest.map(|row| (row, oldest));
        }
    }
}

/// Units by valid blocks, fragments and their mean size.
#[derive(Debug)]
pub(crate) struct Grid {
    per: u32,
    groups: Vec<Group>,
}

/// Who gained most so far.
type Best = (u64, Option<Candidate>);

impl Grid {
    /// Without units; they will have `per` segments each.
    pub(crate) fn new(per: u32) -> Self {
        Grid { per, groups: vec![Group::new(); COLUMNS * SIZES.len()] }
    }
    /// The group and the row of a unit.
    fn cell(&self, c: &Candidate, fragments: u32) -> (usize, usize) {
        let row = (c.valid / (VALID * self.per)) as usize;
        let column = (fragments / (FRAGMENTS * self.per)) as usize;
        let mean = c.loose / fragments.max(1);
        let size = SIZES.iter().rposition(|&s| s <= mean).unwrap_or(0);
        (column.min(COLUMNS - 1) * SIZES.len() + size, row.min(ROWS - 1))
    }
    pub(crate) fn insert(&mut self, c: &Candidate) {
        let fragments = c.fragments();
        let (group, row) = self.cell(c, fragments);
        let group = &mut self.groups[group];
        group.most = group.most.max(fragments);
        group.cells[row].insert(c.place(), (*c, fragments));
        if c.mtime < group.oldest[row] || group.oldest[row] == NOBODY {
            group.note(row);
        }
    }
    pub(crate) fn remove(&mut self, c: &Candidate) {
        let (group, row) = self.cell(c, c.fragments());
        let group = &mut self.groups[group];
        group.cells[row].remove(&c.place());
        if group.oldest[row] >= c.mtime.min(NOBODY - 1) {
            group.note(row);
        }
    }
    /// What lies in a row of a group or in a fuller one, and is no older than `mtime`.
    fn bounds(&self, group: usize, row: usize, mtime: u64) -> Bounds {
        let least = (group / SIZES.len()) as u32 * FRAGMENTS * self.per;
        let any = (0, u32::MAX);
        Bounds {
            seg: (SegNo(0), SegNo(u32::MAX)),
            mtime: (mtime, u64::MAX),
            valid: (row as u32 * VALID * self.per, u32::MAX),
            held: any,
            f: any,
            loose: (least * SIZES[group % SIZES.len()], u32::MAX),
            fragments: (least, self.groups[group].most),
        }
    }
    /// The unit that gains most, if anything; of equals the oldest, then the first on the volume. `limit` is at
    /// least the gain of whatever lies within bounds.
    pub(crate) fn best(
        &self,
        limit: &dyn Fn(&Bounds) -> u64,
        gain: &dyn Fn(&Candidate, u32) -> u64,
    ) -> Option<Candidate> {
        // Groups as empty as their emptiest and as old as their oldest.
        let mut groups: Vec<(u64, usize)> = Vec::new();
        for (n, group) in self.groups.iter().enumerate() {
            if let Some((row, oldest)) = group.corner {
                groups.push((limit(&self.bounds(n, row, oldest)), n));
            }
        }
        groups.retain(|g| g.0 > 0);
        groups.sort_unstable_by_key(|g| Reverse(g.0));
        let mut best: Best = (0, None);
        for (most, n) in groups {
            if most < best.0 {
                break;
            }
            for (row, &oldest) in self.groups[n].oldest.iter().enumerate() {
                if oldest < NOBODY && limit(&self.bounds(n, row, oldest)) >= best.0 {
                    self.look(n, row, limit, gain, &mut best);
                }
            }
        }
        best.1
    }
    /// Looks at the units of a cell, as far as they could be better.
    fn look(
        &self,
        group: usize,
        row: usize,
        limit: &dyn Fn(&Bounds) -> u64,
        gain: &dyn Fn(&Candidate, u32) -> u64,
        best: &mut Best,
    ) {
        for (turn, (&place, (c, fragments))) in self.groups[group].cells[row].iter().enumerate() {
            if turn % STEP == 0 {
                let most = limit(&self.bounds(group, row, place.0));
                if most < best.0 || (most == best.0 && best.1.is_none_or(|b| b.place() <= place)) {
                    return;
                }
            }
            let gained = gain(c, *fragments);
            if gained > best.0 || (gained == best.0 && best.1.is_some_and(|b| place < b.place())) {
                *best = (gained, Some(*c));
            }
        }
    }
}
