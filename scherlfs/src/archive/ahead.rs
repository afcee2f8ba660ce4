//! Whose rest is read while the disk is awake?
//!
//! Who reads the beginning of a file that is not kept will read the rest, minutes later, and would keep the disk awake for as
//! long. So the device notes where somebody had to read contents from the disk, and a tick reads on from there into the keep,
//! a step at a time, and then the disk can sleep. A step is [`STEP`] blocks at most, so that callers wait for no more.
//! Only who begins at the beginning, or goes on where he was, is read ahead for: a database is not.
//!
//! The plan is a pure function ([`rest`]). Left out: files that nobody reads; those are [`crate::fill`]'s matter.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use scherlfs_format::{Addr, BLOCK, Ino, Run};
use vfs::Result;

use super::wakes::{Why, because, is_because};
use crate::extents::Extents;
use crate::volume::{State, Volume};

/// Blocks read while the volume's lock is held: 4 MiB.
const STEP: u32 = 1024;
/// Steps of one tick.
const STEPS: usize = 16;
/// Files that wait to be read on. Where more are read at once, the oldest is given up.
const FILES: usize = 64;
/// When the next tick should come while there is more.
const SOON: Duration = Duration::from_millis(20);

/// Where somebody read from the disk, and how much of the file may still be read.
#[derive(Debug, Clone, Copy)]
struct From {
    ino: Ino,
    first: Addr,
    last: Addr,
    /// It went on where the read before it had ended.
    goes_on: bool,
    /// Blocks; `None`: as many as the keep takes of a file.
    left: Option<u64>,
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

    fn take(&self) -> Option<From> {
        self.0.lock().todo.pop_front()
    }

    /// Goes on with it later, unless somebody reads from somewhere else meanwhile.
    fn back(&self, from: From) {
        let mut inner = self.0.lock();
        if !inner.todo.iter().any(|other| other.ino == from.ino) {
            inner.todo.push_front(from);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().todo.is_empty()
    }

    fn clear(&self) {
        self.0.lock().todo.clear();
    }
}

/// Which block of a file stands there.
fn block_at(extents: &Extents, at: Addr) -> Option<u64> {
    let here = extents.stored(0).find(|(_, start, blocks)| (start.0..start.0 + blocks).contains(&at.0));
    here.map(|(from, start, _)| from + (at.0 - start.0))
}

/// What follows a block in its file: the next run of it, at most `most` blocks. `None`: nothing follows, or the file has the
/// block no more.
fn rest(extents: &Extents, at: Addr, most: u32) -> Option<Run> {
    let (_, start, blocks) = extents.stored(block_at(extents, at)? + 1).next()?;
    // OK to cut: at most `most`.
    let blocks = blocks.min(most.into()) as u32;
    (blocks > 0).then_some(Run { start, blocks })
}

impl State {
    /// Reads a step of a file into the keep; says where it goes on.
    fn read_on(&self, from: From) -> Result<Option<From>> {
        let Some(keep) = self.archive.as_ref().and_then(|a| a.contents.as_ref()) else { return Ok(None) };
        let left = from.left.unwrap_or(keep.most());
        // Who is not in memory is used by nobody.
        let Some(inode) = self.inodes.get(&from.ino).filter(|inode| inode.is_file()) else { return Ok(None) };
        if !from.goes_on && block_at(&inode.extents, from.first) != Some(0) {
            return Ok(None);
        }
        // OK to cut: at most STEP.
        let Some(run) = rest(&inode.extents, from.last, left.min(STEP.into()) as u32) else { return Ok(None) };
        if !keep.has_all(run) {
            let mut bytes = vec![0; run.blocks as usize * BLOCK];
            because(Why::Waiting, || self.read_blocks(inode, run.start, &mut bytes))?;
        }
        let last = Addr(run.start.0 + u64::from(run.blocks) - 1);
        Ok(Some(From { last, goes_on: true, left: Some(left - u64::from(run.blocks)), ..from }))
    }
}

impl Volume {
    /// Reads some more of what was begun; says when to go on, if there is more.
    pub(crate) fn read_ahead(&self) -> Option<Duration> {
        let archive = self.archive.as_ref().filter(|a| a.contents.is_some())?;
        for _ in 0..STEPS {
            if !archive.is_awake() {
                archive.ahead.clear();
            }
            let from = archive.ahead.take()?;
            let state = self.state.read();
            match state.read_on(from) {
                Ok(Some(next)) => archive.ahead.back(next),
                Ok(None) => {}
                // Who asks for it gets the error.
                Err(e) => log::debug!("inode {}: not read ahead: {e}", from.ino),
            }
        }
        (!archive.ahead.is_empty()).then_some(SOON)
    }
}
