//! Which candidates do age-based policies compare?
//!
//! As in the kernel's ATGC (`add_victim_entry`, `atgc_lookup_victim`): the oldest few of the candidates that
//! are older than the youngest ever seen by a threshold. The kernel sorts every dirty section into a tree for
//! each choice. Here the view keeps the order, and only two effects of the kernel's sorting require a look at
//! single units:
//!
//! * The kernel updates the youngest write time during the scan, which starts where the last such scan ended.
//!   So a unit that is old only in comparison with a later unit of the scan does not pass the threshold.
//! * Units written in the same second are ordered as the scan reached them.

use format::SegNo;

use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::view::{AgeCut, Among, Candidate, Rank, View};

/// The candidates that an age-based policy compares.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Every candidate up to this place is compared.
    pub up_to: Option<AgeCut>,
    /// These candidates behind that place are compared too.
    pub more: Vec<Candidate>,
    /// One second after the youngest candidate ever seen.
    pub max: u64,
    /// The write time of the oldest candidate.
    pub min: u64,
    /// Where the scan started: among equals, units from here on come first.
    first: SegNo,
    end: SegNo,
}

/// The candidates that are old enough: the places up to `sure`, then `more` in the order of comparison.
pub(crate) struct Eligible {
    pub(crate) sure: u32,
    pub(crate) more: Vec<Candidate>,
}

/// The oldest and the youngest write time.
pub(crate) struct Seen {
    /// The write time of the oldest candidate.
    pub(crate) oldest: u64,
    /// The youngest write time seen before this choice.
    pub(crate) before: u64,
}

/// Computes and remembers the extremes of age; `None` if there are no candidates.
pub(crate) fn see(view: &dyn View, memory: &mut Memory) -> Option<Seen> {
    let oldest = view.nth_oldest(Among::All, 0)?.0;
    let youngest = view.nth_oldest(Among::All, view.count() - 1)?.0;
    memory.see(oldest);
    memory.see(youngest);
    let before = memory.dirty_max_mtime;
    memory.dirty_max_mtime = before.max(youngest);
    Some(Seen { oldest, before })
}

/// Candidates at least `threshold` seconds older than the youngest write time known when the scan reached
/// them. The scan starts at `first`; `before` is the youngest write time known at its start.
pub(crate) fn eligible(view: &dyn View, first: SegNo, before: u64, threshold: u64, youngest: u64) -> Eligible {
    let sure = match before.checked_sub(threshold) {
        _ if threshold == 0 => view.count(),
        Some(cut) => view.count_up_to(cut),
        None => 0,
    };
    let end = youngest.checked_sub(threshold).map_or(0, |cut| view.count_up_to(cut));
    if end <= sure {
        return Eligible { sure, more: Vec::new() };
    }
    // The candidates that raised the youngest write time, in the order of the scan.
    let turn = |c: &Candidate| (c.seg < first, c.seg);
    let mut marks = Vec::new();
    view.by_age(Among::All, view.count_up_to(before)..view.count(), &mut |c| marks.push((turn(&c), c.mtime)));
    marks.sort_unstable();
    let mut high = before;
    marks.retain(|m| {
        let raised = m.1 > high;
        high = high.max(m.1);
        raised
    });
    let mut more = Vec::new();
    view.by_age(Among::All, sure..end, &mut |c| {
        let seen = marks.partition_point(|m| m.0 <= turn(&c));
        let mark = if seen == 0 { before } else { marks[seen - 1].1 };
        if mark - c.mtime.min(mark) >= threshold {
            more.push(c);
        }
    });
    more.sort_by_key(|c| (c.mtime, turn(c)));
    Eligible { sure, more }
}

/// Number of candidates to compare if `eligible` are old enough.
pub(crate) fn compared(tuning: &Tuning, eligible: u32) -> u32 {
    // As in the kernel, which examines the first candidate before it counts.
    let share = u64::from(tuning.candidate_ratio) * u64::from(eligible) / 100;
    tuning.candidate_count.max(share.min(u32::MAX.into()) as u32).max(1)
}

