//! Which free blocks does the device still store?
//!
//! A checkpoint discards the segments that it frees. This module discards the holes in segments that are in use: all of
//! them at once, as `fstrim` does in Linux, or little by little, as Linux's thread does. (Linux discards every hole of a
//! volume below 16 GiB; [`Holes::AsLinux`] does not depend on its size.)
//!
//! What a discard is worth: a dead block that the device still stores is copied when the flash makes room. How often is
//! not known here; once is assumed. So a discard, which costs a request, pays for holes of at least request / `copy_inside`
//! blocks: 18 to 21 on phones, fewer if wear has a price.

use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{BlockDevice, Lba};
use format::SegNo;

use crate::cause::Cause;
use crate::error::Error;
use crate::options::Holes;
use crate::pack::{PackState, Reason};
use crate::segment::table::SegmentTable;
use crate::volume::Volume;

/// Blocks of the shortest hole that Linux discards in idle time (kernel `discard_granularity`).
const GRANULARITY: u64 = 16;
/// Percent of users' blocks in use above which Linux discards every hole, idle or not (kernel `discard_urgent_util`).
const URGENT: u64 = 80;
/// A volume is idle this long after its last request (kernel `DEF_IDLE_INTERVAL`).
const IDLE: Duration = Duration::from_secs(5);
/// Requests of one tick: changes wait for them.
const AT_ONCE: usize = 64;
/// Requests of an unmount, which must not take long.
const AT_UNMOUNT: usize = 4096;

/// Runs of free blocks in the main area that the last checkpoint does not need: first block and length.
fn runs(table: &SegmentTable, segments: u32, at_least: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let (mut first, mut blocks) = (0, 0);
    for seg in 0..segments {
        for off in 0..512 {
            let at = u64::from(seg) * 512 + u64::from(off);
            if table.is_valid(SegNo(seg), off) || table.is_held(SegNo(seg), off) {
                continue;
            }
            if first + blocks != at {
                if blocks >= at_least {
                    out.push((first, blocks));
                }
                (first, blocks) = (at, 0);
            }
            blocks += 1;
        }
    }
    if blocks >= at_least {
        out.push((first, blocks));
    }
    out
}

impl Volume {
    /// Discards the remaining holes before an unmount.
    pub(crate) fn discard_before_unmount(&self, alone: &PackState) {
        self.discard_holes(alone, AT_UNMOUNT);
    }

    /// Discards some holes if it is time to.
    pub(crate) fn discard_if_due(&self) {
        if self.ctx.options.discard_holes == Holes::Kept {
            return;
        }
        let now = self.ctx.clock.monotonic();
        if self.ctx.used.load(Ordering::Relaxed) {
            *self.last_seen_used.lock() = now;
        }
        let is_due = self.is_urgent() || now.saturating_sub(*self.last_seen_used.lock()) >= IDLE;
        let at_least = self.shortest_hole();
        // Changes wait only if there is something to discard.
        if is_due && self.logs.seg.lock().table.dead.as_ref().is_some_and(|dead| dead.longest() >= at_least) {
            self.discard_holes(&self.ctx.cp.write(), AT_ONCE);
        }
    }

    /// Whether Linux would discard every hole, idle or not.
    fn is_urgent(&self) -> bool {
        let space = &self.nodes.space;
        self.ctx.options.discard_holes == Holes::AsLinux && space.valid_blocks() * 100 > space.user_blocks() * URGENT
    }

    /// Blocks of the shortest hole to discard.
    fn shortest_hole(&self) -> u64 {
        let prices = &self.ctx.options.prices;
        match self.ctx.options.discard_holes {
            Holes::AsLinux if self.is_urgent() => 1,
            Holes::AsLinux => GRANULARITY,
            // A device that copies nothing inside needs no discards.
            Holes::Kept | Holes::Worth => prices.request.checked_div(prices.copy_inside).map_or(u64::MAX, |n| n + 1),
        }
    }

    /// Discards at most `most` holes, while no log can fill one. Discard is advice: if the device refuses it, no hole is
    /// discarded any more.
    fn discard_holes(&self, _alone: &PackState, most: usize) {
        let at_least = self.shortest_hole();
        let main = self.ctx.sb.seg_start(SegNo(0));
        for _ in 0..most {
            let Some((first, blocks)) = self.logs.seg.lock().table.dead.as_mut().and_then(|dead| dead.take(at_least))
            else {
                return;
            };
            if let Err(e) = self.ctx.dev.discard(Lba(u64::from(main.0) + first), blocks, Cause::Checkpoint.tag()) {
                log::warn!("holes are not discarded: {e}");
                self.logs.seg.lock().table.dead = None;
                return;
            }
        }
    }

