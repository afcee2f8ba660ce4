//! Which parts of the map are in the device's memory?
//!
//! Demand-based caching as in Ji HotStorage'16, section 5.3.3: translation pages of 4 KB with 1,024 entries,
//! fetched and evicted page by page, the least recently used first. This module computes the cost of the map; its
//! entries are in [`super::table`]. A page that was never written back is not on flash and need not be fetched.
//! Left out: the places of translation pages on flash, and their cleaning.

use serde::{Deserialize, Serialize};

/// Entries in a translation page.
pub const ENTRIES: u64 = 1024;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Entry {
    newer: u32,
    older: u32,
    cached: bool,
    dirty: bool,
    stored: bool,
}

/// Cost of a map access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// True if the page was fetched from flash.
    pub fetched: bool,
    /// A changed page that was evicted for it.
    pub written: Option<u32>,
}

/// The translation pages in memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MapCache {
    pages: Vec<Entry>,
    room: u64,
    held: u64,
    newest: u32,
    oldest: u32,
}

impl MapCache {
    /// An empty cache of `room` pages for a map of `blocks` blocks.
    pub fn new(blocks: u64, room: u64) -> Self {
        let entry = Entry { newer: NONE, older: NONE, cached: false, dirty: false, stored: false };
        let pages = vec![entry; blocks.div_ceil(ENTRIES) as usize];
        MapCache { pages, room, held: 0, newest: NONE, oldest: NONE }
    }

    fn unlink(&mut self, page: u32) {
        let Entry { newer, older, .. } = self.pages[page as usize];
        match newer {
            NONE => self.newest = older,
            n => self.pages[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.pages[o as usize].newer = newer,
        }
    }

    fn push(&mut self, page: u32) {
        let before = self.newest;
        let e = &mut self.pages[page as usize];
        (e.newer, e.older) = (NONE, before);
        match before {
            NONE => self.oldest = page,
            b => self.pages[b as usize].newer = page,
        }
        self.newest = page;
    }

    /// Reads or changes a page.
    pub fn touch(&mut self, page: u32, change: bool) -> Access {
        let mut access = Access::default();
        if self.newest != page {
            if self.pages[page as usize].cached {
                self.unlink(page);
            } else {
                access.fetched = self.pages[page as usize].stored;
                if self.held == self.room {
                    let out = self.oldest;
                    self.unlink(out);
                    let e = &mut self.pages[out as usize];
                    if e.dirty {
                        access.written = Some(out);
                        e.stored = true;
                    }
                    (e.cached, e.dirty) = (false, false);
                } else {
                    self.held += 1;
                }
                self.pages[page as usize].cached = true;
            }
            self.push(page);
        }
        self.pages[page as usize].dirty |= change;
        access
    }

    /// Drops a page whose mappings are all discarded: it is not written back.
    pub fn drop(&mut self, page: u32) {
        if self.pages[page as usize].cached {
            self.unlink(page);
            self.held -= 1;
        }
        let e = &mut self.pages[page as usize];
        (e.cached, e.dirty, e.stored) = (false, false, false);
    }

    /// Changed pages that are not written back, in order.
    pub fn changed(&self) -> Vec<u32> {
        (0..).zip(&self.pages).filter(|(_, e)| e.cached && e.dirty).map(|(i, _)| i).collect()
    }

    /// After a power cut: the cache is empty, and pages with mappings are on flash.
    pub fn restart(&mut self, maps: impl Fn(u32) -> bool) {
        for (i, e) in self.pages.iter_mut().enumerate() {
            *e = Entry { newer: NONE, older: NONE, cached: false, dirty: false, stored: maps(i as u32) };
        }
        (self.held, self.newest, self.oldest) = (0, NONE, NONE);
    }
}
