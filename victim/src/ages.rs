//! What is the n-th oldest candidate, and what is the highest possible rank in a group of neighbours in age?
//!
//! Up to [`SLICE`] units in a row in age order form a slice, and up to [`CHUNK`] slices a chunk. A change
//! touches one slice and one chunk, and may leave their bounds too wide; [`Ages::settle`] makes them exact.
//! It runs after changes and before a search. Left out on purpose: the order by place on the volume, and when
//! changes are made (`index`).

use std::ops::Range;

use format::SegNo;

use crate::view::{AgeCut, Among, Bounds, Candidate};

/// Most units in a slice.
const SLICE: usize = 64;
/// Two neighbouring slices with at most this many units together are merged.
const MERGE: usize = 40;
/// Most slices in a chunk.
const CHUNK: usize = 96;
/// Number of units, by kind of candidate.
type Counts = [u32; 3];

/// Consecutive units in age order.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    /// The units, each with its number of fragments.
    pub(crate) units: Vec<(Candidate, u32)>,
    pub(crate) bounds: [Bounds; 3],
    pub(crate) counts: Counts,
    /// True if the bounds may be too wide.
    stale: bool,
}

impl Slice {
    fn new(units: Vec<(Candidate, u32)>, per: u32) -> Self {
        let mut slice = Slice { units, bounds: [Bounds::NONE; 3], counts: [0; 3], stale: false };
        slice.reckon(per);
        slice
    }
    /// A slice of these units, given in age order, with spare capacity.
    fn from_units(units: &[Candidate], per: u32) -> Self {
        let mut all = Vec::with_capacity(SLICE + 1);
        all.extend(units.iter().map(|c| (*c, c.fragments())));
        Slice::new(all, per)
    }
    fn reckon(&mut self, per: u32) {
        (self.bounds, self.counts, self.stale) = ([Bounds::NONE; 3], [0; 3], false);
        for (c, fragments) in &self.units {
            for kind in Among::ALL {
                if c.is(kind, per) {
                    self.bounds[kind as usize].add_with_fragments(c, *fragments);
                    self.counts[kind as usize] += 1;
                }
            }
        }
    }
    pub(crate) fn of_kind(&self, kind: Among, per: u32) -> impl Iterator<Item = &Candidate> {
        self.units.iter().map(|u| &u.0).filter(move |c| kind == Among::All || c.is(kind, per))
    }
    pub(crate) fn first(&self) -> AgeCut {
        self.units.first().map_or((0, SegNo(0)), |u| u.0.place())
    }
}

/// Consecutive slices.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) slices: Vec<Slice>,
    /// The place of the first unit of each slice.
    firsts: Vec<AgeCut>,
    pub(crate) counts: Counts,
    pub(crate) bounds: [Bounds; 3],
    /// True if the bounds of the chunk or of one of its slices may be too wide.
    stale: bool,
}

impl Chunk {
    fn new(slices: Vec<Slice>) -> Self {
        let firsts = slices.iter().map(Slice::first).collect();
        let mut chunk = Chunk { slices, firsts, counts: [0; 3], bounds: [Bounds::NONE; 3], stale: false };
        chunk.reckon();
        chunk
    }
    fn reckon(&mut self) {
        (self.counts, self.bounds) = ([0; 3], [Bounds::NONE; 3]);
        for slice in &self.slices {
            for kind in 0..3 {
                self.counts[kind] += slice.counts[kind];
                self.bounds[kind].join(&slice.bounds[kind]);
            }
        }
        self.stale = self.slices.iter().any(|s| s.stale);
    }
    /// Counts a unit inserted into slice `n`.
    fn count_inserted(&mut self, n: usize, (c, fragments): &(Candidate, u32), per: u32) {
        let slice = &mut self.slices[n];
        for kind in Among::ALL.into_iter().filter(|kind| c.is(*kind, per)) {
            let kind = kind as usize;
            slice.bounds[kind].add_with_fragments(c, *fragments);
            self.bounds[kind].add_with_fragments(c, *fragments);
            slice.counts[kind] += 1;
            self.counts[kind] += 1;
        }
        self.firsts[n] = slice.first();
    }
    /// Uncounts a unit removed from slice `n`.
    fn count_removed(&mut self, n: usize, (c, fragments): &(Candidate, u32), per: u32) {
        let slice = &mut self.slices[n];
        for kind in Among::ALL.into_iter().filter(|kind| c.is(*kind, per)) {
            let kind = kind as usize;
            slice.stale |= slice.bounds[kind].is_edge(c, *fragments);
            slice.counts[kind] -= 1;
            self.counts[kind] -= 1;
        }
        self.stale |= slice.stale;
        self.firsts[n] = slice.first();
    }
    fn settle(&mut self, per: u32) {
        if self.stale {
            self.slices.iter_mut().filter(|s| s.stale).for_each(|s| s.reckon(per));
            self.reckon();
        }
    }
    /// The slices with units of a kind, each with the place of its first such unit; `first` is the place of
    /// the chunk's first.
    pub(crate) fn slices(&self, kind: Among, first: u32) -> impl Iterator<Item = (&Slice, u32)> {
        let mut place = first;
        self.slices.iter().filter_map(move |slice| {
            let first = place;
            place += slice.counts[kind as usize];
            (first < place).then_some((slice, first))
        })
    }
    pub(crate) fn first(&self) -> AgeCut {
        self.firsts.first().copied().unwrap_or((0, SegNo(0)))
    }
}

/// The candidates in age order. Every slice and every chunk has at least one unit.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) per: u32,
}

