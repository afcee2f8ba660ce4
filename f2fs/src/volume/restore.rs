//! When do pages leave the delta nodes of a file that is no longer written but read?
//!
//! A page with a delta is read alone, and put together. MedFS (FAST'25, section 4.2, BGRes) writes such pages whole
//! while the device is idle, of files that became read-hot. So does this: every 60 seconds each file gets its class
//! ([`crate::delta::hotness`]); a file that is read often and written seldom gets no delta node, and the deltas that it has in
//! some are folded when nobody has asked anything of the volume for as long as cleaning waits, a few at a time.
//!
//! Only if a mount asks for it ([`MountOptions::delta_return`](crate::MountOptions::delta_return)). A page that is
//! written whole leaves its neighbours, so that a file takes about as many requests to read as with deltas, and more than
//! with bases in memory. What remains is the time of putting pages together, for one block written for each.
//!
//! Departed from the paper: files that are read *and* written often keep their deltas. There a delta's page must be
//! found by two further reads; here its node is in memory, and what an fsync saves is more than what a read costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vfs::FileKind;

use crate::delta::hotness::{Class, FileHeat, Point, WINDOW};
use crate::error::Result;
use crate::file::writeback::or_wait;
use crate::inode::Inode;
use crate::volume::Volume;

/// Pages folded between two looks at whether somebody needs the volume.
const STEP: usize = 64;
/// Steps of one call, after which the caller looks at what else is due.
const STEPS: usize = 16;

impl Volume {
    /// Ends the window if it is time, and folds deltas of files that are only read if nobody uses the volume.
    pub(crate) fn restore_if_due(&self) -> Result<()> {
        if !self.may_hold_deltas() || !self.options.delta_return || self.options.read_only {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let mut hotness = self.hotness.lock();
        if now.saturating_sub(hotness.since) >= WINDOW {
            hotness.since = now;
            let files = self.inodes.of_kind(FileKind::Regular).into_iter();
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
                if only_read && self.delta_root(&inode.node).is_some() {
                    hotness.waiting.push(inode.ino);
                }
            }
        }
        drop(hotness);
        for _ in 0..STEPS {
            if !self.is_idle(now) {
                break;
            }
            let Some(ino) = self.hotness.lock().waiting.pop() else { break };
            if let Some(inode) = self.inodes.get(ino)
                && self.restore_some(&inode)?
            {
                self.hotness.lock().waiting.push(ino);
            }
        }
        Ok(())
    }

    /// When the present window of counting reads and writes began, and which files were read or written in the one before,
    /// if [`MountOptions::delta_return`](crate::MountOptions::delta_return) is on.
    pub fn file_heat(&self) -> (Duration, Vec<FileHeat>) {
        let hotness = self.hotness.lock();
        (hotness.since, hotness.last.clone())
    }

    /// True if nobody has asked anything of the volume for as long as cleaning waits.
    fn is_idle(&self, now: Duration) -> bool {
        !self.used.load(Ordering::Relaxed) && self.cleaner.is_idle(now)
    }

    /// Folds some deltas of a file's delta nodes; true if there are more.
    fn restore_some(&self, inode: &Arc<Inode>) -> Result<bool> {
        // Not `begin`, by which users of the volume are noted.
        self.balance()?;
        let _held = self.cp.read();
        self.check_writable()?;
        let _content = inode.content.write();
        if inode.node.inode(|r| r.i_links.get()) == 0 {
            return Ok(false);
        }
        let all: Vec<u64> = self.deltas(&inode.node)?.blocks().collect();
        let (now, later) = all.split_at(all.len().min(STEP));
        if now.is_empty() {
            return Ok(false);
        }
        self.changed.store(true, Ordering::Release);
        or_wait(self.fold(&inode.node, now))?;
        self.counters.restored.fetch_add(now.len() as u64, Ordering::Relaxed);
        // A page that cannot be put together stays, and would be tried for ever.
        let left = self.deltas(&inode.node)?.blocks().count();
        Ok(!later.is_empty() && left < all.len())
    }
}
