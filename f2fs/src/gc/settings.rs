//! Which settings does background cleaning have?

use std::time::Duration;

use victim::{Policy, Power, mwhfb};

/// Sleep intervals of background cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Between sections if urgent (kernel `DEF_GC_THREAD_URGENT_SLEEP_TIME`).
    pub urgent: Duration,
    /// Minimum, and the increment by which the sleep grows and shrinks (kernel `DEF_GC_THREAD_MIN_SLEEP_TIME`).
    pub min: Duration,
    /// Maximum (kernel `DEF_GC_THREAD_MAX_SLEEP_TIME`).
    pub max: Duration,
    /// After it found nothing to clean (kernel `DEF_GC_THREAD_NOGC_SLEEP_TIME`).
    pub none: Duration,
    /// A volume is idle if it got no request for this long (kernel `DEF_IDLE_INTERVAL`).
    pub idle: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        let s = Duration::from_secs;
        Intervals { urgent: Duration::from_millis(500), min: s(30), max: s(60), none: s(300), idle: s(5) }
    }
}

impl Intervals {
    /// A policy's intervals, unless a user sets others.
    pub fn of(policy: Policy) -> Self {
        let defaults = Intervals::default();
        match policy {
            Policy::Mwhfb => Intervals { min: mwhfb::INTERVAL, max: mwhfb::INTERVAL, ..defaults },
            _ => defaults,
        }
    }
}

/// How much background cleaning does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// A batch continues until it has gained this many sections, nothing more is worth cleaning, or a request arrives;
    /// 0: it cleans one victim.
    pub sections: u32,
    /// Blocks per step while no request arrives, if more than [`Settings::step_blocks`].
    pub quiet_step: usize,
}

impl Pace {
    /// One victim, as in Linux.
    pub const VICTIM: Pace = Pace { sections: 0, quiet_step: 0 };
    /// Batches of several sections in large steps: few requests, and few checkpoints to free the emptied sections.
    pub const TURNS: Pace = Pace { sections: 16, quiet_step: 512 };
    /// Most victims in a batch for each section to be gained.
    pub const VICTIMS: u32 = 16;

    /// A policy's pace, unless a user sets another: a policy that stops by itself may continue until then.
    pub fn of(policy: Policy) -> Self {
        match policy {
            Policy::Joule => Pace::TURNS,
            _ => Pace::VICTIM,
        }
    }
}

/// The kernel's limits on a zoned volume, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zoned {
    /// Nothing is cleaned while a larger share of the sections is free (kernel `no_zoned_gc_percent`).
    pub enough_free: u32,
    /// Cleaning is urgent while at most this share is free (kernel `boost_zoned_gc_percent`).
    pub few_free: u32,
    /// Sections with at least this share of valid blocks are skipped (kernel `valid_thresh_ratio`).
    pub too_full: u32,
}

/// How urgent background cleaning is (kernel `gc_urgent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// Only while the volume is idle.
    #[default]
    Normal,
    /// All the time, greedily (`gc_urgent=1`).
    High,
    /// At the normal pace, but also while the volume is busy (`gc_urgent=2`).
    Low,
    /// At the urgent pace, by cost-benefit (`gc_urgent=3`).
    Mid,
}

/// Settings of cleaning in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// True if the background cleans at all (kernel `background_gc`).
    pub on: bool,
    /// The policy that chooses victims.
    pub policy: Policy,
    /// The policy that a mount starts with instead if logs may fill holes, until `gc` is set.
    pub preferred: Option<Policy>,
    /// How long the background sleeps.
    pub intervals: Intervals,
    /// How urgent cleaning is.
    pub urgency: Urgency,
    /// The power source, for policies that weigh joules.
    pub power: Power,
    /// How many blocks a step moves before other operations run.
    pub step_blocks: usize,
    /// How much is cleaned at a time.
    pub pace: Pace,
    /// Limits as on a zoned volume, if any.
    pub zoned: Option<Zoned>,
    /// Percent of the sections that a policy which weighs whether cleaning pays keeps free in any case.
    pub keep_free: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            on: true,
            policy: Policy::CostBenefit,
            preferred: None,
            intervals: Intervals::default(),
            urgency: Urgency::Normal,
            power: Power::Battery,
            step_blocks: 64,
            pace: Pace::VICTIM,
            zoned: None,
            keep_free: 0,
        }
    }
}
