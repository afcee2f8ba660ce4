//! When does cleaning run ahead of time?
//!
//! The rules of the kernel's `gc_thread_func`, as a state machine without clock or thread: it is told
//! the time and the situation, and says whether to clean one section now and when to come again.
//! Between two sections it sleeps 30 to 60 seconds, longer and longer while the volume is busy or has
//! little to gain, 5 minutes where nothing was worth cleaning, 500 ms when told to hurry.
//!
//! A section is emptied in small steps with everybody let in between them
//! ([`Settings::step_blocks`]); how long the longest step held others off is counted.
//!
//! Left out on purpose: cleaning because space is short (`pace`), whom to clean (the `victim` crate).

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLockWriteGuard;
use victim::{Hurry, Policy, Power, mwhfb};

use super::collect::{Into, When, Work};
use crate::error::Result;
use crate::volume::Volume;

/// How long cleaning in the background sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Between sections when told to hurry (kernel `DEF_GC_THREAD_URGENT_SLEEP_TIME`).
    pub urgent: Duration,
    /// At least, and by how much the sleep grows and shrinks (kernel `DEF_GC_THREAD_MIN_SLEEP_TIME`).
    pub min: Duration,
    /// At most (kernel `DEF_GC_THREAD_MAX_SLEEP_TIME`).
    pub max: Duration,
    /// After nothing was found to clean (kernel `DEF_GC_THREAD_NOGC_SLEEP_TIME`).
    pub none: Duration,
    /// A volume is idle after so long without a request (kernel `DEF_IDLE_INTERVAL`).
    pub idle: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        let s = Duration::from_secs;
        Intervals { urgent: Duration::from_millis(500), min: s(30), max: s(60), none: s(300), idle: s(5) }
    }
}

impl Intervals {
    /// Those of a policy as long as nobody sets others.
    pub fn of(policy: Policy) -> Self {
        let defaults = Intervals::default();
        match policy {
            Policy::Mwhfb => Intervals { min: mwhfb::INTERVAL, max: mwhfb::INTERVAL, ..defaults },
            _ => defaults,
        }
    }
}

/// How much cleaning in the background is wanted (kernel `gc_urgent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// When the volume is idle.
    #[default]
    Normal,
    /// All the time, greedily (`gc_urgent=1`).
    High,
    /// At the normal pace but also while others work (`gc_urgent=2`).
    Low,
    /// At the urgent pace, by cost and benefit (`gc_urgent=3`).
    Mid,
}

/// Settings of cleaning in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Clean in the background at all (kernel `background_gc`).
    pub on: bool,
    /// Who chooses.
    pub policy: Policy,
    /// How long it sleeps.
    pub intervals: Intervals,
    /// How much is wanted.
    pub urgency: Urgency,
    /// Where the power comes from; policies that know joules look at it.
    pub power: Power,
    /// Blocks moved before others are let in.
    pub step_blocks: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            on: true,
            policy: Policy::CostBenefit,
            intervals: Intervals::default(),
            urgency: Urgency::Normal,
            power: Power::Battery,
            step_blocks: 64,
        }
    }
}

/// What the pacer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Monotonic time.
    pub now: Duration,
    /// Somebody asked something of the volume since the last call.
    pub used: bool,
    /// Much is invalid and little free (kernel `has_enough_invalid_blocks`).
    pub much_to_gain: bool,
}

/// When the next section is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacer {
    intervals: Intervals,
    urgency: Urgency,
    wait: Duration,
    due: Duration,
    last_use: Duration,
}

impl Pacer {
    /// Begins to sleep at `now`.
    pub fn new(settings: &Settings, now: Duration) -> Pacer {
        let mut p = Pacer {
            intervals: settings.intervals,
            urgency: settings.urgency,
            wait: Duration::ZERO,
            due: now,
            last_use: now,
        };
        p.wait = p.shortest();
        p.due = now + p.wait;
        p
    }

    /// Goes on under other settings, from `now`.
    pub fn adjust(&mut self, settings: &Settings, now: Duration) {
        *self = Pacer { last_use: self.last_use, ..Pacer::new(settings, now) };
    }

