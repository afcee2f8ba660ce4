//! What can a user set about background cleaning?

use std::time::Duration;

use victim::{Policy, Power, mwhfb};

/// How long background cleaning sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Between sections when told to hurry (kernel `DEF_GC_THREAD_URGENT_SLEEP_TIME`).
    pub urgent: Duration,
    /// At least, and by how much the sleep grows and shrinks (kernel `DEF_GC_THREAD_MIN_SLEEP_TIME`).
    pub min: Duration,
    /// At most (kernel `DEF_GC_THREAD_MAX_SLEEP_TIME`).
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
    /// A turn goes on until it has won so many sections, nothing more is worth it, or somebody asks something; 0: it
    /// cleans one victim.
    pub sections: u32,
    /// How many blocks a step moves while nobody asks anything, if that is more than [`Settings::step_blocks`].
    pub quiet_step: usize,
}

impl Pace {
    /// One victim, as in Linux.
    pub const VICTIM: Pace = Pace { sections: 0, quiet_step: 0 };
    /// Turns of several sections in large steps: few requests, and few checkpoints to free what was emptied.
    pub const TURNS: Pace = Pace { sections: 16, quiet_step: 512 };
    /// At most so many victims a turn for each section that it is to win.
    pub const VICTIMS: u32 = 16;

    /// A policy's pace, unless a user sets another: a policy that stops by itself may go on until it does.
    pub fn of(policy: Policy) -> Self {
        match policy {
            Policy::Joule => Pace::TURNS,
            _ => Pace::VICTIM,
        }
    }
}

/// What the kernel's thread asks on a zoned volume, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zoned {
    /// Nothing is cleaned while more of the sections are free (kernel `no_zoned_gc_percent`).
    pub enough_free: u32,
    /// It hurries while no more of them are (kernel `boost_zoned_gc_percent`).
    pub few_free: u32,
    /// A section with so many valid blocks or more is left alone (kernel `valid_thresh_ratio`).
    pub too_full: u32,
}

/// How urgent background cleaning is (kernel `gc_urgent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// When the volume is idle.
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
    /// How long the background sleeps.
    pub intervals: Intervals,
    /// How urgent cleaning is.
    pub urgency: Urgency,
    /// Where the power comes from; a policy that weighs joules looks at it.
    pub power: Power,
    /// How many blocks a step moves before other operations run.
    pub step_blocks: usize,
    /// How much is cleaned at a time.
    pub pace: Pace,
    /// What is asked as on a zoned volume, if anything is.
    pub zoned: Option<Zoned>,
    /// Percent of the sections that a policy which asks what cleaning is worth holds free whatever it is worth.
    pub keep_free: u32,
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
            pace: Pace::VICTIM,
            zoned: None,
            keep_free: 0,
        }
    }
}
