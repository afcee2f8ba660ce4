//! Places of the blocks of a device that was filled before its first request.
//!
//! A fill writes row after row, each appended to some die. So the die of every row determines the place of every
//! block, in a byte or two per row instead of eight bytes per block. Counts of each die's rows at every few
//! hundredth row keep lookups short in both directions.

use serde::{Deserialize, Serialize};

use super::nand::Geometry;
use crate::Lba;

/// A run of blocks of the host.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Run {
    first: u64,
    blocks: u64,
    /// Blocks written before it.
    before: u64,
}

/// The filled blocks and their places.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placement {
    geometry: Geometry,
    /// In write order.
    runs: Vec<Run>,
    /// Indices into `runs`, in order of the host's blocks.
    by_block: Vec<u32>,
    /// Total number of blocks.
    blocks: u64,
    /// The die of each row, in write order.
    dies: Vec<u16>,
    /// Rows between two counts, a power of two, chosen so that counts take no more memory than the dies of the
    /// rows.
    step: usize,
    /// At every `step` rows, the number of earlier rows on each die.
    counts: Vec<u32>,
}

impl Placement {
    /// A placement for these runs without rows. `None` if two overlap, one is empty, or there are too many dies.
    pub fn new(geometry: Geometry, runs: &[(Lba, u64)]) -> Option<Self> {
        let mut before = 0;
        let runs: Vec<Run> = runs
            .iter()
            .map(|(first, blocks)| {
                let run = Run { first: first.0, blocks: *blocks, before };
                before += blocks;
                run
            })
            .collect();
        let mut by_block: Vec<u32> = (0..runs.len() as u32).collect();
        by_block.sort_unstable_by_key(|n| runs[*n as usize].first);
        let ends = |n: &u32| runs[*n as usize].first + runs[*n as usize].blocks;
        let apart = by_block.windows(2).all(|w| ends(&w[0]) <= runs[w[1] as usize].first);
        let all = runs.iter().all(|r| r.blocks > 0) && !runs.is_empty();
        (apart && all && geometry.dies <= u32::from(u16::MAX)).then(|| {
            let rows = before.div_ceil(u64::from(geometry.row_units())) as usize;
            let step = (2 * geometry.dies as usize).max(256).next_power_of_two();
            let counts = Vec::with_capacity(rows.div_ceil(step) * geometry.dies as usize);
            Placement { geometry, runs, by_block, blocks: before, dies: Vec::with_capacity(rows), step, counts }
        })
    }

    /// Appends a row on a die; `held` is the number of earlier rows on each die.
    pub fn push(&mut self, die: u32, held: &[u32]) {
        if self.dies.len() & (self.step - 1) == 0 {
            self.counts.extend_from_slice(held);
        }
        self.dies.push(die as u16);
    }

    /// Number of filled blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The die of the last row.
    pub fn last_die(&self) -> u32 {
        self.dies.last().copied().unwrap_or_default().into()
    }

