//! How does a policy see hundreds of thousands of segments without looking at each?
//!
//! Units stand in two orders. By place on the volume, in pages of 64 with a tree of minima above: the
//! emptiest of a range is found by a walk down that tree. By age, in slices of up to [`SLICE`] units,
//! each with the bounds of what it holds: a search asks for each slice how high its best could rank,
//! and looks inside only where that beats what was found. Places in the order of age are sums over
//! slices, kept for chunks of them.
//!
//! Bounds and numbers are kept for each [`Among`]. Left out on purpose: what is entered, and when
//! (`gc::chooser`), and how candidates rank (`gc::policy`).

use std::ops::Range;

use format::SegNo;

use crate::gc::policy::{AgeCut, Among, Bounds, Candidate, Rank, View};

/// Units in a slice at most.
const SLICE: usize = 64;
/// Two neighbouring slices of so many units in all become one.
const MERGE: usize = 40;
/// Units in a page.
const PAGE: usize = 64;
/// Slices in a chunk.
const CHUNK: usize = 64;
/// Numbers of units, by kind.
type Counts = [u32; 3];

/// Some units that follow one another in the order of age.
#[derive(Debug, Clone)]
struct Slice {
    units: Vec<Candidate>,
    bounds: [Bounds; 3],
    counts: Counts,
}

impl Slice {
    fn new(units: Vec<Candidate>, per: u32) -> Self {
        let mut slice = Slice { units, bounds: [Bounds::NONE; 3], counts: [0; 3] };
        slice.reckon(per);
        slice
    }
    fn reckon(&mut self, per: u32) {
        (self.bounds, self.counts) = ([Bounds::NONE; 3], [0; 3]);
        for c in &self.units {
            for kind in Among::ALL {
                if c.is(kind, per) {
                    self.bounds[kind as usize].add(c);
                    self.counts[kind as usize] += 1;
                }
            }
        }
    }
    fn first(&self) -> AgeCut {
        self.units.first().map_or((0, SegNo(0)), Candidate::place)
    }
}

/// The order of age.
#[derive(Debug, Default)]
struct Ages {
    /// Slices in no order; those without units are free.
    slices: Vec<Slice>,
    free: Vec<u32>,
    /// Slices that hold something, the oldest first.
    order: Vec<u32>,
    /// Numbers of units in each chunk of `order`.
    chunks: Vec<Counts>,
    per: u32,
}

