//! Which block of a file lies where? Extents, split and joined (Scherl 2004, section 5.4).

use std::ops::Range;

use scherlfs_format::extent::{Extent, HOLE_MAX};
use scherlfs_format::{Addr, FormatError, Run};

/// Where a part of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// From this block on.
    At(Addr),
    /// Room was promised.
    Reserved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    from: u64,
    blocks: u64,
    place: Place,
}

impl Part {
    fn end(&self) -> u64 {
        self.from + self.blocks
    }
    fn after(&self, by: u64) -> Place {
        match self.place {
            Place::At(a) => Place::At(Addr(a.0 + by)),
            Place::Reserved => Place::Reserved,
        }
    }
    /// Whether `next`, which begins where this ends, goes on where this lies.
    fn goes_on(&self, next: &Part) -> bool {
        let follows = match (self.place, next.place) {
            (Place::At(a), Place::At(b)) => a.0 + self.blocks == b.0,
            (Place::Reserved, Place::Reserved) => true,
            _ => false,
        };
        follows && self.end() == next.from && self.blocks + next.blocks <= u64::from(u32::MAX)
    }
}

/// The extents of a file. What is in none is a hole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents {
    parts: Vec<Part>,
}

/// What was taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Blocks that were stored.
    pub runs: Vec<Run>,
    /// Blocks that were promised.
    pub reserved: u64,
}

impl Extents {
    /// From what an inode lists.
    pub fn read(all: &[Extent]) -> Result<Self, FormatError> {
        let mut out = Extents::default();
        let mut from = 0u64;
        for extent in all {
            let blocks = extent.blocks();
            let place = match *extent {
                Extent::Stored { start, .. } => Some(Place::At(start)),
                Extent::Reserved { .. } => Some(Place::Reserved),
                Extent::Hole { .. } => None,
            };
            if let Some(place) = place {
                out.push(Part { from, blocks, place });
            }
            from += blocks;
            if from > HOLE_MAX {
                return Err(FormatError::Field { what: "inode", field: "blocks in extents", value: from });
            }
        }
        Ok(out)
    }

    /// As an inode lists them.
    pub fn write(&self) -> Vec<Extent> {
        let mut out = Vec::with_capacity(self.parts.len() * 2);
        let mut at = 0;
        for part in &self.parts {
            if part.from > at {
                out.push(Extent::Hole { blocks: part.from - at });
            }
            // OK to saturate: parts are not joined beyond 32 bits.
            let blocks = u32::try_from(part.blocks).unwrap_or(u32::MAX);
            out.push(match part.place {
                Place::At(start) => Extent::Stored { start, blocks },
                Place::Reserved => Extent::Reserved { blocks },
            });
            at = part.end();
        }
        out
    }

    /// How many extents [`Extents::write`] gives.
    pub fn listed(&self) -> usize {
        let holes = self.parts.iter().scan(0, |at, p| {
            let hole = p.from > *at;
            *at = p.end();
            Some(hole)
        });
        self.parts.len() + holes.filter(|h| *h).count()
    }

    /// Blocks stored or promised.
    pub fn blocks(&self) -> u64 {
        self.parts.iter().map(|p| p.blocks).sum()
    }

    /// Blocks that are promised.
    pub fn reserved(&self) -> u64 {
        self.parts.iter().filter(|p| p.place == Place::Reserved).map(|p| p.blocks).sum()
    }

