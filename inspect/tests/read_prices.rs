//! Does the closed formula give what the simulated device books for the same requests?

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::{Bill, Energy, Meter, Nanos, Operation, Power};
use device::model::{self, Ask};
use device::{Lba, Rng, Tag};
use inspect::price::{Cost, Prices, Work};

/// Blocks of the device: 512 MiB.
const BLOCKS: u64 = 1 << 17;
const WINDOW: u64 = 128;

/// Reads extents on a device that was filled long ago and has just been switched on.
fn simulated(profile: &Profile, extents: &[(u64, u64)]) -> (Cost, Work) {
    let mut model = model::build(profile, BLOCKS).unwrap();
    model.fill(Nanos(0), &[(Lba(0), BLOCKS)]);
    let meter = Meter::new(profile.host.prices());
    let mut work = Work::default();
    let on = model.power_cycle(Nanos(1 << 40), &mut Bill::default());
    // A disk spins up; the map of a flash device stays cold.
    let mut now = model.serve(on, Ask::Read { at: Lba(0), blocks: 0 }, Tag::default(), &mut Bill::default());
    if matches!(profile.device, DeviceSpec::Disk(_)) {
        now = model.serve(now, Ask::Read { at: Lba(0), blocks: 1 }, Tag::default(), &mut Bill::default());
    }
    let began = now;
    let (mut pages, mut page) = (std::collections::BTreeSet::new(), u64::MAX);
    for (at, blocks) in extents {
        work.places += 1;
        work.blocks += blocks;
        for p in *at / 1024..=(at + blocks - 1) / 1024 {
            pages.insert(p);
            work.map_turns += u64::from(std::mem::replace(&mut page, p) != p);
        }
        for from in (*at..at + blocks).step_by(WINDOW as usize) {
            let (at, blocks) = (Lba(from), WINDOW.min(at + blocks - from));
            work.requests += 1;
            let mut bill = Bill::default();
            let done = model.serve(now, Ask::Read { at, blocks }, Tag::default(), &mut bill);
            meter.request(Operation::Read, Tag::default(), blocks, done.since(now), &mut bill);
            now = done;
        }
    }
    work.map_pages = pages.len() as u64;
    (Cost { energy: meter.ledger().total(), time: now.since(began) }, work)
}

fn off(ours: u64, theirs: u64) -> f64 {
    (ours as f64 - theirs as f64).abs() / theirs as f64
}

/// Extents of `blocks` blocks, at random positions.
fn scattered(seed: u64, count: u64, blocks: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed);
    let room = BLOCKS / count;
    let mut all: Vec<(u64, u64)> = (0..count).map(|i| (i * room + rng.below(room - blocks), blocks)).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, rng.index(i + 1));
    }
    all
}

#[test]
fn reads_on_flash_cost_the_same_as_in_the_simulation() {
    for name in [
        "kirin9000-ufs31",
        "oneplus8t-ufs31",
        "galaxy-nexus-emmc",
        "samsung-850evo",
        "intel-s4500",
        "samsung-970evoplus",
        "micron-2550",
    ] {
        let profile = Profile::find(name).unwrap();
        assert!(matches!(profile.device, DeviceSpec::Flash(_)));
        let prices = Prices::from_profile(&profile);
        for extents in [
            vec![(5000, 1)],
            vec![(4096, 8192)],
            scattered(1, 300, 1),
            scattered(2, 200, 6),
            scattered(3, 100, 32),
            scattered(4, 20, 1000),
        ] {
            let (theirs, work) = simulated(&profile, &extents);
            let ours = prices.read(&work);
            let (energy, time) = (off(ours.energy.0, theirs.energy.0), off(ours.time.0, theirs.time.0));
            let shape = (extents.len(), extents[0].1);
            println!("{name} {shape:?}: energy {:.1} %, time {:.1} %", energy * 100.0, time * 100.0);
            let DeviceSpec::Flash(flash) = &profile.device else { continue };
            // The busy power depends on time, so its error is that of the time.
            let within = if flash.busy.is_some() { 0.15 } else { 0.05 };
            assert!(energy < within && time < 0.15, "{name} {shape:?}: {ours:?}, simulated {theirs:?}");
            if work.map_pages > flash.map.cached_pages.value {
                continue; // The number of repeated map fetches is an estimate.
            }
            // Without board and busy power over time, equal up to the rounding of a picojoule.
            let board = profile.host.prices().board;
            let busy = flash.busy.as_ref().map_or(Power(0), |q| q.value);
            let rest = |c: &Cost| c.energy.0 as i64 - board.over(c.time).0 as i64 - busy.over(c.time).0 as i64;
            let rounding = 8 * work.requests as i64 + 8;
            let idle = |e: i64| (e - rest(&theirs)).abs();
            assert!(idle(rest(&ours)) <= rounding, "{name} {shape:?}: {} {}", rest(&ours), rest(&theirs));
        }
    }
}

#[test]
fn reads_on_a_disk_cost_about_the_same_as_in_the_simulation() {
    for name in ["microdrive", "laptop-disk-4200", "hitachi-5k320", "constellation-es3-4tb"] {
        let profile = Profile::find(name).unwrap();
        let prices = Prices::from_profile(&profile);
        let (theirs, work) = simulated(&profile, &scattered(1, 300, 4));
        let ours = prices.read(&work);
        let (energy, time) = (off(ours.energy.0, theirs.energy.0), off(ours.time.0, theirs.time.0));
        println!("{name}: energy {:.1} %, time {:.1} %", energy * 100.0, time * 100.0);
        assert!(energy < 0.05 && time < 0.05, "{name}: {ours:?}, simulated {theirs:?}");
    }
}

#[test]
fn fewer_extents_never_cost_more() {
    let profile = Profile::find("kirin9000-ufs31").unwrap();
    let prices = Prices::from_profile(&profile);
    let work = |extents| Work { blocks: 4096, requests: 32.max(extents), places: extents, map_pages: 4, map_turns: 4 };
    let costs: Vec<Energy> = [1, 32, 100, 4096].map(|n| prices.read(&work(n)).energy).into();
    assert!(costs.is_sorted() && costs[3] > costs[0].times(2), "{costs:?}");
}
