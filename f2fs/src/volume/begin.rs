//! How does a change begin so that it can be completed?
//!
//! It first makes room: on the host, in the log and for node numbers. So this is layered above the modules that it
//! calls for room, yet called from below.

use std::sync::atomic::Ordering;

use device::host_room::Change as Room;

use super::Volume;
use crate::context::{Begin, Change};
use crate::error::Result;

impl Begin for Volume {
    fn begin(&self) -> Result<Change<'_>> {
        self.begin_on_host(Room::Takes)
    }

    fn begin_modest(&self) -> Result<Change<'_>> {
        self.begin_on_host(Room::Gives)
    }
}

impl Volume {
    fn begin_on_host(&self, room: Room) -> Result<Change<'_>> {
        self.ctx.check_writable()?;
        self.cleaning.note_use();
        self.check_host_room(room)?;
        self.cleaning.balance()?;
        self.checkpoints.relieve_nat()?;
        let cp = self.ctx.cp.read();
        // The volume may have been unmounted, or have failed, during the wait.
        self.ctx.check_writable()?;
        // Only now: a checkpoint in progress ends by clearing this flag.
        let first = !self.ctx.changed.swap(true, Ordering::AcqRel);
        if self.ctx.options.commit.is_some() {
            self.ctx.changes.note(self.ctx.monotonic_ms(), first);
        }
        Ok(Change { cp })
    }
}