impl Ages {
    fn at(&self, n: usize) -> &Slice {
        &self.slices[self.order[n] as usize]
    }
    /// The slice where `place` is or would be.
    fn find(&self, place: AgeCut) -> usize {
        self.order.partition_point(|&s| self.slices[s as usize].first() <= place).saturating_sub(1)
    }
    /// Adds up the chunks again, from the one with slice `from` on.
    fn rechunk(&mut self, from: usize) {
        let first = from / CHUNK;
        self.chunks.truncate(first);
        for slices in self.order[(first * CHUNK).min(self.order.len())..].chunks(CHUNK) {
            let mut sum = [0; 3];
            for &s in slices {
                add(&mut sum, self.slices[s as usize].counts);
            }
            self.chunks.push(sum);
        }
    }
    /// Follows a change inside slice `n`.
    fn changed(&mut self, n: usize) {
        let slice = &mut self.slices[self.order[n] as usize];
        let before = slice.counts;
        slice.reckon(self.per);
        let after = slice.counts;
        let chunk = &mut self.chunks[n / CHUNK];
        for kind in 0..3 {
            chunk[kind] = chunk[kind] + after[kind] - before[kind];
        }
    }
    fn open(&mut self, n: usize, units: Vec<Candidate>) {
        let slice = Slice::new(units, self.per);
        let id = match self.free.pop() {
            Some(id) => {
                self.slices[id as usize] = slice;
                id
            }
            None => {
                self.slices.push(slice);
                self.slices.len() as u32 - 1
            }
        };
        self.order.insert(n, id);
    }
    fn close(&mut self, n: usize) -> Vec<Candidate> {
        let id = self.order.remove(n);
        self.free.push(id);
        std::mem::take(&mut self.slices[id as usize].units)
    }
    fn insert(&mut self, c: Candidate) {
        if self.order.is_empty() {
            self.open(0, vec![c]);
            return self.rechunk(0);
        }
        let n = self.find(c.place());
        let slice = &mut self.slices[self.order[n] as usize];
        let at = slice.units.partition_point(|u| u.place() < c.place());
        slice.units.insert(at, c);
        if slice.units.len() <= SLICE {
            return self.changed(n);
        }
        // Segments are written one after another: what is split off at the young end stays nearly full.
        let young = n + 1 == self.order.len() && at + 1 == slice.units.len();
        let upper = slice.units.split_off(if young { SLICE * 7 / 8 } else { SLICE / 2 });
        slice.reckon(self.per);
        self.open(n + 1, upper);
        self.rechunk(n);
    }
    fn remove(&mut self, place: AgeCut) {
        let n = self.find(place);
        let slice = &mut self.slices[self.order[n] as usize];
        let Ok(at) = slice.units.binary_search_by_key(&place, Candidate::place) else { return };
        slice.units.remove(at);
        let left = slice.units.len();
        let with = |n: usize| self.order.get(n).map_or(usize::MAX, |&s| left + self.slices[s as usize].units.len());
        let into = match n.checked_sub(1) {
            Some(m) if with(m) <= MERGE => Some((m, n)),
            _ if with(n + 1) <= MERGE => Some((n, n + 1)),
            _ => None,
        };
        if let Some((older, younger)) = into {
            let units = self.close(younger);
            let slice = &mut self.slices[self.order[older] as usize];
            slice.units.extend(units);
            slice.reckon(self.per);
            self.rechunk(older);
        } else if left == 0 {
            self.close(n);
            self.rechunk(n);
        } else {
            self.changed(n);
        }
    }
    /// The slice that holds place `n` of a kind, and the place of its first.
    fn locate(&self, kind: Among, n: u32) -> Option<(usize, u32)> {
        let kind = kind as usize;
        let mut before = 0;
        let chunk = self.chunks.iter().position(|c| {
            let here = before + c[kind] > n;
            before += if here { 0 } else { c[kind] };
            here
        })?;
        for slice in chunk * CHUNK..self.order.len() {
            let count = self.at(slice).counts[kind];
            if before + count > n {
                return Some((slice, before));
            }
            before += count;
        }
        None
    }
    /// Calls `each` for the slices that hold places in `range`, with the place of their first, until it
    /// returns false.
    fn slices(&self, kind: Among, range: &Range<u32>, mut each: impl FnMut(&Slice, u32)) {
        if range.is_empty() {
            return;
        }
        let Some((first, mut place)) = self.locate(kind, range.start) else { return };
        for n in first..self.order.len() {
            let slice = self.at(n);
            each(slice, place);
            place += slice.counts[kind as usize];
            if place >= range.end {
                return;
            }
        }
    }
}

fn add(sum: &mut Counts, by: Counts) {
    for kind in 0..3 {
        sum[kind] += by[kind];
    }
}

/// What policies look at, of units that change a few at a time.
#[derive(Debug)]
pub struct Index {
    per: u32,
    count: u32,
    /// By unit; pages without units take no room.
    pages: Vec<Option<Box<[Option<Candidate>; PAGE]>>>,
    /// Valid blocks of the emptiest of each page, and above them of each pair; `u32::MAX` for none. The
    /// root is 1, the children of `n` are `2n` and `2n + 1`, page `p` is `leaves + p`.
    least: Vec<u32>,
    leaves: usize,
    ages: Ages,
}