impl Ages {
    /// Sorts `units` by age; a unit has `per` segments.
    pub(crate) fn new(per: u32, mut units: Vec<Candidate>) -> Self {
        units.sort_unstable_by_key(Candidate::place);
        let mut slices = units.chunks(SLICE * 3 / 4).map(|units| Slice::from_units(units, per));
        let chunk = || Some(slices.by_ref().take(CHUNK * 3 / 4).collect::<Vec<_>>()).filter(|c| !c.is_empty());
        Ages { chunks: std::iter::from_fn(chunk).map(Chunk::new).collect(), per }
    }
    /// Makes all bounds exact.
    pub(crate) fn settle(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.settle(self.per));
    }
    /// The chunk, and the slice in it, that hold `place` or would hold it.
    pub(crate) fn find(&self, place: AgeCut) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|c| c.first() <= place).saturating_sub(1);
        let firsts = self.chunks.get(chunk).map_or(&[][..], |c| &c.firsts);
        (chunk, firsts.partition_point(|first| *first <= place).saturating_sub(1))
    }
    /// Inserts a unit.
    pub(crate) fn insert(&mut self, c: Candidate) {
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new(vec![Slice::from_units(&[c], self.per)]));
            return;
        }
        let entry = (c, c.fragments());
        let (at, n) = self.find(c.place());
        let youngest = at + 1 == self.chunks.len();
        let chunk = &mut self.chunks[at];
        let youngest = youngest && n + 1 == chunk.slices.len();
        let units = &mut chunk.slices[n].units;
        let place = units.partition_point(|u| u.0.place() < c.place());
        units.insert(place, entry);
        let size = units.len();
        chunk.count_inserted(n, &entry, self.per);
        if size <= SLICE {
            return;
        }
        // Segments are written one after another, so a slice that is split at the young end stays nearly
        // full.
        let young = youngest && place + 1 == size;
        let slice = &mut chunk.slices[n];
        let upper = Slice::new(slice.units.split_off(if young { SLICE * 7 / 8 } else { SLICE / 2 }), self.per);
        slice.reckon(self.per);
        chunk.firsts.insert(n + 1, upper.first());
        chunk.slices.insert(n + 1, upper);
        if chunk.slices.len() > CHUNK {
            let upper = chunk.slices.split_off(if young { CHUNK * 7 / 8 } else { CHUNK / 2 });
            chunk.firsts.truncate(chunk.slices.len());
            chunk.reckon();
            self.chunks.insert(at + 1, Chunk::new(upper));
        }
    }
    /// Removes the unit at a place.
    pub(crate) fn remove(&mut self, place: AgeCut) {
        let (at, n) = self.find(place);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let units = &mut chunk.slices[n].units;
        let Ok(unit) = units.binary_search_by_key(&place, |u| u.0.place()) else { return };
        let entry = units.remove(unit);
        let left = units.len();
        chunk.count_removed(n, &entry, self.per);
        let with = |n: usize| chunk.slices.get(n).map_or(usize::MAX, |s| left + s.units.len());
        let into = match n.checked_sub(1) {
            Some(m) if with(m) <= MERGE => Some(m),
            _ if with(n + 1) <= MERGE => Some(n),
            _ => None,
        };
        if let Some(older) = into {
            let units = chunk.slices.remove(older + 1).units;
            chunk.firsts.remove(older + 1);
            chunk.slices[older].units.extend(units);
            chunk.slices[older].reckon(self.per);
            chunk.firsts[older] = chunk.slices[older].first();
        } else if left == 0 {
            chunk.slices.remove(n);
            chunk.firsts.remove(n);
        } else {
            return;
        }
        chunk.stale = true;
        if chunk.slices.is_empty() {
            self.chunks.remove(at);
        } else if chunk.slices.len() < CHUNK / 4 {
            self.merge(at);
        }
    }
    /// Merges a chunk with a neighbour if both are small.
    fn merge(&mut self, at: usize) {
        for older in [at.wrapping_sub(1), at] {
            let of = |n: usize| self.chunks.get(n).map_or(CHUNK, |c| c.slices.len());
            if of(older) + of(older.wrapping_add(1)) <= CHUNK / 2 {
                let younger = self.chunks.remove(older + 1);
                let chunk = &mut self.chunks[older];
                chunk.slices.extend(younger.slices);
                chunk.firsts.extend(younger.firsts);
                chunk.reckon();
                chunk.stale = true;
                return;
            }
        }
    }
    /// The slice that holds place `n` of a kind, and the place of the slice's first such unit.
    pub(crate) fn locate(&self, kind: Among, n: u32) -> Option<(&Slice, u32)> {
        let kind = kind as usize;
        let mut before = 0;
        for chunk in &self.chunks {
            if before + chunk.counts[kind] <= n {
                before += chunk.counts[kind];
                continue;
            }
            for slice in &chunk.slices {
                if before + slice.counts[kind] > n {
                    return Some((slice, before));
                }
                before += slice.counts[kind];
            }
        }
        None
    }
    /// Calls `each` for the chunks that hold places in `range`, with the place of the first unit of each.
    pub(crate) fn chunks<'a>(&'a self, kind: Among, range: &Range<u32>, mut each: impl FnMut(&'a Chunk, u32)) {
        let mut place = 0;
        for chunk in &self.chunks {
            let first = place;
            place += chunk.counts[kind as usize];
            if first >= range.end {
                return;
            }
            if first < place && range.start < place {
                each(chunk, first);
            }
        }
    }
}
