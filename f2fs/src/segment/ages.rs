//! Candidates in the order of age, with the bounds of neighbours: who is the n-th oldest, and how high
//! could any of these rank?
//!
//! Up to [`SLICE`] units form a slice, up to [`CHUNK`] slices a chunk; a change touches one of each. Left
//! out on purpose: the order by place on the volume (`segment::index`).

use std::ops::Range;

use format::SegNo;

use crate::gc::policy::{AgeCut, Among, Bounds, Candidate};

/// Units in a slice at most.
const SLICE: usize = 64;
/// Two neighbouring slices of so many units in all become one.
const MERGE: usize = 40;
/// Slices in a chunk at most.
const CHUNK: usize = 96;
/// Changes after which a chunk's bounds are made exact again.
const STALE: u32 = 16;
/// Numbers of units, by kind.
type Counts = [u32; 3];

/// Some units that follow one another in the order of age.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    /// With their fragments.
    pub(super) units: Vec<(Candidate, u32)>,
    pub(super) bounds: [Bounds; 3],
    pub(super) counts: Counts,
}

impl Slice {
    fn new(units: Vec<(Candidate, u32)>, per: u32) -> Self {
        let mut slice = Slice { units, bounds: [Bounds::NONE; 3], counts: [0; 3] };
        slice.reckon(per);
        slice
    }
    fn reckon(&mut self, per: u32) {
        (self.bounds, self.counts) = ([Bounds::NONE; 3], [0; 3]);
        for (c, fragments) in &self.units {
            for kind in Among::ALL {
                if c.is(kind, per) {
                    self.bounds[kind as usize].add_of(c, *fragments);
                    self.counts[kind as usize] += 1;
                }
            }
        }
    }
    pub(super) fn of(&self, kind: Among, per: u32) -> impl Iterator<Item = &Candidate> {
        self.units.iter().map(|u| &u.0).filter(move |c| kind == Among::All || c.is(kind, per))
    }
    pub(super) fn first(&self) -> AgeCut {
        self.units.first().map_or((0, SegNo(0)), |u| u.0.place())
    }
}

/// Slices that follow one another.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) slices: Vec<Slice>,
    pub(super) counts: Counts,
    /// At least as wide as what is in it.
    pub(super) bounds: [Bounds; 3],
    /// Changes since the bounds were exact.
    stale: u32,
}

impl Chunk {
    fn new(slices: Vec<Slice>) -> Self {
        let mut chunk = Chunk { slices, counts: [0; 3], bounds: [Bounds::NONE; 3], stale: 0 };
        chunk.reckon();
        chunk
    }
    fn reckon(&mut self) {
        (self.counts, self.bounds, self.stale) = ([0; 3], [Bounds::NONE; 3], 0);
        for slice in &self.slices {
            add(&mut self.counts, slice.counts);
            for kind in 0..3 {
                self.bounds[kind].join(&slice.bounds[kind]);
            }
        }
    }
    /// Follows a change inside slice `n`, which held so many before.
    fn changed(&mut self, n: usize, before: Counts) {
        let slice = &self.slices[n];
        for (kind, before) in before.into_iter().enumerate() {
            self.counts[kind] = self.counts[kind] + slice.counts[kind] - before;
            self.bounds[kind].join(&slice.bounds[kind]);
        }
        self.stale += 1;
        if self.stale > STALE {
            self.reckon();
        }
    }
    /// Its slices with units of a kind, each with the place of its first; `first` is that of the chunk's.
    pub(super) fn slices(&self, kind: Among, first: u32) -> impl Iterator<Item = (&Slice, u32)> {
        let mut place = first;
        self.slices.iter().filter_map(move |slice| {
            let first = place;
            place += slice.counts[kind as usize];
            (first < place).then_some((slice, first))
        })
    }
    pub(super) fn first(&self) -> AgeCut {
        self.slices.first().map_or((0, SegNo(0)), Slice::first)
    }
}

/// The order of age. No slice and no chunk is without units.
#[derive(Debug, Default)]
pub(super) struct Ages {
    pub(super) chunks: Vec<Chunk>,
    pub(super) per: u32,
}

