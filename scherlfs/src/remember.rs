//! Recording transactions for undo, and dropping old ones for room.

use scherlfs_format::Seq;
use scherlfs_format::history::{Change, Past};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::history::LIST;
use crate::space::Blocks;
use crate::volume::State;

impl State {
    /// Records a transaction that was written, or found in the log.
    pub(crate) fn remember(&mut self, seq: Seq, secs: i64, changes: Vec<Change>) -> Result<()> {
        let runs = std::mem::take(&mut self.history.dying);
        if self.history.budget == 0 {
            while !self.history.all.is_empty() {
                self.forget_oldest()?;
            }
            return Ok(());
        }
        // A continued transaction may have been dropped meanwhile.
        let again = std::mem::replace(&mut self.history.last, seq) == seq;
        if again && self.history.all.back().is_none_or(|past| past.seq != seq) {
            return Ok(());
        }
        let mut joined = Blocks::default();
        for run in runs {
            let whole =
                self.dead.take(run.start.0, run.blocks.into()) && self.history.kept.add_run(run) && joined.add_run(run);
            if !whole {
                return Err(Error::corrupt(format_args!("blocks from {} on are nobody's twice", run.start)));
            }
        }
        let moved = self.care.cause != Cause::Log;
        let past = Past { seq, secs, moved, changes, runs: joined.iter().collect() };
        match self.history.all.back_mut().filter(|_| again) {
            Some(last) => {
                self.history.bytes -= last.bytes();
                last.take_up(past);
                self.history.bytes += last.bytes();
            }
            None => {
                self.history.bytes += past.bytes() + if self.history.all.is_empty() { 16 } else { 0 };
                self.history.all.push_back(past);
            }
        }
        while self.history.kept.count() > self.history.budget || self.history.bytes > LIST {
            self.forget_oldest()?;
        }
        Ok(())
    }

    /// Drops the oldest undoable transaction.
    pub(crate) fn forget_oldest(&mut self) -> Result<()> {
        let Some(past) = self.history.all.pop_front() else { return Ok(()) };
        self.history.bytes -= past.bytes();
        for run in past.runs {
            if !self.history.kept.take(run.start.0, run.blocks.into()) || !self.dead.add_run(run) {
                return Err(Error::corrupt(format_args!("history: block {} was not kept", run.start)));
            }
        }
        Ok(())
    }

    /// Drops undoable transactions until `blocks` blocks will be free with the next checkpoint, or none are left.
    pub(crate) fn forget_for(&mut self, blocks: u64) -> Result<()> {
        while self.unclaimed() + self.dead.count() < blocks && !self.history.all.is_empty() {
            self.forget_oldest()?;
        }
        Ok(())
    }
}
