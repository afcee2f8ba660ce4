//! When does foreground cleaning run, and how much does it clean?
//!
//! Before every change, [`Cleaning::balance`] checks whether the free sections beyond the reserve suffice for what is
//! dirty in memory. If not, a round begins: a checkpoint frees the emptied sections, and if that is not enough, the
//! round cleans the emptiest ones, or under joule the cheapest. A round does a bounded amount of work.
//!
//! A small and almost full volume never has that many free sections, however well it is packed. The number it could
//! have at best (`Room::best`) limits the goal of a round, so that cleaning lets holes gather for a while instead of
//! squeezing them out one by one. After a round that gained nothing, the next round waits until one more section is
//! used.

use std::sync::atomic::Ordering;

use format::addr::SecNo;
use format::sit::LogType;
use victim::Hurry;

use super::work::{Into, When, Work};
use crate::cause::Cause;
use crate::error::Result;
use crate::file::writeback::or_wait;
use crate::gc::Cleaning;
use crate::node::write::Mark;
use crate::pack::{PackState, Reason};
use crate::segment::Expected;

/// Sections that a round frees beyond the need (kernel `NR_GC_CHECKPOINT_SECS`).
const AHEAD: u32 = 3;
/// Most sections cleaned in a round.
const MOST_SECTIONS: usize = 48;
/// Most checkpoints in a round.
const MOST_CHECKPOINTS: usize = 8;
/// Most prefree segments that wait for a checkpoint (kernel `max_rec_prefree_segs`).
const MOST_PREFREE: u32 = 4096;
/// Most dirty nodes: 16 MiB, which the next checkpoint writes while changes wait.
const MOST_DIRTY_NODES: u64 = 4096;

/// What a volume lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// A checkpoint: many prefree segments wait for one.
    Checkpoint,
    /// Free sections.
    Sections,
}

/// Free sections: the number now, the necessary number, and the possible number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    free: u32,
    /// Cleaning begins when no more sections than this are free.
    low: u32,
    /// Cleaning ends when more sections than this are free.
    goal: u32,
}

impl Room {
    /// `best`: free sections if there were no holes. `need`: sections for what is dirty now, plus the reserve.
    /// `reserve`: sections for what may become dirty before the next check, plus the reserve.
    fn new(free: u32, best: u32, need: u32, reserve: u32) -> Room {
        Room { free, low: need.min(best / 2), goal: (reserve + AHEAD).min(best / 4 * 3) }
    }
}

impl Cleaning {
    /// Makes sure that there is space before an operation begins. The caller holds no lock.
    pub(crate) fn balance(&self) -> Result<()> {
        if self.ctx.untouched.load(Ordering::Acquire) {
            self.leave_clean_state()?;
        }
        if self.nodes.cache.dirty_count() > self.dirty_nodes_limit() {
            let held = self.ctx.cp.read();
            let dirty = self.nodes.cache.dirty();
            or_wait(self.nodes.write_nodes(&held, &dirty, Mark::Plain, Cause::Node))?;
        }
        match self.lack() {
            Lack::Nothing => Ok(()),
            Lack::Checkpoint => {
                let mut pack = self.ctx.cp.write();
                match self.lack() {
                    Lack::Nothing => Ok(()),
                    _ => self.checkpoints.checkpoint_of_what_fits(&mut pack, Reason::Running).map(drop),
                }
            }
            Lack::Sections => {
                let mut pack = self.ctx.cp.write();
                match self.lack() {
                    Lack::Nothing => Ok(()),
                    _ => self.reclaim(&mut pack),
                }
            }
        }
    }

