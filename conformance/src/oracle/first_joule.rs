//! The rule of `kernel/patches/0006`: what a victim costs now against what its free space saves later, in picojoules.
//!
//! A plain model of it, with which the patched kernel's choices are compared. It was the first rule of `gc=joule`, whose own now
//! looks at the uses of a volume (`victim/src/joule.rs`); the patch knows none. A unit of `C` blocks has `v` valid blocks, and `l` *loose* blocks (free ones in
//! fragments) in `n` fragments. The volume does not keep `n`; it keeps `l` and `f` = sum of 16,002 / X over the
//! fragments of X blocks. By Cauchy's inequality n is at most sqrt(l f / 16,002), and exactly that if all fragments
//! have one size. The valid blocks lie in about `r` = min(v, n + 1) runs. Prices are those of the device below, per
//! block or per request ([`Prices`]).
//!
//! *What cleaning costs now* (pJ) is three things. The cleaner reads the runs of valid blocks; it reads the fragments
//! between them too, where that is cheaper than another request (the code that moves the blocks decides so at each
//! gap). It writes the blocks in order to the cold log. And one node block changes for each run:
//!
//! ```text
//! cost = v (read_block + write_block_sequential)
//!      + min(r request, request + l read_block) + r write_block_sequential + ceil(v / 512) request
//! ```
//!
//! *Where the blocks go*: to the end of the cold log. FAGC fills the holes of a segment of similar age instead: that
//! takes no free segment, but a request for each hole. On the phone's flash a request costs as much as writing ten
//! blocks, so cleaning twice as many sections costs less.
//!
//! *What its free space saves, once a log uses it* (pJ): a log that threads into the uncleaned segment makes a
//! request for each fragment, and the fragment's first block is as far from the block before as a random one. The log
//! also needs a page of the device's map for this segment alone, and a log that writes in order needs half of one too.
//! And a section that was not cleaned ahead of time is cleaned in the foreground, with a checkpoint of about eight
//! blocks for each unit:
//!
//! ```text
//! saved = (n - 1) (request + write_block_random - write_block_sequential) + map_miss / 2, if n > 0
//!       + 8 (request + write_block_sequential)
//! ```
//!
//! *How likely a log uses it.* If `s` of `S` sections are free, with probability
//!
//! ```text
//! p = 1 / (1 + 5 s / S)
//! ```
//!
//! which is 1 if no section is free, 1/2 at 20 % and 1/6 on an empty volume.
//!
//! *What waiting saves.* Blocks that become invalid before the cleaning need not be moved. Free space lasts about
//! t = s / S x (seconds the volume was ever mounted), as if all of it had been written once in that time. Lifetimes of
//! blocks have long tails: of the blocks that lived for `a` seconds, a share of d = t / (t + a) is invalid `t` seconds
//! later. A section that is used is cleaned sooner or later, and cleaning it then costs (1 - d) cost. So the joules
//! that cleaning now wins are
//!
//! ```text
//! gain = p saved - w cost,    w = 1 - p (1 - d)
//! ```
//!
//! where w cost is what cleaning now costs more than waiting. The policy chooses the unit with the greatest gain, of
//! equals the oldest. On a charger it takes any gain. On battery it cleans nothing while more than 10 % of the sections
//! are free, and below that only a unit that saves at least [`BATTERY_FACTOR`] times what it costs. The cost it prints
//! is 2^32 - 1 less the gain in microjoules.
//!
//! `p` and `w` are counted in 1/1024. All numbers are integers; sums and products saturate.

use victim::memory::{Ask, Choice, Memory, Tuning};
use victim::{Bounds, Candidate, Power, View};

/// On battery, cleaning a unit must save this many times what it costs.
pub const BATTERY_FACTOR: u64 = 3;
/// On battery, the policy cleans nothing while more than one section in this many is free.
const PLENTY: u64 = 10;
/// Blocks that a checkpoint writes beside those of the logs: packs, tables, a node of each log.
const CHECKPOINT_BLOCKS: u64 = 8;
/// The denominator of `p` and `w`.
const WHOLE: u64 = 1024;
/// Longer times are counted as this many seconds, 34,000 years.
const LONG: u64 = 1 << 40;

