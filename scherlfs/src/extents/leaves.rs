//! The leaves of a file's extents in order, their totals, and which of them must be written.
//!
//! They are grouped in branches of a dozen or so. Copies of the extents share a branch until one of them changes
//! it: a copy of thousands of leaves is some dozens of pointers, and a change copies a branch and a leaf. Totals
//! are maintained, so that reading them costs nothing.

use std::ops::Index;
use std::sync::Arc;

use scherlfs_format::Addr;

use super::Place;
use super::leaf::{Leaf, Part};

/// Most leaves in a branch; few in unit tests, so that there are many branches.
const MOST: usize = if cfg!(test) { 4 } else { 16 };

/// A leaf with values that are read for all leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Twig {
    /// Its first file block.
    from: u64,
    /// The continuation with the same contents; `None` if it must be written. Meaningless for the first leaf.
    at: Option<Addr>,
    leaf: Arc<Leaf>,
}

/// Neighbouring leaves.
#[derive(Debug, Clone)]
struct Branch {
    /// First file block of its first leaf.
    from: u64,
    len: usize,
    /// Number of leaves to be written.
    loose: usize,
    leaves: Arc<Vec<Twig>>,
}

impl Branch {
    fn new(leaves: Vec<Twig>) -> Self {
        let loose = leaves.iter().filter(|l| l.at.is_none()).count();
        Branch { from: leaves.first().map_or(0, |l| l.from), len: leaves.len(), loose, leaves: Arc::new(leaves) }
    }

    fn count(&mut self) {
        let leaves = &self.leaves;
        self.from = leaves.first().map_or(0, |l| l.from);
        self.len = leaves.len();
        self.loose = leaves.iter().filter(|l| l.at.is_none()).count();
    }
}

/// Leaves in order, at least one.
#[derive(Debug, Clone)]
pub(super) struct Leaves {
    branches: Vec<Branch>,
    len: usize,
    /// Number of extents in them, including holes.
    listed: usize,
    blocks: u64,
    reserved: u64,
    /// Old continuations whose contents no leaf has any more.
    stale: Vec<Addr>,
}

impl PartialEq for Leaves {
    fn eq(&self, other: &Self) -> bool {
        self.twigs(0).eq(other.twigs(0))
    }
}

impl Eq for Leaves {}

impl Index<usize> for Leaves {
    type Output = Leaf;
    fn index(&self, n: usize) -> &Leaf {
        let (b, i) = self.find(n);
        &self.branches[b].leaves[i].leaf
    }
}

impl Leaves {
    /// A single leaf, which begins at block 0.
    pub fn new(first: Leaf) -> Self {
        let (listed, blocks, reserved) = (first.listed(None), first.blocks, first.reserved);
        let branches = vec![Branch::new(vec![Twig { from: first.from, at: None, leaf: Arc::new(first) }])];
        Leaves { branches, len: 1, listed, blocks, reserved, stale: Vec::new() }
    }

    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Number of extents in all leaves.
    pub fn listed(&self) -> usize {
        self.listed
    }
    /// Blocks stored or reserved.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
    /// Blocks reserved.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }
    /// Number of leaves to be written, including the first.
    pub fn loose(&self) -> usize {
        self.branches.iter().map(|b| b.loose).sum()
    }
    /// Old continuations whose contents no leaf has any more.
    pub fn stale(&self) -> &[Addr] {
        &self.stale
    }
    /// Adds old continuations.
    pub fn add_stale(&mut self, more: Vec<Addr>) {
        self.stale.extend(more);
    }
    /// Drops the list of old continuations, whose blocks are freed.
    pub fn forget_stale(&mut self) {
        self.stale.clear();
    }

    /// The branch of a leaf, and its index there; past the last for a missing leaf.
    fn find(&self, n: usize) -> (usize, usize) {
        let mut i = n;
        for (b, branch) in self.branches.iter().enumerate() {
            if i < branch.len {
                return (b, i);
            }
            i -= branch.len;
        }
        (self.branches.len(), i)
    }

