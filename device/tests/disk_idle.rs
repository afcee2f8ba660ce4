//! Idle levels of a disk: a timeline computed by hand, and events during a level.

use std::sync::Arc;

use device::clock::VirtualClock;
use device::energy::profile::{Confidence, DeviceSpec, DiskSpec, IdleSpec, Profile, Quantity, Unit};
use device::energy::{Bill, Energy, Meter, Nanos, Part, Power};
use device::model::disk::{Disk, break_even};
use device::model::{Ask, Model, Pace, Simulated};
use device::queue::Queue;
use device::{Lba, Memory, Rng, Tag};

const SIZE: u64 = 1 << 18;
const TAG: Tag = Tag { cause: 0, owner: 0 };
const SECOND: u64 = 1_000_000_000;

fn number<T: Unit>(value: T) -> Quantity<T> {
    let unit = T::UNITS[0].0.into();
    Quantity { value, unit, confidence: Confidence::Assumed, range: None, source: "this test".into() }
}

fn level(name: &str, after_ms: u64, power_mw: u64, wake_ms: u64, energy_mj: u64) -> IdleSpec {
    IdleSpec {
        name: name.into(),
        after: number(Nanos(after_ms * 1_000_000)),
        power: number(Power(power_mw * 1_000)),
        wake: number(Nanos(wake_ms * 1_000_000)),
        wake_energy: number(Energy(energy_mj * 1_000_000_000)),
    }
}

/// A Microdrive (222 mW idle, 61 mW standby) without read-ahead.
fn plain() -> DiskSpec {
    let DeviceSpec::Disk(mut spec) = Profile::find("microdrive").unwrap().device else { panic!("not a disk") };
    spec.buffer.value = 0;
    spec.standby_after.value = Nanos(10 * SECOND);
    *spec
}

/// The same with two idle levels.
fn levels() -> DiskSpec {
    DiskSpec { idle: vec![level("active", 1_000, 100, 20, 15), level("low", 3_000, 80, 300, 180)], ..plain() }
}

struct Bench {
    disk: Disk,
    now: Nanos,
    bill: Bill,
}

impl Bench {
    fn new(spec: &DiskSpec) -> Self {
        Bench { disk: Disk::new(spec, SIZE), now: Nanos(0), bill: Bill::default() }
    }
    fn ask(&mut self, ask: Ask) -> Nanos {
        let done = self.disk.serve(self.now, ask, TAG, &mut self.bill);
        let took = done.since(self.now);
        self.now = done;
        took
    }
    fn read(&mut self, at: u64, blocks: u64) -> Nanos {
        self.ask(Ask::Read { at: Lba(at), blocks })
    }
    fn write(&mut self, at: u64, blocks: u64) -> Nanos {
        self.ask(Ask::Write { at: Lba(at), blocks })
    }
    fn pause(&mut self, millis: u64) {
        self.now += Nanos(millis * 1_000_000);
        self.disk.wait(self.now, &mut self.bill);
    }
    fn spent(&self, part: Part) -> u64 {
        self.bill.amounts().iter().find(|(p, _)| *p == part).map_or(0, |(_, e)| e.0)
    }
    fn counter(&self, name: &str) -> u64 {
        self.disk.counters().iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n)
    }
}

/// One milliwatt for one millisecond is a microjoule, a million picojoules.
const MICROJOULE: u64 = 1_000_000;

#[test]
fn a_pause_costs_the_power_of_each_level_for_as_long_as_it_lasts() {
    for (pause, idle, sleep) in [
        (500, 222 * 500, 0),
        (1_000, 222 * 1_000, 0),
        (2_000, 222 * 1_000 + 100 * 1_000, 0),
        (3_001, 222 * 1_000 + 100 * 2_000 + 80, 0),
        (9_000, 222 * 1_000 + 100 * 2_000 + 80 * 6_000, 0),
        (12_000, 222 * 1_000 + 100 * 2_000 + 80 * 7_000, 61 * 2_000),
    ] {
        let mut whole = Bench::new(&levels());
        whole.read(0, 1);
        let before = (whole.spent(Part::Idle), whole.spent(Part::Sleep));
        whole.pause(pause);
        let spent = (whole.spent(Part::Idle) - before.0, whole.spent(Part::Sleep) - before.1);
        assert_eq!(spent, (idle * MICROJOULE, sleep * MICROJOULE), "{pause} ms");
        // Reading the account in between changes nothing.
        let mut pieces = Bench::new(&levels());
        pieces.read(0, 1);
        for _ in 0..pause / 7 {
            pieces.pause(7);
        }
        pieces.pause(pause % 7);
        assert_eq!(pieces.bill.total(), whole.bill.total(), "{pause} ms in pieces");
    }
}