    /// Writes a checkpoint and discards every run of at least `at_least` free blocks; returns the number of blocks
    /// discarded. No other operation changes the volume meanwhile.
    pub fn trim(&self, at_least: u64) -> vfs::Result<u64> {
        let mut pack = self.ctx.cp.write();
        // A block freed since the last checkpoint belongs to that checkpoint until the next one.
        self.cleaning.checkpoint_locked(&mut pack, Reason::Running)?;
        let runs = runs(&self.logs.seg.lock().table, self.ctx.sb.main_segs, at_least.max(1));
        let main = self.ctx.sb.seg_start(SegNo(0));
        let mut told = 0;
        for (first, blocks) in runs {
            self.ctx
                .dev
                .discard(Lba(u64::from(main.0) + first), blocks, Cause::Checkpoint.tag())
                .map_err(Error::from)?;
            told += blocks;
            if let Some(dead) = &mut self.logs.seg.lock().table.dead {
                dead.leave_out(first, blocks);
            }
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use device::{Counting, Memory, Time, VirtualClock};
    use vfs::FileSystem;

    use super::*;
    use crate::options::MountOptions;
    use crate::rig::{blocks, file, judge, mounted, read, write};

    #[test]
    fn the_device_is_told_of_holes_and_of_nothing_that_is_needed() {
        let (dev, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let inos: Vec<_> = names.iter().map(|name| file(&vol, name)).collect();
        for (n, ino) in inos.iter().enumerate() {
            write(&vol, *ino, 0, &blocks(1 + n % 4));
        }
        vol.sync().unwrap();
        for name in names.iter().step_by(2) {
            vol.unlink(vol.root(), name.as_bytes()).unwrap();
        }
        let free = vol.logs.free_fragments().total_blocks();
        assert!(vol.trim(2).unwrap() < vol.trim(1).unwrap(), "holes of one block are holes, too");
        let told = vol.trim(1).unwrap();
        assert!(told >= free, "{told} of {free}");
        for (n, ino) in inos.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(read(&vol, *ino), blocks(1 + n % 4), "{}", names[n]);
        }
        judge(&dev, &vol);
    }

    #[test]
    fn an_idle_volume_discards_the_holes_that_a_checkpoint_freed_and_nothing_else() {
        let dev = Arc::new(Counting::new(Memory::new(64 * 256)));
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        crate::mkfs::format(&*dev, &*clock, &crate::mkfs::Options::default()).unwrap();
        let options = MountOptions { inline: false, discard_holes: Holes::AsLinux, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
        let made = dev.snapshot();
        let told = || (&dev.snapshot() - &made).total().blocks_discarded;
        let inos: Vec<_> = (0..60).map(|n| file(&vol, &format!("f{n}"))).collect();
        for (n, ino) in inos.iter().enumerate() {
            write(&vol, *ino, 0, &blocks(if n % 3 == 0 { 20 } else { 3 }));
            vol.fsync(*ino, false).unwrap();
        }
        vol.sync().unwrap();
        for n in (0..60).filter(|n| n % 3 < 2 && n % 2 == 0) {
            vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
            vol.forget(inos[n], 1);
        }
        let tick = |seconds| {
            clock.advance(Duration::from_secs(seconds));
            vol.tick().unwrap();
        };
        tick(1);
        vol.sync().unwrap();
        tick(1);
        assert_eq!(told(), 0, "it is in use");
        tick(6);
        let long = told();
        assert!((200..300).contains(&long), "ten holes of 20 blocks and the nodes beside them, not those of 3: {long}");
        // A hole that is written again is none.
        write(&vol, file(&vol, "new"), 0, &blocks(40));
        vol.sync().unwrap();
        // Above 80 percent every hole counts.
        let mut n = 0;
        while !vol.is_urgent() {
            write(&vol, file(&vol, &format!("more{n}")), 0, &blocks(200));
            vol.sync().unwrap();
            n += 1;
        }
        let before = told();
        tick(1);
        let free = vol.logs.free_fragments().total_blocks();
        assert!(told() > before && told() - long <= free + 200, "{} {before} {free}", told());
        for (n, ino) in inos.iter().enumerate().filter(|(n, _)| n % 3 == 2 || n % 2 == 1) {
            assert_eq!(read(&vol, *ino), blocks(if n % 3 == 0 { 20 } else { 3 }), "f{n}");
        }
        let inner = dev.inner().fork();
        judge(&inner, &vol);
    }

    #[test]
    fn a_hole_is_worth_a_discard_that_costs_less_than_its_copies_and_their_wear() {
        let shortest = |discard_holes, wear| {
            let (_, vol) = mounted(64, MountOptions { discard_holes, wear, ..MountOptions::default() });
            vol.shortest_hole()
        };
        assert_eq!(shortest(Holes::AsLinux, 0), 16);
        // 121.9 uJ for a request, 5.9 uJ for a copy.
        assert_eq!(shortest(Holes::Worth, 0), 21);
        assert_eq!(shortest(Holes::Worth, 20_000_000), 5);
    }
}
