//! How deep in LRU order is a requested page, and from which size on does a cache still hold it changed?
//!
//! LRU is a stack algorithm (Mattson et al., IBM Systems Journal 1970): a cache of `c` pages holds the `c` most
//! recently used. So a page requested at depth `d` is missing exactly in caches below `d` pages, and one pass counts
//! for all sizes. Depths come from a Fenwick tree over the order of use: marks above a page's own are the pages used
//! since.
//!
//! *Write-back.* A changed page leaves a cache of `c` pages when its depth exceeds `c`, and is then written once, for
//! one change or several. Between two uses, depth only grows. Let `m` be the greatest depth at any use since the change
//! (1 at the change itself). Then the page is still changed in caches of at least `m` pages, and if it is requested at
//! depth `d`, caches of `m` to `d - 1` pages have written it since its last use (Thompson and Smith, ACM TOCS 1989,
//! call `m` the dirty level).
//!
//! *Discard.* A discarded page leaves every cache and leaves a hole at its place: caches that reach below it have room
//! for one more page. A page that comes from below the topmost hole, or from outside, fills the hole in the caches
//! between the hole and its own old place, which evict nothing; caches that held the page have as much room as before.
//! So the hole moves to the page's old place (or disappears, if it had none).
//!
//! Left out: which pages a request needs, and what a page covers.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::curve::Curve;

/// No cache holds it changed.
const CLEAN: usize = usize::MAX;
/// Least number of places in the order of use.
const LEAST: usize = 1 << 10;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its place in the order of use.
    place: usize,
    /// The smallest cache that would hold it changed, ignoring its depth since the last use.
    changed_from: usize,
    /// True if caches that do not hold it must fetch it.
    stored: bool,
}

/// The pages in LRU order, and counts for caches of all sizes.
#[derive(Debug)]
pub(super) struct Stack {
    pages: FxHashMap<u64, Entry>,
    /// Places of holes.
    holes: BTreeSet<usize>,
    /// A Fenwick tree of marks: one for the place of each page and each hole. Index 0 is unused.
    tree: Vec<usize>,
    /// The last place assigned.
    last: usize,
    /// Number of uses.
    touches: u64,
    /// Fetches that every cache had to make.
    cold: u64,
    /// Fetches made by every cache smaller than the index.
    missed: Vec<u64>,
    /// Write-backs, as differences: caches from this index on make more (or fewer).
    written: Vec<i64>,
    /// Most pages at the same time.
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

fn slot_mut(list: &mut Vec<i64>, index: usize) -> &mut i64 {
    if list.len() <= index {
        list.resize(index + 1, 0);
    }
    &mut list[index]
}

impl Stack {
    /// Pages in a cache of unlimited size.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether a page is on flash or was changed in memory; `None` if it was never used, or discarded since.
    pub fn maps(&self, page: u64) -> Option<bool> {
        self.pages.get(&page).map(|e| e.stored)
    }

    /// The pages held, in no order.
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

    /// Number of marks up to and including a place.
    fn below(&self, place: usize) -> usize {
        let (mut i, mut sum) = (place, 0);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }

    /// Depth of a marked place: 1 is the most recently used.
    fn depth(&self, place: usize) -> usize {
        self.pages.len() + self.holes.len() - self.below(place) + 1
    }

    /// The next place. When all are used, places are renumbered in the same order.
    fn next(&mut self) -> usize {
        if self.last + 1 == self.tree.len() {
            let live = self.pages.len() + self.holes.len();
            // A place's new number is its number of marks up to there.
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

    /// Counts a write-back in caches from `from` pages up to below `depth`.
    fn write_back(&mut self, from: usize, depth: usize) {
        if from < depth {
            *slot_mut(&mut self.written, from) += 1;
            *slot_mut(&mut self.written, depth) -= 1;
        }
    }

    /// Uses or changes a page. `stored`: a page that was never used, or was discarded since, is on flash.
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

    /// Discards a page: no cache keeps or writes it.
    pub fn drop(&mut self, page: u64) {
        if let Some(entry) = self.pages.get(&page).copied() {
            // Caches that it had already left have written it.
            self.write_back(entry.changed_from, self.depth(entry.place));
            self.pages.remove(&page);
            self.holes.insert(entry.place);
        }
    }

    /// The counts for caches of all sizes, and the changed pages they still hold.
    pub fn curve(mut self) -> Curve {
        let mut left = Vec::new();
        let entries: Vec<Entry> = self.pages.values().copied().collect();
        for entry in entries {
            let depth = self.depth(entry.place);
            self.write_back(entry.changed_from, depth);
            if entry.changed_from != CLEAN {
                *slot_mut(&mut left, entry.changed_from.max(depth)) += 1;
            }
        }
        Curve::new(self.touches, self.most as u64, self.cold, &self.missed, &self.written, &left)
    }
}
