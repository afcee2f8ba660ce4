//! When does cleaning run, and how much of it?
//!
//! Every change asks first ([`Volume::balance`]): are there free sections for what is dirty in
//! memory, beyond the reserve? If not, a checkpoint frees what was emptied, and if that is not
//! enough the emptiest sections are cleaned. A round does a bounded amount of work.
//!
//! A small volume almost full never has that many free sections, however well it is packed. What it
//! could have at best ([`Room::best`]) limits the goal, so that holes are left to gather for a while
//! instead of being squeezed out one by one. Where a round gains nothing, the next waits until a
//! section more has been used up.

use std::sync::atomic::Ordering;

use format::addr::SecNo;
use format::sit::LogType;
use victim::Hurry;

use super::work::{Into, When, Work};
use crate::cause::Cause;
use crate::error::Result;
use crate::file::writeback::or_wait;
use crate::node::write::Mark;
use crate::pack::{PackState, Reason};
use crate::volume::Volume;

/// Sections beyond the need that a round makes free (kernel `NR_GC_CHECKPOINT_SECS`).
const AHEAD: u32 = 3;
/// Sections one round cleans at most.
const MOST_SECTIONS: usize = 48;
/// Checkpoints one round writes at most.
const MOST_CHECKPOINTS: usize = 8;
/// Emptied segments waiting for a checkpoint at most (kernel `max_rec_prefree_segs`).
const MOST_PREFREE: u32 = 4096;

/// What a volume lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// Many emptied segments wait for a checkpoint.
    Checkpoint,
    /// Free sections.
    Sections,
}

/// Free sections: how many there are, should be, may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    free: u32,
    /// Cleaning begins when there are no more than this.
    low: u32,
    /// Cleaning ends when there are more than this.
    goal: u32,
}

impl Room {
    /// `best`: free sections if no hole were left anywhere. `need`: for what is dirty, with the
    /// reserve. `reserve`: for what may be dirty before somebody asks again, with the reserve.
    fn new(free: u32, best: u32, need: u32, reserve: u32) -> Room {
        Room { free, low: need.min(best / 2), goal: (reserve + AHEAD).min(best / 4 * 3) }
    }
}

impl Volume {
    /// Makes sure there is room before an operation begins. The caller holds no lock.
    pub(crate) fn balance(&self) -> Result<()> {
        if self.untouched.load(Ordering::Acquire) {
            self.leave_clean_state()?;
        }
        if self.nodes.dirty_count() > self.dirty_nodes_limit() {
            let _still = self.cp.read();
            let dirty = self.nodes.dirty();
            or_wait(self.write_nodes(&dirty, Mark::Plain, Cause::Node))?;
        }
        match self.lack() {
            Lack::Nothing => Ok(()),
            Lack::Checkpoint => {
                let mut pack = self.cp.write();
                match self.lack() {
                    Lack::Nothing => Ok(()),
                    _ => self.checkpoint_of_what_fits(&mut pack, Reason::Running).map(drop),
                }
            }
            Lack::Sections => {
                let mut pack = self.cp.write();
                match self.lack() {
                    Lack::Nothing => Ok(()),
                    _ => self.reclaim(&mut pack),
                }
            }
        }
    }