impl Index {
    /// Of no units yet, on a volume of `main_segs` segments; a unit has `segs_per_section` of them.
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
            ages: Ages { per, ..Ages::default() },
        }
    }

    /// Enters a unit, changes it, or takes it out. What does not lie on the volume, or is not the first
    /// segment of a unit, is left out.
    pub fn set(&mut self, seg: SegNo, unit: Option<Candidate>) {
        let n = (seg.0 / self.per) as usize;
        let (page, slot) = (n / PAGE, n % PAGE);
        if page >= self.pages.len() || !seg.0.is_multiple_of(self.per) {
            return;
        }
        let unit = unit.map(|c| Candidate { seg, ..c });
        let old = self.pages[page].as_ref().and_then(|p| p[slot]);
        if old == unit {
            return;
        }
        if let Some(old) = old {
            self.ages.remove(old.place());
        }
        if let Some(new) = unit {
            self.ages.insert(new);
        }
        self.count = self.count + u32::from(unit.is_some()) - u32::from(old.is_some());
        let units = self.pages[page].get_or_insert_with(|| Box::new([None; PAGE]));
        units[slot] = unit;
        let least = units.iter().flatten().map(|c| c.valid).min().unwrap_or(u32::MAX);
        if least == u32::MAX {
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

    /// The candidates among units `from` to `to` of a page.
    fn of_page(&self, page: usize, from: usize, to: usize) -> impl Iterator<Item = &Candidate> {
        let units = self.pages.get(page).and_then(|p| p.as_deref());
        units.into_iter().flat_map(move |u| u[from..to].iter().flatten())
    }

    /// The first of the emptiest pages in a range of pages, with the valid blocks of its emptiest.
    fn emptiest_page(&self, pages: Range<usize>) -> Option<(u32, usize)> {
        // From the edges of the range upwards: the parts it is made of, the left ones in order.
        let (mut a, mut b) = (self.leaves + pages.start, self.leaves + pages.end);
        let (mut left, mut right): (Option<(u32, usize)>, Option<(u32, usize)>) = (None, None);
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
        self.of_page(at - self.leaves, 0, PAGE).last().map(|c| c.seg)
    }
    fn scan(&self, from: SegNo, to: SegNo, each: &mut dyn FnMut(Candidate) -> bool) {
        let range = self.unit_range(from, to);
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            if self.least[self.leaves + page] == u32::MAX {
                continue;
            }
            let (a, b) = (range.start.saturating_sub(page * PAGE), (range.end - page * PAGE).min(PAGE));
            for c in self.of_page(page, a, b) {
                if !each(*c) {
                    return;
                }
            }
        }
    }
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate> {
        let range = self.unit_range(from, to);
        let inside = |page: usize, a: usize, b: usize| self.of_page(page, a, b).min_by_key(|c| c.valid);
        let (first, last) = (range.start / PAGE, range.end / PAGE);
        if first == last {
            return inside(first, range.start % PAGE, range.end % PAGE).copied();
        }
        let head = inside(first, range.start % PAGE, PAGE);
        let middle = self.emptiest_page(first + 1..last);
        let middle = middle.and_then(|(least, page)| self.of_page(page, 0, PAGE).find(|c| c.valid == least));
        let tail = inside(last, 0, range.end % PAGE);
        head.into_iter().chain(middle).chain(tail).min_by_key(|c| c.valid).copied()
    }
    fn count_to(&self, kind: Among, cut: AgeCut) -> u32 {
        if self.ages.order.is_empty() {
            return 0;
        }
        let n = self.ages.find(cut);
        let chunks = self.ages.chunks[..n / CHUNK].iter().map(|c| c[kind as usize]).sum::<u32>();
        let slices = (n / CHUNK * CHUNK..n).map(|s| self.ages.at(s).counts[kind as usize]).sum::<u32>();
        let units = self.ages.at(n).units.iter().filter(|c| c.place() <= cut && c.is(kind, self.per));
        chunks + slices + units.count() as u32
    }
    fn nth_oldest(&self, kind: Among, n: u32) -> Option<AgeCut> {
        let (slice, first) = self.ages.locate(kind, n)?;
        let mut units = self.ages.at(slice).units.iter().filter(|c| c.is(kind, self.per));
        units.nth((n - first) as usize).map(Candidate::place)
    }
    fn by_age(&self, kind: Among, range: Range<u32>, each: &mut dyn FnMut(Candidate)) {
        self.ages.slices(kind, &range, |slice, first| {
            let units = slice.units.iter().filter(|c| c.is(kind, self.per));
            (first..).zip(units).filter(|(n, _)| range.contains(n)).for_each(|(_, c)| each(*c));
        });
    }
    fn search(
        &self,
        kind: Among,
        range: Range<u32>,
        limit: &dyn Fn(&Bounds) -> Rank,
        rank: &dyn Fn(&Candidate) -> Rank,
    ) -> Option<Candidate> {
        let mut best: Option<(Rank, Candidate)> = None;
        let mut look = |slice: &Slice, first: u32| {
            let count = slice.counts[kind as usize];
            if count == 0 {
                return;
            }
            if let Some((top, found)) = &best {
                let most = limit(&slice.bounds[kind as usize]);
                if most < *top || (most == *top && found.place() <= slice.first()) {
                    return;
                }
            }
            let whole = range.start <= first && first + count <= range.end;
            let mut n = first;
            for c in slice.units.iter().filter(|c| kind == Among::All || c.is(kind, self.per)) {
                n += 1;
                if !whole && !range.contains(&(n - 1)) {
                    continue;
                }
                let r = rank(c);
                if best.as_ref().is_none_or(|(top, found)| r > *top || (r == *top && c.place() < found.place())) {
                    best = Some((r, *c));
                }
            }
        };
        // Both ends first: one of them is often near the best, and then the rest is soon ruled out.
        for end in [range.start, range.end.saturating_sub(1)] {
            if !range.is_empty()
                && let Some((n, first)) = self.ages.locate(kind, end)
            {
                look(self.ages.at(n), first);
            }
        }
        self.ages.slices(kind, &range, look);
        best.map(|b| b.1)
    }
}
