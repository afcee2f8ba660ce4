//! Which settings of a mounted volume can users change, under the names of the kernel's F2FS?
//!
//! Left out on purpose: the interface to a mounted volume (the `fuse` crate), and printing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use victim::memory::Memory;
use victim::{Policy, Power};

use super::ledger::Ledger;
use super::settings::{Intervals, Pace, Settings, Urgency};
use super::uses::Uses;
use crate::gc::Cleaning;
use crate::segment::Segments;

/// The settings that a user can change on a mounted volume: name, values, meaning.
pub const KNOBS: &[(&str, &str, &str)] = &[
    ("gc", Policy::NAMES_TEXT, "policy of background cleaning"),
    ("background_gc", "on|off", "clean in the background"),
    ("gc_urgent", "0-3", "0: clean when idle; 1: now, greedy; 2: also while busy; 3: now, cost-benefit"),
    ("gc_urgent_sleep_time", "milliseconds", "pause between two sections while gc_urgent is set"),
    ("gc_min_sleep_time", "milliseconds", "shortest time between two sections"),
    ("gc_max_sleep_time", "milliseconds", "longest time between two sections"),
    ("gc_no_gc_sleep_time", "milliseconds", "time to wait after nothing was found to clean"),
    ("gc_idle_interval", "milliseconds", "time without requests after which a volume is idle"),
    ("gc_step_blocks", "1-512", "blocks to move before other requests are served"),
    ("gc_quiet_step_blocks", "0-512", "the same on an idle volume, if larger"),
    ("gc_turn_sections", "0-1024", "sections to gain at a time on an idle volume; 0: clean one victim"),
    ("gc_keep_free", "0-90", "percent of the sections that joule always keeps free, if there is room"),
    ("atgc_age_threshold", "seconds", "minimum age of sections that ATGC and FAGC clean"),
    ("max_victim_search", "segments", "candidates considered for one choice in the background"),
    ("power", "battery|powered", "power source"),
];

impl Settings {
    /// Passes the victim policy to the segments, and when logs fill holes.
    pub(crate) fn apply(&self, seg: &mut Segments) {
        seg.chooser.policy = self.policy;
        seg.chooser.power = self.power;
        seg.chooser.tuning.too_full = self.zoned.map(|z| z.too_full);
        seg.threads_always = self.urgency == Urgency::High;
    }

    /// Changes the policy; intervals and pace follow unless a user has set them.
    pub(crate) fn choose(&mut self, policy: Policy) {
        let (before, own) = (Intervals::of(self.policy), Intervals::of(policy));
        if (self.intervals.min, self.intervals.max) == (before.min, before.max) {
            (self.intervals.min, self.intervals.max) = (own.min, own.max);
        }
        if self.pace == Pace::of(self.policy) {
            self.pace = Pace::of(policy);
        }
        self.policy = policy;
    }

    /// Changes one of [`KNOBS`] that is not a number of a policy. The error completes the sentence "NAME ...".
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let ms = |v: &str| whole(v).map(Duration::from_millis);
        let Intervals { urgent, min, max, none, idle } = &mut self.intervals;
        match name {
            "gc" => {
                let policy = Policy::parse(value)?;
                self.preferred = None;
                self.choose(policy);
            }
            "background_gc" => {
                self.on = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err("is on or off".to_owned()),
                }
            }
            "gc_urgent" => {
                self.urgency = match value {
                    "0" => Urgency::Normal,
                    "1" => Urgency::High,
                    "2" => Urgency::Low,
                    "3" => Urgency::Mid,
                    _ => return Err("is 0, 1, 2 or 3".to_owned()),
                }
            }
            "gc_urgent_sleep_time" => *urgent = ms(value)?,
            "gc_min_sleep_time" => *min = ms(value)?,
            "gc_max_sleep_time" => *max = ms(value)?,
            "gc_no_gc_sleep_time" => *none = ms(value)?,
            "gc_idle_interval" => *idle = ms(value)?,
            "gc_step_blocks" => {
                self.step_blocks = whole(value)
                    .ok()
                    .filter(|n| (1..=512).contains(n))
                    .ok_or_else(|| "is a number from 1 to 512".to_owned())? as usize;
            }
            "gc_quiet_step_blocks" => self.pace.quiet_step = up_to(value, 512)? as usize,
            "gc_turn_sections" => self.pace.sections = up_to(value, 1024)?,
            "gc_keep_free" => self.keep_free = up_to(value, 90)?,
            "power" => self.power = Power::parse(value)?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn whole(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| "is a whole number".to_owned())
}

