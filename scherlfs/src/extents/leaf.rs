//! A part of a file's extents in one block: the inode's own, or a continuation.
//!
//! Left out: the leaf of a file block ([`super::Extents`]), and how full a leaf should be ([`super::arrange`]).

use std::ops::Range;

use scherlfs_format::extent::{Extent, RawExtent};
use scherlfs_format::{Addr, Run};

use super::{Freed, Place};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub from: u64,
    pub blocks: u64,
    pub place: Place,
}

impl Part {
    pub fn end(&self) -> u64 {
        self.from + self.blocks
    }
    pub fn after(&self, by: u64) -> Place {
        match self.place {
            Place::At(a) => Place::At(Addr(a.0 + by)),
            Place::Reserved => Place::Reserved,
        }
    }
    /// True if `next`, which begins where this part ends, is also contiguous on disk.
    pub fn goes_on(&self, next: &Part) -> bool {
        let follows = match (self.place, next.place) {
            (Place::At(a), Place::At(b)) => a.0 + self.blocks == b.0,
            (Place::Reserved, Place::Reserved) => true,
            _ => false,
        };
        follows && self.end() == next.from && self.blocks + next.blocks <= u64::from(u32::MAX)
    }
    fn extent(&self) -> RawExtent {
        // OK to saturate: parts are not joined beyond 32 bits.
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        match self.place {
            Place::At(start) => Extent::Stored { start, blocks }.raw(),
            Place::Reserved => Extent::Reserved { blocks }.raw(),
        }
    }
    pub fn run(&self) -> Option<Run> {
        match self.place {
            Place::At(start) => Some(Run { start, blocks: u32::try_from(self.blocks).unwrap_or(u32::MAX) }),
            Place::Reserved => None,
        }
    }
}

/// The hole between two file blocks, if there is one.
fn hole(from: u64, to: u64) -> Option<RawExtent> {
    (to > from).then(|| Extent::Hole { blocks: to - from }.raw())
}

/// Extents from one file block on, up to the beginning of the next leaf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leaf {
    pub from: u64,
    pub parts: Vec<Part>,
    /// Number of extents that it lists, without a hole behind the last part.
    listed: usize,
    pub blocks: u64,
    pub reserved: u64,
}

impl Leaf {
    pub fn new(from: u64, parts: Vec<Part>) -> Self {
        let mut leaf = Leaf { from, parts, ..Leaf::default() };
        leaf.count();
        leaf
    }

    /// Recounts after a change of its parts or its beginning.
    pub fn count(&mut self) {
        let (mut at, mut holes) = (self.from, 0);
        (self.blocks, self.reserved) = (0, 0);
        for part in &self.parts {
            holes += usize::from(part.from > at);
            at = part.end();
            self.blocks += part.blocks;
            self.reserved += if part.place == Place::Reserved { part.blocks } else { 0 };
        }
        self.listed = self.parts.len() + holes;
    }

    /// Number of extents for parts `lo..hi`: the parts, the holes before them, and the hole before the next part.
    fn listed_by(&self, lo: usize, hi: usize) -> usize {
        let end_before = lo.checked_sub(1).map_or(self.from, |n| self.parts[n].end());
        let behind = self.parts.len().min(hi + 1);
        let ends = std::iter::once(end_before).chain(self.parts[lo..behind].iter().map(Part::end));
        hi - lo + self.parts[lo..behind].iter().zip(ends).filter(|(part, end)| part.from > *end).count()
    }

    /// End of its last part.
    pub fn end(&self) -> u64 {
        self.parts.last().map_or(self.from, Part::end)
    }

    /// Number of extents that it lists if the next leaf begins at `next`.
    pub fn listed(&self, next: Option<u64>) -> usize {
        self.listed + usize::from(next.is_some_and(|next| next > self.end()))
    }

