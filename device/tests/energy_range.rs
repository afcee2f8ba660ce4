//! The range of a ledger's total is that of runs with other numbers, although nothing is run again.

use std::collections::HashMap;
use std::sync::Arc;

use device::clock::VirtualClock;
use device::energy::profile::{Profile, SHIPPED};
use device::energy::{Draws, Energy, Ledger, Meter, Nanos, Processor};
use device::model::{self, Ask, Pace, Simulated};
use device::queue::Queue;
use device::{Blank, Lba, Rng, Tag};

const BLOCKS: u64 = 1 << 18;

/// Reads, writes and flushes in runs, with pauses, and some computation: what a phone does. Either each comes when the one
/// before has ended, or all at times that do not depend on the device.
fn run(profile: &Profile, is_open: bool) -> Ledger {
    let mut model = model::build(profile, BLOCKS).unwrap();
    model.fill(Nanos(0), &[(Lba(0), BLOCKS / 2)]);
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let device = Simulated::new(Blank::new(BLOCKS), model, meter, Pace::Virtual(Arc::new(VirtualClock::default())));
    let mut rng = Rng::new(7);
    for n in 0..400 {
        let mut now = device.drain();
        if is_open {
            now = now.max(Nanos(n / 8 * 900_000_000 + n % 8 * 60_000_000));
        } else if n % 8 == 0 {
            now = Nanos(now.0 + 400_000_000);
        }
        let blocks = [1, 1, 1, 8, 64][rng.index(5)];
        let at = Lba(rng.below(BLOCKS - blocks));
        let ask = match rng.below(10) {
            0..4 => Ask::Read { at, blocks },
            4..9 => Ask::Write { at, blocks },
            _ => Ask::Flush,
        };
        device.submit(now, ask, Tag::default()).unwrap();
        if n % 3 == 0 {
            device.drain();
            device.compute(Nanos(50_000), Tag::default());
        }
    }
    device.drain();
    device.ledger()
}

/// The profile with other numbers, drawn from the limits of each. Numbers of things are left as they are.
fn drawn(profile: &Profile, rng: &mut Rng) -> Profile {
    let mut out = profile.clone();
    let mut known: HashMap<String, f64> = HashMap::new();
    for number in profile.numbers() {
        // What says the same is the same number.
        let what = format!("{} {} {}", number.value, number.unit, number.source);
        let z = *known
            .entry(what)
            .or_insert_with(|| (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0);
        let (low, high) = number.limits();
        let part = z.abs() / 1.645;
        let value = match z < 0.0 {
            _ if number.value == 0.0 => high * z.max(0.0) / 1.645,
            true if low == 0.0 => number.value * (1.0 - part).max(0.0),
            true => number.value * (low / number.value).powf(part),
            false if high > 2.0 * number.value => number.value + (high - number.value) * part,
            false => number.value * (high / number.value).powf(part),
        };
        let is_priced = ["J", "W", "s", "B"].iter().any(|unit| number.unit.contains(unit)) && number.unit != "B";
        let is_size = ["KiB", "MiB", "GiB"].contains(&number.unit.as_str());
        if high > 0.0 && is_priced && !is_size && !number.name.starts_with("anchor") {
            // Seeks may come out of order; such a disk is not drawn.
            out = out.with(&number.name, value, None, "drawn").unwrap_or(out);
        }
    }
    out
}

/// Limits of nine in ten totals of runs with other numbers, beside those that are told without them.
fn agrees(is_open: bool) {
    for (name, _) in SHIPPED {
        let profile = Profile::find(name).unwrap();
        let ledger = run(&profile, is_open);
        let told = Draws::of(&profile, &ledger).range();
        let mut rng = Rng::new(11);
        let mut totals: Vec<f64> = (0..60).map(|_| run(&drawn(&profile, &mut rng), is_open).total().joules()).collect();
        totals.sort_by(f64::total_cmp);
        let (low, high) = (totals[3], totals[56]);
        let total = ledger.total().joules();
        let width = (high - low).max(0.02 * total);
        for (limit, run) in [(told.low.joules(), low), (told.high.joules(), high)] {
            assert!((limit - run).abs() < width / 3.0, "{name}: {limit:.4}, run {run:.4} of {low:.4} to {high:.4}");
        }
    }
}

#[test]
fn the_range_of_a_total_is_that_of_runs_with_other_numbers() {
    agrees(false);
}

#[test]
fn what_a_request_takes_longer_is_waited_less_if_requests_come_at_their_own_times() {
    agrees(true);
}

#[test]
fn a_ledger_whose_numbers_are_known_has_no_range_and_runs_on_one_device_have_the_same_prices() {
    let profile = Profile::find("kirin9000-ufs31").unwrap();
    let ledger = run(&profile, true);
    let draws = Draws::of(&profile, &ledger);
    let change = draws.change(&draws).unwrap();
    assert_eq!((change.low, change.high), (0.0, 0.0));
    let known =
        profile.numbers().into_iter().fold(profile.clone(), |p, n| p.with(&n.name, n.value, None, "so").unwrap());
    let range = Draws::of(&known, &ledger).range();
    let near = |a: Energy| (a.joules() / ledger.total().joules() - 1.0).abs() < 1e-9;
    assert!(near(range.low) && near(range.high), "{range}");
    assert_eq!(Draws::of(&profile, &Ledger::default()).range().high, Energy::ZERO);
}