impl Pool {
    /// The oldest candidates that are `threshold` seconds older than the youngest; `None` if there are none.
    /// The memory is updated either way.
    pub fn gather(view: &dyn View, memory: &mut Memory, tuning: &Tuning, ask: Ask<'_>, threshold: u64) -> Option<Pool> {
        let first = memory.last_victim_at;
        memory.last_victim_at = ask.look_at_all(view, first);
        let Seen { oldest: min, before } = see(view, memory)?;
        let Eligible { sure, mut more } = eligible(view, first, before, threshold, memory.dirty_max_mtime);
        let all = sure + more.len() as u32;
        let take = compared(tuning, all).min(all);
        let mut pool = Pool {
            up_to: None,
            more: Vec::new(),
            max: memory.dirty_max_mtime.saturating_add(1),
            min,
            first,
            end: ask.end,
        };
        if take == 0 {
            return None;
        }
        if take > sure {
            more.truncate((take - sure) as usize);
            pool.more = more;
            pool.up_to = sure.checked_sub(1).and_then(|n| view.nth_oldest(Among::All, n));
        } else {
            pool.cut(view, take);
        }
        Some(pool)
    }

    /// Keeps the `take` oldest. Among units of the same second at the limit, the scan's order decides.
    fn cut(&mut self, view: &dyn View, take: u32) {
        self.up_to = view.nth_oldest(Among::All, take - 1);
        let Some((second, _)) = self.up_to else { return };
        if self.first == SegNo(0) || view.last() < Some(self.first) || take == view.count_up_to(second) {
            return;
        }
        let older = second.checked_sub(1).map_or(0, |s| view.count_up_to(s));
        let wanted = take - older;
        let end = view.count_up_to(second);
        view.by_age(Among::All, older..end, &mut |c| {
            if c.seg >= self.first && (self.more.len() as u32) < wanted {
                self.more.push(c);
            }
        });
        let others = take - self.more.len() as u32;
        self.up_to = others.checked_sub(1).and_then(|n| view.nth_oldest(Among::All, n));
    }

    /// The candidate of a kind with the highest monotone rank; of equals the oldest, then the first in the
    /// scan.
    pub fn best(
        &self,
        view: &dyn View,
        kind: Among,
        unit: u32,
        rank: &dyn Fn(&Candidate) -> Rank,
    ) -> Option<Candidate> {
        let order = |c: &Candidate| (rank(c), u64::MAX - c.mtime, c.seg >= self.first, u32::MAX - c.seg.0);
        let mut best = self.up_to.and_then(|cut| view.best(kind, cut, rank));
        if let (Some(found), Some(cut)) = (best, self.up_to)
            && found.seg < self.first
        {
            view.scan(self.first, self.end, &mut |c| {
                if c.mtime == found.mtime && c.place() <= cut && c.is(kind, unit) && rank(&c) == rank(&found) {
                    best = Some(c);
                    return false;
                }
                true
            });
        }
        best.into_iter().chain(self.more.iter().copied().filter(|c| c.is(kind, unit))).max_by_key(order)
    }
}

/// Chooses a unit from the pool.
pub(crate) fn choose(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    pick: impl Fn(&Pool) -> Option<Choice>,
) -> (Option<Choice>, Memory) {
    old_enough(view, memory, tuning, ask, |memory, threshold| {
        pick(&Pool::gather(view, memory, tuning, ask, threshold)?)
    })
}

/// Chooses among candidates past the age threshold. If there is none and the volume itself is younger than
/// the threshold, chooses again among all candidates.
pub(crate) fn old_enough(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    mut choose: impl FnMut(&mut Memory, u64) -> Option<Choice>,
) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    if ask.total(view) == 0 {
        return (None, memory);
    }
    let mut threshold = tuning.age_threshold;
    loop {
        match choose(&mut memory, threshold) {
            None if memory.elapsed < threshold => threshold = 0,
            found => return (found, memory),
        }
    }
}
