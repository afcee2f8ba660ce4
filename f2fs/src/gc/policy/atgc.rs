//! ATGC: the kernel's cleaning by age threshold (mount option `atgc`).
//!
//! **Victim** (`atgc_lookup_victim`): of the [`oldest`] candidates the one with the lowest cost. With
//! `max` one second after the youngest candidate ever seen, `T` the time from the oldest to that, and
//! a precision `A` = min(10000, (2^64 - 1) / T / 100):
//!
//!     age  = A (max - mtime) / T x age_weight
//!     u    = A (capacity - valid) / capacity x (100 - age_weight)
//!     cost = 2^32 - 1 - (age + u)
//!
//! in whole numbers, each division rounded down in this order. Of equal costs the greater age wins,
//! then the one written first.
//!
//! **Target** (`AT_SSR`): of the segments of [`similar`] age the fullest that has a block to overwrite;
//! its cost is 2^32 - 1 less its held blocks. Among equals the kernel means the one closest in age, but
//! compares the moved segment's write time with the target's age: the smaller
//! |mtime of what moves - (max - mtime of the target)|, the better. So do we. What finds no target goes
//! to a new cold segment.

use super::memory::{Ask, Choice, Memory, Tuning};
use super::oldest::{self, Pool};
use super::similar::{self, Moved};
use super::{Among, Candidate, Rank, View};

/// Shares of age and of free blocks are counted in units of one in so many.
pub(super) const ACCURACY: u64 = 10_000;

/// The numbers of the cost function that all candidates share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) accuracy: u64,
    pub(super) max: u64,
    pub(super) span: u64,
    pub(super) capacity: u64,
}

impl Scale {
    fn new(pool: &Pool, ask: Ask<'_>) -> Scale {
        Scale::between(pool.min, pool.max, ask)
    }
    /// For ages from `min` to before `max`.
    pub(super) fn between(min: u64, max: u64, ask: Ask<'_>) -> Scale {
        let span = max.saturating_sub(min).max(1);
        let accuracy = (u64::MAX / span / 100).min(ACCURACY);
        Scale { accuracy, max, span, capacity: ask.capacity().into() }
    }
    /// Share of the time span that a unit is older than the youngest, 0 to `accuracy`.
    pub(super) fn age(&self, mtime: u64) -> u64 {
        self.accuracy * (self.max - mtime) / self.span
    }
    /// Share of a unit that is not valid, 0 to `accuracy`.
    pub(super) fn free(&self, valid: u32) -> u64 {
        self.accuracy * self.capacity.saturating_sub(valid.into()) / self.capacity
    }
}

/// Sum and age part of what makes a unit worth cleaning.
fn rank(scale: &Scale, tuning: &Tuning, c: &Candidate) -> Rank {
    let age = scale.age(c.mtime) * u64::from(tuning.age_weight);
    let u = scale.free(c.valid) * u64::from(100u32.saturating_sub(tuning.age_weight));
    [age + u, age, 0, 0]
}

/// Cost from the sum of what speaks for a unit; nothing speaking for it is no choice.
pub(super) fn cost(sum: u64) -> Option<u32> {
    (sum > 0).then(|| u32::MAX - sum.min(u32::MAX.into()) as u32)
}

/// The victim; `None` if no candidate is old enough.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask<'_>) -> (Option<Choice>, Memory) {
    oldest::choose(view, memory, tuning, ask, |pool| {
        let scale = Scale::new(pool, ask);
        let victim = pool.best(view, Among::All, ask.unit, &|c| rank(&scale, tuning, c))?;
        Some(Choice { victim, cost: cost(rank(&scale, tuning, &victim)[0])? })
    })
}

/// The segment whose holes take what moves; the view holds segments of one kind, and units are
/// segments.
pub fn target(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    moved: Moved,
) -> (Option<Choice>, Memory) {
    similar::choose(view, memory, tuning, ask, moved, |near| {
        let closeness = |mtime: u64| {
            let apart = moved.mtime.wrapping_sub(near.max.saturating_sub(mtime)) as i64;
            near.max.wrapping_sub(apart.unsigned_abs())
        };
        let rank = |c: &Candidate| [c.held.into(), closeness(c.mtime)];
        let [older, younger] = near.best(
            view,
            &|b| {
                // The greatest is where the target is as old as what moves was written late.
                let best = match near.max.checked_sub(moved.mtime) {
                    Some(middle) => closeness(middle.clamp(b.mtime.0, b.mtime.1)),
                    None => u64::MAX,
                };
                [b.held.1.into(), best]
            },
            &rank,
        );
        // The older side is looked at first.
        let best = match (older, younger) {
            (Some(o), Some(y)) if rank(&y) > rank(&o) => y,
            (o, y) => o.or(y)?,
        };
        Some(Choice { victim: best, cost: u32::MAX - best.held })
    })
}