    /// The runs that are stored, in order of the file.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.parts.iter().filter_map(|p| match p.place {
            Place::At(start) => Some(Run { start, blocks: u32::try_from(p.blocks).unwrap_or(u32::MAX) }),
            Place::Reserved => None,
        })
    }

    /// The parts that are stored: the first block in the file, the first place, how many.
    pub fn stored(&self, from: u64) -> impl Iterator<Item = (u64, Addr, u64)> + '_ {
        let first = self.parts.partition_point(|p| p.end() <= from);
        self.parts[first..].iter().filter_map(move |p| match p.place {
            Place::At(_) => {
                let skip = from.saturating_sub(p.from);
                match p.after(skip) {
                    Place::At(a) => Some((p.from + skip, a, p.blocks - skip)),
                    Place::Reserved => None,
                }
            }
            Place::Reserved => None,
        })
    }

    /// What block `at` is, and how many blocks from it on are the same: `None` is a hole, the last without end.
    pub fn at(&self, at: u64) -> (Option<Place>, u64) {
        let first = self.parts.partition_point(|p| p.end() <= at);
        match self.parts.get(first) {
            Some(p) if p.from <= at => (Some(p.after(at - p.from)), p.end() - at),
            Some(p) => (None, p.from - at),
            None => (None, u64::MAX - at),
        }
    }

    /// The block behind the last that is stored or promised.
    pub fn end(&self) -> u64 {
        self.parts.last().map_or(0, Part::end)
    }

    fn push(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last) if last.goes_on(&part) => last.blocks += part.blocks,
            _ => self.parts.push(part),
        }
    }

    /// Makes a hole; says what was there.
    pub fn clear(&mut self, range: Range<u64>) -> Freed {
        let mut freed = Freed::default();
        if range.is_empty() {
            return freed;
        }
        let first = self.parts.partition_point(|p| p.end() <= range.start);
        let mut last = first;
        let mut kept: Vec<Part> = Vec::new();
        for p in self.parts[first..].iter().take_while(|p| p.from < range.end) {
            last += 1;
            let (from, to) = (p.from.max(range.start), p.end().min(range.end));
            match p.after(from - p.from) {
                Place::At(start) => {
                    freed.runs.push(Run { start, blocks: u32::try_from(to - from).unwrap_or(u32::MAX) });
                }
                Place::Reserved => freed.reserved += to - from,
            }
            if p.from < from {
                kept.push(Part { blocks: from - p.from, ..*p });
            }
            if to < p.end() {
                kept.push(Part { from: to, blocks: p.end() - to, place: p.after(to - p.from) });
            }
        }
        self.parts.splice(first..last, kept);
        freed
    }

    /// Says where blocks are; says what was there before.
    pub fn put(&mut self, from: u64, blocks: u64, place: Place) -> Freed {
        let freed = self.clear(from..from + blocks);
        let at = self.parts.partition_point(|p| p.end() <= from);
        self.parts.insert(at, Part { from, blocks, place });
        // Join with the next, then with the one before.
        if at + 1 < self.parts.len() && self.parts[at].goes_on(&self.parts[at + 1]) {
            self.parts[at].blocks += self.parts[at + 1].blocks;
            self.parts.remove(at + 1);
        }
        if at > 0 && self.parts[at - 1].goes_on(&self.parts[at]) {
            self.parts[at - 1].blocks += self.parts[at].blocks;
            self.parts.remove(at);
        }
        freed
    }

    /// Cuts a range out and moves what is behind it down; says what was there.
    pub fn collapse(&mut self, range: Range<u64>) -> Freed {
        let (freed, by) = (self.clear(range.clone()), range.end - range.start);
        self.shift(range.end, |from| from - by);
        freed
    }

    /// Opens a hole and moves what is behind it up.
    pub fn insert(&mut self, at: u64, blocks: u64) {
        // A part across the place is split by clearing nothing there.
        let first = self.parts.partition_point(|p| p.end() <= at);
        if let Some(p) = self.parts.get(first).copied()
            && p.from < at
        {
            let upper = Part { from: at, blocks: p.end() - at, place: p.after(at - p.from) };
            self.parts[first].blocks = at - p.from;
            self.parts.insert(first + 1, upper);
        }
        self.shift(at, |from| from + blocks);
    }

    fn shift(&mut self, from: u64, to: impl Fn(u64) -> u64) {
        for p in self.parts.iter_mut().filter(|p| p.from >= from) {
            p.from = to(p.from);
        }
        let all = std::mem::take(&mut self.parts);
        all.into_iter().for_each(|p| self.push(p));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::Rng;

    use super::*;

    /// What each block is.
    type Plain = BTreeMap<u64, Place>;

    fn plain(extents: &Extents) -> Plain {
        let parts = extents.parts.iter();
        parts.flat_map(|p| (0..p.blocks).map(|n| (p.from + n, p.after(n)))).collect()
    }

    #[test]
    fn extents_are_what_a_plain_map_is() {
        for seed in 0..40 {
            let (mut rng, mut ours, mut map, mut next) = (Rng::new(seed), Extents::default(), Plain::new(), 10);
            for _ in 0..300 {
                let (from, len) = (rng.below(60), 1 + rng.below(9));
                let range = from..from + len;
                let before = ours.clone();
                let gone = match rng.below(5) {
                    0 => {
                        range.clone().for_each(|b| _ = map.remove(&b));
                        ours.clear(range)
                    }
                    1 => {
                        range.clone().for_each(|b| _ = map.insert(b, Place::Reserved));
                        ours.put(from, len, Place::Reserved)
                    }
                    2 => {
                        let old = std::mem::take(&mut map);
                        let kept = old.into_iter().filter(|(b, _)| !range.contains(b));
                        map = kept.map(|(b, p)| (if b >= range.end { b - len } else { b }, p)).collect();
                        ours.collapse(range)
                    }
                    3 => {
                        let old = std::mem::take(&mut map);
                        map = old.into_iter().map(|(b, p)| (if b >= from { b + len } else { b }, p)).collect();
                        ours.insert(from, len);
                        Freed::default()
                    }
                    _ => {
                        // Often right behind what was written last, so that parts join.
                        next += rng.below(2) * 5;
                        for n in 0..len {
                            map.insert(from + n, Place::At(Addr(next + n)));
                        }
                        let freed = ours.put(from, len, Place::At(Addr(next)));
                        next += len;
                        freed
                    }
                };
                assert_eq!(plain(&ours), map);
                assert_eq!(Extents::read(&ours.write()).unwrap(), ours);
                assert_eq!(ours.write().len(), ours.listed());
                assert_eq!(ours.blocks(), map.len() as u64);
                let joined = ours.parts.windows(2).all(|w| !w[0].goes_on(&w[1]));
                assert!(joined, "{:?} after {before:?}", ours.parts);
                let stored = |e: &Extents| e.runs().map(|r| u64::from(r.blocks)).sum::<u64>();
                let freed: u64 = gone.runs.iter().map(|r| u64::from(r.blocks)).sum();
                assert!(stored(&ours) + freed >= stored(&before));
                for at in 0..80 {
                    assert_eq!(ours.at(at).0, map.get(&at).copied());
                }
            }
        }
    }
}