/// What operations cost, in picojoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Reading 4 KiB.
    pub read_block: u64,
    /// Writing 4 KiB right behind the block before.
    pub write_block_sequential: u64,
    /// Writing 4 KiB anywhere.
    pub write_block_random: u64,
    /// A request of any size.
    pub request: u64,
    /// Fetching a page of the device's map.
    pub map_miss: u64,
}

impl Default for Prices {
    /// Those of the shipped profile `kirin9000-ufs31`, for a device of unknown prices.
    fn default() -> Self {
        Prices {
            read_block: 10_819_000,
            write_block_sequential: 12_614_000,
            write_block_random: 12_614_000,
            request: 121_949_000,
            map_miss: 39_312_000,
        }
    }
}

/// What all candidates of one choice share.
struct Weights<'a> {
    prices: &'a Prices,
    /// Probability that a log uses the space, in 1/1024.
    p: u64,
    /// Seconds until the free space is used up, t.
    lasts: u64,
    now: u64,
    power: Power,
}

impl Weights<'_> {
    fn cost(&self, valid: u32, fragments: u64, loose: u32) -> u64 {
        let (p, valid) = (self.prices, u64::from(valid));
        let runs = valid.min(fragments + 1);
        let blocks = valid.saturating_mul(p.read_block.saturating_add(p.write_block_sequential));
        let along = p.request.saturating_add(u64::from(loose).saturating_mul(p.read_block));
        let reads = runs.saturating_mul(p.request).min(along);
        let nodes = runs.saturating_mul(p.write_block_sequential);
        let writes = valid.div_ceil(512).saturating_mul(p.request);
        blocks.saturating_add(reads).saturating_add(nodes).saturating_add(writes)
    }
    fn saved(&self, fragments: u64) -> u64 {
        let p = self.prices;
        let far = p.request.saturating_add(p.write_block_random.saturating_sub(p.write_block_sequential));
        let split = match fragments {
            0 => 0,
            n => (n - 1).saturating_mul(far).saturating_add(p.map_miss / 2),
        };
        split.saturating_add(CHECKPOINT_BLOCKS.saturating_mul(p.request.saturating_add(p.write_block_sequential)))
    }
    /// The share of its cost that cleaning now costs more than waiting, in 1/1024.
    fn w(&self, mtime: u64) -> u64 {
        let age = self.now.saturating_sub(mtime).min(LONG);
        let both = (age + self.lasts.min(LONG)).max(1);
        let product = self.p * age;
        // A division of doubles is off by one at most, and faster than one of integers.
        let mut stays = (product as f64 / both as f64) as u64;
        if stays * both > product {
            stays -= 1;
        } else if product - stays * both >= both {
            stays += 1;
        }
        WHOLE - stays.min(WHOLE)
    }
    /// The gain in 1/1024 pJ; 0 if the power source allows no such cleaning.
    fn gain(&self, saved: u64, cost: u64, w: u64) -> u64 {
        let (saved, cost) = (self.p.saturating_mul(saved), w.saturating_mul(cost));
        let wanted = match self.power {
            Power::Powered => cost,
            Power::Battery => cost.saturating_mul(BATTERY_FACTOR),
        };
        if saved < wanted { 0 } else { saved - cost }
    }
    /// The gain of a candidate with `fragments` fragments.
    fn of(&self, c: &Candidate, fragments: u32) -> u64 {
        let n = fragments.into();
        self.gain(self.saved(n), self.cost(c.valid, n, c.loose), self.w(c.mtime))
    }
    /// The most that a unit within the bounds could gain: fewest valid blocks in fewest runs, oldest, most fragments.
    fn limit(&self, b: &Bounds) -> u64 {
        let (few, many) = (b.fragments.0.into(), b.fragments.1.into());
        self.gain(self.saved(many), self.cost(b.valid.0, few, b.loose.0), self.w(b.mtime.0))
    }
}

/// The unit that wins most joules if cleaned now; `None` if no unit wins any. `free` sections are free.
pub fn choose(
    view: &dyn View,
    memory: &Memory,
    _tuning: &Tuning,
    ask: Ask<'_>,
    prices: &Prices,
    power: Power,
    free: u32,
) -> (Option<Choice>, Memory) {
    let sections = u64::from(ask.end.0 / ask.unit.max(1)).max(1);
    let free = u64::from(free).min(sections);
    if power == Power::Battery && free * PLENTY > sections {
        return (None, *memory);
    }
    let lasts = u128::from(memory.max_mtime) * u128::from(free) / u128::from(sections);
    let weights = Weights {
        prices,
        p: WHOLE * sections / (sections + 5 * free),
        lasts: lasts as u64,
        now: memory.max_mtime,
        power,
    };
    let best = view.most_gained(&|b| weights.limit(b), &|c, fragments| weights.of(c, fragments));
    let choice = best.and_then(|victim| {
        let gain = weights.of(&victim, victim.fragments()) / WHOLE / 1_000_000;
        (gain > 0).then(|| Choice { victim, cost: u32::MAX - gain.min(u32::MAX.into()) as u32 })
    });
    (choice, *memory)
}

