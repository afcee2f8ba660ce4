//! How deep in the order of last use is what is asked for, and from which size on does a cache still hold it changed?
//!
//! LRU is a stack algorithm (Mattson et al., IBM Systems Journal 1970): a cache of `c` pages holds the `c` last used. So a
//! page that is asked for at depth `d` is missing in every cache below `d` pages and in no other, and one pass counts for
//! all sizes. Depths come from a Fenwick tree over the order of use: marks above a page's own are the pages used since.
//!
//! *Written back.* A page that was changed leaves a cache of `c` pages when its depth comes to exceed `c`, and is written
//! then, once for each change or several. Between two uses depth only grows. So with the greatest depth `m` it had at any
//! use since it was changed (1 at the change itself), it is still changed in caches of `m` pages or more, and asked for at
//! depth `d` it was written back since its last use by those of `m` to `d - 1` (Thompson and Smith, ACM TOCS 1989, call `m`
//! the dirty level).
//!
//! *Dropped.* What is discarded leaves every cache and leaves a hole where it was: caches that reach below it have room for
//! one more. A page that comes from below the topmost hole, or from outside, fills it in the caches between the hole and
//! its own place, which evict nothing; those that held the page have as much room as before. So the hole goes to where the
//! page was (or ends, if it was nowhere).
//!
//! Left out: which pages a request needs, and what a page covers.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::curve::Curve;

/// No cache holds it changed.
const CLEAN: usize = usize::MAX;
/// Places in the order of use, at least.
const LEAST: usize = 1 << 10;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its place in the order of use.
    place: usize,
    /// The smallest cache that would hold it changed, were it not for its depth since the last use.
    changed_from: usize,
    /// True if caches that do not hold it must fetch it.
    stored: bool,
}

/// The pages in order of last use, and what caches of all sizes did so far.
#[derive(Debug)]
pub(super) struct Stack {
    pages: FxHashMap<u64, Entry>,
    /// Places of holes.
    holes: BTreeSet<usize>,
    /// A Fenwick tree of marks: one for the place of each page and each hole. Index 0 is not used.
    tree: Vec<usize>,
    /// The last place given.
    last: usize,
    /// Uses.
    touches: u64,
    /// Pages that every cache had to fetch.
    cold: u64,
    /// Fetched by every cache smaller than the index.
    missed: Vec<u64>,
    /// Written back by caches from the index on, less those that do so from the index on no more.
    written: Vec<i64>,
    /// The most pages there were at once.
    most: usize,
}

impl Default for Stack {
    fn default() -> Self {
        Stack {
            pages: FxHashMap::default(),
            holes: BTreeSet::new(),
            tree: vec![0; LEAST + 1],
            last: 0,
            touches: 0,
            cold: 0,
            missed: Vec::new(),
            written: Vec::new(),
            most: 0,
        }
    }
}

fn at(list: &mut Vec<i64>, index: usize) -> &mut i64 {
    if list.len() <= index {
        list.resize(index + 1, 0);
    }
    &mut list[index]
}

impl Stack {
    /// Pages in memory of a cache without limits.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether a page is on flash or was changed in memory; nothing if it was never used, or dropped since.
    pub fn maps(&self, page: u64) -> Option<bool> {
        self.pages.get(&page).map(|e| e.stored)
    }

    /// The pages that are held, in no order.
    pub fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    fn mark(&mut self, place: usize) {
        let mut i = place;
        while i < self.tree.len() {
            self.tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }

    fn unmark(&mut self, place: usize) {
        let mut i = place;
        while i < self.tree.len() {
            self.tree[i] -= 1;
            i += i & i.wrapping_neg();
        }
    }

    /// Marks up to a place, and at it.
    fn below(&self, place: usize) -> usize {
        let (mut i, mut sum) = (place, 0);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }

    /// The depth of a marked place: 1 is the last one used.
    fn depth(&self, place: usize) -> usize {
        self.pages.len() + self.holes.len() - self.below(place) + 1
    }

    /// The next place. Places that are used up are given anew, in the same order.
    fn next(&mut self) -> usize {
        if self.last + 1 == self.tree.len() {
            let live = self.pages.len() + self.holes.len();
            // Marks are counted up to each place: the first of them gets place 1.
            let mut pages = std::mem::take(&mut self.pages);
            pages.values_mut().for_each(|e| e.place = self.below(e.place));
            self.pages = pages;
            self.holes = self.holes.iter().map(|h| self.below(*h)).collect();
            self.tree.clear();
            self.tree.resize((2 * live).max(LEAST) + 1, 0);
            for i in 1..self.tree.len() {
                self.tree[i] += usize::from(i <= live);
                let up = i + (i & i.wrapping_neg());
                if up < self.tree.len() {
                    self.tree[up] += self.tree[i];
                }
            }
            self.last = live;
        }
        self.last += 1;
        self.last
    }

    /// Counts that a changed page left the caches from `from` pages on that are below its depth.
    fn write_back(&mut self, from: usize, depth: usize) {
        if from < depth {
            *at(&mut self.written, from) += 1;
            *at(&mut self.written, depth) -= 1;
        }
    }

    /// Uses a page, or changes it. `stored`: a page that was never used, or dropped since, is on flash.
    pub fn touch(&mut self, page: u64, change: bool, stored: bool) {
        self.touches += 1;
        let place = self.next();
        let Some(entry) = self.pages.get(&page).copied() else {
            self.cold += u64::from(stored);
            if let Some(hole) = self.holes.pop_last() {
                self.unmark(hole);
            }
            let changed_from = if change { 1 } else { CLEAN };
            self.pages.insert(page, Entry { place, changed_from, stored: stored || change });
            self.mark(place);
            self.most = self.most.max(self.pages.len());
            return;
        };
        let depth = self.depth(entry.place);
        if entry.stored {
            if self.missed.len() <= depth {
                self.missed.resize(depth + 1, 0);
            }
            self.missed[depth] += 1;
        }
        self.write_back(entry.changed_from, depth);
        let changed_from = match entry.changed_from {
            _ if change => 1,
            CLEAN => CLEAN,
            from => from.max(depth),
        };
        match self.holes.last().copied().filter(|hole| *hole > entry.place) {
            Some(hole) => {
                self.holes.remove(&hole);
                self.unmark(hole);
                self.holes.insert(entry.place);
            }
            None => self.unmark(entry.place),
        }
        self.mark(place);
        self.pages.insert(page, Entry { place, changed_from, stored: entry.stored || change });
    }

    /// A page is discarded: no cache keeps it or writes it.
    pub fn drop(&mut self, page: u64) {
        if let Some(entry) = self.pages.get(&page).copied() {
            // Caches that it had left before had written it.
            self.write_back(entry.changed_from, self.depth(entry.place));
            self.pages.remove(&page);
            self.holes.insert(entry.place);
        }
    }

    /// What caches of all sizes did, and what they still hold changed.
    pub fn curve(mut self) -> Curve {
        let mut left = Vec::new();
        let entries: Vec<Entry> = self.pages.values().copied().collect();
        for entry in entries {
            let depth = self.depth(entry.place);
            self.write_back(entry.changed_from, depth);
            if entry.changed_from != CLEAN {
                *at(&mut left, entry.changed_from.max(depth)) += 1;
            }
        }
        Curve::new(self.touches, self.most as u64, self.cold, &self.missed, &self.written, &left)
    }
}
