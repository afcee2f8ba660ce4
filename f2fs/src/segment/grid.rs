//! Which unit is best by its valid blocks, fragments and age, of hundreds of thousands?
//!
//! Units of about as many valid blocks, as many fragments and as large ones share a cell, in order of age. How
//! high a cell's best could rank follows from its edges and its oldest; cells are looked into from the
//! oldest on, and only as far as that could beat what was found. Left out on purpose: how units rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::gc::policy::{AgeCut, Bounds, Candidate, Rank};

/// Valid blocks of a segment that make no difference.
const VALID: u32 = 16;
/// Fragments of a segment that make no difference.
const FRAGMENTS: u32 = 4;
/// Fragments of so many blocks in the mean, and more, make no difference to each other.
const SIZES: [u32; 6] = [1, 2, 3, 5, 8, 12];
/// Cells by valid blocks, up to 512 of a segment.
const ROWS: usize = (512 / VALID) as usize + 1;
/// Cells by fragments, up to 256 of a segment.
const COLUMNS: usize = (256 / FRAGMENTS) as usize + 1;
const CELLS: usize = ROWS * COLUMNS * SIZES.len();
/// Units after which a cell's limit is looked at again.
const STEP: usize = 8;

/// Units by valid blocks, fragments and their mean size.
#[derive(Debug)]
pub(super) struct Grid {
    per: u32,
    cells: Vec<BTreeMap<AgeCut, Candidate>>,
    /// Write time of the oldest of each cell.
    oldest: Vec<Option<u64>>,
}

impl Grid {
    /// Without units; they will have `per` segments each.
    pub(super) fn new(per: u32) -> Self {
        Grid { per, cells: vec![BTreeMap::new(); CELLS], oldest: vec![None; CELLS] }
    }
    fn cell(&self, c: &Candidate) -> usize {
        let row = (c.valid / (VALID * self.per)) as usize;
        let fragments = c.fragments();
        let column = (fragments / (FRAGMENTS * self.per)) as usize;
        let mean = c.loose / fragments.max(1);
        let size = SIZES.iter().rposition(|&s| s <= mean).unwrap_or(0);
        (column.min(COLUMNS - 1) * SIZES.len() + size) * ROWS + row.min(ROWS - 1)
    }
    pub(super) fn insert(&mut self, c: &Candidate) {
        let n = self.cell(c);
        self.cells[n].insert(c.place(), *c);
        self.oldest[n] = Some(self.oldest[n].unwrap_or(u64::MAX).min(c.mtime));
    }
    pub(super) fn remove(&mut self, c: &Candidate) {
        let n = self.cell(c);
        self.cells[n].remove(&c.place());
        if self.oldest[n] == Some(c.mtime) {
            self.oldest[n] = self.cells[n].first_key_value().map(|(place, _)| place.0);
        }
    }
    /// What lies in a cell or a fuller one with like fragments, and is no older than `mtime`. The last
    /// cells have no far edge.
    fn bounds(&self, cell: usize, mtime: u64) -> Bounds {
        let edges = |n: usize, cells: usize, width: u32| {
            let low = n as u32 * width * self.per;
            (low, if n + 1 < cells { low + width * self.per - 1 } else { u32::MAX })
        };
        let (row, group) = (cell % ROWS, cell / ROWS);
        let fragments = edges(group / SIZES.len(), COLUMNS, FRAGMENTS);
        let any = (0, u32::MAX);
        Bounds {
            mtime: (mtime, u64::MAX),
            valid: (edges(row, ROWS, VALID).0, u32::MAX),
            held: any,
            f: any,
            loose: (fragments.0 * SIZES[group % SIZES.len()], u32::MAX),
            fragments,
        }
    }
    /// The unit that ranks highest, if above 0; of equals the oldest, then the first on the volume.
    /// `limit` is at least the rank of whatever lies within bounds.
    pub(super) fn best(&self, limit: &dyn Fn(&Bounds) -> Rank, rank: &dyn Fn(&Candidate) -> Rank) -> Option<Candidate> {
        // Cells with like fragments: as empty as the emptiest and as old as the oldest of them.
        let mut groups = Vec::new();
        for (n, oldest) in self.oldest.chunks(ROWS).enumerate() {
            let row = oldest.iter().position(Option::is_some);
            if let (Some(row), Some(oldest)) = (row, oldest.iter().flatten().min()) {
                let most = limit(&self.bounds(n * ROWS + row, *oldest));
                if most > [0; 4] {
                    groups.push((most, n));
                }
            }
        }
        groups.sort_unstable_by_key(|g| Reverse(g.0));
        let mut best: (Rank, Option<Candidate>) = ([0; 4], None);
        for (most, group) in groups {
            if most < best.0 {
                break;
            }
            for n in group * ROWS..(group + 1) * ROWS {
                if let Some(oldest) = self.oldest[n]
                    && limit(&self.bounds(n, oldest)) >= best.0
                {
                    self.look(n, limit, rank, &mut best);
                }
            }
        }
        best.1
    }
    /// Looks at the units of a cell, as far as they could be better.
    fn look(
        &self,
        n: usize,
        limit: &dyn Fn(&Bounds) -> Rank,
        rank: &dyn Fn(&Candidate) -> Rank,
        best: &mut (Rank, Option<Candidate>),
    ) {
        for (turn, (&place, c)) in self.cells[n].iter().enumerate() {
            if turn % STEP == 0 {
                let most = limit(&self.bounds(n, place.0));
                if most < best.0 || (most == best.0 && best.1.is_none_or(|b| b.place() <= place)) {
                    return;
                }
            }
            let r = rank(c);
            if r > best.0 || (r == best.0 && best.1.is_some_and(|b| place < b.place())) {
                *best = (r, Some(*c));
            }
        }
    }
}
