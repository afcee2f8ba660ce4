//! How full is each leaf, and which leaves must be written?
//!
//! Before an inode is written its leaves are arranged. The first takes what fits the inode, and is filled if there
//! are others: from that a reader knows the number of its extents. The others hold at most [`RUNS_MAX`]. A leaf
//! that is too full is split, in half unless the file ends there; a changed leaf that became small absorbs its
//! neighbour. Unchanged leaves keep their places.

use scherlfs_format::Addr;
use scherlfs_format::chain::RUNS_MAX;
use scherlfs_format::extent::RawExtent;
use scherlfs_format::inode::{RUNS, indexes};

use super::Extents;
use super::leaf::Leaf;
use super::leaves::Leaves;

/// Most continuations: as many as single index blocks can list.
const MOST: usize = RUNS * RUNS_MAX;
/// Two neighbours with at most this many extents together are merged.
const SMALL: usize = RUNS_MAX / 2;

/// Contents of a continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// Its index among the inode's continuations.
    pub number: usize,
    /// The first file block that it lists.
    pub first: u64,
    /// Its extents in on-disk form.
    pub extents: Vec<RawExtent>,
}

impl Extents {
    /// Arranges the leaves for an inode with room for `room` extents.
    pub fn arrange(&mut self, room: usize) {
        self.fill_first(room);
        // An unchanged leaf is as it was written, so it is not too full.
        let mut from = 1;
        while let Some(n) = self.leaves.loose_from(from) {
            let listed = self.leaves.listed_by(n);
            from = if listed > RUNS_MAX {
                let last = n + 1 == self.leaves.len();
                self.split(n, if last { RUNS_MAX } else { listed / 2 });
                n + 1
            } else if self.takes_in(n, n + 1) {
                self.join(n);
                // It may absorb another.
                n
            } else if n > 1 && self.takes_in(n - 1, n) {
                self.join(n - 1);
                n - 1
            } else {
                n + 1
            };
        }
        if self.leaves.len() - 1 > MOST {
            self.pack(room);
        }
    }

    fn takes_in(&self, n: usize, next: usize) -> bool {
        next < self.leaves.len() && self.leaves.listed_by(n) + self.leaves.listed_by(next) <= SMALL
    }

    /// Fills the first leaf if there are others.
    fn fill_first(&mut self, room: usize) {
        loop {
            let listed = self.leaves.listed_by(0);
            if listed > room {
                self.split(0, room);
                // The part split off precedes the old contents of the next leaf; join the two.
                if self.leaves.len() > 2 {
                    self.join(1);
                }
                return;
            }
            if listed == room || self.leaves.len() == 1 {
                return;
            }
            let lacks = room - listed;
            if self.leaves.listed_by(1) > lacks {
                self.split(1, lacks);
            }
            self.join(0);
        }
    }

    /// Splits a leaf so that it lists `keep` extents.
    fn split(&mut self, n: usize, keep: usize) {
        let rest = self.leaves.edit(n, |leaf| leaf.split_off(keep));
        if !rest.parts.is_empty() {
            self.leaves.insert(n + 1, rest, None);
            return;
        }
        // The excess is the hole behind its last part, which the next leaf lists.
        if n + 1 < self.leaves.len() {
            self.leaves.edit(n + 1, |next| {
                next.from = rest.from;
                next.count();
            });
        }
    }

    /// Joins two leaves.
    fn join(&mut self, n: usize) {
        let next = self.leaves.remove(n + 1);
        self.leaves.edit(n, |leaf| {
            next.parts.iter().for_each(|part| leaf.push(*part));
            leaf.count();
        });
    }

    /// Fills all leaves.
    fn pack(&mut self, room: usize) {
        let mut all = Leaf::default();
        self.parts().for_each(|part| all.push(*part));
        all.count();
        let mut stale = self.leaves.stale().to_vec();
        stale.extend(self.places());
        let (mut leaves, mut keep) = (None::<Leaves>, room);
        let mut add = |leaf| match &mut leaves {
            Some(leaves) => leaves.insert(leaves.len(), leaf, None),
            None => leaves = Some(Leaves::new(leaf)),
        };
        while all.listed(None) > keep {
            let rest = all.split_off(keep);
            add(std::mem::replace(&mut all, rest));
            keep = RUNS_MAX;
        }
        add(all);
        if let Some(mut leaves) = leaves {
            leaves.add_stale(stale);
            self.leaves = leaves;
        }
    }

