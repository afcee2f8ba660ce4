//! How is a checkpoint of everything written if the log has no space for all contents?
//!
//! One checkpoint leaves out contents that do not fit and frees segments; the next one writes more
//! ([`crate::checkpoint`]). If that gains nothing, sections are cleaned once.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::gc::Cleaning;
use crate::pack::{PackState, Reason};

impl Cleaning {
    /// Writes a checkpoint, if anything changed since the last.
    pub(crate) fn checkpoint(&self, reason: Reason) -> Result<()> {
        let mut pack = self.ctx.cp.write();
        if reason != Reason::Unmount && !self.ctx.changed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.checkpoint_locked(&mut pack, reason)
    }

    /// Writes a checkpoint of everything while no other thread makes changes: `pack` is behind the exclusive guard.
    pub(crate) fn checkpoint_locked(&self, pack: &mut PackState, reason: Reason) -> Result<()> {
        let mut cleaned = false;
        let mut before = u64::MAX;
        loop {
            let waiting = self.checkpoints.checkpoint_of_what_fits(pack, reason)?;
            if waiting == 0 {
                return Ok(());
            }
            if waiting >= before {
                if cleaned {
                    return Err(Error::no_space());
                }
                self.reclaim(pack)?;
                cleaned = true;
            }
            before = waiting;
        }
    }
}
