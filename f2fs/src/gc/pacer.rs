//! When is background cleaning due?
//!
//! The rules of the kernel's `gc_thread_func`, as a state machine without clock or thread: from the time and the
//! situation it decides whether to clean one section now and how long to sleep. The sleep between two sections is 30 to
//! 60 seconds, longer while the volume is busy or has little to gain, 5 minutes after it found nothing worth cleaning,
//! and 500 ms if urgent.

use std::time::Duration;

use super::settings::{Intervals, Settings, Urgency};

/// Input of the pacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Monotonic time.
    pub now: Duration,
    /// True if the volume got a request since the last call.
    pub used: bool,
    /// True if many blocks are invalid and few are free (kernel `has_enough_invalid_blocks`; on a zoned volume, if few
    /// sections are free, `need_to_boost_gc`).
    pub much_to_gain: bool,
    /// True if enough sections are free that a zoned volume is not cleaned (kernel `has_enough_free_blocks`).
    pub enough_free: bool,
}

/// When the next section is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacer {
    intervals: Intervals,
    urgency: Urgency,
    zoned: bool,
    wait: Duration,
    due: Duration,
    last_use: Duration,
}

impl Pacer {
    /// Starts to sleep at `now`.
    pub fn new(settings: &Settings, now: Duration) -> Pacer {
        let mut p = Pacer {
            intervals: settings.intervals,
            urgency: settings.urgency,
            zoned: settings.zoned.is_some(),
            wait: Duration::ZERO,
            due: now,
            last_use: now,
        };
        p.wait = p.shortest();
        p.due = now + p.wait;
        p
    }

    /// Continues under other settings, from `now`.
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

    /// True if there was no request for the idle interval.
    pub fn is_idle(&self, now: Duration) -> bool {
        self.urgency == Urgency::Low || now.saturating_sub(self.last_use) >= self.intervals.idle
    }

    /// True if the caller must clean a section now and then call [`Pacer::cleaned`].
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
        if !self.is_idle(s.now) {
            self.longer();
            self.due = s.now + self.wait;
            return false;
        }
        if s.enough_free {
            self.wait = self.intervals.none;
            self.due = s.now + self.wait;
            return false;
        }
        if self.zoned && self.wait == self.intervals.none {
            self.wait = self.intervals.max;
        }
        if s.much_to_gain {
            self.shorter()
        } else {
            self.longer()
        }
        true
    }

    /// Sleeps again after the caller cleaned a section or found none.
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

#[cfg(test)]
mod tests {
    use super::super::linux::Version;
    use super::*;

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }
    fn at(now: Duration, used: bool, much: bool) -> Situation {
        Situation { now, used, much_to_gain: much, enough_free: false }
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
    fn a_zoned_volume_is_left_alone_while_much_is_free_and_looked_at_soon_again_after_nothing_was_found() {
        let zoned = Version::V6_12.pace(true, Settings::default());
        let ms = Duration::from_millis;
        let mut p = Pacer::new(&zoned, s(0));
        assert_eq!(p.sleep(s(0)), ms(10));
        assert!(!p.turn(Situation { enough_free: true, ..at(s(6), false, false) }));
        assert_eq!(p.sleep(s(6)), s(60));
        assert!(p.turn(at(s(66), false, false)));
        p.cleaned(s(66), true);
        assert_eq!(p.sleep(s(66)), ms(20), "the next one follows at once, not after a minute");
        assert!(p.turn(at(s(67), false, true)));
        p.cleaned(s(67), true);
        assert_eq!(p.sleep(s(67)), ms(10), "few are free");
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
