//! Cleaning ahead of time, one section after another.
//!
//! A section is emptied in small steps with everybody let in between them
//! ([`Settings::step_blocks`]); how long the longest step held others off is counted.
//!
//! Left out on purpose: when a section is due (`pacer`), cleaning because space is short (`pace`), whom to clean (the
//! `victim` crate).

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLockWriteGuard;
use victim::Hurry;

use super::pacer::Situation;
use super::settings::{Settings, Urgency};
use super::work::{Into, When, Work};
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Notes that somebody asked something of the volume.
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Cleans a section in the background if one is due; says when to come again.
    pub(crate) fn clean_if_due(&self) -> Result<Duration> {
        let settings = *self.gc.lock();
        let now = self.clock.monotonic();
        let used = self.used.swap(false, Ordering::Relaxed);
        let situation = Situation { now, used, much_to_gain: self.much_to_gain() };
        let mut pacer = self.cleaner.pacer.lock();
        let turn = pacer.turn(situation);
        if !settings.on {
            return Ok(settings.intervals.max);
        }
        if !turn {
            return Ok(pacer.sleep(now));
        }
        drop(pacer);
        let found = self.clean_in_background(&settings)?;
        let now = self.clock.monotonic();
        let mut pacer = self.cleaner.pacer.lock();
        pacer.cleaned(now, found);
        Ok(pacer.sleep(now))
    }

    /// Cleans one section, letting others in between steps; false if none is worth it.
    pub fn clean_in_background(&self, settings: &Settings) -> Result<bool> {
        self.check_writable()?;
        self.balance()?;
        let begun = {
            let _alone = self.cp.write();
            let mut begun = self.cleaner.begun.lock();
            if begun.is_none() {
                *begun = self.next_work(settings);
            }
            begun.is_some()
        };
        if !begun {
            self.counters.nothing_to_clean.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        loop {
            let pack = self.cp.write();
            // It may have been unmounted between two steps, or have failed.
            self.check_writable()?;
            let from = self.clock.monotonic();
            // Somebody short of space may have finished it meanwhile.
            let Some(work) = self.cleaner.begun.lock().take() else { break };
            self.changed.store(true, Ordering::Release);
            let rest = self.clean_step(work, settings.step_blocks.max(1))?;
            *self.cleaner.begun.lock() = rest;
            self.counters.held_off(self.clock.monotonic().saturating_sub(from));
            // To whoever waits, not to the next step.
            RwLockWriteGuard::unlock_fair(pack);
            if rest.is_none() {
                break;
            }
        }
        Ok(true)
    }

    fn next_work(&self, settings: &Settings) -> Option<Work> {
        let hurry = match settings.urgency {
            Urgency::Normal => Hurry::Background,
            Urgency::High => Hurry::UrgentHigh,
            Urgency::Low | Urgency::Mid => Hurry::Urgent,
        };
        let now = self.mounted_seconds();
        let (victim, into) = {
            let mut seg = self.seg.lock();
            let victim = seg.choose_victim(hurry, now)?;
            let aged = seg.chooser.moves_by_age() && settings.urgency != Urgency::High;
            (victim, if aged { Into::SimilarAge } else { Into::ColdLog })
        };
        Some(self.begin_cleaning(Work::new(self.sb.section_of(victim.seg), When::Background, into)))
    }

    /// Kernel `has_enough_invalid_blocks`: more than 40 % of the user's blocks are invalid and of those
    /// less than 40 % are in free segments beyond the reserve.
    fn much_to_gain(&self) -> bool {
        let user = self.space.user_blocks();
        let invalid = user.saturating_sub(self.space.valid_blocks());
        let free = {
            let seg = self.seg.lock();
            u64::from(seg.table.free_segments().saturating_sub(self.overprov_segs)) * 512
        };
        invalid > user / 100 * 40 && free < invalid / 100 * 40
    }
}
