//! FAGC: cleaning that considers fragmented free space (FAGC TACO'23, section 5.3, Algorithm 2).
//!
//! **Candidates** are the units that are *suitable* (defined below) and past the age threshold. FAGC compares
//! the oldest of these, the same number as ATGC. The paper determines "the range of segments to be compared
//! based on a similar age" and calls their number `dirty_threshold`, which is ATGC's name.
//!
//! **Victim**: the candidate with the lowest cost. Age and time span are as under ATGC; all numbers are integers:
//!
//! ```text
//! age  = 10000 (max - mtime) / total x 40
//! u    = 10000 (capacity - valid) / capacity x 20
//! f    = 10000 (f - min_f) / (max_f - min_f) x 40
//! cost = 2^32 - 1 - (age + f + u)
//! ```
//!
//! `min_f` and `max_f` are taken over the candidates; if they are equal, the term of f is 0. Of equal costs
//! the largest f wins, then the fewest valid blocks, then the oldest.
//!
//! *Where this differs from the printed formula*: the paper divides f by `max_f - min_f` without subtracting `min_f`
//! first. Then f could exceed its weight without bound (candidates of f 1,000,000 and 1,000,001 would get a million
//! times 40), though the text says that age, f and u "are all normalized" so that the cost is not "affected by a single
//! factor". The printed term exceeds ours by the same amount for each candidate. So both formulas rank the candidates
//! in the same order, apart from rounding and the limit of 32 bits. The weights are 40, 40 and 20; they add to 100.
//!
//! **When no victim is worth it.** The paper says: traditional F2FS and ATGC "may trigger some GCs which find
//! victim segments with large free space, while in this scenario FAGC would not trigger GC because no
//! suitable victim segments are found". A cost only ranks candidates; it does not say whether the best one is
//! good. Neither does f alone: a segment with a single hole of 4 KiB has a larger f than one with eight holes
//! of 100 KiB. We take the sentence literally: a unit is suitable if its free space lies in fragments, that
//! is, if **more than half of its free or invalid blocks lie in runs shorter than 32 blocks** (128 KiB, the
//! paper's bound of a fragment, section 5.1). A unit with large free space is left to logs, which can write
//! into it, and to foreground cleaning. If no unit is suitable, FAGC chooses nothing. Suitability is tested
//! before age: otherwise a volume whose oldest segments are unfragmented would never be cleaned.
//!
//! **Target**: FAGC "selects the target segment with a similar age to the victim segment and migrates valid blocks to
//! the target segment via threaded logging writes so that migrated valid blocks do not occupy new idle segments", and
//! writes its blocks "one by one which also reduces free space fragments of the target". So the target is the segment
//! with the largest f among those of [`similar`](crate::similar) age (the same range as ATGC's) that have a block to
//! overwrite; of equals the fullest, then the closest in age. Blocks that find no target go to a new cold segment.

use std::cmp::Reverse;
use std::ops::Range;

use crate::atgc::{self, Divisor, Scale};
use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::oldest;
use crate::similar::{Moved, Neighbours};
use crate::view::{Among, Candidate, Rank, View, end_of};

/// The victim; `None` if no candidate is worth cleaning.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask<'_>) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let Some(seen) = oldest::see(view, &mut memory) else { return (None, memory) };
    let youngest = memory.dirty_max_mtime;
    let old_enough =
        |threshold: u64| youngest.checked_sub(threshold).map_or(0, |cut| view.count_to(Among::Fragmented, end_of(cut)));
    let eligible = match old_enough(tuning.age_threshold) {
        // As under ATGC: on a volume younger than the threshold, no unit can be older than the threshold.
        0 if memory.elapsed < tuning.age_threshold => old_enough(0),
        n => n,
    };
    let take = oldest::compared(tuning, eligible).min(eligible);
    let scale = Scale::between(seen.oldest, youngest.saturating_add(1), ask);
    (pick(view, 0..take, scale, tuning), memory)
}