#[test]
fn the_way_back_takes_its_time_and_its_energy_and_the_platter_has_turned_meanwhile() {
    for (pause, back_ms, back_mj, waking) in [(900, 0, 0, 0), (2_000, 20, 15, 1), (5_000, 300, 180, 1)] {
        let mut bench = Bench::new(&levels());
        bench.read(0, 1);
        bench.pause(pause);
        let (asked, idle, rotated) = (bench.now, bench.spent(Part::Idle), bench.spent(Part::Rotate));
        let took = bench.read(1, 1);
        // Computed by hand: the return, 0.3 ms of electronics at 222 mW, then block 1, one block time behind the
        // mark, arrives.
        let begin = u128::from(asked.0 + back_ms * 1_000_000 + 300_000) * 1_000_000;
        let (turn, block) = (60_000_000_000_000_000_u128 / 3600, u128::from(plain().media.value.0) * 4096);
        let comes = begin + (block % turn + turn - begin % turn) % turn;
        let nanos = |femto: u128| femto.div_ceil(1_000_000) as u64;
        let link = plain().link.value.of(4096).0;
        assert_eq!(asked.0 + took.0, nanos(comes + block) + link, "{pause} ms");
        let rotation = 594_000 * (nanos(comes) - nanos(begin)) / 1000;
        assert_eq!(bench.spent(Part::Rotate) - rotated, rotation, "{pause} ms");
        let electronics = 222_000 * (300_000 + link) / 1000;
        let idling = bench.spent(Part::Idle) - idle;
        assert!(idling.abs_diff(back_mj * 1_000 * MICROJOULE + electronics) <= 2, "{pause} ms: {idling}");
        assert_eq!(bench.counter("wakes"), waking);
    }
}

#[test]
fn a_disk_that_is_asked_just_before_a_level_or_standby_does_not_enter_it_while_it_works() {
    // Half a millisecond, and half of a request, too early; and a request of ten seconds.
    for (pause_us, blocks) in [(999_900, 1), (999_900, 8_192), (990_000, 64), (9_999_900, 8_192)] {
        for spec in [levels(), DiskSpec { standby_after: number(Nanos(SECOND)), ..plain() }] {
            let mut bench = Bench::new(&spec);
            bench.read(0, 1);
            bench.now += Nanos(pause_us * 1_000);
            let first = [bench.counter("wakes"), bench.counter("standbys")];
            bench.read(100_000, blocks);
            let after = [bench.counter("wakes"), bench.counter("standbys")];
            // The next request comes immediately.
            bench.read(200_000, 1);
            assert_eq!([bench.counter("wakes"), bench.counter("standbys")], after, "{pause_us} us, {blocks} blocks");
            if pause_us < 1_000_000 {
                assert_eq!(first, after);
            }
        }
    }
}

#[test]
fn after_the_way_back_the_levels_begin_anew() {
    let mut bench = Bench::new(&levels());
    bench.read(0, 1);
    bench.pause(5_000);
    bench.read(1, 1);
    let idle = bench.spent(Part::Idle);
    bench.pause(1_500);
    assert_eq!(bench.spent(Part::Idle) - idle, (222 * 1_000 + 100 * 500) * MICROJOULE);
}

#[test]
fn a_write_leaves_the_level_although_the_cache_would_take_it() {
    let mut bench = Bench::new(&levels());
    bench.write(0, 1);
    bench.ask(Ask::Flush);
    let awake = bench.write(50_000, 1);
    bench.ask(Ask::Flush);
    bench.pause(2_000);
    assert_eq!(bench.write(100_000, 1), awake + Nanos(20_000_000));
    assert_eq!(bench.counter("wakes"), 1);
}