#[cfg(test)]
mod tests {
    use format::SegNo;

    use super::*;
    use victim::plain::Plain;

    /// A segment with `pieces` fragments of `size` blocks and `valid` valid ones.
    fn seg(seg: u32, valid: u32, pieces: u32, size: u32, mtime: u64) -> Candidate {
        let f = pieces * 16_002 / size.max(1);
        Candidate { seg: SegNo(seg), valid, held: valid, mtime, f, loose: pieces * size }
    }
    const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(1000), unit: 1, passed: &[] };
    const DAY: u64 = 86_400;

    /// Victim and gain in microjoules, on a volume of 1000 sections that was mounted for 100 days.
    fn chosen(state: &[Candidate], power: Power, free: u32) -> Option<(u32, u32)> {
        let memory = Memory::at_mount(100 * DAY, 0);
        let view = Plain::new(1, state.into());
        let (choice, after) = choose(&view, &memory, &Tuning::default(), ASK, &Prices::default(), power, free);
        assert_eq!(after, memory);
        choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost))
    }
    fn victim(state: &[Candidate], power: Power, free: u32) -> Option<u32> {
        chosen(state, power, free).map(|c| c.0)
    }

    #[test]
    fn fragments_of_one_size_are_counted_exactly() {
        for (pieces, size) in [(256, 1), (128, 2), (64, 4), (40, 9), (16, 31), (1, 1)] {
            // f is rounded down once, which may cost one.
            let n = seg(0, 100, pieces, size, 0).fragments();
            assert!(n == pieces || n + 1 == pieces, "{pieces} of {size}: {n}");
        }
        let of = |f, loose| Candidate { f, loose, ..seg(0, 1, 0, 0, 0) }.fragments();
        assert_eq!((of(0, 0), of(u32::MAX, 3), of(4_096_512, 256)), (0, 3, 256));
    }

    #[test]
    fn the_share_that_stays_is_rounded_down_exactly() {
        let mut rng = device::Rng::new(5);
        for _ in 0..100_000 {
            let any = |rng: &mut device::Rng| rng.next_u64() >> (24 + rng.below(40));
            let lasts = any(&mut rng);
            let weights =
                Weights { p: rng.below(1025), lasts, now: u64::MAX, power: Power::Battery, prices: &Prices::default() };
            let age = any(&mut rng);
            let stays = weights.p * age / (age + lasts).max(1);
            assert_eq!(weights.w(u64::MAX - age), WHOLE - stays);
        }
    }

    #[test]
    fn of_equally_full_ones_the_most_fragmented_is_cleaned_first() {
        let state = [seg(1, 256, 32, 8, 0), seg(2, 256, 128, 2, 0), seg(3, 256, 64, 4, 0)];
        assert_eq!(victim(&state, Power::Powered, 10), Some(2));
    }

    #[test]
    fn of_equally_fragmented_ones_the_emptiest_is() {
        let state = [seg(1, 300, 100, 1, 0), seg(2, 150, 100, 1, 0), seg(3, 200, 100, 1, 0)];
        assert_eq!(victim(&state, Power::Powered, 10), Some(2));
    }

    #[test]
    fn of_equals_the_oldest_is_and_the_young_may_wait() {
        let state = [seg(1, 256, 128, 2, 50 * DAY), seg(2, 256, 128, 2, DAY), seg(3, 256, 128, 2, 60 * DAY)];
        assert_eq!(victim(&state, Power::Powered, 50), Some(2));
        // What was written a minute ago will soon be fewer blocks.
        assert_eq!(victim(&[seg(1, 256, 85, 3, 100 * DAY - 60)], Power::Powered, 100), None);
        assert_eq!(victim(&[seg(1, 256, 85, 3, DAY)], Power::Powered, 100), Some(1));
    }

    #[test]
    fn nothing_is_cleaned_where_nothing_is_won() {
        // Free space in one piece.
        assert_eq!(victim(&[seg(1, 300, 0, 0, 0)], Power::Powered, 100), None);
        assert_eq!(victim(&[], Power::Powered, 0), None);
        // The same, nearly empty, and free space is short: foreground cleaning would come.
        assert_eq!(victim(&[seg(1, 8, 0, 0, 0)], Power::Powered, 10), Some(1));
    }

    #[test]
    fn on_battery_nothing_is_cleaned_while_free_space_suffices() {
        let worst = [seg(1, 256, 256, 1, 0)];
        assert_eq!(victim(&worst, Power::Battery, 101), None);
        assert_eq!(victim(&worst, Power::Battery, 20), Some(1));
        assert_eq!(victim(&worst, Power::Powered, 101), Some(1));
    }

    #[test]
    fn what_a_charger_pays_for_a_battery_does_not() {
        let middling = [seg(1, 256, 40, 6, 20 * DAY)];
        assert_eq!(victim(&middling, Power::Powered, 50), Some(1));
        assert_eq!(victim(&middling, Power::Battery, 50), None);
        let counted = |power| {
            let all = (0..400u32).map(|n| seg(n, 100 + n / 2, 1 + n % 100, 2, u64::from(n) * DAY / 5));
            all.filter(|c| victim(&[*c], power, 60).is_some()).count()
        };
        let (battery, powered) = (counted(Power::Battery), counted(Power::Powered));
        assert!(0 < battery && battery * 2 < powered && powered < 400, "{battery} {powered}");
    }

    #[test]
    fn the_gain_is_what_the_formulas_say() {
        let prices = Prices {
            read_block: 3_000_000,
            write_block_sequential: 5_000_000,
            write_block_random: 7_000_000,
            request: 100_000_000,
            map_miss: 40_000_000,
        };
        let memory = Memory::at_mount(1000, 0);
        // s / S = 1/10: p = 682/1024, lasts 100 s; age 900: w = 1024 - 682 x 900 / 1000.
        let view = Plain::new(1, vec![seg(7, 100, 100, 1, 100)]);
        let (choice, _) = choose(&view, &memory, &Tuning::default(), ASK, &prices, Power::Powered, 100);
        let saved = 99 * 102 + 20 + 8 * 105;
        // Reading the hundred holes along costs 100 + 100 * 3.
        let cost = 100 * 8 + 400 + 100 * 5 + 100;
        let gain = (682 * saved - (1024 - 613) * cost) / 1024;
        assert_eq!(choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost)), Some((7, gain)));
    }

    #[test]
    fn no_candidate_ranks_above_the_limit_of_bounds_it_lies_within() {
        let mut rng = device::Rng::new(3);
        for _ in 0..300 {
            let weights = Weights {
                prices: &Prices::default(),
                p: rng.below(1025),
                lasts: rng.below(10_000),
                now: 10_000,
                power: if rng.chance(1, 2) { Power::Battery } else { Power::Powered },
            };
            let few: Vec<_> = (0..rng.below(6) + 1)
                .map(|n| {
                    let (valid, size) = (rng.below(511) as u32 + 1, rng.below(31) as u32 + 1);
                    seg(n as u32, valid, rng.below(u64::from((512 - valid) / size) + 1) as u32, size, rng.below(10_000))
                })
                .collect();
            let mut bounds = Bounds::NONE;
            few.iter().for_each(|c| bounds.add(c));
            for c in &few {
                assert!(weights.of(c, c.fragments()) <= weights.limit(&bounds), "{c:?}");
            }
        }
    }

    #[test]
    fn absurd_prices_and_times_do_no_harm() {
        let prices = Prices {
            read_block: u64::MAX,
            write_block_sequential: u64::MAX,
            write_block_random: u64::MAX,
            request: u64::MAX,
            map_miss: u64::MAX,
        };
        let memory = Memory { max_mtime: u64::MAX, ..Memory::at_mount(u64::MAX, 0) };
        let view = Plain::new(1, vec![seg(1, 256, 256, 1, 0), seg(2, 1, 0, 0, u64::MAX)]);
        for power in [Power::Battery, Power::Powered] {
            for free in [0, 50, u32::MAX] {
                choose(&view, &memory, &Tuning::default(), ASK, &prices, power, free);
            }
        }
    }
}
