//! The range of a ledger's total is that of runs with other numbers, although nothing is run again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use device::clock::VirtualClock;
use device::energy::profile::{Profile, SHIPPED};
use device::energy::{Draws, Energy, Ledger, Meter, Nanos, Processor, Work};
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
            device.compute(Work::DeltaEncode, Nanos(50_000), Tag::default());
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
        is_that_of_runs(&Profile::find(name).unwrap(), &|profile| run(profile, is_open));
    }
}

/// The same for one profile and what is done on it.
fn is_that_of_runs(profile: &Profile, run: &dyn Fn(&Profile) -> Ledger) {
    let ledger = run(profile);
    let told = Draws::of(profile, &ledger).range();
    let mut rng = Rng::new(11);
    let mut totals: Vec<f64> = (0..60).map(|_| run(&drawn(profile, &mut rng)).total().joules()).collect();
    totals.sort_by(f64::total_cmp);
    let (low, high) = (totals[3], totals[56]);
    let total = ledger.total().joules();
    let width = (high - low).max(0.02 * total);
    for (limit, run) in [(told.low.joules(), low), (told.high.joules(), high)] {
        let name = &profile.name;
        assert!((limit - run).abs() < width / 3.0, "{name}: {limit:.4}, run {run:.4} of {low:.4} to {high:.4}");
    }
}

/// A profile whose numbers are all known, but these: names, values and limits.
fn known_but(name: &str, unknown: &[(&str, f64, f64, f64)]) -> Profile {
    let mut profile = Profile::find(name).unwrap();
    for number in profile.numbers() {
        profile = profile.with(&number.name, number.value, None, "known").unwrap();
    }
    for (name, value, low, high) in unknown {
        profile = profile.with(name, *value, None, name).unwrap();
        let mut text: toml::Value = toml::Value::try_from(&profile).unwrap();
        let mut at = &mut text;
        for part in name.split('.') {
            at = match at {
                toml::Value::Array(list) => {
                    list.iter_mut().find(|v| v.get("name").and_then(|n| n.as_str()) == Some(part)).unwrap()
                }
                table => table.get_mut(part).unwrap(),
            };
        }
        at.as_table_mut().unwrap().insert("range".into(), vec![*low, *high].into());
        profile = text.try_into().unwrap();
    }
    profile
}

/// Reads with pauses of these milliseconds between them, in turn, and the ledger read every `poll` milliseconds.
fn paused(profile: &Profile, pauses: &[u64], poll: Option<u64>) -> Ledger {
    let mut model = model::build(profile, BLOCKS).unwrap();
    model.fill(Nanos(0), &[(Lba(0), BLOCKS / 2)]);
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let clock = Arc::new(VirtualClock::default());
    let device = Simulated::new(Blank::new(BLOCKS), model, meter, Pace::Virtual(clock.clone()));
    for n in 0..40 {
        device.submit(device.drain(), Ask::Read { at: Lba(n * 977), blocks: 1 }, Tag::default()).unwrap();
        device.drain();
        let pause = pauses[n as usize % pauses.len()];
        let piece = poll.unwrap_or(pause);
        for _ in 0..pause / piece {
            clock.advance(Duration::from_millis(piece));
            device.time();
            if poll.is_some() {
                device.ledger();
            }
        }
    }
    device.ledger()
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

#[test]
fn pauses_just_too_short_for_a_sleep_sleep_in_the_draws_in_which_it_begins_earlier() {
    let unknown = [("device.idle.hibernate.after", 100.0, 50.0, 200.0), ("device.ready", 300.0, 290.0, 310.0)];
    let profile = known_but("kirin9000-ufs31", &unknown);
    for pauses in [&[95][..], &[105], &[60, 140, 95]] {
        is_that_of_runs(&profile, &|profile| paused(profile, pauses, None));
    }
}

#[test]
fn each_idle_level_of_a_disk_has_its_own_range() {
    let profile = known_but("constellation-es3-4tb", &[("device.idle.idle_b.power", 3.0, 1.0, 6.0)]);
    let in_the_first = Draws::of(&profile, &paused(&profile, &[150_000], None)).range();
    assert!(in_the_first.high.joules() / in_the_first.low.joules() < 1.0001, "{in_the_first}");
    is_that_of_runs(&profile, &|profile| paused(profile, &[400_000], None));
    let wakes = known_but("constellation-es3-4tb", &[("device.idle.idle_c.wake_energy", 500.0, 100.0, 3000.0)]);
    is_that_of_runs(&wakes, &|profile| paused(profile, &[700_000], None));
}

#[test]
fn a_ledger_that_is_read_often_has_the_same_range() {
    let unknown = [
        ("device.ready", 300.0, 200.0, 450.0),
        ("device.idle.hibernate.power", 50.0, 20.0, 100.0),
        ("device.idle.hibernate.wake_energy", 5_000.0, 1_000.0, 20_000.0),
        ("device.idle.hibernate.after", 100.0, 50.0, 200.0),
    ];
    let profile = known_but("kirin9000-ufs31", &unknown);
    let of = |poll| Draws::of(&profile, &paused(&profile, &[300, 120], poll)).range();
    let (once, often) = (of(None), of(Some(10)));
    let near = |a: Energy, b: Energy| (a.joules() / b.joules() - 1.0).abs() < 1e-6;
    assert!(near(once.low, often.low) && near(once.high, often.high), "{once}, in pieces {often}");
}

#[test]
fn computation_has_the_range_of_the_time_that_it_takes() {
    let profile = known_but("kirin9000-ufs31", &[("host.compress", 7.4, 3.7, 14.8)]);
    let of = |work| {
        let (model, meter) = (model::build(&profile, BLOCKS).unwrap(), Arc::new(Meter::new(profile.host.prices())));
        let device = Simulated::new(Blank::new(BLOCKS), model, meter, Pace::Virtual(Arc::new(VirtualClock::default())));
        device.compute(work, Nanos(1_000_000), Tag::default());
        let range = Draws::of(&profile, &device.ledger()).range();
        range.high.joules() / range.low.joules()
    };
    assert!((of(Work::Compress) - 4.0).abs() < 0.3, "{}", of(Work::Compress));
    for work in [Work::DeltaEncode, Work::ZstdCompress, Work::Program] {
        assert!(of(work) < 1.0 + 1e-9, "{work:?}: {}", of(work));
    }
}