#[test]
fn draining_the_cache_is_work_and_the_levels_begin_after_it() {
    let mut bench = Bench::new(&levels());
    // 16 blocks complete when they are in the cache; they reach the platter much later.
    let answered = bench.write(200_000, 16);
    let mut through = levels();
    through.write_cache.value = 0;
    let on_platter = Bench::new(&through).write(200_000, 16);
    assert!(answered.0 + 10_000_000 < on_platter.0);
    bench.pause(1_005);
    bench.write(200_016, 1);
    assert_eq!(bench.counter("wakes"), 0, "a second after the answer, but not after the last block");
    let mut later = Bench::new(&levels());
    later.write(200_000, 16);
    later.pause(1_000 + on_platter.0.div_ceil(1_000_000));
    later.write(200_016, 1);
    assert_eq!(later.counter("wakes"), 1);
}

#[test]
fn reading_ahead_is_work_and_the_levels_begin_after_it() {
    let mut spec = levels();
    spec.buffer.value = 4 << 20;
    let mut bench = Bench::new(&spec);
    bench.read(1_000, 1);
    // 4 MiB at 310.96 ms/MiB.
    bench.pause(2_200);
    bench.read(200_000, 1);
    assert_eq!(bench.counter("wakes"), 0, "a second after reading ahead has ended at the earliest");
    bench.pause(2_300);
    bench.read(1, 1);
    assert_eq!(bench.counter("wakes"), 1);
}

#[test]
fn what_the_electronics_do_alone_leaves_the_level_and_its_clock_as_they_are() {
    let mut spec = levels();
    spec.buffer.value = 64 << 10;
    let [mut asked, mut left] = [Bench::new(&spec), Bench::new(&spec)];
    for bench in [&mut asked, &mut left] {
        bench.read(1_000, 1);
        bench.pause(2_000);
    }
    assert!(asked.read(1_001, 2) < Nanos(3_000_000));
    asked.ask(Ask::Flush);
    assert_eq!(asked.counter("wakes"), 0);
    for bench in [&mut asked, &mut left] {
        bench.now = Nanos(6 * SECOND);
        bench.disk.wait(bench.now, &mut bench.bill);
    }
    assert_eq!(asked.bill.total(), left.bill.total(), "power of the level and then of the next one, as if not asked");
    asked.read(200_000, 1);
    assert_eq!(asked.counter("wakes"), 1);
}

#[test]
fn a_standing_disk_spins_up_from_every_level_as_without_levels() {
    let [mut with, mut without] = [Bench::new(&levels()), Bench::new(&plain())];
    for bench in [&mut with, &mut without] {
        bench.read(0, 1);
        bench.pause(20_000);
    }
    assert_eq!(with.read(1, 1), without.read(1, 1));
    assert_eq!(with.spent(Part::SpinUp), without.spent(Part::SpinUp));
    assert_eq!((with.counter("spin_ups"), with.counter("standbys"), with.counter("wakes")), (1, 1, 0));
}

#[test]
fn a_level_that_the_motor_stops_before_is_never_entered() {
    let mut late = levels();
    late.standby_after.value = Nanos(2 * SECOND);
    let mut bench = Bench::new(&late);
    bench.read(0, 1);
    let idle = bench.spent(Part::Idle);
    bench.pause(5_000);
    assert_eq!(bench.spent(Part::Idle) - idle, (222 * 1_000 + 100 * 1_000) * MICROJOULE);
    assert_eq!(bench.spent(Part::Sleep), 61 * 3_000 * MICROJOULE);
}

/// Random requests and pauses of all lengths, from a seed.
fn anything(bench: &mut Bench, seed: u64, requests: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..requests {
        let (at, blocks) = (rng.below(SIZE - 64), 1 + rng.below(64));
        match rng.below(9) {
            0..=2 => {
                bench.read(at, blocks);
            }
            3..=5 => {
                bench.write(at, blocks);
            }
            6 => {
                bench.ask(Ask::Flush);
            }
            7 if rng.below(20) == 0 => {
                bench.disk.cut(bench.now);
            }
            _ => {
                bench.now += Nanos(1 << rng.below(35));
                bench.disk.wait(bench.now, &mut bench.bill);
            }
        };
    }
}