    /// Its extents in on-disk form if the next leaf begins at `next`.
    pub fn write(&self, next: Option<u64>) -> Vec<RawExtent> {
        let mut out = Vec::with_capacity(self.listed + 1);
        if self.listed == self.parts.len() {
            // There are no holes between them.
            out.extend(self.parts.iter().map(Part::extent));
        } else {
            let mut at = self.from;
            for part in &self.parts {
                out.extend(hole(at, part.from));
                out.push(part.extent());
                at = part.end();
            }
        }
        out.extend(next.and_then(|next| hole(self.end(), next)));
        out
    }

    /// Appends a part and joins it with the last if contiguous. [`Leaf::count`] must follow.
    pub fn push(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last) if last.goes_on(&part) => last.blocks += part.blocks,
            _ => self.parts.push(part),
        }
    }

    /// The first part that ends behind a block.
    pub fn first_behind(&self, at: u64) -> usize {
        self.parts.partition_point(|p| p.end() <= at)
    }

    /// True if a range is not empty.
    pub fn holds(&self, range: &Range<u64>) -> bool {
        self.parts.get(self.first_behind(range.start)).is_some_and(|p| p.from < range.end)
    }

    /// Makes a hole.
    pub fn clear(&mut self, range: &Range<u64>, freed: &mut Freed) {
        let first = self.first_behind(range.start);
        let (before, mut last) = ((freed.runs.len(), freed.reserved), first);
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
        let (listed, left) = (self.listed_by(first, last), first + kept.len());
        self.parts.splice(first..last, kept);
        self.listed = self.listed - listed + self.listed_by(first, left);
        let reserved = freed.reserved - before.1;
        let stored: u64 = freed.runs[before.0..].iter().map(|run| u64::from(run.blocks)).sum();
        (self.blocks, self.reserved) = (self.blocks - stored - reserved, self.reserved - reserved);
    }

    /// The part that another can replace without further changes: it is stored, has the same length, and neither
    /// neighbour joins the new one.
    pub fn swaps(&self, part: &Part) -> Option<usize> {
        let i = self.first_behind(part.from);
        let was = self.parts.get(i).filter(|p| (p.from, p.blocks) == (part.from, part.blocks))?;
        let stored = matches!((was.place, part.place), (Place::At(_), Place::At(_)));
        let before = i > 0 && self.parts[i - 1].goes_on(part);
        let behind = self.parts.get(i + 1).is_some_and(|next| part.goes_on(next));
        (stored && !before && !behind && part.blocks <= u64::from(u32::MAX)).then_some(i)
    }

    /// Fills a hole with a part.
    pub fn fill_hole(&mut self, part: Part) {
        let at = self.first_behind(part.from);
        let (lo, hi, len) = (at.saturating_sub(1), self.parts.len().min(at + 1), self.parts.len());
        let listed = self.listed_by(lo, hi);
        self.parts.insert(at, part);
        // Join with the next, then with the previous.
        if at + 1 < self.parts.len() && self.parts[at].goes_on(&self.parts[at + 1]) {
            self.parts[at].blocks += self.parts[at + 1].blocks;
            self.parts.remove(at + 1);
        }
        if at > 0 && self.parts[at - 1].goes_on(&self.parts[at]) {
            self.parts[at - 1].blocks += self.parts[at].blocks;
            self.parts.remove(at);
        }
        self.listed = self.listed - listed + self.listed_by(lo, hi + self.parts.len() - len);
        self.blocks += part.blocks;
        self.reserved += if part.place == Place::Reserved { part.blocks } else { 0 };
    }

    /// Splits it so that this leaf lists at most `keep` extents, and returns the rest. `keep` is less than its
    /// number of extents.
    pub fn split_off(&mut self, keep: usize) -> Leaf {
        let (mut at, mut listed, mut upto) = (self.from, 0, self.parts.len());
        let mut from = self.end();
        for (n, part) in self.parts.iter().enumerate() {
            if part.from > at {
                if listed == keep {
                    (upto, from) = (n, at);
                    break;
                }
                listed += 1;
            }
            if listed == keep {
                (upto, from) = (n, part.from);
                break;
            }
            listed += 1;
            at = part.end();
        }
        let rest = self.parts.split_off(upto);
        self.count();
        Leaf::new(from, rest)
    }
}
