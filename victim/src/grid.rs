//! Which of hundreds of thousands of units is best by its valid blocks, fragments and age?
//!
//! Units share a cell if they have about as many valid blocks, as many fragments, and fragments of about the same size.
//! A cell keeps its units in order of age. How high its best unit could rank follows from the cell's edges and its
//! oldest unit; a search looks into a cell from the oldest unit on, and only as far as a unit could beat the best
//! found. Left out on purpose: how units rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use format::SegNo;

use crate::view::{AgeCut, Bounds, Candidate};

/// Within a cell, valid blocks of a segment differ by less than this.
const VALID: u32 = 16;
/// Within a cell, fragments of a segment differ by less than this.
const FRAGMENTS: u32 = 4;
/// Where the next range of the mean size of fragments begins, in blocks; the last range has no end.
const SIZES: [u32; 6] = [1, 2, 3, 5, 8, 12];
/// Rows of cells by valid blocks, up to 512 of a segment.
const ROWS: usize = (512 / VALID) as usize + 1;
/// Columns by fragments, up to 256 of a segment.
const COLUMNS: usize = (256 / FRAGMENTS) as usize + 1;
/// How many units a search looks at before it tests the cell's limit again.
const STEP: usize = 8;

/// Stands for a write time where there is no unit.
const NOBODY: u64 = u64::MAX;

/// The cells with one range of fragments and one range of their mean size, from the emptiest row on.
#[derive(Debug, Clone)]
struct Group {
    /// The units of each cell in order of age, with their fragments.
    cells: [BTreeMap<AgeCut, (Candidate, u32)>; ROWS],
    /// For each cell at most the write time of its oldest unit, or [`NOBODY`].
    oldest: [u64; ROWS],
    /// The first row with units, and the write time of the oldest unit in any row.
    corner: Option<(usize, u64)>,
    /// The most fragments that any unit here ever had.
    most: u32,
}

impl Group {
    fn new() -> Self {
        Group { cells: [const { BTreeMap::new() }; ROWS], oldest: [NOBODY; ROWS], corner: None, most: 0 }
    }
    /// Updates the write time of the oldest unit in a row.
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

/// The greatest gain found so far, and its unit.
type Best = (u64, Option<Candidate>);

impl Grid {
    /// A grid without units; they will have `per` segments each.
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
    /// The bounds of the units in this row of a group or a fuller one that are no older than `mtime`.
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
    /// The unit with the greatest gain; `None` if none gains anything. Of equals the oldest, then the first on the
    /// volume. `limit` is at least the gain of any unit within the bounds.
    pub(crate) fn best(
        &self,
        limit: &dyn Fn(&Bounds) -> u64,
        gain: &dyn Fn(&Candidate, u32) -> u64,
    ) -> Option<Candidate> {
        // The limit of a group takes the emptiest and the oldest of its units as one.
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
    /// Looks at the units of a cell, as far as they could beat the best found.
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
