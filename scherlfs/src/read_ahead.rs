//! Reads the rest of a begun file while the disk is awake.
//!
//! [`crate::archive::ahead`] chooses file and position. A step is at most [`STEP`] blocks, which limits the waiting
//! time of callers.

use std::time::Duration;

use scherlfs_format::{Addr, BLOCK};
use vfs::Result;

use crate::archive::ahead::{From, block_at, rest};
use crate::archive::wakes::{Why, because};
use crate::volume::{State, Volume};

/// Blocks read per lock: 4 MiB.
const STEP: u32 = 1024;
/// Steps per tick.
const STEPS: usize = 16;
/// Delay before the next tick while there is more.
const SOON: Duration = Duration::from_millis(20);

impl State {
    /// Reads a step of a file into the keep; returns where to continue.
    fn read_on(&self, from: From) -> Result<Option<From>> {
        let Some(keep) = self.archive.as_ref().and_then(|a| a.contents.as_ref()) else { return Ok(None) };
        let left = from.left.unwrap_or(keep.most());
        // An inode that is not in memory is unused.
        let Some(inode) = self.inodes.get(&from.ino).filter(|inode| inode.is_file()) else { return Ok(None) };
        if !from.goes_on && block_at(&inode.extents, from.first) != Some(0) {
            return Ok(None);
        }
        // OK to truncate: at most STEP.
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
    /// Continues read-ahead; returns when to continue, if there is more.
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
                // Users of the file get the error.
                Err(e) => log::debug!("inode {}: not read ahead: {e}", from.ino),
            }
        }
        (!archive.ahead.is_empty()).then_some(SOON)
    }
}
