//! Joule: which section gives the next use of the volume the best value for its cleaning cost, and does the
//! value exceed the cost? In picojoules.
//!
//! Our own policy, not from a paper. A unit of `C` blocks has `v` valid blocks, and `l` *loose* blocks (free
//! ones in fragments) in `n` fragments. The volume does not keep `n`; it keeps `l` and `f` = sum of 16,002 /
//! X over the fragments of X blocks. By Cauchy's inequality n is at most sqrt(l f / 16,002), with equality if
//! all fragments have one size. The valid blocks lie in about `r` = min(v, n + 1) runs. Prices are those of
//! the device below, per block or per request ([`Prices`]).
//!
//! *Cost of cleaning a unit.* The cleaner reads the runs of valid blocks, and also the fragments between them
//! where that is cheaper than another request (the code that moves the blocks decides at each gap). It writes
//! the blocks in order to the cold log. One node block changes for each run:
//!
//! ```text
//! cost = v (read_block + write) + min(r request, request + l read_block) + r write + ceil(v / 512) request
//! write = write_block_sequential + copy_inside (T / (2 (T - U)) - 1)
//! ```
//!
//! The second part of `write` is the copying inside the flash per block written. The flash has `T` blocks
//! (spare ones included), and `U` of them hold data that the volume has not discarded (Agarwal and Marrow, A
//! closed-form expression for write amplification in NAND flash, GLOBECOM Workshops 2010). On a nearly full
//! volume this doubles the price of moving.
//!
//! *Destination*, whichever makes free blocks cheaper. The end of the cold log gains C - v blocks. The holes
//! of used segments of similar age (as under ATGC, the fullest) take no free space, so all C are gained. But
//! each block moved into holes costs extra requests, as last measured, and one more copy inside the flash,
//! since blocks in holes do not die in the order of the flash's blocks. The fuller the unit, the larger the
//! advantage of holes.
//!
//! ```text
//! price behind the log = cost / (C - v)
//! price in holes       = (cost + v (moved_cuts / 1024 far + copy_inside (T / (2 (T - U)) - 1))) / C
//! far                  = request + write_block_random - write_block_sequential
//! ```
//!
//! On a volume that only appends there are no holes to use, and only the first price applies.
//!
//! *Whether to clean.* Blocks die while the cleaner waits, and waiting costs nothing. So cleaning must pay
//! off in the next use of the volume ([`Outlook`]). A free block has two kinds of value for it:
//!
//! * *Requests*, if the next use takes more sections than are free beyond the reserve. Then its logs fill
//!   holes, and each hole cuts a file that would otherwise be contiguous. The number of cuts cannot be
//!   predicted from the segments: it depends on the length of the writes and on the segments that the logs
//!   choose. So the logs count cuts while they fill holes, and a block is worth `cuts / 1024 far`. On a
//!   volume with long holes that costs nothing, and nothing is cleaned. But a use that takes more blocks than
//!   there is room for, in holes and beyond them, fills every hole `takes / (holes + spare)` times, as its
//!   own blocks die meanwhile. Then the holes that cleaning a unit saves are known: the unit's own. Cleaning
//!   saves them in the use after that, too, for which a section is free again if its blocks died together. So
//!   the unit is worth `n far 2 takes / (holes + spare)` instead: [`LASTS`] uses, at most [`USES`] rounds. A
//!   volume that only appends has no cuts. If it runs out of sections, it cleans in the middle of the use, at
//!   the same price and with fewer blocks left to move, so early cleaning gains nothing.
//! * *Room for the flash*, which copies less if it has one block less to keep: for `writes` blocks written in
//!   a use this saves `writes copy_inside T / (2 (T - U)^2)`, the derivative of the copying (0 if half of the
//!   flash is erased). A block that the next use does not take continues to save: it counts for the number of
//!   uses that the free sections will last, at most [`USES`]. In a use that fills every hole only the first
//!   round counts, because that round takes the block.
//!
//! *Which unit*: the one with the highest worth for its cost; if all free blocks are worth the same, the one
//! with the cheapest. Recently written units will soon have fewer valid blocks, so old units come first: the
//! greatest (age + 1) worth / cost.
//!
//! On a charger the free blocks of a unit must be worth its cost. On battery they must be worth 5/4 of it,
//! because the next use may not come, or may differ from the last ones.
//!
//! *If fewer sections are free than a user asked for* (`gc_keep_free`), any unit with a free block may be
//! chosen, the cheapest first.
//!
//! The reported cost of a choice is its price per free block in nanojoules. All numbers are integers; sums
//! and products saturate.