    fn hurried(&self) -> bool {
        matches!(self.urgency, Urgency::High | Urgency::Mid)
    }
    fn shortest(&self) -> Duration {
        if self.hurried() { self.intervals.urgent } else { self.intervals.min }
    }
    fn longer(&mut self) {
        if self.wait != self.intervals.none {
            self.wait = (self.wait + self.intervals.min).min(self.intervals.max);
        }
    }
    fn shorter(&mut self) {
        let wait = if self.wait == self.intervals.none { self.intervals.max } else { self.wait };
        self.wait = wait.saturating_sub(self.intervals.min).max(self.intervals.min);
    }

    /// True if a section shall be cleaned now; [`Pacer::cleaned`] must follow then.
    pub fn turn(&mut self, s: Situation) -> bool {
        if s.used {
            self.last_use = s.now;
        }
        if s.now < self.due {
            return false;
        }
        if self.hurried() {
            self.wait = self.intervals.urgent;
            return true;
        }
        let idle = self.urgency == Urgency::Low || s.now.saturating_sub(self.last_use) >= self.intervals.idle;
        if !idle {
            self.longer();
            self.due = s.now + self.wait;
            return false;
        }
        if s.much_to_gain {
            self.shorter()
        } else {
            self.longer()
        }
        true
    }

    /// Sleeps again, after a section was cleaned or nothing was found.
    pub fn cleaned(&mut self, now: Duration, found: bool) {
        if !self.hurried() {
            if !found {
                self.wait = self.intervals.none;
            } else if self.wait == self.intervals.none {
                self.wait = self.intervals.min;
            }
        }
        self.due = now + self.wait;
    }

    /// How long to sleep from `now`.
    pub fn sleep(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }
    fn at(now: Duration, used: bool, much: bool) -> Situation {
        Situation { now, used, much_to_gain: much }
    }

    #[test]
    fn a_busy_volume_is_left_alone_for_longer_and_longer_up_to_a_minute() {
        let mut p = Pacer::new(&Settings::default(), s(0));
        assert_eq!(p.sleep(s(0)), s(30));
        assert!(!p.turn(at(s(30), true, false)));
        assert_eq!(p.sleep(s(30)), s(60));
        assert!(!p.turn(at(s(90), true, false)));
        assert_eq!(p.sleep(s(90)), s(60));
        assert!(!p.turn(at(s(149), false, false)));
        assert!(p.turn(at(s(150), false, false)));
    }

    #[test]
    fn five_idle_seconds_are_idle_enough() {
        let mut p = Pacer::new(&Settings::default(), s(0));
        assert!(!p.turn(at(s(26), true, true)));
        assert!(!p.turn(at(s(30), false, true)));
        let mut p = Pacer::new(&Settings::default(), s(0));
        assert!(!p.turn(at(s(25), true, true)));
        assert!(p.turn(at(s(30), false, true)));
    }

    #[test]
    fn much_to_gain_shortens_the_sleep_to_half_a_minute_and_little_lengthens_it() {
        let mut p = Pacer::new(&Settings::default(), s(0));
        assert!(p.turn(at(s(40), false, false)));
        p.cleaned(s(40), true);
        assert_eq!(p.sleep(s(40)), s(60));
        assert!(p.turn(at(s(100), false, true)));
        p.cleaned(s(100), true);
        assert_eq!(p.sleep(s(100)), s(30));
    }

    #[test]
    fn nothing_to_clean_is_looked_at_again_after_five_minutes() {
        let mut p = Pacer::new(&Settings::default(), s(0));
        assert!(p.turn(at(s(30), false, false)));
        p.cleaned(s(30), false);
        assert_eq!(p.sleep(s(30)), s(300));
        assert!(p.turn(at(s(330), false, false)));
        p.cleaned(s(330), true);
        assert_eq!(p.sleep(s(330)), s(30));
    }

    #[test]
    fn told_to_hurry_it_cleans_twice_a_second_whatever_others_do() {
        let mut p = Pacer::new(&Settings { urgency: Urgency::High, ..Settings::default() }, s(0));
        for half in 1..6 {
            let now = Duration::from_millis(500 * half);
            assert!(p.turn(at(now, true, false)));
            p.cleaned(now, true);
        }
    }
}