    /// Number of continuations.
    pub fn continuations(&self) -> usize {
        self.leaves.len() - 1
    }

    /// Number of continuations to be written.
    pub fn loose(&self) -> usize {
        // The first leaf is not a continuation.
        self.leaves.loose() - 1
    }

    /// Marks continuations at places accepted by `there` to be written.
    pub fn loosen(&mut self, there: impl Fn(Addr) -> bool) {
        let which: Vec<usize> =
            self.leaves.places(0).enumerate().filter(|(_, at)| at.is_some_and(&there)).map(|(n, _)| n).collect();
        which.into_iter().for_each(|n| self.leaves.loosen(n));
    }

    /// Marks all continuations to be written; the `stale` blocks of the old ones are then freed.
    pub fn anew(&mut self, stale: Vec<Addr>) {
        self.leaves.anew(stale);
    }

    /// Old continuations that are free when the inode is written.
    pub fn stale(&self) -> &[Addr] {
        self.leaves.stale()
    }

    /// Records that the inode was written.
    pub fn written(&mut self) {
        self.leaves.forget_stale();
    }

    /// Most blocks for writing continuations and their index after `blocks` file blocks got new places.
    pub fn cost(&self, blocks: usize) -> usize {
        // Each may split an extent into three, and each may end a leaf, so that the preceding leaf must be written.
        let more = (2 * blocks).div_ceil(RUNS_MAX / 2) + 4;
        let all = self.continuations() + more;
        let written = if all > MOST { all } else { all.min(self.loose() + 2 * blocks + more) };
        // An unarranged first leaf may have more extents than fit.
        let first = self.leaves.listed_by(0).div_ceil(RUNS_MAX);
        written + first + indexes(all + first)
    }