    /// The first change since the mount. Nodes written and lost before it may carry the version of
    /// the checkpoint it finds; under a new one, roll-forward cannot take them for nodes of this
    /// mount.
    fn leave_clean_state(&self) -> Result<()> {
        let mut pack = self.cp.write();
        if self.untouched.load(Ordering::Acquire) {
            self.checkpoint_locked(&mut pack, Reason::Running)?;
            self.untouched.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Dirty nodes kept before they are written: half the cache, less on a small volume, where they
    /// must find room in the log.
    fn dirty_nodes_limit(&self) -> u64 {
        (self.options.node_cache as u64 / 2).min(self.space.user_blocks() / 64).max(64)
    }

    fn room(&self) -> Room {
        let per = u64::from(self.sb.segs_per_sec) * 512;
        let sections = |blocks: u64| blocks.div_ceil(per).min(u32::MAX.into()) as u32;
        let used = sections(self.space.valid_blocks()) + LogType::ALL.len() as u32;
        let best = self.sb.sections().saturating_sub(used);
        let dirty = sections(self.options.dirty_limit as u64) + sections(self.dirty_nodes_limit());
        let seg = self.seg.lock();
        let reserve = seg.reserved_sections() + dirty;
        Room::new(seg.table.free_sections(), best, seg.sections_needed(), reserve)
    }

    fn lack(&self) -> Lack {
        let room = self.room();
        if room.free > room.low {
            self.cleaner.gave_up_at.store(u32::MAX, Ordering::Relaxed);
        } else if room.free < self.cleaner.gave_up_at.load(Ordering::Relaxed) {
            return Lack::Sections;
        }
        // Kernel `excess_prefree_segs`; on a volume of few segments a checkpoint per segment would be
        // many.
        let most = (self.sb.main_segs / 20).clamp(4, MOST_PREFREE);
        let prefree = self.seg.lock().table.prefree_segments();
        if prefree > most { Lack::Checkpoint } else { Lack::Nothing }
    }

    /// Cleans one section the way it is done when space is short, whether it is or not: the emptiest,
    /// at once, and a checkpoint that frees it (what the kernel does for `F2FS_IOC_GARBAGE_COLLECT` and
    /// a checkpoint after it). False if no section yields anything.
    pub fn clean_in_foreground(&self) -> Result<bool> {
        self.check_writable()?;
        self.balance()?;
        let mut pack = self.cp.write();
        let begun = self.cleaner.begun.lock().take();
        let mut work = match begun.or_else(|| {
            self.worst_section().map(|v| self.begin_cleaning(Work::new(v, When::Foreground, Into::ColdLog)))
        }) {
            None => return Ok(false),
            work => work,
        };
        self.changed.store(true, Ordering::Release);
        while let Some(w) = work {
            work = self.clean_step(w, 512)?;
        }
        self.checkpoint_locked(&mut pack, Reason::Running)?;
        Ok(true)
    }

    /// One round of checkpoints and cleaning.
    pub(crate) fn reclaim(&self, pack: &mut PackState) -> Result<()> {
        // What is dirty needs room by itself; once it is written the need is the reserve alone.
        self.checkpoint_of_what_fits(pack, Reason::Running)?;
        let start = self.room();
        let mut cleaned = 0;
        for _ in 0..MOST_CHECKPOINTS {
            let room = self.room();
            if room.free > room.goal || cleaned >= MOST_SECTIONS {
                break;
            }
            let more = self.clean_some(room.goal, &mut cleaned)?;
            self.checkpoint_of_what_fits(pack, Reason::Running)?;
            if !more {
                break;
            }
        }
        let end = self.room();
        let gained = end.free > end.low || end.free > start.free;
        // With the last section gone nothing smaller is left to wait for.
        let gave_up = if gained { u32::MAX } else { end.free.max(1) };
        self.cleaner.gave_up_at.store(gave_up, Ordering::Relaxed);
        Ok(())
    }

    /// Cleans sections until more than `goal` are free or emptied, or room for copies runs low;
    /// false if there is nothing more to clean. A bounded number in all.
    fn clean_some(&self, goal: u32, cleaned: &mut usize) -> Result<bool> {
        while *cleaned < MOST_SECTIONS {
            {
                let seg = self.seg.lock();
                let free = seg.table.free_sections();
                let emptied = seg.table.prefree_segments() / self.sb.segs_per_sec;
                if free + emptied > goal || (emptied > 0 && free <= seg.reserved_sections() / 2) {
                    return Ok(true);
                }
            }
            // What the background began is finished first (kernel `check_bg_victims`).
            let mut work = match self.cleaner.begun.lock().take() {
                Some(begun) => Some(begun),
                None => {
                    self.worst_section().map(|v| self.begin_cleaning(Work::new(v, When::Foreground, Into::ColdLog)))
                }
            };
            if work.is_none() {
                return Ok(false);
            }
            while let Some(w) = work {
                work = self.clean_step(w, 512)?;
            }
            *cleaned += 1;
        }
        Ok(true)
    }

    /// Whom to clean when space is short; nobody if even the best section yields next to nothing.
    fn worst_section(&self) -> Option<SecNo> {
        let now = self.mounted_seconds();
        let mut seg = self.seg.lock();
        let full = self.sb.segs_per_sec * 512;
        seg.choose_victim(Hurry::Foreground, now)
            .filter(|c| full - c.valid > full / 128)
            .map(|c| self.sb.section_of(c.seg))
    }
}
