//! How does a policy see hundreds of thousands of segments without looking at each?
//!
//! The index keeps the candidates in up to three orders. It builds the second and the third when a policy
//! first needs them:
//!
//! * *By place* on the volume: pages of 64 units, and a tree of minima above the pages. A walk down that tree
//!   finds the emptiest unit of a range.
//! * *By age*: slices of up to 64 units, and chunks of slices (`ages`). Each slice and chunk has the bounds
//!   of its units. A search computes the highest rank possible within those bounds, and looks inside only if
//!   that beats the best found so far. A unit's place in this order is the sum of the counts of the chunks
//!   and slices before it.
//! * *By valid blocks and fragments* (`grid`): for a policy whose rank does not depend first on place or age.
//!
//! The order by place and the grid are updated at each change. The age order collects changes and applies
//! them at the next query by age.
//!
//! Bounds and counts are kept for each kind of candidate ([`Among`]). Left out on purpose: which units are
//! entered and when (the file system's business), and how candidates rank (the policies').

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Range;

use format::SegNo;

use crate::ages::{Ages, Slice};
use crate::grid::Grid;
use crate::view::{AgeCut, Among, Bounds, Candidate, Rank, View, Visit};

/// Units in a page.
const PAGE: usize = 64;
/// Units with neighbouring places on the volume.
#[derive(Debug, Clone)]
struct Page {
    /// Bitmap of candidates, the first unit in the lowest bit.
    occupied: u64,
    units: [Candidate; PAGE],
    /// Valid blocks of the emptiest candidate; `u32::MAX` if there is none.
    least: u32,
    /// May be wider than the candidates need. Bounds of fragments are not kept: no search needs them from a
    /// page.
    bounds: Cell<Bounds>,
    /// True if the bounds may be too wide.
    wide: Cell<bool>,
}

impl Page {
    fn empty() -> Box<Page> {
        let none = Candidate { seg: SegNo(0), valid: 0, held: 0, mtime: 0, f: 0, loose: 0 };
        let (bounds, wide) = (Cell::new(Bounds::NONE), Cell::new(false));
        Box::new(Page { occupied: 0, units: [none; PAGE], least: u32::MAX, bounds, wide })
    }
    /// Inserts, changes or (`None`) removes the candidate in a slot.
    fn set(&mut self, slot: usize, unit: Option<Candidate>) {
        let old = (self.occupied >> slot & 1 == 1).then(|| self.units[slot]);
        self.occupied &= !(1 << slot);
        let bounds = self.bounds.get_mut();
        if let Some(old) = &old {
            *self.wide.get_mut() |= bounds.is_edge(old, 0);
        }
        if let Some(c) = unit {
            bounds.add_with_fragments(&c, 0);
            self.occupied |= 1 << slot;
            self.units[slot] = c;
            self.least = self.least.min(c.valid);
        }
        let now = unit.map_or(u32::MAX, |c| c.valid);
        if old.is_some_and(|old| old.valid == self.least && old.valid < now) {
            self.least = self.among(0, PAGE).map(|c| c.valid).min().unwrap_or(u32::MAX);
        }
    }
    /// Makes the bounds exact; returns false if they already were.
    fn narrow(&self) -> bool {
        let wide = self.wide.replace(false);
        if wide {
            let mut bounds = Bounds::NONE;
            self.among(0, PAGE).for_each(|c| bounds.add_with_fragments(c, 0));
            self.bounds.set(bounds);
        }
        wide
    }
    /// The candidates in slots `from` to `to`.
    fn among(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = &Candidate> {
        let low = |n: usize| if n < PAGE { (1u64 << n) - 1 } else { u64::MAX };
        Bits(self.occupied & low(to) & !low(from)).map(|n| &self.units[n])
    }
}

/// Positions of the set bits.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let n = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (n < u64::BITS).then_some(n as usize)
    }
}

impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<usize> {
        let n = self.0.checked_ilog2()?;
        self.0 &= !(1 << n);
        Some(n as usize)
    }
}

/// The age order, and the changes not yet applied to it.
#[derive(Debug, Default)]
struct ByAge {
    ages: Ages,
    /// True if a policy has used this order.
    asked: bool,
    /// Units changed since the last query, with their old place in `ages`.
    due: Vec<(SegNo, Option<AgeCut>)>,
    /// One bit for each unit in `due`, by page.
    marks: Vec<u64>,
}

