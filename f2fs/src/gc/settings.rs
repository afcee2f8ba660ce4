//! How is cleaning set?

use std::time::Duration;

use victim::{Policy, Power, mwhfb};

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