#[test]
fn levels_with_the_power_of_idling_and_no_way_back_are_no_levels() {
    // Empty flushes and buffer reads restart the wait for standby, except in a level: disable standby.
    let never = || {
        let mut spec = plain();
        spec.standby_after.value = Nanos(0);
        spec
    };
    let mut same = DiskSpec { idle: levels().idle, ..never() };
    for (level, after) in same.idle.iter_mut().zip([7_000_000, 300_000_000]) {
        level.after.value = Nanos(after);
        level.power.value = same.idle_power.value;
        (level.wake.value, level.wake_energy.value) = (Nanos(0), Energy::ZERO);
    }
    for seed in 0..5 {
        for buffer in [0, 128 << 10] {
            let [mut with, mut without] = [same.clone(), never()].map(|mut spec| {
                spec.buffer.value = buffer;
                Bench::new(&spec)
            });
            anything(&mut with, seed, 2_000);
            anything(&mut without, seed, 2_000);
            assert!(with.counter("wakes") > 20);
            // Each change of level rounds once more.
            let (a, b) = (with.bill.total().joules(), without.bill.total().joules());
            assert_eq!(with.now, without.now, "seed {seed}");
            assert!((a - b).abs() < 1e-7, "seed {seed}: {a} {b}");
        }
    }
}

#[test]
fn every_moment_has_one_mode_in_levels_too() {
    let mut spec = levels();
    for q in [
        &mut spec.seek_power,
        &mut spec.rotate_power,
        &mut spec.read_power,
        &mut spec.write_power,
        &mut spec.idle_power,
        &mut spec.standby_power,
    ] {
        q.value.0 = 1_000_000;
    }
    spec.spin_up_energy.value = Energy(spec.spin_up.value.0 * 1000);
    for level in &mut spec.idle {
        level.power.value.0 = 1_000_000;
        level.wake_energy.value = Energy(level.wake.value.0 * 1000);
    }
    spec.buffer.value = 256 << 10;
    let mut rng = Rng::new(8);
    let mut bench = Bench::new(&spec);
    for _ in 0..5_000 {
        let (at, blocks) = (rng.below(SIZE - 64), 1 + rng.below(64));
        match rng.below(8) {
            0..=2 => bench.read(at, blocks),
            3..=5 => bench.write(at, blocks),
            6 => bench.ask(Ask::Flush),
            _ => {
                bench.now += Nanos(1 << rng.below(35));
                bench.disk.wait(bench.now, &mut bench.bill);
                Nanos(0)
            }
        };
    }
    bench.ask(Ask::Flush);
    let (joules, seconds) = (bench.bill.total().joules(), bench.now.0 as f64 / 1e9);
    assert!((joules / seconds - 1.0).abs() < 1e-6, "{joules} J in {seconds} s at a watt");
    assert!(bench.counter("wakes") > 50 && bench.counter("standbys") > 10);
}

#[test]
fn requests_that_come_during_the_way_back_wait_for_the_same_one() {
    let clock = Arc::new(VirtualClock::default());
    let meter = Arc::new(Meter::new(Profile::find("microdrive").unwrap().host.prices()));
    let disk = Simulated::new(Memory::new(SIZE), Box::new(Disk::new(&levels(), SIZE)), meter, Pace::Virtual(clock));
    disk.submit(Nanos(0), Ask::Read { at: Lba(0), blocks: 1 }, TAG).unwrap();
    disk.drain();
    let asked = Nanos(5 * SECOND);
    let first = disk.submit(asked, Ask::Read { at: Lba(1), blocks: 1 }, TAG).unwrap();
    let second = disk.submit(asked + Nanos(1_000_000), Ask::Read { at: Lba(2), blocks: 1 }, TAG).unwrap();
    assert!(first > asked + Nanos(300_000_000) && second > first);
    assert!(second < first + Nanos(40_000_000), "two turns at most");
    let wakes = disk.counters().into_iter().find(|(n, _)| *n == "wakes").unwrap().1;
    assert_eq!(wakes, 1);
}

