//! The rest of a file that somebody began is read while the disk is awake.
//!
//! Whose rest that is and what comes next [`crate::archive::ahead`] says. A step is [`STEP`] blocks at most, so that callers wait
//! for no more.

use std::time::Duration;

use scherlfs_format::{Addr, BLOCK};
use vfs::Result;

use crate::archive::ahead::{From, block_at, rest};
use crate::archive::wakes::{Why, because};
use crate::volume::{State, Volume};

/// Blocks read while the volume's lock is held: 4 MiB.
const STEP: u32 = 1024;
/// Steps of one tick.
const STEPS: usize = 16;
/// When the next tick should come while there is more.
const SOON: Duration = Duration::from_millis(20);

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