/// Algorithm 2 over the suitable candidates at the places `among` in age order.
fn pick(view: &dyn View, among: Range<u32>, scale: Scale, tuning: &Tuning) -> Option<Choice> {
    let (min_f, max_f) = view.range_of_f(Among::Fragmented, among.clone())?;
    let range = Divisor::new((max_f - min_f).into());
    let u_weight = 100u32.saturating_sub(tuning.fagc_age_weight).saturating_sub(tuning.fagc_f_weight);
    let rank = |c: &Candidate| -> Rank {
        let age = scale.age(c.mtime) * u64::from(tuning.fagc_age_weight);
        let u = scale.free(c.valid) * u64::from(u_weight);
        let f = range.divide(scale.accuracy * u64::from(c.f.saturating_sub(min_f))) * u64::from(tuning.fagc_f_weight);
        [age + f + u, c.f.into(), u64::from(u32::MAX - c.valid), u64::MAX - c.mtime]
    };
    let victim = view.search(Among::Fragmented, among, &|b| rank(&b.corner()), &rank)?;
    // If age, f and u are all 0, there is no cost to compute; the candidate is still suitable, at the highest
    // cost.
    let cost = atgc::cost(rank(&victim)[0]).unwrap_or(u32::MAX);
    Some(Choice { victim, cost })
}

/// The target: the most fragmented among the segments of similar age. Its cost is 2^32 - 1 less its f.
pub fn most_fragmented(view: &dyn View, near: &Neighbours, moved: Moved) -> Option<Choice> {
    let rank = |c: &Candidate| [c.f.into(), c.held.into()];
    let [older, younger] = near.best(view, &|b| [b.f.1.into(), b.held.1.into()], &rank);
    // `max_by_key` returns the last of equals: the older side.
    let best = [younger, older].into_iter().flatten();
    let best = best.max_by_key(|c| (rank(c), Reverse(c.mtime.abs_diff(moved.mtime))))?;
    Some(Choice { victim: best, cost: u32::MAX - best.f })
}

#[cfg(test)]
mod tests {
    use format::SegNo;
    use format::sit::LogType;

    use super::*;
    use crate::plain::Plain;
    use crate::similar;