    /// The same if all of them must be written.
    pub fn cost_of_all(&self, blocks: u64) -> u64 {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX / 4);
        let all = self.continuations() + (2 * blocks).div_ceil(RUNS_MAX / 2) + 4;
        let first = self.leaves.listed_by(0).div_ceil(RUNS_MAX);
        (all + first + indexes(all + first)) as u64
    }

    /// Extents in the inode itself, in on-disk form.
    pub fn own(&self) -> Vec<RawExtent> {
        self.leaves[0].write(self.leaves.next(0))
    }

    /// All extents.
    #[cfg(test)]
    pub fn write(&self) -> Vec<scherlfs_format::extent::Extent> {
        let all = (0..self.leaves.len()).flat_map(|n| self.leaves[n].write(self.leaves.next(n)));
        all.map(|raw| (&raw).try_into().unwrap()).collect()
    }

    /// Assigns places to the continuations to be written, in order; returns their contents.
    pub fn place(&mut self, at: impl IntoIterator<Item = Addr>) -> Vec<Continuation> {
        let (mut out, mut from) = (Vec::new(), 1);
        let mut at = at.into_iter();
        while let Some(n) = self.leaves.loose_from(from)
            && let Some(at) = at.next()
        {
            let extents = self.leaves[n].write(self.leaves.next(n));
            out.push(Continuation { number: n - 1, first: self.leaves[n].from, extents });
            self.leaves.stand(n, at);
            from = n + 1;
        }
        out
    }

    /// Places of the continuations, in order.
    pub fn places(&self) -> impl Iterator<Item = Addr> + '_ {
        self.leaves.places(1).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use device::Rng;
    use scherlfs_format::extent::Extent;

    use super::super::Place;
    use super::*;

    /// Continuations on a disk.
    #[derive(Default)]
    struct Disk {
        blocks: BTreeMap<u64, Continuation>,
        next: u64,
        /// Those of the last written inode.
        current: BTreeSet<Addr>,
    }

    impl Disk {
        /// Writes what must be written; returns the number of blocks.
        fn write(&mut self, extents: &mut Extents, room: usize) -> usize {
            let most = extents.cost(0);
            extents.arrange(room);
            let at: Vec<u64> = (self.next..).take(extents.loose()).collect();
            self.next += at.len() as u64;
            let written = extents.place(at.iter().map(|at| Addr(*at)));
            assert_eq!(written.len(), at.len());
            assert!(at.len() <= most, "{} blocks, {most} were expected", at.len());
            self.blocks.extend(at.iter().copied().zip(written));
            let places: BTreeSet<Addr> = extents.places().collect();
            let gone: BTreeSet<Addr> = self.current.difference(&places).copied().collect();
            assert_eq!(extents.stale().iter().copied().collect::<BTreeSet<_>>(), gone, "what was written before");
            assert_eq!(extents.stale().len(), gone.len(), "each once");
            extents.written();
            self.current = places;
            at.len()
        }

        /// The extents that a reader finds from the inode alone.
        fn read(&self, extents: &Extents, room: usize) -> Extents {
            let plain = |raw: &[RawExtent]| raw.iter().map(|e| Extent::try_from(e).unwrap()).collect::<Vec<_>>();
            let (own, mut from) = (plain(&extents.own()), 0);
            from += own.iter().map(|e| e.blocks()).sum::<u64>();
            let mut rest = Vec::new();
            for (n, at) in extents.places().enumerate() {
                let c = &self.blocks[&at.0];
                assert_eq!(c.first, from, "continuation {n}");
                assert!((1..=RUNS_MAX).contains(&c.extents.len()), "continuation {n} lists {}", c.extents.len());
                let listed = plain(&c.extents);
                from += listed.iter().map(|e| e.blocks()).sum::<u64>();
                rest.push((at, listed));
            }
            let all = own.len() + rest.iter().map(|(_, list)| list.len()).sum::<usize>();
            assert_eq!(all, extents.listed());
            assert_eq!(own.len(), room.min(all), "a reader takes the first of all for the inode's own");
            Extents::read_leaves(&own, &rest).unwrap()
        }
    }

    #[test]
    fn what_stays_on_the_disk_and_what_is_written_anew_are_the_extents() {
        for seed in 0..12 {
            let (mut rng, mut extents, mut disk) = (Rng::new(seed), Extents::default(), Disk::default());
            let (mut next, mut room) = (1 << 40, 320);
            for round in 0..400 {
                for _ in 0..1 + rng.below(if round % 50 == 0 { 900 } else { 8 }) {
                    let (from, len) = (rng.below(6000), 1 + rng.below(3));
                    match rng.below(40) {
                        0 => drop(extents.clear(from..from + 100 * len)),
                        1 => drop(extents.collapse(from..from + len)),
                        2 => extents.insert(from, len),
                        3 => drop(extents.set(from, 90 * len, Place::Reserved)),
                        _ => {
                            next += rng.below(2) * 7;
                            extents.set(from, len, Place::At(Addr(next)));
                            next += len;
                        }
                    }
                }
                if rng.below(10) == 0 {
                    room = [320, 12, 0, 200][rng.below(4) as usize];
                }
                disk.write(&mut extents, room);
                let found = disk.read(&extents, room);
                assert_eq!(found, extents, "as it is in memory, what has to be written among it");
                if rng.below(3) == 0 {
                    extents = found;
                }
            }
        }
    }

    #[test]
    fn an_update_of_one_block_writes_a_leaf_and_not_the_others() {
        let (mut extents, mut disk) = (Extents::default(), Disk::default());
        for n in 0..20_000 {
            extents.set(n, 1, Place::At(Addr(10 + 2 * n)));
        }
        disk.write(&mut extents, 320);
        assert_eq!(extents.continuations(), (20_000 - 320usize).div_ceil(RUNS_MAX), "all are full");
        let (mut rng, mut written) = (Rng::new(1), 0);
        for n in 0..1000 {
            extents.set(rng.below(20_000), 1, Place::At(Addr(90_000 + 2 * n)));
            written += disk.write(&mut extents, 320);
        }
        assert!(written < 1100, "{written} continuations for 1000 updates");
        // Cleared extents disappear, with their leaves.
        extents.clear(100..19_900);
        disk.write(&mut extents, 320);
        assert_eq!(extents.continuations(), 0);
    }
}
