//! What is due by timer, on `sync` and on unmount: writeback and checkpoints?

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
    /// Runs due work: writes back old dirty contents, writes a checkpoint, cleans. Returns when to call again: after at
    /// most a second.
    pub(crate) fn tick_all(&self) -> Result<Duration> {
        const AT_MOST: Duration = Duration::from_secs(1);
        if self.ctx.check_writable().is_err() {
            return Ok(AT_MOST);
        }
        self.watch_host_room()?;
        self.write_if_due()?;
        self.restore_if_due()?;
        self.discard_if_due();
        let next = self.cleaning.clean_if_due()?.min(AT_MOST);
        Ok(self.commit_in().map_or(next, |commit| next.min(commit)))
    }

    /// Time until `commit=` requires a checkpoint; `None` if nothing waits for one.
    fn commit_in(&self) -> Option<Duration> {
        let commit = self.ctx.options.commit.filter(|_| self.ctx.changed.load(Ordering::Acquire))?;
        let at = |since: &AtomicU64| Duration::from_millis(since.load(Ordering::Acquire));
        let power = self.cleaning.settings.lock().power;
        let due = commit.due(
            at(&self.ctx.changes.first),
            at(&self.ctx.changes.last),
            at(&self.checkpoints.last_checkpoint),
            power,
        );
        Some(due.saturating_sub(Duration::from_millis(self.ctx.monotonic_ms())))
    }

    fn write_if_due(&self) -> Result<()> {
        if !self.ctx.changed.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.ctx.monotonic_ms();
        let due = |last: u64, after: Duration| now.saturating_sub(last) >= after.as_millis() as u64;
        if due(self.checkpoints.last_checkpoint.load(Ordering::Acquire), self.ctx.options.checkpoint_after) {
            return self.cleaning.checkpoint(Reason::Running);
        }
        if self.commit_in() == Some(Duration::ZERO) {
            self.cleaning.balance()?;
            // Contents first, while other operations run. The checkpoint repeats failed writes, and records the error.
            let _ = self.write_back_gently();
            return self.cleaning.checkpoint(Reason::Commit);
        }
        if due(self.last_writeback.load(Ordering::Acquire), self.ctx.options.writeback_after) {
            self.last_writeback.store(now, Ordering::Release);
            self.cleaning.balance()?;
            self.write_back_gently()?;
        }
        Ok(())
    }

    /// Writes every inode's dirty contents, while other operations run in between. Contents for which the log has no
    /// space wait for a checkpoint that frees segments.
    fn write_back_gently(&self) -> Result<()> {
        let dirty: Vec<_> = self.inodes.table.dirty.lock().values().cloned().collect();
        for inode in dirty {
            let held = self.ctx.cp.read();
            let mut content = inode.content.write();
            or_wait(self.files.write_back(&held, &inode, &mut content, Writeback::Background))?;
        }
        Ok(())
    }

    /// Makes everything durable. If an earlier checkpoint failed, tries again to write all that is in memory; if that
    /// succeeds, changes are accepted again.
    pub(crate) fn sync_all(&self) -> Result<()> {
        if self.ctx.is_read_only() || self.ctx.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        if !self.ctx.health.is_sound() {
            let mut pack = self.ctx.cp.write();
            self.ctx.health.begin_retry();
            // Refused if nothing may be written any more.
            self.ctx.check_writable()?;
            return self.cleaning.checkpoint_locked(&mut pack, Reason::Running);
        }
        if self.ctx.changed.load(Ordering::Acquire) {
            self.cleaning.balance()?;
            // Contents first, while other operations run. The checkpoint repeats failed writes, and records the error.
            let _ = self.write_back_gently();
            self.cleaning.checkpoint(Reason::Running)
        } else {
            let flushed = self.ctx.dev.flush(Cause::Checkpoint.tag());
            Ok(flushed.inspect_err(|e| self.ctx.health.fail(format_args!("the device could not be flushed: {e}")))?)
        }
    }

    /// Unmounts: makes everything durable, with a checkpoint marked clean. A second call does nothing; if the image is
    /// already in that state, nothing is written. If the checkpoint fails, the volume stays mounted, and another call
    /// tries again.
    pub(crate) fn unmount_clean(&self) -> Result<()> {
        let mut pack = self.ctx.cp.write();
        if self.ctx.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.ctx.is_read_only() {
            self.ctx.closed.store(true, Ordering::Release);
            return Ok(());
        }
        let retry = self.ctx.health.begin_retry();
        if let Some(why) = self.ctx.health.why() {
            return Err(Error::Fs(vfs::Error::device(why)));
        }
        let clean = pack.checkpoint.flags.contains(CpFlags::UMOUNT);
        if retry || !clean || self.ctx.changed.load(Ordering::Acquire) {
            self.names.free_orphans(&pack);
            if let Err(e) = self.files.give_back_ahead(&mut pack) {
                log::warn!("room ahead of logs stays reserved: {e}");
            }
            self.cleaning.checkpoint_locked(&mut pack, Reason::Unmount)?;
            self.discard_before_unmount(&pack);
        }
        self.ctx.closed.store(true, Ordering::Release);
        Ok(())
    }

    /// Inodes with changes newer than the last checkpoint.
    pub(crate) fn not_durable(&self) -> Vec<Ino> {
        let dirty_nodes = self.nodes.cache.dirty();
        let dirty_contents: Vec<Ino> = self.inodes.table.dirty.lock().keys().copied().collect();
        let mut all = self.nodes.nat.changed_inodes();
        all.extend(dirty_nodes.iter().map(|node| node.ino));
        all.extend(dirty_contents);
        all.sort_unstable();
        all.dedup();
        all.retain(|ino| self.nodes.nat.get(Nid(ino.0)).is_ok_and(|entry| entry.addr != format::BlockAddr::NULL));
        all
    }
}