    const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(100), unit: 1, passed: &[] };
    const NOW: u64 = 10_000_000;

    /// All of its free blocks are in fragments.
    fn c(seg: u32, valid: u32, mtime: u64, f: u32) -> Candidate {
        Candidate { seg: SegNo(seg), valid, held: valid, mtime, f, loose: 512 - valid }
    }
    fn memory() -> Memory {
        Memory { dirty_max_mtime: NOW, ..Memory::at_mount(NOW, 0) }
    }
    fn chosen(state: &[Candidate]) -> Option<(u32, u32)> {
        let (choice, _) = choose(&Plain::new(1, state.into()), &memory(), &Tuning::default(), ASK);
        choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost))
    }

    #[test]
    fn age_and_f_weigh_forty_and_invalid_blocks_twenty() {
        let state = [c(1, 256, 0, 100_000), c(2, 256, 0, 300_000)];
        assert_eq!(chosen(&state), Some((2, 10_000 * 40 + 5_000 * 20 + 10_000 * 40)));
        // Types A and B of the paper's benchmark: equal valid blocks, small and large f.
        let state = [c(1, 228, 5_000, 20_000), c(2, 228, 5_000, 900_000), c(3, 228, 0, 20_000)];
        assert_eq!(chosen(&state).map(|c| c.0), Some(2));
        // Being younger by more than half of the time span outweighs the smallest difference in f.
        assert_eq!(chosen(&[c(1, 256, 0, 10), c(2, 256, 6_000_000, 11), c(3, 256, 0, 1000)]).map(|c| c.0), Some(3));
        // f counts from the minimum, so it stays within its weight.
        assert_eq!(chosen(&[c(1, 256, 0, 1_000_000)]), Some((1, 10_000 * 40 + 5_000 * 20)));
    }

    #[test]
    fn of_equal_costs_the_largest_f_wins_then_the_fewest_valid_then_the_oldest() {
        // Half of the range of f weighs the same as half of the time span.
        let least = c(9, 511, 9_000_000, 0);
        let (f, age) = (c(1, 256, 5_000_000, 100), c(2, 256, 0, 50));
        let cost = 10_000 * 40 + 5_000 * 40 + 5_000 * 20;
        assert_eq!(chosen(&[least, f, age]), Some((1, cost)));
        assert_eq!(chosen(&[least, Candidate { f: 99, ..f }, Candidate { f: 100, ..least }, age]), Some((2, cost)));
        // A quarter of the time span weighs the same as half of the blocks.
        let (emptier, older) = (c(5, 128, 2_500_000, 7), c(3, 384, 0, 7));
        assert_eq!(chosen(&[emptier, older]), Some((5, 7_500 * 60)));
        assert_eq!(chosen(&[Candidate { valid: 130, ..emptier }, older]), Some((3, 7_500 * 60)));
        // Equal in all terms: the older wins, then the first on the volume.
        assert_eq!(chosen(&[c(4, 100, 8, 7), c(6, 100, 7, 7), c(7, 100, 7, 7)]).map(|c| c.0), Some(6));
    }

    #[test]
    fn nothing_is_cleaned_if_less_than_half_of_the_free_space_is_in_fragments() {
        let state = |loose| [Candidate { loose, ..c(1, 112, 0, 1_000_000) }];
        assert_eq!(chosen(&state(200)), None);
        assert_eq!(chosen(&state(201)).map(|c| c.0), Some(1));
        // The suitable unit is chosen, whatever free space and f the other has.
        let state = [Candidate { loose: 100, ..c(1, 2, 0, 1_600_200) }, c(2, 500, 9_000_000, 16_002)];
        assert_eq!(chosen(&state).map(|c| c.0), Some(2));
    }

    #[test]
    fn of_the_suitable_the_oldest_are_compared() {
        let mut state: Vec<_> = (0..20).map(|n| Candidate { loose: 0, ..c(n, 1, 0, 0) }).collect();
        state.extend((20..30).map(|n| c(n, 500, 9, 10)));
        state.push(c(30, 1, 10, 4_000_000));
        assert_eq!(chosen(&state).map(|c| c.0), Some(20));
        // Ten are compared.
        state.remove(20);
        assert_eq!(chosen(&state).map(|c| c.0), Some(30));
    }

    #[test]
    fn the_young_are_not_suitable_unless_the_volume_is_young_itself() {
        let young = [c(1, 100, NOW - 604_799, 7)];
        assert_eq!(chosen(&young), None);
        assert_eq!(chosen(&[c(1, 100, NOW - 604_800, 7)]).map(|c| c.0), Some(1));
        let memory = Memory { elapsed: 604_799, ..memory() };
        let (choice, _) = choose(&Plain::new(1, young.into()), &memory, &Tuning::default(), ASK);
        assert_eq!(choice.map(|c| c.victim.seg.0), Some(1));
    }

    #[test]
    fn moved_blocks_go_where_the_free_space_of_similar_age_is_most_fragmented() {
        let at = |state: &[Candidate], mtime| {
            let moved = Moved { kind: LogType::WarmData, mtime };
            let view = Plain::new(1, state.into());
            let (choice, _) = similar::target(most_fragmented, &view, &memory(), &Tuning::default(), ASK, moved);
            choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost))
        };
        assert_eq!(at(&[c(1, 400, 5, 30), c(2, 100, 6, 90)], 5), Some((2, 90)));
        // Of equals the fullest, then the closest in age, then the older side.
        assert_eq!(at(&[c(1, 400, 9, 30), c(2, 100, 5, 30)], 5), Some((1, 30)));
        assert_eq!(at(&[c(1, 100, 2, 30), c(2, 100, 9, 30)], 6), Some((2, 30)));
        assert_eq!(at(&[c(1, 100, 3, 30), c(2, 100, 9, 30)], 6), Some((1, 30)));
        // Segments without fragments come last; full ones are never chosen.
        assert_eq!(at(&[c(1, 400, 5, 0), c(2, 100, 5, 1)], 5), Some((2, 1)));
        assert_eq!(at(&[c(1, 400, 5, 0)], 5), Some((1, 0)));
        assert_eq!(at(&[c(1, 512, 5, 10)], 5), None);
    }
}