use format::SegNo;

use crate::Power;
use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::outlook::Outlook;
pub use crate::prices::Prices;
use crate::prices::{Flash, capped};
use crate::view::{Bounds, Candidate, View};

/// Most uses for which a free block counts as room for the flash, and most rounds for which a removed hole
/// counts.
pub const USES: u64 = 16;
/// Number of uses that fill every hole for which a removed hole counts.
pub const LASTS: u64 = 2;
/// Required worth of the free blocks of a unit on battery, in quarters of its cost.
const BATTERY_QUARTERS: u64 = 5;
/// Longer times are counted as this many seconds, 34,000 years.
const LONG: u64 = 1 << 40;
/// The scale of a rank: prices per block and second are small fractions.
const SCALE: u128 = 1 << 20;

/// Values that are the same for all candidates of one choice.
struct Weights<'a> {
    prices: &'a Prices,
    /// Blocks of a unit.
    unit: u64,
    /// Copying inside the device per block written, in pJ.
    inside: u64,
    /// Extra cost of a block moved into holes, compared with a sequential one, in pJ.
    hole: u64,
    /// Worth of a free block, in pJ.
    worth: u64,
    /// Extra worth of a removed fragment, in pJ; 0 unless the next use fills every hole.
    fragment: u64,
    /// Least worth of a unit to be cleaned, in quarters of its cost; 0 to clean at any price.
    quarters: u64,
    now: u64,
    /// True if logs fill holes.
    fills: bool,
}

