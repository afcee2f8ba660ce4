//! How many flash accesses do map caches of every size make?

use serde::Serialize;

/// Accesses of a cache of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Costs {
    /// Pages of the map fetched from flash: translation reads.
    pub reads: u64,
    /// Changed pages written back on eviction: translation writes.
    pub writes: u64,
    /// Changed pages still held at the end.
    pub changed: u64,
}

/// A size from which caches behave differently than smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Pages of the smallest such cache.
    pub pages: u64,
    /// Its accesses, valid up to the next step.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Accesses of caches of every size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Curve {
    /// Lookups: one per map page that a request needs.
    pub touches: u64,
    /// Most pages in use at the same time: a larger cache gains nothing.
    pub most_pages: u64,
    /// By size; the first has one page.
    pub steps: Vec<Step>,
}

impl Curve {
    /// `cold` fetches happen in every cache, `missed[d]` in every cache below `d` pages; `written` and `left` are
    /// differences from one size to the next.
    pub(super) fn new(touches: u64, most: u64, cold: u64, missed: &[u64], written: &[i64], left: &[i64]) -> Self {
        let end = missed.len().max(written.len()).max(left.len()).max(2);
        let mut reads = cold + missed.iter().sum::<u64>() - missed.first().copied().unwrap_or(0);
        let (mut writes, mut changed) = (0, 0);
        let mut steps: Vec<Step> = Vec::new();
        for pages in 1..end {
            // A page at this depth is in this cache.
            reads -= missed.get(pages).copied().unwrap_or(0);
            writes += written.get(pages).copied().unwrap_or(0);
            changed += left.get(pages).copied().unwrap_or(0);
            // Neither sum becomes negative: every subtraction follows an addition.
            let costs = Costs { reads, writes: writes.unsigned_abs(), changed: changed.unsigned_abs() };
            if steps.last().is_none_or(|s| s.costs != costs) {
                steps.push(Step { pages: pages as u64, costs });
            }
        }
        Curve { touches, most_pages: most, steps }
    }

    /// Accesses of a cache with this many pages; a size of 0 counts as one page.
    pub fn costs_at(&self, pages: u64) -> Costs {
        let after = self.steps.partition_point(|s| s.pages <= pages.max(1));
        self.steps.get(after.saturating_sub(1)).map_or(Costs::default(), |s| s.costs)
    }

    /// Sizes for a table: powers of two up to a cache that holds everything, and the caller's own.
    pub fn rows(&self, own: Option<u64>) -> Vec<u64> {
        let mut rows: Vec<u64> =
            (0..63).map(|n| 1 << n).take_while(|n| n / 2 < self.most_pages.max(1)).chain(own).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}
