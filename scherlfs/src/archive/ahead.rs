//! Whose rest is read while the disk is awake?
//!
//! Who reads the beginning of a file that is not kept will read the rest, minutes later, and would keep the disk awake for as
//! long. So the device notes where somebody had to read contents from the disk, and a tick reads on from there into the keep,
//! a step at a time ([`crate::read_ahead`]), and then the disk can sleep.
//! Only who begins at the beginning, or goes on where he was, is read ahead for: a database is not.
//!
//! The plan is a pure function ([`rest`]). Left out: files that nobody reads; those are [`crate::fill`]'s matter.

use std::collections::VecDeque;

use parking_lot::Mutex;
use scherlfs_format::{Addr, Ino, Run};

use super::wakes::{Why, is_because};
use crate::extents::Extents;

/// Files that wait to be read on. Where more are read at once, the oldest is given up.
const FILES: usize = 64;

/// Where somebody read from the disk, and how much of the file may still be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From {
    pub ino: Ino,
    pub first: Addr,
    pub last: Addr,
    /// It went on where the read before it had ended.
    pub goes_on: bool,
    /// Blocks; `None`: as many as the keep takes of a file.
    pub left: Option<u64>,
}

#[derive(Default)]
struct Inner {
    todo: VecDeque<From>,
    /// The blocks behind the last reads.
    ends: VecDeque<(Ino, u64)>,
}

/// Files that are read on.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Inner>);

impl Ahead {
    /// Somebody read this run of a file from the disk.
    pub fn note(&self, ino: Ino, run: Run) {
        if is_because(Why::Waiting) {
            // It is read here.
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

    /// The next.
    pub fn take(&self) -> Option<From> {
        self.0.lock().todo.pop_front()
    }

    /// Goes on with it later, unless somebody reads from somewhere else meanwhile.
    pub fn back(&self, from: From) {
        let mut inner = self.0.lock();
        if !inner.todo.iter().any(|other| other.ino == from.ino) {
            inner.todo.push_front(from);
        }
    }

    /// Whether nothing is to be read on.
    pub fn is_empty(&self) -> bool {
        self.0.lock().todo.is_empty()
    }

    /// Nothing is read on.
    pub fn clear(&self) {
        self.0.lock().todo.clear();
    }
}

/// Which block of a file stands there.
pub(crate) fn block_at(extents: &Extents, at: Addr) -> Option<u64> {
    let here = extents.stored(0).find(|(_, start, blocks)| (start.0..start.0 + blocks).contains(&at.0));
    here.map(|(from, start, _)| from + (at.0 - start.0))
}

/// What follows a block in its file: the next run of it, at most `most` blocks. `None`: nothing follows, or the file has the
/// block no more.
pub(crate) fn rest(extents: &Extents, at: Addr, most: u32) -> Option<Run> {
    let (_, start, blocks) = extents.stored(block_at(extents, at)? + 1).next()?;
    // OK to cut: at most `most`.
    let blocks = blocks.min(most.into()) as u32;
    (blocks > 0).then_some(Run { start, blocks })
}
