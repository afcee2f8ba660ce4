//! What is known of the pages in a journal or log?
//!
//! The layout of its records, and the newest version of each kept page ([`crate::delta::kept`]). All of it can be
//! rebuilt from the file's delta nodes.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::frames::Layout;
use super::luck::Luck;
use crate::node::index::Index;

/// Number of pages whose newest version is kept even if no block depends on it.
pub(crate) const PINNED: usize = 128;
/// Number of records for which the kept page is remembered.
const MOST_RECORDS: usize = 4096;

/// The newest version of a page.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) id: u32,
    /// The kept page at the start of its chain, which is stored alone, and the number of steps to it.
    pub(crate) root: u32,
    pub(crate) depth: usize,
}

/// What is known of the records of one file.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) layout: Option<Layout>,
    /// Whether the layout was searched in the first block.
    pub(crate) looked: bool,
    /// Whether `latest` has the kept pages of the nodes.
    loaded: bool,
    /// By page number in the database.
    pub(crate) latest: FxHashMap<u32, Latest>,
    /// The last known kept page of each record.
    pub(crate) records: FxHashMap<u64, u32>,
    /// The next id.
    pub(crate) next: u32,
    /// Whether kept pages pay for this file.
    pub(crate) luck: Luck,
    /// Blocks behind the end that this mount preallocated without a user's request.
    ahead: Option<Range<u64>>,
}

impl Frames {
    /// Whether the file is known to hold pages of a database.
    pub(crate) fn has_records(&self) -> bool {
        self.layout.is_some()
    }

    /// Notes blocks preallocated behind the end.
    pub(crate) fn got_ahead(&mut self, blocks: Range<u64>) {
        let from = self.ahead.take().map_or(blocks.start, |known| known.start.min(blocks.start));
        self.ahead = Some(from..blocks.end);
    }

    /// Takes the preallocated range. It is also forgotten when a user reserves these blocks or makes holes of them.
    pub(crate) fn take_ahead(&mut self) -> Option<Range<u64>> {
        self.ahead.take()
    }

    /// Notes that some planned entries did not fit in delta nodes.
    pub(crate) fn found_no_room(&mut self) {
        // A page that did not fit is not stored, only its older versions.
        self.forget();
        self.luck.found_no_room();
    }

    /// Not all planned entries were stored: what is known of the file is loaded again.
    pub(crate) fn forget(&mut self) {
        self.loaded = false;
        self.latest.clear();
        self.records.clear();
    }

    /// Loads the kept pages from the nodes, unless loaded.
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

    /// Notes the kept pages of records.
    pub(crate) fn note(&mut self, records: impl Iterator<Item = (u64, u32)>) {
        if self.records.len() > MOST_RECORDS {
            self.records.clear();
        }
        self.records.extend(records);
    }
}