impl ByAge {
    /// Records that a unit changed; `old` is its former place.
    fn note(&mut self, (page, slot): (usize, usize), seg: SegNo, old: Option<AgeCut>) {
        if self.asked && self.marks[page] >> slot & 1 == 0 {
            self.marks[page] |= 1 << slot;
            self.due.push((seg, old));
        }
    }
}

/// The candidates of a volume, changed a few at a time and searched by policies.
#[derive(Debug)]
pub struct Index {
    per: u32,
    count: u32,
    /// By place on the volume; `None` for a page without candidates.
    pages: Vec<Option<Box<Page>>>,
    /// The tree of minima: valid blocks of the emptiest candidate of each page, and of each pair of children
    /// above; `u32::MAX` for none. The root is 1, the children of `n` are `2n` and `2n + 1`, page `p` is
    /// `leaves + p`.
    least: Vec<u32>,
    leaves: usize,
    by_age: RefCell<ByAge>,
    /// The order by valid blocks and fragments; built when a policy first asks for it.
    grid: OnceCell<Grid>,
}

impl Index {
    /// An index without candidates, for a volume of `main_segs` segments; a unit has `segs_per_section` of them.
    pub fn new(main_segs: u32, segs_per_section: u32) -> Self {
        let per = segs_per_section.max(1);
        let pages = (main_segs.div_ceil(per) as usize).div_ceil(PAGE).max(1);
        let leaves = pages.next_power_of_two();
        Index {
            per,
            count: 0,
            pages: vec![None; pages],
            least: vec![u32::MAX; 2 * leaves],
            leaves,
            by_age: RefCell::default(),
            grid: OnceCell::new(),
        }
    }

    /// Inserts a unit, changes it, or (`None`) removes it. A segment outside the volume, or one that is not
    /// the first of a unit, is ignored.
    pub fn set(&mut self, seg: SegNo, unit: Option<Candidate>) {
        let n = (seg.0 / self.per) as usize;
        let (page, slot) = (n / PAGE, n % PAGE);
        if page >= self.pages.len() || !seg.0.is_multiple_of(self.per) {
            return;
        }
        let unit = unit.map(|c| Candidate { seg, ..c });
        let old = self.unit(seg).copied();
        if old == unit {
            return;
        }
        self.by_age.get_mut().note((page, slot), seg, old.map(|c| c.place()));
        if let Some(grid) = self.grid.get_mut() {
            old.iter().for_each(|c| grid.remove(c));
            unit.iter().for_each(|c| grid.insert(c));
        }
        self.count = self.count + u32::from(unit.is_some()) - u32::from(old.is_some());
        let units = self.pages[page].get_or_insert_with(Page::empty);
        units.set(slot, unit);
        let least = units.least;
        if units.occupied == 0 {
            self.pages[page] = None;
        }
        let mut at = self.leaves + page;
        self.least[at] = least;
        while at > 1 {
            at /= 2;
            let new = self.least[2 * at].min(self.least[2 * at + 1]);
            if std::mem::replace(&mut self.least[at], new) == new {
                break;
            }
        }
    }

    /// Updates the age order now. Otherwise the next query by age does it.
    pub fn catch_up(&self) {
        self.ages();
    }

