//! The map from file blocks to disk blocks: extents, split and joined (Scherl 2004, section 5.4).
//!
//! Extents are grouped in leaves: those that fit are in the inode's own block, the others in continuations. A
//! change affects only the leaves that it touches, so an inode with thousands of extents is written as a few
//! blocks, and a copy of the extents shares unchanged leaves ([`leaves`]).

mod arrange;
mod leaf;
mod leaves;

use std::ops::Range;

use scherlfs_format::extent::{Extent, HOLE_MAX};
use scherlfs_format::{Addr, FormatError, Run};

pub use arrange::Continuation;
use leaf::{Leaf, Part};
use leaves::Leaves;

/// Place of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// From this block on.
    At(Addr),
    /// Reserved room.
    Reserved,
}

/// The extents of a file. Blocks in none are a hole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extents {
    /// The first begins at block 0, is in the inode itself, and may be empty; each other leaf has at least one
    /// part. A hole at the end of a leaf extends to the beginning of the next.
    leaves: Leaves,
}

impl Default for Extents {
    fn default() -> Self {
        Extents { leaves: Leaves::new(Leaf::default()) }
    }
}

/// Removed blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Stored blocks.
    pub runs: Vec<Run>,
    /// Number of reserved blocks.
    pub reserved: u64,
}

impl Extents {
    /// Reads a single list.
    #[cfg(test)]
    pub fn read(all: &[Extent]) -> Result<Self, FormatError> {
        Self::read_leaves(all, &[])
    }

    /// Reads the lists in an inode and its continuations.
    pub fn read_leaves(first: &[Extent], rest: &[(Addr, Vec<Extent>)]) -> Result<Self, FormatError> {
        let mut leaves: Option<Leaves> = None;
        let (mut from, mut stale) = (0u64, Vec::new());
        let rest = rest.iter().map(|(at, list)| (Some(*at), &list[..]));
        for (at, list) in [(None, first)].into_iter().chain(rest) {
            let (begin, mut parts) = (from, Vec::with_capacity(list.len()));
            for extent in list {
                let blocks = extent.blocks();
                let place = match *extent {
                    Extent::Stored { start, .. } => Some(Place::At(start)),
                    Extent::Reserved { .. } => Some(Place::Reserved),
                    Extent::Hole { .. } => None,
                };
                parts.extend(place.map(|place| Part { from, blocks, place }));
                from += blocks;
                if from > HOLE_MAX {
                    return Err(FormatError::Field { what: "inode", field: "blocks in extents", value: from });
                }
            }
            let leaf = Leaf::new(begin, parts);
            match &mut leaves {
                // A continuation with nothing but a hole: the previous leaf gets the hole, and must be written.
                Some(leaves) if leaf.parts.is_empty() => {
                    leaves.loosen(leaves.len() - 1);
                    stale.extend(at);
                }
                _ => {
                    // Two adjacent holes are joined, and then it must be written.
                    let stays = at.filter(|_| leaf.listed(Some(from)) == list.len());
                    stale.extend(at.filter(|_| stays.is_none()));
                    match &mut leaves {
                        Some(leaves) => leaves.insert(leaves.len(), leaf, stays),
                        None => leaves = Some(Leaves::new(leaf)),
                    }
                }
            }
        }
        let mut leaves = leaves.unwrap_or_else(|| Leaves::new(Leaf::default()));
        leaves.add_stale(stale);
        Ok(Extents { leaves })
    }

