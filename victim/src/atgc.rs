//! ATGC: the kernel's cleaning by age threshold (mount option `atgc`).
//!
//! **Victim** (`atgc_lookup_victim`): the one with the lowest cost among the [`oldest`] candidates. `max` is one second
//! after the youngest candidate ever seen, `T` the time from the oldest candidate to `max`, and the precision is
//! `A` = min(10000, (2^64 - 1) / T / 100):
//!
//! ```text
//! age  = A (max - mtime) / T x age_weight
//! u    = A (capacity - valid) / capacity x (100 - age_weight)
//! cost = 2^32 - 1 - (age + u)
//! ```
//!
//! All numbers are integers; each division is rounded down, in this order. Of equal costs the greater age wins, then
//! the unit written first.
//!
//! **Target** (`AT_SSR`): the fullest segment of [`similar`](crate::similar) age that has a block to
//! overwrite. Its cost is 2^32 - 1 less its held blocks. Among equals the kernel means to take the segment
//! closest in age, but it compares the moved segment's write time with the target's age: the smaller |mtime
//! of the moved segment - (max - mtime of the target)|, the better. So do we. Blocks without a target go to a
//! new cold segment.

use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::oldest::{self, Pool};
use crate::similar::{Moved, Neighbours};
use crate::view::{Among, Candidate, Rank, View};

/// Default of the precision `A`: ages and free blocks are counted in fractions of it.
pub(crate) const ACCURACY: u64 = 10_000;

/// Parameters of the cost function that are the same for all candidates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) accuracy: u64,
    max: u64,
    span: Divisor,
    capacity: Divisor,
}

/// A precomputed divisor: one choice divides thousands of times by the same few numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divisor {
    by: u64,
    /// 2^64 divided by the number, rounded down.
    inverse: u64,
}

impl Divisor {
    /// `by` must be above 0.
    pub(crate) fn new(by: u64) -> Self {
        let by = by.max(1);
        Divisor { by, inverse: u64::MAX / by }
    }
    /// `n / by`, rounded down.
    pub(crate) fn divide(self, n: u64) -> u64 {
        let mut quotient = ((u128::from(n) * u128::from(self.inverse)) >> 64) as u64;
        // The quotient is at most two too small.
        let mut rest = n - quotient * self.by;
        while rest >= self.by {
            quotient += 1;
            rest -= self.by;
        }
        quotient
    }
}

impl Scale {
    fn new(pool: &Pool, ask: Ask<'_>) -> Scale {
        Scale::between(pool.min, pool.max, ask)
    }
    /// For write times from `min` to before `max`.
    pub(crate) fn between(min: u64, max: u64, ask: Ask<'_>) -> Scale {
        let span = max.saturating_sub(min).max(1);
        let accuracy = (u64::MAX / span / 100).min(ACCURACY);
        Scale { accuracy, max, span: Divisor::new(span), capacity: Divisor::new(ask.capacity().into()) }
    }
    /// Age of a unit relative to the youngest, as a share of the time span: 0 to `accuracy`.
    pub(crate) fn age(&self, mtime: u64) -> u64 {
        self.span.divide(self.accuracy * (self.max - mtime))
    }
    /// The share of a unit's blocks that are not valid: 0 to `accuracy`.
    pub(crate) fn free(&self, valid: u32) -> u64 {
        self.capacity.divide(self.accuracy * self.capacity.by.saturating_sub(valid.into()))
    }
}

/// The rank of a unit: age + u, then age alone.
fn rank(scale: &Scale, tuning: &Tuning, c: &Candidate) -> Rank {
    let age = scale.age(c.mtime) * u64::from(tuning.age_weight);
    let u = scale.free(c.valid) * u64::from(100u32.saturating_sub(tuning.age_weight));
    [age + u, age, 0, 0]
}

