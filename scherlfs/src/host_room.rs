//! Does the host have room for the data that this volume has accepted?
//!
//! A sparse image finds no room if its host's file system is full. A [`HostRoom`](device::HostRoom) holds ballast
//! there for all waiting blocks and a checkpoint. When the host becomes short of room, waiting blocks are made
//! durable immediately, and changes that may take room are rejected.

use device::host_room::Change;
use device::{BlockDevice, Lba};
use scherlfs_format::{Ino, Run};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::volume::{State, Volume};

/// Superblocks, and blocks that an operation may write beyond its admission.
const BESIDE: u64 = 32;

impl State {
    /// Ensures that the host has room for `blocks` blocks in addition to all waiting ones.
    pub(crate) fn admit_on_host(&mut self, blocks: u64, gives_back: bool) -> Result<()> {
        let Some(room) = self.host_room.clone() else { return Ok(()) };
        let change = if gives_back { Change::Gives } else { Change::Takes };
        let covered = |st: &State| room.covers(st.need + st.checkpoint_need() + blocks + BESIDE, change);
        if room.shortage().is_none() && covered(self) {
            return Ok(());
        }
        self.relieve_host()?;
        if !covered(self) {
            self.commit()?;
        }
        let refused = (room.is_short() && !gives_back) || !covered(self);
        if refused { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Makes sure that an inode can be changed, and that so many blocks of the volume can be promised to it. The host
    /// gives a promised block its room when the block is written.
    pub(crate) fn admit_promise(&mut self, ino: Ino, blocks: u64) -> Result<()> {
        self.writable()?;
        // The inode, and the first and the last block of the range.
        let own = 8 + self.inode(ino)?.extents.cost_of_all(0);
        self.admit_on_host(own, false)?;
        self.admit_in_log(blocks + own, false)
    }

    /// Makes everything durable at the beginning of a shortage.
    fn relieve_host(&mut self) -> Result<()> {
        let shortage = self.host_room.as_ref().and_then(|room| room.shortage());
        if let Some(number) = shortage.filter(|number| *number > self.relieved) {
            if self.logged > 0 || !self.waiting.is_empty() || !self.gone.is_empty() {
                self.checkpoint(false)?;
            }
            self.relieved = number;
        }
        Ok(())
    }

    /// Returns the room of freed blocks to the host. It is optional, so errors are ignored.
    pub(crate) fn return_to_host(&self, runs: impl Iterator<Item = Run>) {
        for run in runs {
            if let Err(e) = self.dev.discard(Lba(run.start.0), run.blocks.into(), Self::tag(Cause::Checkpoint)) {
                log::debug!("discarding {run:?}: {e}");
            }
        }
    }

    /// True if the host has no room for more.
    pub(crate) fn host_is_short(&self) -> bool {
        self.host_room.as_ref().is_some_and(|room| room.is_short())
    }
}

impl Volume {
    /// Checks the host again.
    pub(crate) fn watch_host_room(&self) -> Result<()> {
        let Some(room) = &self.options.host_room else { return Ok(()) };
        room.renew();
        if !room.is_short() {
            return Ok(());
        }
        let mut state = self.state.write();
        if state.writable().is_err() {
            return Ok(());
        }
        state.relieve_host()?;
        // Room of removed files is freed by a checkpoint.
        if state.dead.count() > 0 || !state.gone.is_empty() { state.checkpoint(false) } else { Ok(()) }
    }
}
