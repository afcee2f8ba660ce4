//! ATGC: the emptiest among the oldest, moved into the fullest of similar age (kernel `GC_AT`,
//! `AT_SSR`).
//!
//! Old is what was not written for [`Tuning::age_threshold`] seconds; of the old ones the oldest
//! [`Tuning::candidate_ratio`] percent are candidates. Age and emptiness are taken in 1/10,000 and
//! weighted 60 to 40. Where nothing is that old on a volume younger than the threshold, everything
//! counts as old.

use super::memory::{Ask, Choice, Memory, Tuning};
use super::{AgeCut, Candidate, View};

/// Kernel `DEFAULT_ACCURACY_CLASS`.
pub(super) const ACCURACY: u64 = 10_000;

/// The oldest units that a choice is made among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Old {
    /// The last of them.
    pub(super) cut: AgeCut,
    /// One past the latest write time ever seen.
    pub(super) end: u64,
    /// From the oldest to there.
    pub(super) total: u64,
}

/// The oldest units, and the memory after looking at all; none if nothing is old.
pub(super) fn oldest(view: &dyn View, memory: &Memory, tuning: &Tuning) -> (Option<Old>, Memory) {
    let mut memory = *memory;
    let Some(youngest) = view.count().checked_sub(1).and_then(|n| view.nth_oldest(n)) else { return (None, memory) };
    memory.dirty_max_mtime = memory.dirty_max_mtime.max(youngest.0);
    let max = memory.dirty_max_mtime;
    let among = |threshold: u64| {
        let eligible = view.count_up_to(max.checked_sub(threshold)?);
        let n = tuning.candidates(eligible).min(eligible);
        let cut = view.nth_oldest(n.checked_sub(1)?)?;
        let min = view.nth_oldest(0)?.0;
        Some(Old { cut, end: max + 1, total: max + 1 - min })
    };
    let found = among(tuning.age_threshold);
    let again = found.is_none() && memory.elapsed < tuning.age_threshold;
    (if again { among(0) } else { found }, memory)
}

impl Old {
    /// How exactly ages are told (kernel `accu`).
    pub(super) fn accuracy(&self) -> u64 {
        (u64::MAX / self.total / 100).min(ACCURACY)
    }
    /// Age in parts of the accuracy.
    pub(super) fn age(&self, mtime: u64) -> u64 {
        self.accuracy() * (self.end - mtime) / self.total
    }
}

/// The emptiest among the oldest.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask) -> (Option<Choice>, Memory) {
    let (old, memory) = oldest(view, memory, tuning);
    let Some(old) = old else { return (None, memory) };
    let worth = |c: &Candidate| worth(c, &old, tuning, ask.unit);
    let best = view.best(old.cut, &|c| [worth(c), old.age(c.mtime), 0, 0]);
    let choice = best.map(|c| Choice { victim: c, cost: u32::MAX - worth(&c) as u32 });
    (choice.filter(|c| c.cost < u32::MAX), memory)
}

/// Kernel `atgc_lookup_victim`.
fn worth(c: &Candidate, old: &Old, tuning: &Tuning, unit: u32) -> u64 {
    let all = u64::from(unit) * 512;
    let age = old.age(c.mtime) * u64::from(tuning.age_weight);
    let empty = old.accuracy() * (all - u64::from(c.valid)) / all * u64::from(100 - tuning.age_weight);
    age + empty
}

/// Kernel `atssr_lookup_victim`: of the candidates of similar age to `mtime` the one with the most
/// blocks held by the last checkpoint that still has a hole, of equals the one of the closest age.
pub fn target(view: &dyn View, _memory: &Memory, tuning: &Tuning, mtime: u64) -> Option<Candidate> {
    let n = tuning.candidates(view.count());
    let mut best: Option<Candidate> = None;
    view.near(mtime, n, n, &mut |c| {
        let closer = |b: &Candidate| c.mtime.abs_diff(mtime) < b.mtime.abs_diff(mtime);
        if c.held < 512 && best.is_none_or(|b| c.held > b.held || (c.held == b.held && closer(&b))) {
            best = Some(c);
        }
    });
    best
}

