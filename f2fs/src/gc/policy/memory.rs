//! What is remembered between choices, what may be tuned, and what is asked.
//!
//! The kernel keeps these in its segment manager; a policy takes them by value and gives them back,
//! so that nothing is hidden from a test.

use format::SegNo;

use super::Candidate;

/// What the kernel remembers between choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Where greedy goes on looking (kernel `last_victim[GC_GREEDY]`); threading shares it.
    pub next_greedy: SegNo,
    /// Where cost-benefit goes on looking (kernel `last_victim[GC_CB]`).
    pub next_cost_benefit: SegNo,
    /// Least mean write time of any section, in seconds of mounted time.
    pub min_mtime: u64,
    /// Latest write time of any segment.
    pub max_mtime: u64,
    /// Latest write time of any section that ATGC ever looked at.
    pub dirty_max_mtime: u64,
    /// Seconds the volume had been mounted before this mount.
    pub elapsed: u64,
}

impl Memory {
    /// At mount time: `elapsed` seconds mounted before, `oldest` the least mean write time of a section.
    pub fn at_mount(elapsed: u64, oldest: u64) -> Memory {
        Memory {
            next_greedy: SegNo(0),
            next_cost_benefit: SegNo(0),
            min_mtime: oldest,
            max_mtime: elapsed,
            dirty_max_mtime: 0,
            elapsed,
        }
    }
}

/// Numbers a user may change; the defaults are the kernel's where it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Candidates looked at for one choice in the background (kernel `DEF_MAX_VICTIM_SEARCH`).
    pub max_victim_search: u32,
    /// Seconds from which a section is old (kernel `DEF_GC_THREAD_AGE_THRESHOLD`).
    pub age_threshold: u64,
    /// Share of the old ones that are candidates, in percent (kernel `DEF_GC_THREAD_CANDIDATE_RATIO`).
    pub candidate_ratio: u32,
    /// Candidates at least (kernel `DEF_GC_THREAD_MAX_CANDIDATE_COUNT`, which is used as a minimum).
    pub candidate_count: u32,
    /// Weight of age against emptiness in ATGC, in percent (kernel `DEF_GC_THREAD_AGE_WEIGHT`).
    pub age_weight: u32,
    /// Weight of age in FAGC, in percent (FAGC TACO'23, Algorithm 2).
    pub fagc_age_weight: u32,
    /// Weight of the factor f in FAGC, in percent; the rest is emptiness.
    pub fagc_f_weight: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            max_victim_search: 4096,
            age_threshold: 604_800,
            candidate_ratio: 20,
            candidate_count: 10,
            age_weight: 60,
            fagc_age_weight: 40,
            fagc_f_weight: 40,
        }
    }
}

impl Tuning {
    /// How many of `eligible` units are candidates.
    pub fn candidates(&self, eligible: u32) -> u32 {
        let share = u64::from(eligible) * u64::from(self.candidate_ratio) / 100;
        self.candidate_count.max(share.min(u32::MAX.into()) as u32)
    }
}

/// What is asked of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Somebody waits for space: all candidates are looked at.
    pub foreground: bool,
    /// Cleaning is wanted at once: the same.
    pub urgent: bool,
    /// One past the last segment.
    pub end: SegNo,
    /// Segments of a unit.
    pub unit: u32,
}

/// A choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The unit.
    pub victim: Candidate,
    /// Its cost as the kernel's tracepoint prints it: less is better.
    pub cost: u32,
}