impl Ages {
    /// The slice where `place` is or would be: its chunk, and which it is there.
    pub(super) fn find(&self, place: AgeCut) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|c| c.first() <= place).saturating_sub(1);
        let slices = self.chunks.get(chunk).map_or(&[][..], |c| &c.slices);
        (chunk, slices.partition_point(|s| s.first() <= place).saturating_sub(1))
    }
    pub(super) fn insert(&mut self, c: Candidate) {
        let entry = (c, c.fragments());
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new(vec![Slice::new(vec![entry], self.per)]));
            return;
        }
        let (at, n) = self.find(c.place());
        let youngest = at + 1 == self.chunks.len();
        let chunk = &mut self.chunks[at];
        let youngest = youngest && n + 1 == chunk.slices.len();
        let slice = &mut chunk.slices[n];
        let before = slice.counts;
        let place = slice.units.partition_point(|u| u.0.place() < c.place());
        slice.units.insert(place, entry);
        if slice.units.len() <= SLICE {
            slice.reckon(self.per);
            return chunk.changed(n, before);
        }
        // Segments are written one after another: what is split off at the young end stays nearly full.
        let young = youngest && place + 1 == slice.units.len();
        let upper = slice.units.split_off(if young { SLICE * 7 / 8 } else { SLICE / 2 });
        slice.reckon(self.per);
        chunk.slices.insert(n + 1, Slice::new(upper, self.per));
        if chunk.slices.len() > CHUNK {
            let upper = chunk.slices.split_off(if young { CHUNK * 7 / 8 } else { CHUNK / 2 });
            chunk.reckon();
            self.chunks.insert(at + 1, Chunk::new(upper));
        } else {
            chunk.reckon();
        }
    }
    pub(super) fn remove(&mut self, place: AgeCut) {
        let (at, n) = self.find(place);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let slice = &mut chunk.slices[n];
        let Ok(unit) = slice.units.binary_search_by_key(&place, |u| u.0.place()) else { return };
        let before = slice.counts;
        slice.units.remove(unit);
        slice.reckon(self.per);
        let left = slice.units.len();
        let with = |n: usize| chunk.slices.get(n).map_or(usize::MAX, |s| left + s.units.len());
        let into = match n.checked_sub(1) {
            Some(m) if with(m) <= MERGE => Some(m),
            _ if with(n + 1) <= MERGE => Some(n),
            _ => None,
        };
        if let Some(older) = into {
            let units = chunk.slices.remove(older + 1).units;
            chunk.slices[older].units.extend(units);
            chunk.slices[older].reckon(self.per);
            chunk.reckon();
        } else if left == 0 {
            chunk.slices.remove(n);
            chunk.reckon();
        } else {
            return chunk.changed(n, before);
        }
        if chunk.slices.is_empty() {
            self.chunks.remove(at);
        } else if chunk.slices.len() < CHUNK / 4 {
            self.merge(at);
        }
    }
    /// Makes a chunk and a neighbour one, if they are small.
    fn merge(&mut self, at: usize) {
        for older in [at.wrapping_sub(1), at] {
            let of = |n: usize| self.chunks.get(n).map_or(CHUNK, |c| c.slices.len());
            if of(older) + of(older.wrapping_add(1)) <= CHUNK / 2 {
                let younger = self.chunks.remove(older + 1).slices;
                self.chunks[older].slices.extend(younger);
                return self.chunks[older].reckon();
            }
        }
    }
    /// The chunk and slice that hold place `n` of a kind, and the place of its first.
    pub(super) fn locate(&self, kind: Among, n: u32) -> Option<(&Slice, u32)> {
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
    /// Calls `each` for the chunks that hold places in `range`, with the place of their first.
    pub(super) fn chunks<'a>(&'a self, kind: Among, range: &Range<u32>, mut each: impl FnMut(&'a Chunk, u32)) {
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

fn add(sum: &mut Counts, by: Counts) {
    for kind in 0..3 {
        sum[kind] += by[kind];
    }
}
