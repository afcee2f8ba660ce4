//! What is remembered of the pages that a journal or log is made of?
//!
//! Where its records lie, and the newest version of each page that is kept ([`crate::delta::kept`]). All of it can be looked up in
//! the file's delta nodes again.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::frames::Layout;
use super::luck::Luck;
use crate::node::index::Index;

/// Of so many pages the newest version is kept, though no block is made of it.
pub(crate) const PINNED: usize = 128;
/// Of so many records it is remembered which kept page each holds.
const MOST_RECORDS: usize = 4096;

/// The newest version of a page.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) id: u32,
    /// The one that it is made of in the end, which stands alone; how many steps away it is.
    pub(crate) root: u32,
    pub(crate) depth: usize,
}

/// What is known of the records of one file.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) layout: Option<Layout>,
    /// Whether the first block was looked at for the layout.
    pub(crate) looked: bool,
    /// Whether the kept pages in the nodes are in `latest`.
    loaded: bool,
    /// By number in the database.
    pub(crate) latest: FxHashMap<u32, Latest>,
    /// The kept pages that records were last seen to hold.
    pub(crate) records: FxHashMap<u64, u32>,
    /// The next id.
    pub(crate) next: u32,
    /// Whether this pays.
    pub(crate) luck: Luck,
    /// Blocks behind the end for which this mount gave the file room, and which nobody asked for.
    ahead: Option<Range<u64>>,
}

impl Frames {
    /// Whether the file is known to hold pages of a database.
    pub(crate) fn has_records(&self) -> bool {
        self.layout.is_some()
    }

    /// The file got room for these blocks behind its end.
    pub(crate) fn got_ahead(&mut self, blocks: Range<u64>) {
        let from = self.ahead.take().map_or(blocks.start, |known| known.start.min(blocks.start));
        self.ahead = Some(from..blocks.end);
    }

    /// Such room that nobody asked for; it is forgotten, as it also is when somebody reserves blocks or makes holes of them.
    pub(crate) fn take_ahead(&mut self) -> Option<Range<u64>> {
        self.ahead.take()
    }

    /// Some of what was planned found no room in delta nodes.
    pub(crate) fn found_no_room(&mut self) {
        // What found none is not there to be changed again: its older versions are.
        self.forget();
        self.luck.found_no_room();
    }

    /// Not all of what was planned is stored: what is known of the file is looked up anew.
    pub(crate) fn forget(&mut self) {
        self.loaded = false;
        self.latest.clear();
        self.records.clear();
    }

    /// Looks up what the nodes have, if that is not known.
    pub(crate) fn load(&mut self, index: &Index) {
        if self.loaded {
            return;
        }
        self.loaded = true;
        self.next = index.kept().map(|(id, _)| id + 1).max().unwrap_or(1);
        for (id, key) in index.kept() {
            let Some((root, depth)) = index.root(id) else { continue };
            let known = self.latest.entry(key).or_insert(Latest { id, root, depth });
            if known.id < id {
                *known = Latest { id, root, depth };
            }
        }
    }

    /// Notes which kept pages records hold.
    pub(crate) fn note(&mut self, records: impl Iterator<Item = (u64, u32)>) {
        if self.records.len() > MOST_RECORDS {
            self.records.clear();
        }
        self.records.extend(records);
    }
}