    pub fn get(&self, n: usize) -> Option<&Leaf> {
        let (b, i) = self.find(n);
        Some(&self.branches.get(b)?.leaves.get(i)?.leaf)
    }

    /// The branch of the leaf for a file block, and its index there.
    fn spot(&self, at: u64) -> (usize, usize) {
        // The first leaf begins at 0.
        let b = self.branches.partition_point(|b| b.from <= at).saturating_sub(1);
        (b, self.branches[b].leaves.partition_point(|l| l.from <= at).saturating_sub(1))
    }

    /// The leaf for a file block.
    pub fn leaf_at(&self, at: u64) -> usize {
        let (b, i) = self.spot(at);
        self.branches[..b].iter().map(|b| b.len).sum::<usize>() + i
    }

    fn twigs(&self, n: usize) -> impl Iterator<Item = &Twig> + '_ {
        let (b, i) = self.find(n);
        let first = self.branches.get(b).map_or(&[][..], |b| &b.leaves[i..]);
        let rest = self.branches.get(b + 1..).unwrap_or(&[]);
        first.iter().chain(rest.iter().flat_map(|b| b.leaves.iter()))
    }

    /// All leaves from `n` on.
    pub fn from(&self, n: usize) -> impl Iterator<Item = &Leaf> + '_ {
        self.twigs(n).map(|l| &*l.leaf)
    }

    /// Places of the leaves from `n` on; `None` if a leaf must be written.
    pub fn places(&self, n: usize) -> impl Iterator<Item = Option<Addr>> + '_ {
        self.twigs(n).map(|l| l.at)
    }

    /// The first leaf from `n` on that must be written.
    pub fn loose_from(&self, n: usize) -> Option<usize> {
        let (mut b, mut i) = self.find(n);
        let mut before = n - i;
        while let Some(branch) = self.branches.get(b) {
            if branch.loose > 0
                && let Some(at) = branch.leaves[i..].iter().position(|l| l.at.is_none())
            {
                return Some(before + i + at);
            }
            before += branch.len;
            (b, i) = (b + 1, 0);
        }
        None
    }

    /// First file block of the next leaf.
    pub fn next(&self, n: usize) -> Option<u64> {
        let (b, i) = self.find(n + 1);
        Some(self.branches.get(b)?.leaves.get(i)?.from)
    }

    /// Number of extents in a leaf.
    pub fn listed_by(&self, n: usize) -> usize {
        let (b, i) = self.find(n);
        let Some(twig) = self.branches.get(b).and_then(|b| b.leaves.get(i)) else { return 0 };
        let within = self.branches[b].leaves.get(i + 1).map(|l| l.from);
        twig.leaf.listed(within.or_else(|| self.branches.get(b + 1).map(|b| b.from)))
    }

    /// Number of extents that a change of a leaf may affect: those of the leaf, and the hole before it.
    fn listed_around(&self, n: usize) -> usize {
        self.listed_by(n) + if n > 0 { self.listed_by(n - 1) } else { 0 }
    }

    /// Changes a leaf, so that its continuation must be written.
    pub fn edit<T>(&mut self, n: usize, change: impl FnOnce(&mut Leaf) -> T) -> T {
        let listed = self.listed_around(n);
        let (b, i) = self.find(n);
        let branch = &mut self.branches[b];
        let twig = &mut Arc::make_mut(&mut branch.leaves)[i];
        if let Some(at) = twig.at.take() {
            self.stale.push(at);
            branch.loose += 1;
        }
        let leaf = Arc::make_mut(&mut twig.leaf);
        let (blocks, reserved) = (leaf.blocks, leaf.reserved);
        let out = change(leaf);
        self.blocks = self.blocks - blocks + leaf.blocks;
        self.reserved = self.reserved - reserved + leaf.reserved;
        twig.from = leaf.from;
        if i == 0 {
            branch.from = leaf.from;
        }
        self.listed = self.listed - listed + self.listed_around(n);
        out
    }

    /// Replaces a part of the same length if nothing but its place changes; returns the old place.
    pub fn swap(&mut self, part: &Part) -> Option<Place> {
        let (b, i) = self.spot(part.from);
        let leaf = &self.branches[b].leaves[i].leaf;
        // A leaf that loses its only part is absorbed by the previous one.
        let alone = (b, i) != (0, 0) && leaf.parts.len() == 1;
        let which = if alone { None } else { leaf.swaps(part) }?;
        let branch = &mut self.branches[b];
        let twig = &mut Arc::make_mut(&mut branch.leaves)[i];
        if let Some(at) = twig.at.take() {
            self.stale.push(at);
            branch.loose += 1;
        }
        Some(std::mem::replace(&mut Arc::make_mut(&mut twig.leaf).parts[which].place, part.place))
    }

    /// Marks a leaf to be written.
    pub fn loosen(&mut self, n: usize) {
        let (b, i) = self.find(n);
        let branch = &mut self.branches[b];
        if branch.leaves[i].at.is_some() {
            self.stale.extend(Arc::make_mut(&mut branch.leaves)[i].at.take());
            branch.loose += 1;
        }
    }

    /// Assigns a place to a leaf to be written.
    pub fn stand(&mut self, n: usize, at: Addr) {
        let (b, i) = self.find(n);
        let branch = &mut self.branches[b];
        match Arc::make_mut(&mut branch.leaves)[i].at.replace(at) {
            Some(was) => self.stale.push(was),
            None => branch.loose -= 1,
        }
    }

    /// Inserts a leaf before the `n`th, or at the end. `at` is the continuation with the same contents.
    pub fn insert(&mut self, n: usize, leaf: Leaf, at: Option<Addr>) {
        let listed = if n > 0 { self.listed_by(n - 1) } else { 0 };
        let (mut b, mut i) = self.find(n);
        if b == self.branches.len() {
            // There is at least one.
            b -= 1;
            i = self.branches[b].len;
        }
        (self.blocks, self.reserved) = (self.blocks + leaf.blocks, self.reserved + leaf.reserved);
        let branch = &mut self.branches[b];
        let leaves = Arc::make_mut(&mut branch.leaves);
        leaves.insert(i, Twig { from: leaf.from, at, leaf: Arc::new(leaf) });
        let second = if leaves.len() > MOST { leaves.split_off(MOST / 2) } else { Vec::new() };
        branch.count();
        if !second.is_empty() {
            self.branches.insert(b + 1, Branch::new(second));
        }
        self.len += 1;
        self.listed = self.listed - listed + self.listed_around(n);
    }

    /// Removes a leaf; at least one remains.
    pub fn remove(&mut self, n: usize) -> Arc<Leaf> {
        let listed = self.listed_around(n);
        let (b, i) = self.find(n);
        let Twig { at, leaf, .. } = Arc::make_mut(&mut self.branches[b].leaves).remove(i);
        self.branches[b].count();
        let room = |b: usize| self.branches.get(b).zip(self.branches.get(b + 1)).map(|(b, c)| b.len + c.len);
        if room(b).is_some_and(|len| len <= MOST / 2) {
            let second = self.branches.remove(b + 1);
            Arc::make_mut(&mut self.branches[b].leaves).extend(second.leaves.iter().cloned());
            self.branches[b].count();
        } else if self.branches[b].len == 0 {
            self.branches.remove(b);
        }
        self.len -= 1;
        (self.blocks, self.reserved) = (self.blocks - leaf.blocks, self.reserved - leaf.reserved);
        self.stale.extend(at);
        let left = if n > 0 { self.listed_by(n - 1) } else { 0 };
        self.listed = self.listed - listed + left;
        leaf
    }

    /// Marks all leaves to be written: their old places become stale, and so do `others`.
    pub fn anew(&mut self, others: Vec<Addr>) {
        let mut n = 0;
        while n < self.len {
            self.loosen(n);
            n += 1;
        }
        self.stale = others;
    }
}
