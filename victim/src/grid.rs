//! Which of hundreds of thousands of units is the best, judged by valid blocks, fragments and age?
//!
//! Units in one cell have similar numbers of valid blocks, of fragments, and of blocks per fragment. A cell
//! keeps its units in age order. The cell's edges and its oldest unit bound the rank of its best unit. A
//! search reads a cell from the oldest unit on, while a unit could still beat the best found. Left out on
//! purpose: how units rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use format::SegNo;

use crate::view::{AgeCut, Bounds, Candidate};

/// Range of valid blocks of a segment in one cell.
const VALID: u32 = 16;
/// Range of fragments of a segment in one cell.
const FRAGMENTS: u32 = 4;
/// Lower bounds of the ranges of the mean fragment size, in blocks; the last range has no upper bound.
const SIZES: [u32; 6] = [1, 2, 3, 5, 8, 12];
/// Rows of cells by valid blocks, up to 512 of a segment.
const ROWS: usize = (512 / VALID) as usize + 1;
/// Columns by fragments, up to 256 of a segment.
const COLUMNS: usize = (256 / FRAGMENTS) as usize + 1;
/// Units that a search examines before it tests the cell's limit again.
const STEP: usize = 8;

/// Write time of an empty cell.
const NO_UNIT: u64 = u64::MAX;

/// The cells with one range of fragments and one range of their mean size, the emptiest row first.
#[derive(Debug, Clone)]
struct Group {
    /// The units of each cell in order of age, with their fragments.
    cells: [BTreeMap<AgeCut, (Candidate, u32)>; ROWS],
    /// For each cell a lower bound on the write time of its oldest unit, or [`NO_UNIT`].
    oldest: [u64; ROWS],
    /// The first row with units, and the write time of the oldest unit in any row.
    corner: Option<(usize, u64)>,
    /// Most fragments that any unit here ever had.
    most: u32,
}

impl Group {
    fn new() -> Self {
        Group { cells: [const { BTreeMap::new() }; ROWS], oldest: [NO_UNIT; ROWS], corner: None, most: 0 }
    }
    /// Updates the write time of the oldest unit in a row.
    fn note(&mut self, row: usize) {
        let oldest = self.cells[row].first_key_value().map_or(NO_UNIT, |(place, _)| place.0.min(NO_UNIT - 1));
        if std::mem::replace(&mut self.oldest[row], oldest) != oldest {
            let emptiest = self.oldest.iter().position(|&oldest| oldest < NO_UNIT);
            let oldest = self.oldest.iter().copied().min().unwrap_or(NO_UNIT);
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
    /// An empty grid for units of `per` segments.
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
        if c.mtime < group.oldest[row] || group.oldest[row] == NO_UNIT {
            group.note(row);
        }
    }
    pub(crate) fn remove(&mut self, c: &Candidate) {
        let (group, row) = self.cell(c, c.fragments());
        let group = &mut self.groups[group];
        group.cells[row].remove(&c.place());
        if group.oldest[row] >= c.mtime.min(NO_UNIT - 1) {
            group.note(row);
        }
    }
    /// Bounds of the units of a group in this row or a fuller one that are not older than `mtime`.
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
        // The limit of a group combines its emptiest and its oldest unit.
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
                if oldest < NO_UNIT && limit(&self.bounds(n, row, oldest)) >= best.0 {
                    self.look(n, row, limit, gain, &mut best);
                }
            }
        }
        best.1
    }
    /// Examines the units of a cell while they could beat the best found.
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
