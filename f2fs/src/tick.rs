//! What is due by the clock, and at the end: writeback, checkpoints, `sync`, unmount.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use format::checkpoint::CpFlags;
use format::{Ino, Nid};

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::file::writeback::or_wait;
use crate::pack::Reason;
use crate::segment::temperature::Writeback;
use crate::volume::Volume;

impl Volume {
    /// Does what is due: writes back old dirty contents, writes a checkpoint, cleans. Returns when to call again: a
    /// second later at most.
    pub(crate) fn tick_all(&self) -> Result<Duration> {
        const AT_MOST: Duration = Duration::from_secs(1);
        if self.check_writable().is_err() {
            return Ok(AT_MOST);
        }
        self.watch_host_room()?;
        self.write_if_due()?;
        self.restore_if_due()?;
        let next = self.clean_if_due()?.min(AT_MOST);
        Ok(self.commit_in().map_or(next, |commit| next.min(commit)))
    }

    /// How long it is until `commit=` asks for a checkpoint; `None` if nothing waits for one.
    fn commit_in(&self) -> Option<Duration> {
        let commit = self.options.commit.filter(|_| self.changed.load(Ordering::Acquire))?;
        let at = |since: &AtomicU64| Duration::from_millis(since.load(Ordering::Acquire));
        let power = self.gc.lock().power;
        let due = commit.due(at(&self.changes.first), at(&self.changes.last), at(&self.last_checkpoint), power);
        Some(due.saturating_sub(Duration::from_millis(self.monotonic_ms())))
    }

    fn write_if_due(&self) -> Result<()> {
        if !self.changed.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.monotonic_ms();
        let due = |last: u64, after: Duration| now.saturating_sub(last) >= after.as_millis() as u64;
        if due(self.last_checkpoint.load(Ordering::Acquire), self.options.checkpoint_after) {
            return self.checkpoint(Reason::Running);
        }
        if self.commit_in() == Some(Duration::ZERO) {
            self.balance()?;
            // Contents first, without keeping other operations out. What fails, the checkpoint meets again, and notes.
            let _ = self.write_back_gently();
            return self.checkpoint(Reason::Commit);
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

    /// Makes everything durable. If an earlier checkpoint failed, this tries to write all that is in memory once more; if
    /// that succeeds, changes are taken again.
    pub(crate) fn sync_all(&self) -> Result<()> {
        if self.options.read_only || self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        if !self.health.is_sound() {
            let mut pack = self.cp.write();
            self.health.begin_retry();
            // Refused if nothing may be written any more.
            self.check_writable()?;
            return self.checkpoint_locked(&mut pack, Reason::Running);
        }
        if self.changed.load(Ordering::Acquire) {
            self.balance()?;
            // Contents first, without keeping other operations out. What fails, the checkpoint meets again, and notes.
            let _ = self.write_back_gently();
            self.checkpoint(Reason::Running)
        } else {
            let flushed = self.dev.flush(Cause::Checkpoint.tag());
            Ok(flushed.inspect_err(|e| self.health.fail(format_args!("the device could not be flushed: {e}")))?)
        }
    }

    /// Ends the volume's life: everything durable, the checkpoint marked clean. Does nothing the
    /// second time, and writes nothing if the image is in that state already. If the checkpoint fails, the volume stays
    /// open, and another call tries again.
    pub(crate) fn unmount_clean(&self) -> Result<()> {
        let mut pack = self.cp.write();
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.options.read_only {
            self.closed.store(true, Ordering::Release);
            return Ok(());
        }
        let retry = self.health.begin_retry();
        if let Some(why) = self.health.why() {
            return Err(Error::Fs(vfs::Error::device(why)));
        }
        let clean = pack.checkpoint.flags.contains(CpFlags::UMOUNT);
        if retry || !clean || self.changed.load(Ordering::Acquire) {
            self.free_orphans(&pack);
            if let Err(e) = self.give_back_ahead(&mut pack) {
                log::warn!("room ahead of logs stays reserved: {e}");
            }
            self.checkpoint_locked(&mut pack, Reason::Unmount)?;
        }
        self.closed.store(true, Ordering::Release);
        Ok(())
    }

    /// Inodes of which something is newer than in the last checkpoint.
    pub(crate) fn not_durable(&self) -> Vec<Ino> {
        let dirty_nodes = self.nodes.dirty();
        let dirty_contents: Vec<Ino> = self.inodes.dirty.lock().keys().copied().collect();
        let mut all = self.nat.changed_inodes();
        all.extend(dirty_nodes.iter().map(|node| node.ino));
        all.extend(dirty_contents);
        all.sort_unstable();
        all.dedup();
        all.retain(|ino| self.nat.get(Nid(ino.0)).is_ok_and(|entry| entry.addr != format::BlockAddr::NULL));
        all
    }
}