    /// The age order, updated.
    fn ages(&self) -> Ref<'_, Ages> {
        let late = |b: &ByAge| !b.asked || !b.due.is_empty();
        if late(&self.by_age.borrow()) {
            let ByAge { ages, asked, due, marks } = &mut *self.by_age.borrow_mut();
            marks.resize(self.pages.len(), 0);
            // Applying one change costs as much as building the order for some tens of units, so many changes
            // rebuild it.
            if !*asked || due.len() * 16 > self.count as usize {
                *ages =
                    Ages::new(self.per, self.pages.iter().flatten().flat_map(|p| p.among(0, PAGE)).copied().collect());
                (*asked, *due) = (true, Vec::new());
                marks.fill(0);
            }
            for (_, old) in due.iter() {
                old.iter().for_each(|place| ages.remove(*place));
            }
            for (seg, _) in due.drain(..) {
                marks[(seg.0 / self.per) as usize / PAGE] = 0;
                self.unit(seg).iter().for_each(|c| ages.insert(**c));
            }
            ages.settle();
        }
        Ref::map(self.by_age.borrow(), |b| &b.ages)
    }

    fn unit(&self, seg: SegNo) -> Option<&Candidate> {
        let n = (seg.0 / self.per) as usize;
        let page = self.pages.get(n / PAGE)?.as_deref()?;
        (page.occupied >> (n % PAGE) & 1 == 1).then(|| &page.units[n % PAGE])
    }

    /// The candidates in slots `from` to `to` of a page.
    fn page_units(&self, page: usize, from: usize, to: usize) -> impl DoubleEndedIterator<Item = &Candidate> {
        let page = self.pages.get(page).and_then(|p| p.as_deref());
        page.into_iter().flat_map(move |p| p.among(from, to))
    }

    /// The first page with the emptiest candidate in a range of pages, and that candidate's valid blocks.
    fn emptiest_page(&self, pages: Range<usize>) -> Option<(u32, usize)> {
        // The walk goes up from both edges of the range and meets the subtrees that cover it, on the left in
        // order.
        let (mut a, mut b) = (self.leaves + pages.start, self.leaves + pages.end);
        let [mut left, mut right] = [None::<(u32, usize)>; 2];
        while a < b {
            if a % 2 == 1 {
                if left.is_none_or(|l| self.least[a] < l.0) {
                    left = Some((self.least[a], a));
                }
                a += 1;
            }
            if b % 2 == 1 {
                b -= 1;
                if right.is_none_or(|r| self.least[b] <= r.0) {
                    right = Some((self.least[b], b));
                }
            }
            (a, b) = (a / 2, b / 2);
        }
        let (least, mut at) = match (left, right) {
            (Some(l), Some(r)) if r.0 < l.0 => r,
            (l, r) => l.or(r)?,
        };
        if least == u32::MAX {
            return None;
        }
        while at < self.leaves {
            at = if self.least[2 * at] == least { 2 * at } else { 2 * at + 1 };
        }
        Some((least, at - self.leaves))
    }

    fn unit_range(&self, from: SegNo, to: SegNo) -> Range<usize> {
        let end = self.pages.len() * PAGE;
        let unit = |seg: SegNo| (seg.0.div_ceil(self.per) as usize).min(end);
        unit(from)..unit(to).max(unit(from))
    }
}

