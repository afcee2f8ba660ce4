//! When does what was written become durable? When somebody asks for it, when it is time, when the disk is awake anyway.
//!
//! Left out: how it is written ([`crate::commit`]), and who shares a flush ([`crate::flushes`]).

use vfs::{Error, Result};

use crate::archive::wakes::{Why, because};
use crate::cause::Cause;
use crate::volume::{State, Sync, Volume};

impl Volume {
    /// Makes all that was written durable, if `is_right` says that there is what somebody asked it of.
    pub(crate) fn settle(&self, is_right: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let (attempt, wanted) = {
            let mut state = self.state.write();
            is_right(&mut state)?;
            if self.options.read_only {
                return Ok(());
            }
            state.writable()?;
            match &self.archive {
                Some(archive) if self.options.sync == Sync::Burst => {
                    let sb = state.sb.clone();
                    if archive.staged(&sb, || state.commit())? {
                        return Ok(());
                    }
                }
                _ => {
                    state.commit()?;
                    if state.torn || state.logged > state.pace.checkpoint_blocks {
                        return state.checkpoint(false);
                    }
                }
            }
            (state.series_flushes()?, state.taken.count())
        };
        self.flush_together(wanted)?;
        if let Some(attempt) = attempt {
            self.state.write().series_flushed(attempt);
        }
        Ok(())
    }

    /// Writes what waits to the disk, and what is staged, for the disk is awake.
    fn burst(&self) -> Result<()> {
        {
            let mut state = self.state.write();
            state.writable()?;
            state.commit()?;
        }
        self.flush()
    }

    /// Writes what waits when it is time; says whether it did.
    pub(crate) fn write_when_due(&self) -> Result<()> {
        let now = self.clock.monotonic();
        let (since, writeback) = {
            let state = self.state.read();
            (state.since, state.pace.writeback)
        };
        let old = since.is_some_and(|since| now.saturating_sub(since) >= writeback);
        match self.archive.as_ref().and_then(|a| Some((a, a.wakes.as_ref()?))) {
            None if old => self.settle(|_| Ok(())),
            Some((archive, wakes)) if (old || archive.has_staged()) && wakes.is_awake_for_readers() => {
                because(Why::Waiting, || self.burst())
            }
            // A burst that was not flushed is not durable, and the next fsync would have to wake the disk for it.
            Some((archive, _)) => archive.flush_while_awake(),
            None => Ok(()),
        }
    }

    /// Makes all that the device has durable.
    fn flush(&self) -> Result<()> {
        let tag = device::Tag { cause: Cause::Log as u8, owner: 0 };
        self.dev.flush(tag).map_err(|e| {
            let why = format!("a flush failed: {e}");
            self.state.write().broken.get_or_insert(why.clone());
            Error::Device(why)
        })
    }

    /// Makes so many of the log's requests durable.
    fn flush_together(&self, wanted: u64) -> Result<()> {
        self.flushes.share(wanted, || self.flush())
    }
}
