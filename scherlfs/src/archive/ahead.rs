//! Which files are read ahead while the disk is awake?
//!
//! A program that reads the beginning of a file that is not kept will read the rest minutes later, and would keep
//! the disk awake for that time. So the device records where contents had to be read from the disk, and a tick
//! continues from there into the keep, a step at a time ([`crate::read_ahead`]); then the disk can sleep. Only
//! readers that begin at the start, or continue where they were, trigger read-ahead: a database does not.
//!
//! The plan is a pure function ([`rest`]). Left out: files that no program reads, which [`crate::fill`] handles.

use std::collections::VecDeque;

use parking_lot::Mutex;
use scherlfs_format::{Addr, Ino, Run};

use super::wakes::{Why, is_because};
use crate::extents::Extents;

/// Most files waiting for read-ahead; beyond that, the oldest is dropped.
const FILES: usize = 64;

/// Where contents were read from the disk, and how much of the file may still be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From {
    pub ino: Ino,
    pub first: Addr,
    pub last: Addr,
    /// True if the read continued where the previous one ended.
    pub goes_on: bool,
    /// Remaining blocks; `None`: up to the keep's limit per file.
    pub left: Option<u64>,
}

#[derive(Default)]
struct Inner {
    todo: VecDeque<From>,
    /// Ends of the last reads.
    ends: VecDeque<(Ino, u64)>,
}

/// Files with read-ahead.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Inner>);

impl Ahead {
    /// Records that this run of a file was read from the disk.
    pub fn note(&self, ino: Ino, run: Run) {
        if is_because(Why::Waiting) {
            // Read-ahead of this file has reached this place.
            return;
        }
        let mut inner = self.0.lock();
        let (first, end) = (run.start, run.start.0 + u64::from(run.blocks));
        let goes_on = inner.ends.contains(&(ino, first.0));
        inner.ends.retain(|(other, _)| *other != ino);
        inner.todo.retain(|from| from.ino != ino);
        inner.ends.push_back((ino, end));
        inner.todo.push_back(From { ino, first, last: Addr(end - 1), goes_on, left: None });
        if inner.ends.len() > FILES {
            inner.ends.pop_front();
        }
        if inner.todo.len() > FILES {
            inner.todo.pop_front();
        }
    }

    /// Takes the next file.
    pub fn take(&self) -> Option<From> {
        self.0.lock().todo.pop_front()
    }

    /// Puts a file back for later, unless another place of it was read meanwhile.
    pub fn back(&self, from: From) {
        let mut inner = self.0.lock();
        if !inner.todo.iter().any(|other| other.ino == from.ino) {
            inner.todo.push_front(from);
        }
    }

    /// True if no file waits.
    pub fn is_empty(&self) -> bool {
        self.0.lock().todo.is_empty()
    }

    /// Drops all files.
    pub fn clear(&self) {
        self.0.lock().todo.clear();
    }
}

/// The file block at an address.
pub(crate) fn block_at(extents: &Extents, at: Addr) -> Option<u64> {
    let here = extents.stored(0).find(|(_, start, blocks)| (start.0..start.0 + blocks).contains(&at.0));
    here.map(|(from, start, _)| from + (at.0 - start.0))
}

/// The run of a file after a block, at most `most` blocks. `None` at the end of the file, or if the file no longer
/// has the block.
pub(crate) fn rest(extents: &Extents, at: Addr, most: u32) -> Option<Run> {
    let (_, start, blocks) = extents.stored(block_at(extents, at)? + 1).next()?;
    // OK to truncate: at most `most`.
    let blocks = blocks.min(most.into()) as u32;
    (blocks > 0).then_some(Run { start, blocks })
}