#[test]
fn at_the_break_even_time_standing_costs_what_idling_in_levels_costs() {
    let mut three = levels();
    three.idle.push(level("deep", 4_000, 61, 900, 200));
    for (spec, expected) in [
        // Spinning up costs 378 mJ: for a second 161 mW more than standby, for 2 s 39 mW more, and the return of
        // the level. The return of the second level, 180 mJ, immediately covers the rest.
        (levels(), Some(3_000)),
        (DiskSpec { idle: vec![level("active", 1_000, 100, 20, 15)], ..plain() }, Some(1_000 + 202 * 1_000 / 39)),
        (plain(), Some(378 * 1_000 / 161)),
        // The deepest level draws no more than standby, and its return is cheaper, so standby never saves energy.
        (DiskSpec { idle: vec![level("deep", 1_000, 61, 20, 15)], ..plain() }, None),
    ] {
        let got = break_even(&spec).map(|t| t.0 / 1_000_000);
        assert_eq!(got, expected, "{:?}", spec.idle.iter().map(|l| &l.name).collect::<Vec<_>>());
        let Some(pause) = got else { continue };
        let cost = |standby: u64, millis: u64| {
            let mut spec = spec.clone();
            spec.standby_after.value = Nanos(standby);
            let mut bench = Bench::new(&spec);
            bench.read(0, 1);
            let waiting = |b: &Bench| b.spent(Part::Idle) + b.spent(Part::Sleep) + b.spent(Part::SpinUp);
            let begun = waiting(&bench);
            bench.pause(millis);
            bench.read(1, 1);
            waiting(&bench) - begun
        };
        let (stand, never) = (1, 0);
        assert!(cost(stand, pause - 50) > cost(never, pause - 50));
        assert!(cost(stand, pause + 50) < cost(never, pause + 50));
    }
}

#[test]
fn a_level_is_a_number_of_the_profile_like_any_other_and_moves_with_an_anchor() {
    let mut profile = Profile::find("microdrive").unwrap();
    let DeviceSpec::Disk(spec) = &mut profile.device else { panic!("not a disk") };
    (spec.idle, spec.media_inner) = (levels().idle, Some(number(device::energy::profile::TimePerByte(593_109_131))));
    let changed = profile.with("device.idle.low.power", 70.0, Some("mW"), "tried").unwrap();
    let DeviceSpec::Disk(disk) = &changed.device else { panic!("not a disk") };
    assert_eq!(disk.idle[1].power.value, Power(70_000));
    let e = profile.with("device.idle.low.after", 0.5, Some("s"), "tried").unwrap_err().to_string();
    assert!(e.contains("device.idle is not in order"), "{e}");
    let e = profile.with("device.media_inner", 100.0, Some("ms/MB"), "tried").unwrap_err().to_string();
    assert!(e.contains("faster"), "{e}");

    profile.anchor = Some(device::energy::profile::Anchor { what: "a turn".into(), time: number(Nanos(1_000)) });
    let slow = profile.clone().anchored(Nanos(2_000));
    let (DeviceSpec::Disk(before), DeviceSpec::Disk(after)) = (&profile.device, &slow.device) else { panic!("disks") };
    for (a, b) in before.idle.iter().zip(&after.idle) {
        assert_eq!((b.after.value, b.wake.value), (a.after.value.times(2), a.wake.value.times(2)));
        assert_eq!((b.power.value.0 * 2, b.wake_energy.value), (a.power.value.0, a.wake_energy.value));
    }
    let inner = |spec: &DiskSpec| spec.media_inner.as_ref().unwrap().value.0;
    assert_eq!(inner(after), 2 * inner(before));
}

#[test]
fn the_same_transfer_takes_longer_on_inner_tracks_and_all_adds_up_to_the_mean() {
    let mut spec = plain();
    spec.buffer.value = 1 << 20;
    let mut inner = spec.media.clone();
    inner.value.0 *= 2;
    spec.media_inner = Some(inner);
    let rate = |from: u64, blocks: u64| {
        let mut bench = Bench::new(&spec);
        bench.read(from, 64);
        let begun = bench.now;
        for at in (from + 64..from + blocks).step_by(64) {
            bench.read(at, 64);
        }
        (bench.now.since(begun).0 as f64) / (blocks - 64) as f64
    };
    let outer = spec.media.value.0 as f64 * 4096.0 / 1e6;
    let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 0.01, "{got} {expected}");
    near(rate(0, 8_192), outer * 1.007);
    near(rate(SIZE - 8_192, 8_192), outer * 2.0 / 1.02);
    near(rate(0, SIZE), spec.media_mean().0 as f64 * 4096.0 / 1e6);
    near(spec.media_mean().0 as f64, spec.media.value.0 as f64 * 4.0 / 3.0);
    // Without positioning, half of the time takes more than half of the blocks.
    let mut bench = Bench::new(&spec);
    bench.write(SIZE - 8, 8);
    assert_eq!(bench.disk.cut(Nanos(0)).len(), 8);
}