    /// Runs in order of the host's blocks.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_block.iter().map(|n| (self.runs[*n as usize].first, self.runs[*n as usize].blocks))
    }

    /// Number of a die's rows before row `row`.
    fn rows_before(&self, die: usize, row: usize) -> u32 {
        let step = row / self.step;
        let counted = self.counts[step * self.geometry.dies as usize + die];
        counted + self.dies[step * self.step..row].iter().filter(|d| usize::from(**d) == die).count() as u32
    }

    /// Number of blocks written before one of the host's, if it is filled, and the end of the consecutive blocks
    /// that follow it.
    fn written(&self, block: u64) -> Option<(u64, u64)> {
        let after = self.by_block.partition_point(|n| self.runs[*n as usize].first <= block);
        let run = self.runs[*self.by_block.get(after.checked_sub(1)?)? as usize];
        (block < run.first + run.blocks).then(|| (run.before + block - run.first, run.first + run.blocks))
    }

    /// The block with this index in write order.
    fn block(&self, written: u64) -> u32 {
        let after = self.runs.partition_point(|r| r.before <= written);
        let run = self.runs[after - 1];
        (run.first + written - run.before) as u32
    }

    /// The unit of a block.
    pub fn unit(&self, block: u32) -> Option<u32> {
        let (written, _) = self.written(block.into())?;
        let (row, within) = self.row(written);
        let die = usize::from(self.dies[row]);
        Some(self.unit_of(die, self.rows_before(die, row)) + within)
    }

    /// The row of a block with this index in write order, and its position in the row.
    fn row(&self, written: u64) -> (usize, u32) {
        let row_units = u64::from(self.geometry.row_units());
        ((written / row_units) as usize, (written % row_units) as u32)
    }

    /// The first unit of a die's `nth` row.
    fn unit_of(&self, die: usize, nth: u32) -> u32 {
        let first = die as u32 * self.geometry.blocks;
        self.geometry.unit(first, 0) + nth * self.geometry.row_units()
    }

    /// Calls `put` with index and unit for the filled blocks among `count` blocks from `first` on.
    pub fn units(&self, first: u32, count: usize, mut put: impl FnMut(usize, u32)) {
        let (mut at, end) = (u64::from(first), u64::from(first) + count as u64);
        while at < end {
            let Some((mut written, run_ends)) = self.written(at) else {
                at += 1;
                continue;
            };
            let to = run_ends.min(end);
            let (mut row, _) = self.row(written);
            let mut held: Vec<Option<u32>> = vec![None; self.geometry.dies as usize];
            while at < to {
                let die = usize::from(self.dies[row]);
                let nth = *held[die].get_or_insert_with(|| self.rows_before(die, row));
                held[die] = Some(nth + 1);
                let (_, within) = self.row(written);
                for i in within..self.geometry.row_units() {
                    if at < to {
                        put((at - u64::from(first)) as usize, self.unit_of(die, nth) + i);
                        (at, written) = (at + 1, written + 1);
                    }
                }
                row += 1;
            }
        }
    }

    /// The block in a unit, if the fill wrote one there.
    pub fn held(&self, unit: u32) -> Option<u32> {
        let mut found = None;
        self.holders(unit, 1, |_, block| found = Some(block));
        found
    }

    /// Calls `put` with index and block for the filled units among `count` units from `first` on.
    pub fn holders(&self, first: u32, count: usize, mut put: impl FnMut(usize, u32)) {
        let g = &self.geometry;
        let (dies, row_units) = (g.dies as usize, g.row_units());
        let (mut unit, end) = (first, first + count as u32);
        while unit < end {
            let die = g.die_of(g.block_of(unit)) as usize;
            let to = end.min(self.unit_of(die + 1, 0));
            let mut nth = (unit - self.unit_of(die, 0)) / row_units;
            // Start at the last count that is not greater, then continue row by row.
            let (mut low, mut high) = (0, self.counts.len() / dies);
            while low + 1 < high {
                let middle = (low + high) / 2;
                if self.counts[middle * dies + die] <= nth { low = middle } else { high = middle }
            }
            let mut passed = self.counts.get(low * dies + die).copied().unwrap_or_default();
            let mut row = low * self.step;
            while unit < to && row < self.dies.len() {
                if usize::from(self.dies[row]) == die {
                    if passed == nth {
                        let ends = self.unit_of(die, nth) + row_units;
                        while unit < to.min(ends) {
                            let written = row as u64 * u64::from(row_units) + u64::from(row_units - (ends - unit));
                            if written < self.blocks {
                                put((unit - first) as usize, self.block(written));
                            }
                            unit += 1;
                        }
                        nth += 1;
                    }
                    passed += 1;
                }
                row += 1;
            }
            unit = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::energy::profile::{DeviceSpec, Profile};

    #[test]
    fn both_directions_agree_with_a_table() {
        let DeviceSpec::Flash(spec) = Profile::find("kirin9000-ufs31").unwrap().device else { panic!("flash") };
        let mut rng = Rng::new(12);
        let runs = [(Lba(50_000), 20_001), (Lba(0), 9), (Lba(100_000), 28_000), (Lba(10), 30_000)];
        let blocks = 1 << 17;
        let geometry = Geometry::new(&spec.nand, blocks);
        let mut placement = Placement::new(geometry, &runs).unwrap();
        let (mut map, mut reverse) = (vec![None; blocks as usize], vec![None; geometry.units() as usize]);
        let mut held = vec![0; geometry.dies as usize];
        let mut order = runs.iter().flat_map(|(first, n)| first.0..first.0 + n).peekable();
        while order.peek().is_some() {
            let die = (0..2).map(|_| rng.below(u64::from(geometry.dies))).max().unwrap() as u32;
            placement.push(die, &held);
            let first = geometry.unit(die * geometry.blocks, 0) + held[die as usize] * geometry.row_units();
            held[die as usize] += 1;
            for unit in first..first + geometry.row_units() {
                if let Some(block) = order.next() {
                    map[block as usize] = Some(unit);
                    reverse[unit as usize] = Some(block as u32);
                }
            }
        }
        for (block, unit) in map.iter().enumerate() {
            assert_eq!(placement.unit(block as u32), *unit, "block {block}");
        }
        for _ in 0..300 {
            let (first, count) = (rng.below(blocks - 5_000) as u32, 1 + rng.index(4_999));
            let mut got = vec![None; count];
            placement.units(first, count, |i, unit| got[i] = Some(unit));
            assert_eq!(got, map[first as usize..first as usize + count]);
            let first = rng.below(u64::from(geometry.units()) - 5_000) as u32;
            let mut got = vec![None; count];
            placement.holders(first, count, |i, block| got[i] = Some(block));
            assert_eq!(got, reverse[first as usize..first as usize + count]);
            assert_eq!(placement.held(first), reverse[first as usize]);
        }
    }

    #[test]
    fn runs_that_overlap_have_no_order_of_rows() {
        let DeviceSpec::Flash(spec) = Profile::find("kirin9000-ufs31").unwrap().device else { panic!("flash") };
        let of = |runs: &[(u64, u64)]| {
            let runs: Vec<_> = runs.iter().map(|(first, n)| (Lba(*first), *n)).collect();
            Placement::new(Geometry::new(&spec.nand, 1 << 16), &runs).is_some()
        };
        assert!(of(&[(0, 5), (5, 5)]) && of(&[(5, 5), (0, 5)]));
        assert!(!of(&[(0, 6), (5, 5)]) && !of(&[(3, 1), (0, 100)]) && !of(&[(0, 0)]) && !of(&[]));
    }
}