/// The cost for a given age + u; `None` for 0, which never wins.
pub(crate) fn cost(sum: u64) -> Option<u32> {
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

/// The target: the fullest among the segments of similar age.
pub fn fullest(view: &dyn View, near: &Neighbours, moved: Moved) -> Option<Choice> {
    let closeness = |mtime: u64| {
        let apart = moved.mtime.wrapping_sub(near.max.saturating_sub(mtime)) as i64;
        near.max.wrapping_sub(apart.unsigned_abs())
    };
    let rank = |c: &Candidate| [c.held.into(), closeness(c.mtime)];
    let [older, younger] = near.best(
        view,
        &|b| {
            // The kernel's difference is smallest for a target written at max - mtime of the moved segment.
            let best = match near.max.checked_sub(moved.mtime) {
                Some(middle) => closeness(middle.clamp(b.mtime.0, b.mtime.1)),
                None => u64::MAX,
            };
            [b.held.1.into(), best]
        },
        &rank,
    );
    // The older side comes first.
    let best = match (older, younger) {
        (Some(o), Some(y)) if rank(&y) > rank(&o) => y,
        (o, y) => o.or(y)?,
    };
    Some(Choice { victim: best, cost: u32::MAX - best.held })
}

#[cfg(test)]
mod tests {
    use format::SegNo;
    use format::sit::LogType;

    use super::*;
    use crate::plain::Plain;
    use crate::similar;

    const DAY: u64 = 86_400;
    const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(100), unit: 1, passed: &[] };

    fn c(seg: u32, valid: u32, mtime: u64) -> Candidate {
        Candidate { seg: SegNo(seg), valid, held: valid, mtime, f: 0, loose: 0 }
    }
    /// A volume that was mounted for a year, and whose youngest candidate was written now.
    fn year() -> Memory {
        Memory { dirty_max_mtime: 365 * DAY, ..Memory::at_mount(365 * DAY, 0) }
    }
    fn chosen(state: &[Candidate], memory: Memory, tuning: Tuning) -> (Option<(u32, u32)>, Memory) {
        let (choice, memory) = choose(&Plain::new(1, state.into()), &memory, &tuning, ASK);
        (choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost)), memory)
    }
    fn victim(state: &[Candidate]) -> Option<u32> {
        chosen(state, year(), Tuning::default()).0.map(|c| c.0)
    }

    #[test]
    fn a_divisor_divides_as_a_division_does() {
        let mut rng = device::Rng::new(1);
        let any = |rng: &mut device::Rng| rng.next_u64() >> rng.below(64);
        for _ in 0..100_000 {
            let (n, by) = (any(&mut rng), any(&mut rng).max(1));
            assert_eq!(Divisor::new(by).divide(n), n / by, "{n} / {by}");
        }
        for by in [1, 2, 3, u64::MAX - 1, u64::MAX] {
            assert_eq!(Divisor::new(by).divide(u64::MAX), u64::MAX / by);
        }
    }

    #[test]
    fn age_weighs_sixty_and_invalid_blocks_forty() {
        // T = 365 d + 1 s; the oldest unit has the full age.
        let (choice, _) = chosen(&[c(3, 128, 0)], year(), Tuning::default());
        assert_eq!(choice, Some((3, 10_000 * 60 + 7_500 * 40)));
        // 100 days younger costs 60 x 2739, 300 blocks fewer save 40 x 5859.
        assert_eq!(victim(&[c(3, 400, 0), c(5, 100, 100 * DAY)]), Some(5));
        assert_eq!(victim(&[c(3, 200, 0), c(5, 100, 100 * DAY)]), Some(3));
    }

    #[test]
    fn of_equal_costs_the_greater_age_wins_then_the_older_then_the_first_looked_at() {
        assert_eq!(victim(&[c(9, 100, 7), c(4, 100, 7)]), Some(4));
        let later = Memory { last_victim_at: SegNo(5), ..year() };
        let (choice, memory) = chosen(&[c(9, 100, 7), c(4, 100, 7)], later, Tuning::default());
        assert_eq!((choice.map(|c| c.0), memory.last_victim_at), (Some(9), SegNo(6)));
        // One second is less than 1/10,000 of the span: the unit that is older in seconds wins.
        assert_eq!(victim(&[c(4, 100, 8), c(9, 100, 7)]), Some(9));
        // Age and emptiness outweigh each other exactly: 20 parts of age for 30 of emptiness.
        let even = Tuning { age_weight: 50, age_threshold: 0, ..Tuning::default() };
        let memory = Memory { dirty_max_mtime: 511, ..Memory::at_mount(511, 0) };
        let (choice, _) = chosen(&[c(1, 256, 0), c(2, 128, 128)], memory, even);
        assert_eq!(choice, Some((1, 50 * 10_000 + 50 * 5_000)));
    }

    #[test]
    fn the_young_are_no_candidates_unless_the_volume_is_young_itself() {
        assert_eq!(victim(&[c(3, 1, 359 * DAY)]), None);
        assert_eq!(victim(&[c(3, 1, 358 * DAY)]), Some(3));
        let young = Memory { elapsed: DAY, ..year() };
        let (choice, _) = chosen(&[c(3, 1, 359 * DAY)], young, Tuning::default());
        assert_eq!(choice.map(|c| c.0), Some(3));
    }

    #[test]
    fn only_the_oldest_are_compared() {
        // At least ten are compared, and a fifth if there are more than fifty.
        let mut state: Vec<_> = (0..10).map(|n| c(n, 500, u64::from(n))).collect();
        state.push(c(20, 1, 10));
        assert_eq!(victim(&state), Some(0));
        state.remove(0);
        assert_eq!(victim(&state), Some(20));
        let mut many: Vec<_> = (0..60).map(|n| c(n, 500, u64::from(n))).collect();
        many[12].valid = 1;
        assert_eq!(victim(&many), Some(0));
        many[11].valid = 1;
        assert_eq!(victim(&many), Some(11));
    }

    #[test]
    fn what_is_old_shows_while_the_units_are_looked_at() {
        // The scan has seen nothing yet: it reaches the old unit before the young one that makes it old.
        let fresh = Memory::at_mount(365 * DAY, 0);
        let (choice, memory) = chosen(&[c(2, 9, 0), c(5, 9, 300 * DAY)], fresh, Tuning::default());
        assert_eq!((choice, memory.dirty_max_mtime), (None, 300 * DAY));
        let (choice, _) = chosen(&[c(5, 9, 0), c(2, 9, 300 * DAY)], fresh, Tuning::default());
        assert_eq!(choice.map(|c| c.0), Some(5));
        // The next choice has seen both.
        let (choice, _) = chosen(&[c(2, 9, 0), c(5, 9, 300 * DAY)], memory, Tuning::default());
        assert_eq!(choice.map(|c| c.0), Some(2));
    }

    fn at(state: &[Candidate], mtime: u64) -> Option<(u32, u32)> {
        let moved = Moved { kind: LogType::ColdData, mtime };
        let view = Plain::new(1, state.into());
        let (choice, _) = similar::target(fullest, &view, &year(), &Tuning::default(), ASK, moved);
        choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost))
    }

    #[test]
    fn moved_blocks_go_to_the_fullest_of_similar_age_that_is_not_full() {
        assert_eq!(at(&[c(1, 100, 10), c(2, 400, 20), c(3, 300, 30)], 15), Some((2, 400)));
        assert_eq!(at(&[c(1, 100, 10), c(2, 512, 20), c(3, 300, 30)], 15), Some((3, 300)));
        assert_eq!(at(&[c(2, 512, 20)], 15), None);
        assert_eq!(at(&[c(2, 5, 363 * DAY)], 15), None);
        assert_eq!(at(&[], 15), None);
        // Held blocks count, not valid ones.
        assert_eq!(at(&[Candidate { held: 450, ..c(1, 5, 10) }, c(2, 400, 20)], 15), Some((1, 450)));
    }

    #[test]
    fn ten_on_each_side_are_of_similar_age_and_full_ones_do_not_count() {
        let line = |n: u32| c(n, 100, u64::from(n));
        let mut state: Vec<_> = (0..40).map(line).collect();
        let full_at = |state: &[Candidate], n: usize| {
            let mut state = state.to_vec();
            (state[n].valid, state[n].held) = (400, 400);
            at(&state, 20).map(|c| c.1)
        };
        // The nearest segment counts on both sides: 11 to 20 and 20 to 29.
        assert_eq!([10, 11, 29, 30].map(|n| full_at(&state, n)), [Some(100), Some(400), Some(400), Some(100)]);
        (state[20].valid, state[20].held) = (512, 512);
        assert_eq!([9, 10, 30, 31].map(|n| full_at(&state, n)), [Some(100), Some(400), Some(400), Some(100)]);
    }

    #[test]
    fn between_equally_full_targets_the_kernel_compares_a_time_with_an_age() {
        // max = 365 d + 1 s. The moved segment was written at 300 d: the best target is 300 d old.
        let state = [c(1, 100, 64 * DAY), c(2, 100, 299 * DAY)];
        assert_eq!(at(&state, 300 * DAY).map(|c| c.0), Some(1));
        assert_eq!(at(&[c(1, 100, 7), c(2, 100, 7)], 9).map(|c| c.0), Some(2));
    }
}