    fn parts(&self) -> impl Iterator<Item = &Part> + '_ {
        self.leaves.from(0).flat_map(|l| &l.parts)
    }

    /// Number of extents in all leaves.
    pub fn listed(&self) -> usize {
        self.leaves.listed()
    }

    /// Blocks stored or reserved.
    pub fn blocks(&self) -> u64 {
        self.leaves.blocks()
    }

    /// Number of reserved blocks.
    pub fn reserved(&self) -> u64 {
        self.leaves.reserved()
    }

    /// The stored runs, in file order.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.parts().filter_map(Part::run)
    }

    /// The stored parts: first file block, address, number of blocks.
    pub fn stored(&self, from: u64) -> impl Iterator<Item = (u64, Addr, u64)> + '_ {
        let leaf = self.leaves.leaf_at(from);
        let first = self.leaves[leaf].first_behind(from);
        let rest = self.leaves.from(leaf + 1).flat_map(|l| &l.parts);
        let parts = self.leaves[leaf].parts[first..].iter().chain(rest);
        parts.filter_map(move |p| {
            let skip = from.saturating_sub(p.from);
            match p.after(skip) {
                Place::At(a) => Some((p.from + skip, a, p.blocks - skip)),
                Place::Reserved => None,
            }
        })
    }

    /// The place of block `at`, and the number of following blocks of the same kind. `None` is a hole; the last
    /// hole has no end.
    pub fn at(&self, at: u64) -> (Option<Place>, u64) {
        let leaf = self.leaves.leaf_at(at);
        let first = self.leaves[leaf].first_behind(at);
        let next = || self.leaves.get(leaf + 1).and_then(|l| l.parts.first());
        match self.leaves[leaf].parts.get(first).or_else(next) {
            Some(p) if p.from <= at => (Some(p.after(at - p.from)), p.end() - at),
            Some(p) => (None, p.from - at),
            None => (None, u64::MAX - at),
        }
    }

    /// The block after the last stored or reserved one.
    pub fn end(&self) -> u64 {
        self.leaves[self.leaves.len() - 1].end()
    }

    /// Makes a hole; returns the removed blocks.
    pub fn clear(&mut self, range: Range<u64>) -> Freed {
        let mut freed = Freed::default();
        if range.is_empty() {
            return freed;
        }
        let (first, last) = (self.leaves.leaf_at(range.start), self.leaves.leaf_at(range.end - 1));
        for n in first..=last {
            if self.leaves[n].holds(&range) {
                self.leaves.edit(n, |leaf| leaf.clear(&range, &mut freed));
            }
        }
        self.drop_empty(first.max(1)..last + 1);
        freed
    }

    /// Removes leaves without parts; the previous leaf gets their hole.
    fn drop_empty(&mut self, among: Range<usize>) {
        for n in among.rev() {
            if self.leaves.get(n).is_some_and(|l| l.parts.is_empty()) {
                self.leaves.remove(n);
                self.leaves.loosen(n - 1);
            }
        }
    }

    /// Sets the place of blocks; returns the replaced ones.
    pub fn set(&mut self, from: u64, blocks: u64, place: Place) -> Freed {
        let mut freed = Freed::default();
        self.set_freeing(from, blocks, place, &mut freed);
        freed
    }

    /// The same; adds the replaced blocks to `freed`.
    pub fn set_freeing(&mut self, from: u64, blocks: u64, place: Place, freed: &mut Freed) {
        // The case of random updates: a separate part stays separate.
        if let Some(Place::At(start)) = self.leaves.swap(&Part { from, blocks, place }) {
            freed.runs.push(Run { start, blocks: u32::try_from(blocks).unwrap_or(u32::MAX) });
            return;
        }
        let was = self.clear(from..from + blocks);
        freed.runs.extend(was.runs);
        freed.reserved += was.reserved;
        let n = self.leaves.leaf_at(from);
        // The next leaf has a hole where the part reaches into it.
        if self.leaves.next(n).is_some_and(|next| next < from + blocks) {
            self.leaves.edit(n + 1, |next| {
                next.from = from + blocks;
                next.count();
            });
        }
        self.leaves.edit(n, |leaf| leaf.fill_hole(Part { from, blocks, place }));
    }

    /// Removes a range and shifts the rest down; returns the removed blocks.
    pub fn collapse(&mut self, range: Range<u64>) -> Freed {
        let (freed, by) = (self.clear(range.clone()), range.end - range.start);
        self.shift(range.start, |from| from.max(range.end) - by);
        freed
    }

    /// Inserts a hole and shifts the rest up.
    pub fn insert(&mut self, at: u64, blocks: u64) {
        // A part across the place is split.
        let n = self.leaves.leaf_at(at);
        let first = self.leaves[n].first_behind(at);
        if let Some(p) = self.leaves[n].parts.get(first).copied()
            && p.from < at
        {
            let upper = Part { from: at, blocks: p.end() - at, place: p.after(at - p.from) };
            self.leaves.edit(n, |leaf| {
                leaf.parts[first].blocks = at - p.from;
                leaf.parts.insert(first + 1, upper);
                leaf.count();
            });
        }
        self.shift(at, |from| from + blocks);
    }

    /// Shifts parts that begin at or behind a block. All leaves from there on must be written, since each records
    /// its beginning.
    fn shift(&mut self, at: u64, to: impl Fn(u64) -> u64) {
        let first = self.leaves.leaf_at(at);
        for n in first.saturating_sub(1)..self.leaves.len() {
            self.leaves.edit(n, |leaf| {
                if n > 0 && leaf.from >= at {
                    leaf.from = to(leaf.from);
                }
                let parts = std::mem::take(&mut leaf.parts);
                for mut part in parts {
                    if part.from >= at {
                        part.from = to(part.from);
                    }
                    leaf.push(part);
                }
                leaf.count();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::Rng;

    use super::*;

    /// The place of each block.
    type Plain = BTreeMap<u64, Place>;

    fn plain(extents: &Extents) -> Plain {
        extents.parts().flat_map(|p| (0..p.blocks).map(|n| (p.from + n, p.after(n)))).collect()
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
                        ours.set(from, len, Place::Reserved)
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
                        // Often right behind the last write, so that parts join.
                        next += rng.below(2) * 5;
                        for n in 0..len {
                            map.insert(from + n, Place::At(Addr(next + n)));
                        }
                        let freed = ours.set(from, len, Place::At(Addr(next)));
                        next += len;
                        freed
                    }
                };
                assert_eq!(plain(&ours), map);
                assert_eq!(plain(&Extents::read(&ours.write()).unwrap()), map);
                assert_eq!(ours.write().len(), ours.listed());
                assert_eq!(ours.blocks(), map.len() as u64);
                let joined = ours.leaves.from(0).all(|l| l.parts.windows(2).all(|w| !w[0].goes_on(&w[1])));
                assert!(joined, "{ours:?} after {before:?}");
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