    /// Leaves the clean state at the first change since the mount. Nodes written and lost by an earlier mount may carry
    /// the version of the checkpoint that this mount found. Under a new version, roll-forward cannot take them for
    /// nodes of this mount.
    fn leave_clean_state(&self) -> Result<()> {
        let mut pack = self.ctx.cp.write();
        if self.ctx.untouched.load(Ordering::Acquire) {
            self.logs.seg.lock().leave_unfit()?;
            self.checkpoint_locked(&mut pack, Reason::Running)?;
            self.ctx.untouched.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Dirty nodes kept before they are written: half the cache, and at most [`MOST_DIRTY_NODES`]; fewer on a small
    /// volume, where they must fit in the log.
    fn dirty_nodes_limit(&self) -> u64 {
        (self.ctx.options.node_cache as u64 / 2).min(MOST_DIRTY_NODES).min(self.nodes.space.user_blocks() / 64).max(64)
    }

    fn room(&self) -> Room {
        let per = u64::from(self.ctx.sb.segs_per_sec) * 512;
        let sections = |blocks: u64| blocks.div_ceil(per).min(u32::MAX.into()) as u32;
        let used = sections(self.nodes.space.valid_blocks()) + LogType::ALL.len() as u32;
        let best = self.ctx.sb.sections().saturating_sub(used);
        let dirty = sections(self.ctx.options.dirty_limit as u64) + sections(self.dirty_nodes_limit());
        let seg = self.logs.seg.lock();
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
        // Kernel `excess_prefree_segs`. On a volume with few segments the kernel's number would mean a checkpoint for
        // each segment.
        let most = (self.ctx.sb.main_segs / 20).clamp(4, MOST_PREFREE);
        let prefree = self.logs.seg.lock().table.prefree_segments();
        if prefree > most { Lack::Checkpoint } else { Lack::Nothing }
    }

    /// Cleans one section as foreground cleaning does, whether space is short or not: the emptiest section (under joule the
    /// cheapest), at once, with a checkpoint that frees it (like `F2FS_IOC_GARBAGE_COLLECT` and a checkpoint in the kernel). False if no
    /// section gains anything.
    pub(crate) fn clean_in_foreground(&self) -> Result<bool> {
        self.ctx.check_writable()?;
        self.balance()?;
        let pack = &mut *self.ctx.cp.write();
        let begun = self.cleaner.begun.lock().take();
        let mut work = match begun.or_else(|| {
            self.worst_section().map(|v| self.begin_cleaning(pack, Work::new(v, When::Foreground, Into::ColdLog)))
        }) {
            None => return Ok(false),
            work => work,
        };
        self.ctx.changed.store(true, Ordering::Release);
        while let Some(w) = work {
            work = self.clean_step(pack, w, 512)?;
        }
        self.checkpoint_locked(pack, Reason::Running)?;
        Ok(true)
    }

    /// One round of checkpoints and cleaning.
    pub(super) fn reclaim(&self, pack: &mut PackState) -> Result<()> {
        // Dirty contents need sections themselves; after they are written, only the reserve is needed.
        self.checkpoints.checkpoint_of_what_fits(pack, Reason::Running)?;
        let start = self.room();
        let mut cleaned = 0;
        for _ in 0..MOST_CHECKPOINTS {
            let room = self.room();
            if room.free > room.goal || cleaned >= MOST_SECTIONS {
                break;
            }
            let more = self.clean_some(pack, room.goal, &mut cleaned)?;
            self.checkpoints.checkpoint_of_what_fits(pack, Reason::Running)?;
            if !more {
                break;
            }
        }
        let end = self.room();
        let gained = end.free > end.low || end.free > start.free;
        // If no section is free, there is no smaller number to wait for.
        let gave_up = if gained { u32::MAX } else { end.free.max(1) };
        self.cleaner.gave_up_at.store(gave_up, Ordering::Relaxed);
        Ok(())
    }

    /// Cleans sections until more than `goal` are free or prefree, or until space for copies runs low. False if no
    /// section is left to clean. `cleaned` counts sections, up to a limit.
    fn clean_some(&self, pack: &mut PackState, goal: u32, cleaned: &mut usize) -> Result<bool> {
        while *cleaned < MOST_SECTIONS {
            if !self.files.host_allows_cleaning() {
                return Ok(false);
            }
            {
                let seg = self.logs.seg.lock();
                let free = seg.table.free_sections();
                let emptied = seg.table.prefree_segments() / self.ctx.sb.segs_per_sec;
                if free + emptied > goal || (emptied > 0 && free <= seg.reserved_sections() / 2) {
                    return Ok(true);
                }
            }
            // A section that the background started comes first (kernel `check_bg_victims`).
            let mut work = match self.cleaner.begun.lock().take() {
                Some(begun) => Some(begun),
                None => self
                    .worst_section()
                    .map(|v| self.begin_cleaning(pack, Work::new(v, When::Foreground, Into::ColdLog))),
            };
            if work.is_none() {
                return Ok(false);
            }
            while let Some(w) = work {
                work = self.clean_step(pack, w, 512)?;
            }
            *cleaned += 1;
        }
        Ok(true)
    }

    /// The section to clean when space is short; `None` if even the best section gains almost nothing.
    fn worst_section(&self) -> Option<SecNo> {
        let now = self.ctx.mounted_seconds();
        let mut seg = self.logs.seg.lock();
        let full = self.ctx.sb.segs_per_sec * 512;
        seg.choose_victim(Hurry::Foreground, now, Expected::default())
            .map(|(victim, _)| victim)
            .filter(|c| full - c.valid > full / 128)
            .map(|c| self.ctx.sb.section_of(c.seg))
    }
}
