//! When are deltas folded in the delta nodes of a file that is now mostly read?
//!
//! A page with a delta is read in a separate request and rebuilt. MedFS (FAST'25, section 4.2, BGRes) writes such pages
//! of read-hot files as whole blocks while the device is idle. JouleFS does the same: every 60 seconds each file gets
//! its class ([`crate::delta::hotness`]); a file that is often read and seldom written gets no delta node, and its
//! deltas in existing ones are folded, a few at a time, when the volume has been idle for the interval of cleaning.
//!
//! Only with the mount option [`MountOptions::delta_return`](crate::MountOptions::delta_return). A page written as a
//! whole block is no longer adjacent to its neighbours, so reading the file takes about the same number of requests as
//! with deltas, and more than with bases in memory. The gain is only the time to rebuild pages, for one block write
//! each.
//!
//! Different from the paper: files that are often read *and* written keep their deltas. In the paper a delta's page
//! needs two further reads; here its node is in memory, and an fsync saves more than a read costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vfs::FileKind;

use crate::delta::hotness::{Class, FileHeat, Point, WINDOW};
use crate::error::Result;
use crate::file::writeback::or_wait;
use crate::inode::Inode;
use crate::volume::Volume;

/// Pages folded between two checks for requests to the volume.
const STEP: usize = 64;
/// Steps in one call; then the caller checks for other due work.
const STEPS: usize = 16;

impl Volume {
    /// Ends the window if it is due, and folds deltas of files that are only read if the volume is idle.
    pub(crate) fn restore_if_due(&self) -> Result<()> {
        if !self.ctx.may_hold_deltas() || !self.ctx.options.delta_return || self.ctx.is_read_only() {
            return Ok(());
        }
        let now = self.ctx.clock.monotonic();
        let mut hotness = self.deltas.hotness.lock();
        if now.saturating_sub(hotness.since) >= WINDOW {
            hotness.since = now;
            let files = self.inodes.table.of_kind(FileKind::Regular).into_iter();
            let files: Vec<(Arc<Inode>, (u32, u32))> = files.map(|i| (i.clone(), i.heat.end_window())).collect();
            let point = |(reads, writes)| Point::of(reads, writes);
            let points: Vec<Point> = files.iter().filter(|(_, n)| *n != (0, 0)).map(|(_, n)| point(*n)).collect();
            hotness.clusters.update(&points);
            hotness.waiting.clear();
            hotness.last.clear();
            for (inode, (reads, writes)) in files {
                let class = hotness.clusters.class_of(point((reads, writes)));
                if (reads, writes) != (0, 0) {
                    hotness.last.push(FileHeat { ino: inode.ino, reads, writes, class });
                }
                let only_read = class == Class::Read;
                inode.heat.set_only_read(only_read);
                if only_read && self.deltas.delta_root(&inode.node).is_some() {
                    hotness.waiting.push(inode.ino);
                }
            }
        }
        drop(hotness);
        for _ in 0..STEPS {
            if !self.is_idle(now) {
                break;
            }
            let Some(ino) = self.deltas.hotness.lock().waiting.pop() else { break };
            if let Some(inode) = self.inodes.table.get(ino)
                && self.restore_some(&inode)?
            {
                self.deltas.hotness.lock().waiting.push(ino);
            }
        }
        Ok(())
    }

    /// When the current window of counting reads and writes began, and the files that were read or written in the
    /// previous one, if [`MountOptions::delta_return`](crate::MountOptions::delta_return) is on.
    pub fn file_heat(&self) -> (Duration, Vec<FileHeat>) {
        let hotness = self.deltas.hotness.lock();
        (hotness.since, hotness.last.clone())
    }

    /// True if the volume has been idle for the interval of cleaning.
    fn is_idle(&self, now: Duration) -> bool {
        !self.ctx.used.load(Ordering::Relaxed) && self.cleaning.cleaner.is_idle(now)
    }

    /// Folds some deltas of a file's delta nodes; true if there are more.
    fn restore_some(&self, inode: &Arc<Inode>) -> Result<bool> {
        // Not `begin`, which counts as use of the volume.
        self.cleaning.balance()?;
        let _held = self.ctx.cp.read();
        self.ctx.check_writable()?;
        let _content = inode.content.write();
        if inode.node.inode(|r| r.i_links.get()) == 0 {
            return Ok(false);
        }
        let all: Vec<u64> = self.deltas.deltas(&inode.node)?.blocks().collect();
        let (now, later) = all.split_at(all.len().min(STEP));
        if now.is_empty() {
            return Ok(false);
        }
        self.ctx.changed.store(true, Ordering::Release);
        or_wait(self.files.fold(&inode.node, now))?;
        self.counters.restored.fetch_add(now.len() as u64, Ordering::Relaxed);
        // A page that cannot be rebuilt keeps its delta, and would be retried forever.
        let left = self.deltas.deltas(&inode.node)?.blocks().count();
        Ok(!later.is_empty() && left < all.len())
    }
}
