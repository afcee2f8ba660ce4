//! What is due by the clock, and at the end: writeback, checkpoints, `sync`, unmount.

use std::sync::atomic::Ordering;
use std::time::Duration;

use format::checkpoint::CpFlags;

use crate::cause::Cause;
use crate::error::Result;
use crate::file::temperature::Writeback;
use crate::file::writeback::or_wait;
use crate::pack::Reason;
use crate::volume::Volume;

impl Volume {
    /// Does what is due: writes back old dirty contents, writes a checkpoint, cleans. Returns when to call again: a
    /// second later at most.
    pub(crate) fn tick_all(&self) -> Result<Duration> {
        const AT_MOST: Duration = Duration::from_secs(1);
        if self.check_writable().is_err() {
            return Ok(AT_MOST);
        }
        self.write_if_due()?;
        self.restore_if_due()?;
        Ok(self.clean_if_due()?.min(AT_MOST))
    }

    fn write_if_due(&self) -> Result<()> {
        if !self.changed.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.monotonic_ms();
        let due = |last: u64, after: std::time::Duration| now.saturating_sub(last) >= after.as_millis() as u64;
        if due(self.last_checkpoint.load(Ordering::Acquire), self.options.checkpoint_after) {
            return self.checkpoint(Reason::Running);
        }
        if due(self.last_writeback.load(Ordering::Acquire), self.options.writeback_after) {
            self.last_writeback.store(now, Ordering::Release);
            self.balance()?;
            self.write_back_gently()?;
        }
        Ok(())
    }

    /// Writes every inode's dirty contents, and lets other operations run in between. Contents for which the log has no
    /// place wait for a checkpoint that frees segments.
    fn write_back_gently(&self) -> Result<()> {
        let dirty: Vec<_> = self.inodes.dirty.lock().values().cloned().collect();
        for inode in dirty {
            let held = self.cp.read();
            let mut content = inode.content.write();
            or_wait(self.write_back(&held, &inode, &mut content, Writeback::Background))?;
        }
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        if self.options.read_only || self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_writable()?;
        if self.changed.load(Ordering::Acquire) {
            self.balance()?;
            // Contents first, without keeping other operations out.
            self.write_back_gently()?;
            self.checkpoint(Reason::Running)
        } else {
            Ok(self.dev.flush(Cause::Checkpoint.tag())?)
        }
    }

    /// Ends the volume's life: everything durable, the checkpoint marked clean. Does nothing the
    /// second time, and writes nothing if the image is in that state already.
    pub(crate) fn unmount_clean(&self) -> Result<()> {
        let mut pack = self.cp.write();
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.options.read_only {
            self.closed.store(true, Ordering::Release);
            return Ok(());
        }
        let clean = pack.checkpoint.flags.contains(CpFlags::UMOUNT);
        let out = if clean && !self.changed.load(Ordering::Acquire) {
            Ok(())
        } else {
            self.free_orphans(&pack);
            if let Err(e) = self.give_back_ahead(&mut pack) {
                log::warn!("room ahead of logs stays reserved: {e}");
            }
            self.checkpoint_locked(&mut pack, Reason::Unmount)
        };
        self.closed.store(true, Ordering::Release);
        out
    }
}