impl<'a> Weights<'a> {
    fn new(prices: &'a Prices, outlook: &Outlook, sections: u64, section: u64, power: Power, now: u64) -> Weights<'a> {
        let flash = Flash::new(prices, u64::from(outlook.free) * section, sections * section);
        let quarters = match power {
            _ if outlook.is_owed() => 0,
            Power::Powered => 4,
            Power::Battery => BATTERY_QUARTERS,
        };
        let rounds = outlook.rounds(section);
        let (worth, fragment) = match quarters {
            // If cleaning is required at any price, the cheapest comes first.
            0 => (1000, 0),
            _ => (worth(prices, outlook, rounds, &flash, section), fragment(prices, rounds)),
        };
        Weights {
            prices,
            unit: section,
            inside: flash.copying_per_write(),
            hole: cut(prices, outlook.moved_cuts).saturating_add(flash.copying_per_write()),
            worth,
            fragment,
            quarters,
            now,
            fills: !outlook.only_appends,
        }
    }
    fn cost(&self, valid: u32, fragments: u64, loose: u32) -> u64 {
        let (p, valid) = (self.prices, u64::from(valid));
        let write = p.write_block_sequential.saturating_add(self.inside);
        let runs = valid.min(fragments + 1);
        let blocks = valid.saturating_mul(p.read_block.saturating_add(write));
        let along = p.request.saturating_add(u64::from(loose).saturating_mul(p.read_block));
        let reads = runs.saturating_mul(p.request).min(along);
        let nodes = runs.saturating_mul(write);
        let writes = valid.div_ceil(512).saturating_mul(p.request);
        blocks.saturating_add(reads).saturating_add(nodes).saturating_add(writes)
    }
    /// Cost and free blocks gained of the cheaper destination; true if that is holes.
    fn cheaper(&self, valid: u32, fragments: u64, loose: u32) -> (u64, u64, bool) {
        let cost = self.cost(valid, fragments, loose);
        let behind = (cost, self.unit.saturating_sub(valid.into()), false);
        if !self.fills {
            return behind;
        }
        let holes = (cost.saturating_add(u64::from(valid).saturating_mul(self.hole)), self.unit, true);
        match u128::from(holes.0) * u128::from(behind.1) < u128::from(behind.0) * u128::from(holes.1) {
            true => holes,
            false => behind,
        }
    }
    /// Worth of a unit whose cleaning frees `free` blocks, with `fragments` fragments of its own.
    fn worth(&self, free: u64, fragments: u64) -> u64 {
        free.saturating_mul(self.worth).saturating_add(fragments.saturating_mul(self.fragment))
    }
    /// The rank of a unit with this worth and cost; 0 if it is not worth its cost.
    fn rank(&self, worth: u64, cost: u64, mtime: u64) -> u64 {
        if worth.saturating_mul(4) < cost.saturating_mul(self.quarters) {
            return 0;
        }
        let age = self.now.saturating_sub(mtime).min(LONG) + 1;
        // In nanojoules: no product passes 2^20 x 2^64 x 2^41.
        let rank = SCALE * u128::from(worth / 1000) * u128::from(age) / u128::from((cost / 1000).max(1));
        rank.clamp(1, u64::MAX.into()) as u64
    }
    /// The rank of a candidate with `fragments` fragments.
    fn rank_of(&self, c: &Candidate, fragments: u32) -> u64 {
        let (cost, free, _) = self.cheaper(c.valid, fragments.into(), c.loose);
        self.rank(self.worth(free, fragments.into()), cost, c.mtime)
    }
    /// The highest possible rank of a unit within the bounds: fewest valid blocks in fewest runs, oldest. It
    /// combines the worth of the most fragments with the least cost, for either destination.
    fn limit(&self, b: &Bounds) -> u64 {
        let (valid, runs, loose) = (b.valid.0, u64::from(b.fragments.0), b.loose.0);
        let (cost, free, _) = self.cheaper(valid, runs, loose);
        let own = u128::from(self.worth(0, b.fragments.1.into())) * u128::from(cost);
        let own = capped(own.div_ceil(self.cost(valid, runs, loose).max(1).into()));
        self.rank(self.worth(free, 0).saturating_add(own), cost, b.mtime.0)
    }
}

/// Extra cost of a block in holes compared with a sequential one, for `cuts` cuts in 1,024 blocks.
fn cut(prices: &Prices, cuts: u32) -> u64 {
    capped(u128::from(prices.far()) * u128::from(cuts) / 1024)
}

/// What removing a fragment saves the logs if the next uses fill every hole `rounds` times, in pJ.
fn fragment(prices: &Prices, rounds: Option<(u64, u64)>) -> u64 {
    let Some((takes, room)) = rounds else { return 0 };
    let takes = takes.saturating_mul(LASTS).min(room.saturating_mul(USES));
    capped(u128::from(cut(prices, 1024)) * u128::from(takes) / u128::from(room))
}

/// Worth of a free block to the next use, in pJ, independent of its place.
fn worth(prices: &Prices, outlook: &Outlook, rounds: Option<(u64, u64)>, flash: &Flash, section: u64) -> u64 {
    let fills_some = outlook.is_short(section) && !outlook.only_appends && rounds.is_none();
    let requests = if fills_some { cut(prices, outlook.cuts) } else { 0 };
    let takes = outlook.takes.max(1);
    let meanwhile = match rounds {
        // The logs take the block in the first round.
        Some((takes, room)) => capped(u128::from(outlook.writes) * u128::from(room) / u128::from(takes)),
        None => outlook.writes.saturating_mul((outlook.spare(section).saturating_add(takes) / takes).clamp(1, USES)),
    };
    requests.saturating_add(flash.saved(meanwhile))
}

/// The unit with the highest worth for its cost; `None` if none is worth it.
pub fn choose(
    view: &dyn View,
    memory: &Memory,
    _tuning: &Tuning,
    ask: Ask<'_>,
    prices: &Prices,
    power: Power,
    outlook: &Outlook,
) -> (Option<Choice>, Memory) {
    let unit = u64::from(ask.unit.max(1));
    let weights = Weights::new(prices, outlook, u64::from(ask.end.0) / unit, unit * 512, power, memory.max_mtime);
    let best = view.most_gained(&|b| weights.limit(b), &|c, fragments| weights.rank_of(c, fragments));
    let choice = best.map(|victim| {
        let (cost, free, _) = weights.cheaper(victim.valid, victim.fragments().into(), victim.loose);
        Choice { victim, cost: (cost / 1000 / free.max(1)).min(u32::MAX.into()) as u32 }
    });
    (choice, *memory)
}

/// The unit whose free blocks cost least, for a writer who waits for them: neither their worth nor an age counts, and the
/// blocks go to the end of the log.
pub fn cheapest(
    view: &dyn View,
    memory: &Memory,
    ask: Ask<'_>,
    prices: &Prices,
    outlook: &Outlook,
) -> (Option<Choice>, Memory) {
    let unit = u64::from(ask.unit.max(1));
    let asked = Outlook { asked: u32::MAX, only_appends: true, ..*outlook };
    let weights = Weights::new(prices, &asked, u64::from(ask.end.0) / unit, unit * 512, Power::Powered, 0);
    let best = view.most_gained(&|b| weights.limit(b), &|c, fragments| weights.rank_of(c, fragments));
    let cost = |c: &Candidate| weights.cost(c.valid, c.fragments().into(), c.loose) / 1000;
    let choice = best.map(|victim| Choice { victim, cost: cost(&victim).min(u32::MAX.into()) as u32 });
    (choice, *memory)
}

/// The cheaper destination of the blocks of a unit of `unit` segments, on a volume of `end` segments: what cleaning
/// the unit costs, in pJ, and whether the blocks go into holes.
pub fn destination(victim: &Candidate, prices: &Prices, outlook: &Outlook, end: SegNo, unit: u32) -> (u64, bool) {
    let unit = u64::from(unit.max(1));
    // The power source decides whether a unit is worth cleaning, not where its blocks go.
    let weights = Weights::new(prices, outlook, u64::from(end.0) / unit, unit * 512, Power::Powered, 0);
    let (cost, _, holes) = weights.cheaper(victim.valid, victim.fragments().into(), victim.loose);
    (cost, holes)
}

#[cfg(test)]
mod tests {
    use format::SegNo;