impl View for Index {
    fn count(&self) -> u32 {
        self.count
    }
    fn last(&self) -> Option<SegNo> {
        if self.least[1] == u32::MAX {
            return None;
        }
        let mut at = 1;
        while at < self.leaves {
            at = if self.least[2 * at + 1] < u32::MAX { 2 * at + 1 } else { 2 * at };
        }
        self.page_units(at - self.leaves, 0, PAGE).next_back().map(|c| c.seg)
    }
    fn walk(&self, from: SegNo, to: SegNo, visit: &mut dyn Visit) {
        let range = self.unit_range(from, to);
        for n in range.start / PAGE..range.end.div_ceil(PAGE) {
            let Some(page) = self.pages.get(n).and_then(|p| p.as_deref()) else { continue };
            let (a, b) = (range.start.saturating_sub(n * PAGE), (range.end - n * PAGE).min(PAGE));
            if (a, b) == (0, PAGE)
                && let Some(last) = page.among(a, b).next_back()
                && {
                    let mut passes = || visit.passes(&page.bounds.get(), page.occupied.count_ones(), last.seg);
                    passes() || (page.narrow() && passes())
                }
            {
                continue;
            }
            for c in page.among(a, b) {
                if !visit.visit(*c) {
                    return;
                }
            }
        }
    }
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate> {
        let range = self.unit_range(from, to);
        let inside = |page: usize, a: usize, b: usize| self.page_units(page, a, b).min_by_key(|c| c.valid);
        let (first, last) = (range.start / PAGE, range.end / PAGE);
        if first == last {
            return inside(first, range.start % PAGE, range.end % PAGE).copied();
        }
        let head = inside(first, range.start % PAGE, PAGE);
        let middle = self.emptiest_page(first + 1..last);
        let middle = middle.and_then(|(least, page)| self.page_units(page, 0, PAGE).find(|c| c.valid == least));
        let tail = inside(last, 0, range.end % PAGE);
        head.into_iter().chain(middle).chain(tail).min_by_key(|c| c.valid).copied()
    }
    fn count_to(&self, kind: Among, cut: AgeCut) -> u32 {
        let ages = self.ages();
        let (at, n) = ages.find(cut);
        let Some(chunk) = ages.chunks.get(at) else { return 0 };
        let chunks = ages.chunks[..at].iter().map(|c| c.counts[kind as usize]).sum::<u32>();
        let slices = chunk.slices[..n].iter().map(|s| s.counts[kind as usize]).sum::<u32>();
        chunks + slices + chunk.slices[n].of_kind(kind, self.per).filter(|c| c.place() <= cut).count() as u32
    }
    fn nth_oldest(&self, kind: Among, n: u32) -> Option<AgeCut> {
        let ages = self.ages();
        let (slice, first) = ages.locate(kind, n)?;
        let mut units = slice.of_kind(kind, self.per);
        units.nth((n - first) as usize).map(Candidate::place)
    }
    fn by_age(&self, kind: Among, range: Range<u32>, each: &mut dyn FnMut(Candidate)) {
        self.ages().chunks(kind, &range, |chunk, first| {
            for (slice, first) in chunk.slices(kind, first) {
                if first < range.end && range.start < first + slice.counts[kind as usize] {
                    let units = (first..).zip(slice.of_kind(kind, self.per));
                    units.filter(|(n, _)| range.contains(n)).for_each(|(_, c)| each(*c));
                }
            }
        });
    }
    fn search(
        &self,
        kind: Among,
        range: Range<u32>,
        limit: &dyn Fn(&Bounds) -> Rank,
        rank: &dyn Fn(&Candidate) -> Rank,
    ) -> Option<Candidate> {
        let best: Cell<Option<(Rank, Candidate)>> = Cell::new(None);
        let loses = |bounds: &[Bounds; 3], first: AgeCut| {
            best.get().is_some_and(|(top, found)| {
                let most = limit(&bounds[kind as usize]);
                most < top || (most == top && found.place() <= first)
            })
        };
        let look = |slice: &Slice, first: u32| {
            let count = slice.counts[kind as usize];
            let (from, to) = (range.start.max(first), range.end.min(first + count));
            if from >= to || loses(&slice.bounds, slice.first()) {
                return;
            }
            let whole = (from, to) == (first, first + count);
            let mut top = best.get();
            for (n, c) in (first..).zip(slice.of_kind(kind, self.per)) {
                if !whole && !range.contains(&n) {
                    continue;
                }
                let r = rank(c);
                if top.is_none_or(|(top, found)| r > top || (r == top && c.place() < found.place())) {
                    top = Some((r, *c));
                }
            }
            best.set(top);
        };
        // The search takes the most promising chunks first, and each from its more promising end, so the rest
        // is soon ruled out. Chunks that lie partly in the range are near its ends.
        let ages = self.ages();
        let mut whole = Vec::new();
        ages.chunks(kind, &range, |chunk, first| {
            if range.start <= first && first + chunk.counts[kind as usize] <= range.end {
                whole.push((limit(&chunk.bounds[kind as usize]), chunk, first));
            } else {
                chunk.slices(kind, first).for_each(|(slice, at)| look(slice, at));
            }
        });
        whole.sort_by_key(|w| std::cmp::Reverse(w.0));
        for (_, chunk, first) in whole {
            if loses(&chunk.bounds, chunk.first()) {
                continue;
            }
            let end = |slice: Option<&Slice>| slice.map(|s| limit(&s.bounds[kind as usize]));
            let mut slices: Vec<_> = chunk.slices(kind, first).collect();
            if end(slices.last().map(|s| s.0)) > end(slices.first().map(|s| s.0)) {
                slices.reverse();
            }
            slices.into_iter().for_each(|(slice, at)| look(slice, at));
        }
        best.get().map(|b| b.1)
    }
    fn range_of_f(&self, kind: Among, range: Range<u32>) -> Option<(u32, u32)> {
        let mut f: Option<(u32, u32)> = None;
        let mut add = |(low, high): (u32, u32)| f = Some(f.map_or((low, high), |f| (f.0.min(low), f.1.max(high))));
        self.ages().chunks(kind, &range, |chunk, first| {
            for (slice, first) in chunk.slices(kind, first) {
                let end = first + slice.counts[kind as usize];
                if range.start <= first && end <= range.end {
                    add(slice.bounds[kind as usize].f);
                } else if first < range.end && range.start < end {
                    let units = (first..).zip(slice.of_kind(kind, self.per));
                    units.filter(|(n, _)| range.contains(n)).for_each(|(_, c)| add((c.f, c.f)));
                }
            }
        });
        f
    }
    fn most_gained(&self, limit: &dyn Fn(&Bounds) -> u64, gain: &dyn Fn(&Candidate, u32) -> u64) -> Option<Candidate> {
        let grid = self.grid.get_or_init(|| {
            let mut grid = Grid::new(self.per);
            self.pages.iter().flatten().flat_map(|p| p.among(0, PAGE)).for_each(|c| grid.insert(c));
            grid
        });
        grid.best(limit, gain)
    }
}