fn up_to(value: &str, most: u32) -> Result<u32, String> {
    let n = whole(value).ok().and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= most);
    n.ok_or_else(|| format!("is a number from 0 to {most}"))
}

fn unknown() -> String {
    let names: Vec<&str> = KNOBS.iter().map(|k| k.0).collect();
    format!("is not a setting; choose {}", names.join(", "))
}

/// Checks a value for a setting of [`KNOBS`]. The error completes the sentence "NAME ...".
pub fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "atgc_age_threshold" => whole(value).map(|_| ()),
        "max_victim_search" => small(value).map(|_| ()),
        _ => Settings::default().set(name, value),
    }
}

fn small(value: &str) -> Result<u32, String> {
    whole(value).and_then(|n| u32::try_from(n).map_err(|_| "is too large".to_owned()))
}

impl Cleaning {
    /// Changes a setting of [`KNOBS`]. The error states the allowed values.
    pub fn tune(&self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "atgc_age_threshold" => self.logs.seg.lock().chooser.tuning.age_threshold = whole(value)?,
            "max_victim_search" => {
                let limit = small(value)?;
                self.logs.seg.lock().chooser.tuning.max_victim_search = limit;
            }
            _ => {
                let mut settings = *self.settings.lock();
                settings.set(name, value)?;
                self.set_cleaning(settings);
            }
        }
        Ok(())
    }

    /// Replaces the settings of cleaning.
    pub(crate) fn set_cleaning(&self, settings: Settings) {
        *self.settings.lock() = settings;
        settings.apply(&mut self.logs.seg.lock());
        self.cleaner.pacer.lock().adjust(&settings, self.ctx.clock.monotonic());
    }

    /// Resets all that cleaning has learned since the mount: victims, uses, what holes cost, and its account. ATGC only
    /// uses the age from before the mount (like the kernel's), and would treat a volume aged since then as new.
    pub(crate) fn forget_past(&self) {
        *self.cleaner.uses.lock() = Uses::none_after(self.amounts());
        self.ctx.used.store(false, Ordering::Relaxed);
        let mut seg = self.logs.seg.lock();
        let oldest = seg.table.oldest_section(self.ctx.sb.sections());
        seg.chooser.begin(Memory::at_mount(self.ctx.mounted_seconds(), oldest));
        seg.tally.forget();
        seg.forget_shadow();
        *self.cleaner.ledger.lock() = Ledger::none_after(&self.done(&seg));
    }

    /// True if the policy uses age and the volume is too young for it, so that in the background cost-benefit chooses
    /// instead.
    pub(crate) fn waits_for_age(&self) -> bool {
        self.logs.seg.lock().chooser.waits_for_age()
    }

    /// The current settings.
    pub(crate) fn cleaning(&self) -> Settings {
        *self.settings.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sleeps after these settings, in milliseconds.
    fn sleeps(set: &[(&str, &str)]) -> (u128, u128) {
        let mut settings = Settings::default();
        set.iter().for_each(|(name, value)| settings.set(name, value).unwrap());
        (settings.intervals.min.as_millis(), settings.intervals.max.as_millis())
    }

    #[test]
    fn mwhfb_looks_every_second_unless_somebody_set_another_pace() {
        assert_eq!(sleeps(&[("gc", "mwhfb")]), (1000, 1000));
        assert_eq!(sleeps(&[("gc", "mwhfb"), ("gc", "fagc")]), (30_000, 60_000));
        assert_eq!(sleeps(&[("gc_min_sleep_time", "7"), ("gc", "mwhfb")]), (7, 60_000));
        assert_eq!(sleeps(&[("gc", "mwhfb"), ("gc_max_sleep_time", "9"), ("gc", "greedy")]), (1000, 9));
    }
}