    use super::*;
    use crate::plain::Plain;

    /// A segment with `pieces` fragments of `size` blocks, and `valid` valid blocks.
    fn seg(seg: u32, valid: u32, pieces: u32, size: u32, mtime: u64) -> Candidate {
        let f = pieces * 16_002 / size.max(1);
        Candidate { seg: SegNo(seg), valid, held: valid, mtime, f, loose: pieces * size }
    }
    const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(1000), unit: 1, passed: &[] };
    const DAY: u64 = 86_400;
    /// No use is expected, and no free sections are requested.
    const REST: Outlook = Outlook {
        free: 100,
        kept_back: 10,
        asked: 0,
        takes: 0,
        writes: 0,
        cuts: 0,
        moved_cuts: 512,
        holes: 100_000,
        only_appends: false,
    };
    /// The next use needs more than there is room for, and every second block in holes needs another request.
    const SHORT: Outlook = Outlook { free: 10, takes: 5120, cuts: 512, ..REST };

    /// Victim and price of a free block in nanojoules, on a volume of 1000 sections that was mounted for 100 days.
    fn chosen(state: &[Candidate], power: Power, outlook: &Outlook) -> Option<(u32, u32)> {
        let memory = Memory::at_mount(100 * DAY, 0);
        let view = Plain::new(1, state.into());
        let (choice, after) = choose(&view, &memory, &Tuning::default(), ASK, &Prices::default(), power, outlook);
        assert_eq!(after, memory);
        choice.map(|c| (c.victim.seg.0, c.cost))
    }
    fn victim(state: &[Candidate], outlook: &Outlook) -> Option<u32> {
        chosen(state, Power::Powered, outlook).map(|c| c.0)
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
    fn a_writer_who_waits_gets_the_cheapest_blocks_not_the_fewest_valid_ones() {
        let cheapest = |state: &[Candidate]| {
            let (memory, view) = (Memory::at_mount(100 * DAY, 0), Plain::new(1, state.into()));
            cheapest(&view, &memory, ASK, &Prices::default(), &SHORT).0.map(|c| c.victim.seg.0)
        };
        // 100 valid blocks between 60 fragments need more requests than 120 in one run.
        assert_eq!(cheapest(&[seg(1, 100, 60, 6, 0), seg(2, 120, 0, 0, 99 * DAY)]), Some(2));
        assert_eq!(cheapest(&[seg(1, 100, 0, 0, 99 * DAY), seg(2, 120, 0, 0, 0)]), Some(1), "age does not count");
        assert_eq!(cheapest(&[seg(1, 511, 1, 1, 0)]), Some(1), "nothing else is there");
        assert_eq!(cheapest(&[]), None);
    }

    #[test]
    fn of_equally_old_ones_the_emptiest_is_cleaned_first_and_of_equally_full_ones_the_oldest() {
        let state = [seg(1, 300, 100, 1, 0), seg(2, 150, 100, 1, 0), seg(3, 200, 100, 1, 0)];
        assert_eq!(victim(&state, &SHORT), Some(2));
        let state = [seg(1, 150, 64, 2, 50 * DAY), seg(2, 150, 64, 2, DAY), seg(3, 150, 64, 2, 60 * DAY)];
        assert_eq!(victim(&state, &SHORT), Some(2));
    }

    #[test]
    fn of_equally_full_ones_that_in_the_fewest_pieces_is_the_cheapest() {
        let state = [seg(1, 128, 60, 3, 0), seg(2, 128, 10, 18, 0), seg(3, 128, 30, 6, 0)];
        assert_eq!(victim(&state, &SHORT), Some(2));
    }

    #[test]
    fn nothing_is_cleaned_for_a_use_that_has_room_or_whose_holes_cost_nothing() {
        let state = [seg(1, 8, 4, 2, 0), seg(2, 256, 128, 2, 0)];
        assert_eq!(victim(&state, &SHORT), Some(1));
        for none in [REST, Outlook { free: 22, ..SHORT }, Outlook { cuts: 0, ..SHORT }] {
            assert_eq!(victim(&state, &none), None, "{none:?}");
        }
        assert_eq!(victim(&[], &SHORT), None);
    }

    #[test]
    fn a_use_that_fills_every_hole_is_spared_those_of_the_unit_as_often_as_it_comes_by() {
        // The emptiest, whose free space is contiguous, and a full one with many fragments.
        let state = [seg(1, 100, 1, 400, 0), seg(2, 412, 100, 1, 0)];
        let round = Outlook { takes: 100_000, holes: 100_000, ..SHORT };
        let (comes_by, passes) = (Outlook { takes: 1_000_000, ..round }, Outlook { takes: 99_999, ..round });
        assert_eq!([&passes, &round, &comes_by].map(|o| victim(&state, o)), [Some(1), None, Some(2)]);
        // The earlier rate of cuts does not matter then.
        assert_eq!(victim(&state, &Outlook { cuts: 0, ..comes_by }), Some(2));
        let price = |takes| fragment(&Prices::default(), Outlook { takes, ..round }.rounds(512));
        // A round costs 121,949 nJ per hole, and the use after this one counts too.
        assert_eq!([50_000, 100_000, 250_000].map(price), [0, 243_898_000, 609_745_000]);
        // The worth is limited, however long the use.
        assert_eq!(price(1_000_000_000), 16 * 121_949_000);
        let room = |rounds: u64| {
            let flash = Flash::new(&Prices::default(), 5120, 512_000);
            let long = Outlook { takes: 100_000 * rounds, writes: 100_000 * rounds, ..round };
            worth(&Prices::default(), &long, long.rounds(512), &flash, 512)
        };
        assert!(room(1) > 0 && room(1) == room(1000));
    }

    #[test]
    fn the_dearer_holes_are_the_fuller_ones_are_cleaned() {
        let fullest = |cuts| {
            (1..512).rev().find(|valid| victim(&[seg(1, *valid, 0, 0, 0)], &Outlook { cuts, ..SHORT }).is_some())
        };
        let all: Vec<_> = [1, 16, 64, 256, 1024].map(fullest).into_iter().flatten().collect();
        assert!(all.is_sorted() && all.len() > 3 && all[0] < 100 && all[all.len() - 1] > 300, "{all:?}");
    }

    #[test]
    fn a_unit_costs_on_battery_what_five_quarters_of_it_are_on_a_charger() {
        let fullest = |power| {
            let worth = |valid: &u32| chosen(&[seg(1, *valid, 0, 0, 0)], power, &SHORT).is_some();
            (1..512).rev().find(worth).unwrap()
        };
        let (battery, powered) = (fullest(Power::Battery), fullest(Power::Powered));
        let price = |valid| {
            let prices = Prices::default();
            let (cost, free, _) = Weights::new(&prices, &SHORT, 1000, 512, Power::Powered, 0).cheaper(valid, 0, 0);
            cost as f64 / free as f64
        };
        let ratio = price(powered) / price(battery);
        assert!((1.2..1.3).contains(&ratio), "{battery} {powered}: {ratio}");
    }

    #[test]
    fn a_full_flash_is_worth_room_to_a_volume_that_overwrites_in_place() {
        let empty = [seg(1, 20, 0, 0, 0)];
        let writes = Outlook { free: 50, takes: 100_000, writes: 20_000, ..REST };
        assert_eq!(victim(&empty, &writes), Some(1));
        // Not on an emptier volume, with fewer writes, or on a disk.
        assert_eq!(victim(&empty, &Outlook { free: 600, ..writes }), None);
        assert_eq!(victim(&empty, &Outlook { writes: 200, ..writes }), None);
        let disk = Prices { copy_inside: 0, spare: 0, ..Prices::default() };
        let flash = Flash::new(&disk, 50 * 512, 512_000);
        assert_eq!((worth(&disk, &writes, None, &flash, 512), flash.copying_per_write()), (0, 0));
    }

    #[test]
    fn room_that_the_next_use_takes_is_worth_what_it_saves_in_that_use() {
        let prices = Prices::default();
        let flash = Flash::new(&prices, 50 * 512, 512_000);
        let all = |takes| worth(&prices, &Outlook { free: 50, takes, writes: 1000, ..REST }, None, &flash, 512);
        // 40 sections are spare: they last for 2, 4 and 8 uses; at most 16 count.
        let once = all(39 * 512);
        assert!([(20, 3), (10, 5), (5, 9), (1, USES), (0, USES)].iter().all(|(n, uses)| {
            let ratio = all(n * 512) as f64 / once as f64;
            (ratio / *uses as f64 * 2.0 - 1.0).abs() < 0.01
        }));
    }

    #[test]
    fn what_a_user_wants_held_is_cleaned_at_any_price() {
        let dear = [seg(1, 511, 1, 1, 100 * DAY)];
        assert_eq!(victim(&dear, &SHORT), None);
        assert_eq!(victim(&dear, &Outlook { asked: 11, free: 10, ..REST }), Some(1));
        assert_eq!(victim(&dear, &Outlook { asked: 10, free: 10, ..REST }), None);
    }

    #[test]
    fn the_price_is_what_the_formula_says() {
        let prices = Prices {
            read_block: 3_000_000,
            write_block_sequential: 5_000_000,
            write_block_random: 7_000_000,
            request: 100_000_000,
            flush: 0,
            copy_inside: 4_000_000,
            spare: 103,
            padding: 0,
        };
        let memory = Memory::at_mount(1000, 0);
        let view = Plain::new(1, vec![seg(7, 100, 100, 1, 100)]);
        let (choice, _) = choose(&view, &memory, &Tuning::default(), ASK, &prices, Power::Powered, &SHORT);
        // T = 1100 sections, T - U = 110: four blocks are copied per block written. Reading the hundred holes
        // along costs 100 + 100 * 3.
        let cost = 100 * (8 + 16) + 400 + 100 * (5 + 16) + 100;
        let (seg, price) = choice.map(|c| (c.victim.seg.0, f64::from(c.cost))).unwrap();
        let ratio = price * 412.0 / f64::from(cost * 1000);
        assert!(seg == 7 && (0.99..1.01).contains(&ratio), "{ratio}");
        // Requests: (100 + 7 - 5) / 2. Room: counted once, as nothing is spare.
        let wanted = Outlook { writes: 1_000_000, ..SHORT };
        let flash = Flash::new(&prices, 10 * 512, 512_000);
        let room = 4e12 * 1100.6 / (2.0 * 110.6 * 110.6 * 512.0);
        let ratio = (worth(&prices, &wanted, None, &flash, 512) - 51_000_000) as f64 / room;
        assert!((0.999..1.001).contains(&ratio), "{ratio}");
        // A flash that is half erased copies nothing, and gains nothing from room.
        let half = Flash::new(&prices, 460 * 512, 512_000);
        assert_eq!((half.copying_per_write(), half.saved(1_000_000)), (0, 0));
    }

    #[test]
    fn what_is_moved_on_a_full_flash_costs_what_it_copies_too() {
        let prices = Prices { copy_inside: 4_000_000, spare: 102, ..Prices::default() };
        // T = 1099.6 and T - U = 149.6 sections: 2.68 blocks are copied per block written.
        let flash = Flash::new(&prices, 50 * 512, 512_000);
        assert!((10_690_000..10_710_000).contains(&flash.copying_per_write()), "{}", flash.copying_per_write());
        let price = |free| {
            let memory = Memory::at_mount(1000, 0);
            let view = Plain::new(1, vec![seg(7, 256, 0, 0, 100)]);
            let asked = Outlook { free, asked: 999, ..REST };
            choose(&view, &memory, &Tuning::default(), ASK, &prices, Power::Powered, &asked).0.unwrap().cost
        };
        let ratio = f64::from(price(50)) / f64::from(price(900));
        assert!((1.4..1.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_a_full_unit_holds_goes_into_holes_unless_they_are_too_small() {
        let holes = |valid, moved_cuts| {
            let outlook = Outlook { moved_cuts, ..SHORT };
            destination(&seg(1, valid, 0, 0, 0), &Prices::default(), &outlook, SegNo(1000), 1).1
        };
        assert!(!holes(100, 512) && holes(480, 512));
        assert!(holes(400, 128) && !holes(400, 3072));
        // The price is that of the cheaper destination, which gains the whole unit.
        let price = |moved_cuts| {
            let asked = Outlook { asked: 999, moved_cuts, ..SHORT };
            chosen(&[seg(1, 480, 0, 0, 0)], Power::Powered, &asked).unwrap().1
        };
        assert!(price(512) * 3 < price(u32::MAX), "{} {}", price(512), price(u32::MAX));
    }

    #[test]
    fn where_holes_are_no_place_the_emptiest_comes_first_and_costs_what_moving_it_behind_the_log_does() {
        let appends = |outlook: Outlook| Outlook { only_appends: true, ..outlook };
        // Holes that cost no request: the fullest units gain most.
        let asked = Outlook { asked: 999, moved_cuts: 0, ..SHORT };
        let full = seg(1, 480, 0, 0, 0);
        let (filling, appending) = (
            chosen(&[full], Power::Powered, &asked).unwrap().1,
            chosen(&[full], Power::Powered, &appends(asked)).unwrap().1,
        );
        let prices = Prices::default();
        let cost = Weights::new(&prices, &appends(asked), 1000, 512, Power::Powered, 0).cost(480, 0, 0);
        assert_eq!(u64::from(appending), cost / 1000 / 32, "480 blocks moved win 32");
        assert!(filling * 5 < appending, "{filling} {appending}");
        assert!(destination(&full, &prices, &asked, SegNo(1000), 1).1);
        assert!(!destination(&full, &prices, &appends(asked), SegNo(1000), 1).1);
        // The older, fuller unit gains all its blocks with holes, and almost none with the log.
        let state = [seg(1, 500, 0, 0, 0), seg(2, 100, 0, 0, 95 * DAY)];
        assert_eq!((victim(&state, &asked), victim(&state, &appends(asked))), (Some(1), Some(2)));
    }

    #[test]
    fn nothing_is_cleaned_ahead_for_cuts_that_a_volume_that_only_appends_never_makes() {
        let state = [seg(1, 8, 4, 2, 0)];
        assert_eq!(victim(&state, &SHORT), Some(1));
        let appends = Outlook { only_appends: true, ..SHORT };
        assert_eq!(victim(&state, &appends), None);
        // Room for the flash is worth the same.
        let room = Outlook { writes: 20_000, takes: 100_000, free: 50, ..appends };
        assert_eq!(victim(&[seg(1, 20, 0, 0, 0)], &room), Some(1));
    }

    #[test]
    fn no_candidate_ranks_above_the_limit_of_bounds_it_lies_within() {
        let mut rng = device::Rng::new(3);
        let mut worth_it = 0;
        for _ in 0..300 {
            let weights = Weights {
                prices: &Prices::default(),
                unit: 512,
                inside: rng.below(20_000_000),
                hole: rng.below(100_000_000),
                worth: rng.below(60_000_000),
                fragment: if rng.below(2) == 0 { 0 } else { rng.below(400_000_000) },
                quarters: rng.below(6),
                now: 10_000,
                fills: rng.chance(2, 3),
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
                let rank = weights.rank_of(c, c.fragments());
                worth_it += u32::from(rank > 0);
                assert!(rank <= weights.limit(&bounds), "{c:?}");
            }
        }
        assert!(worth_it > 100, "{worth_it} were worth it");
    }

    #[test]
    fn absurd_prices_times_and_uses_do_no_harm() {
        let most = u64::MAX;
        let prices = Prices {
            read_block: most,
            write_block_sequential: most,
            write_block_random: most,
            request: most,
            flush: most,
            copy_inside: most,
            spare: most,
            padding: 0,
        };
        let memory = Memory { max_mtime: u64::MAX, ..Memory::at_mount(u64::MAX, 0) };
        let view = Plain::new(1, vec![seg(1, 256, 256, 1, 0), seg(2, 1, 0, 0, u64::MAX)]);
        for power in [Power::Battery, Power::Powered] {
            for n in [0, 50, u32::MAX] {
                let all = Outlook {
                    free: n,
                    kept_back: n,
                    asked: n,
                    takes: n.into(),
                    writes: n.into(),
                    cuts: n,
                    moved_cuts: n,
                    holes: n.into(),
                    only_appends: n == 50,
                };
                let more = Outlook { takes: most, writes: most, ..all };
                for outlook in [all, more, Outlook { free: 0, ..more }] {
                    choose(&view, &memory, &Tuning::default(), ASK, &prices, power, &outlook);
                }
            }
        }
    }
}
