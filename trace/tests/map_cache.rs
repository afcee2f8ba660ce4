//! One pass for caches of all sizes gives the translation reads and write-backs of the simulator's cache, run once per
//! size, and of a whole simulated flash device if its write buffer has no effect.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::{Bill, Nanos};
use device::model::flash::Flash;
use device::model::flash::map::{ENTRIES, MapCache};
use device::model::{Ask, Model};
use device::{Lba, Rng, Tag};
use trace::Opened;
use trace::block::{DeviceId, Flags, Op};
use trace::requests::{Request, Requests, Seen};
use trace::stat::map_cache::{Costs, Curve, Geometry, Maps, Migration};

fn request(op: Op, block: u64, blocks: u64) -> Request {
    Request {
        time: 0,
        op,
        flags: Flags::empty(),
        sector: block * 8,
        sectors: blocks * 8,
        device: DeviceId::default(),
        pid: 0,
        process: trace::Process::default(),
    }
}

/// The simulator's cache of `room` pages, over a map of `pages`: each block of each request separately.
fn simulated(requests: &[Request], each: u64, pages: u64, mapped: bool, room: u64) -> Costs {
    let mut cache = MapCache::new(pages * ENTRIES, room);
    cache.restart(|_| mapped);
    // Pages that map something: initially all, or none.
    let mut maps: BTreeSet<u64> = if mapped { (0..pages).collect() } else { BTreeSet::new() };
    let mut costs = Costs::default();
    for r in requests {
        let (first, end) = (r.sector / 8, (r.sector + r.sectors).div_ceil(8));
        let mut touch = |page: u64, change| {
            let access = cache.touch(page as u32, change);
            costs.reads += u64::from(access.fetched);
            costs.writes += u64::from(access.written.is_some());
        };
        match r.op {
            Op::Read => (first..end).for_each(|b| touch(b / each, false)),
            Op::Write | Op::WriteZeroes => {
                (first..end).for_each(|b| touch(b / each, true));
                maps.extend((first..end).map(|b| b / each));
            }
            Op::Discard | Op::SecureErase => {
                // Partly discarded pages go first: the order among drops does not matter.
                let of = |page: u64| (page * each >= first) && ((page + 1) * each <= end);
                let all: BTreeSet<u64> = (first..end).map(|b| b / each).collect();
                all.iter().filter(|p| !of(**p) && maps.contains(p)).for_each(|p| touch(*p, true));
                for page in all.into_iter().filter(|p| of(*p)) {
                    cache.drop(page as u32);
                    maps.remove(&page);
                }
            }
            Op::Flush | Op::Other => {}
        }
    }
    costs.changed = cache.changed().len() as u64;
    costs
}

/// A geometry whose pages cover this many blocks.
fn covering(blocks: u64) -> Geometry {
    Geometry { page_bytes: blocks * 4, ..Geometry::default() }
}

fn curve(requests: &[Request], geometry: Geometry, mapped: bool, migration: Option<Migration>) -> Curve {
    let mut maps = Maps::new(geometry, mapped, None, migration.clone());
    requests.iter().for_each(|r| maps.add(r));
    let mut stat = maps.done();
    let device = stat.devices.remove(0);
    if migration.is_some() { device.after.unwrap() } else { device.before }
}

/// Random reads, writes and discards of all lengths on a device of this size, with popular places.
fn random(rng: &mut Rng, count: usize, blocks: u64) -> Vec<Request> {
    let discards = rng.below(8);
    (0..count)
        .map(|_| {
            let spread = if rng.below(3) == 0 { blocks } else { blocks / 6 };
            let longest = 1 + rng.below(24);
            let (at, n) = (rng.below(spread.max(1)), 1 + rng.below(longest));
            let n = n.min(blocks - at);
            match rng.below(20) {
                0..9 => request(Op::Read, at, n),
                9..16 => request(Op::Write, at, n),
                16 => request(Op::WriteZeroes, at, n),
                _ if discards == 0 => request(Op::Flush, 0, 0),
                // Long enough to contain whole pages.
                _ => request(Op::Discard, at, (n * discards).min(blocks - at)),
            }
        })
        .collect()
}

#[test]
fn every_size_is_as_the_simulators_cache_of_that_size() {
    let mut rng = Rng::new(1);
    let (mut written, mut dropped) = (0, 0);
    for round in 0..120 {
        let (each, pages) = (1 + rng.below(9), 1 + rng.below(60));
        let mapped = round % 2 == 0;
        let length = 1 + rng.index(900);
        let requests = random(&mut rng, length, each * pages);
        if requests.iter().all(|r| r.sectors == 0) {
            continue;
        }
        let curve = curve(&requests, covering(each), mapped, None);
        assert!(curve.most_pages <= pages);
        for room in 1..=pages + 2 {
            let costs = simulated(&requests, each, pages, mapped, room);
            assert_eq!(
                curve.costs_at(room),
                costs,
                "round {round}: a cache of {room} of {pages} pages of {each} blocks"
            );
            written += costs.writes;
        }
        dropped += requests.iter().filter(|r| r.op == Op::Discard && r.sectors / 8 >= 2 * each).count();
        assert!(curve.steps.is_sorted_by(|a, b| a.pages < b.pages && a.costs != b.costs));
    }
    assert!(written > 10_000 && dropped > 1000, "{written} written back, {dropped} discarded: too few to judge by");
}

#[test]
fn places_of_use_are_given_anew_without_a_change() {
    // More uses than places between two renumberings, many times over, with few pages and with many.
    for (pages, mut rng) in [(40, Rng::new(2)), (3000, Rng::new(3))] {
        let requests = random(&mut rng, 12_000, pages * 4);
        let curve = curve(&requests, covering(4), true, None);
        for room in [1, 2, 7, 39, 300, 2999, 3000] {
            assert_eq!(curve.costs_at(room), simulated(&requests, 4, pages, true, room), "{room} of {pages}");
        }
    }
}

#[test]
fn moved_blocks_are_requested_at_their_new_places() {
    let mut rng = Rng::new(4);
    for _ in 0..30 {
        let mut migration = Migration::default();
        // A place for each block, as a permutation of runs of four.
        let mut runs: Vec<u64> = (0..100).collect();
        rng.shuffle(&mut runs);
        let place: Vec<u64> = (0..400).map(|b| 1000 + runs[b / 4] * 4 + b as u64 % 4).collect();
        (0..100).for_each(|run| migration.add(run * 4, place[run as usize * 4], 4));
        let requests = random(&mut rng, 500, 400);
        let moved: Vec<Request> = requests
            .iter()
            .filter(|r| r.op != Op::Discard)
            .flat_map(|r| (r.sector / 8..(r.sector + r.sectors) / 8).map(|b| request(r.op, place[b as usize], 1)))
            .collect();
        let asked: Vec<Request> = requests.iter().filter(|r| r.op != Op::Discard).copied().collect();
        let after = curve(&asked, covering(16), true, Some(migration));
        for room in [1, 3, 10, 24, 90] {
            assert_eq!(after.costs_at(room), simulated(&moved, 16, 90, true, room));
        }
    }
}

fn recordings() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all: Vec<PathBuf> = ["install", "browser", "chat"]
        .map(|name| root.join(format!("experiments/nexus-apps/{name}.ext4.rec.zst")))
        .into_iter()
        .chain([root.join("trace/fixtures/blktrace/vda.blktrace.0.zst")])
        .collect();
    // Foreign recordings, if available.
    if let Some(dir) = std::env::var_os("JOULEFS_TRACES") {
        all.push(Path::new(&dir).join("telegram_exec.csv.gz"));
    }
    all
}

#[test]
fn recordings_of_programs_are_as_the_simulators_cache_has_them() {
    for path in recordings() {
        let Opened::Blocks(events) = trace::open(&path).unwrap() else { panic!("{}", path.display()) };
        let mut all = Requests::new(events);
        let mut requests = Vec::new();
        while let Some(seen) = all.seen().unwrap() {
            if let Seen::Asked(request) = seen {
                requests.push(request);
            }
        }
        let of = requests.iter().find(|r| r.sectors > 0).unwrap().device;
        requests.retain(|r| r.device == of && r.sectors > 0);
        let end = requests.iter().map(|r| (r.sector + r.sectors).div_ceil(8)).max().unwrap();
        // Pages of the usual size, and pages that cover 64 KiB, so that there are more than a few.
        for each in [1024, 16] {
            let geometry = covering(each);
            assert_eq!(geometry.covers(), each * 4096);
            let curve = curve(&requests, geometry, true, None);
            let some = [1, 2, 3, 5, 8, 20, 32, 64, 256, curve.most_pages.max(2) - 1, curve.most_pages];
            for room in some {
                let costs = simulated(&requests, each, end.div_ceil(each), true, room);
                assert_eq!(curve.costs_at(room), costs, "{}: {room} pages of {each} blocks", path.display());
            }
        }
    }
}

#[test]
fn a_whole_simulated_device_fetches_and_writes_back_the_same_pages() {
    let profile = Profile::find("galaxy-nexus-emmc").unwrap();
    let DeviceSpec::Flash(mut spec) = profile.device else { panic!("not flash") };
    let mut rng = Rng::new(5);
    const BLOCKS: u64 = 1 << 18;
    let requests: Vec<Request> = (0..6000)
        .map(|n| {
            let region = BLOCKS / [1, 4, 64][rng.index(3)];
            let op = if n % 3 == 0 { Op::Read } else { Op::Write };
            request(op, rng.below(region - 8), 1 + rng.below(8))
        })
        .collect();
    let curve = curve(&requests, Geometry::default(), true, None);
    for room in [1, 4, 32, 100, 200, 256] {
        spec.map.cached_pages.value = room;
        let mut flash = Flash::new(&spec, BLOCKS);
        // Data under each page of the map, and space to write without cleaning.
        let held: Vec<(Lba, u64)> = (0..BLOCKS).step_by(ENTRIES as usize).map(|b| (Lba(b), 1)).collect();
        flash.fill(Nanos(0), &held);
        let mut bill = Bill::default();
        let mut now = Nanos(1 << 40);
        for r in &requests {
            let (at, blocks) = (Lba(r.sector / 8), r.sectors / 8);
            let ask = if r.op == Op::Read { Ask::Read { at, blocks } } else { Ask::Write { at, blocks } };
            // The buffer is empty when the next request arrives.
            for ask in [ask, Ask::Flush] {
                now = flash.serve(now, ask, Tag::default(), &mut bill);
            }
        }
        let counters = flash.counters();
        let of = |name: &str| counters.iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(of("cleanings"), 0, "cleaning looks into the map, too");
        let Costs { reads, writes, .. } = curve.costs_at(room);
        assert_eq!((of("map_pages_fetched"), of("map_pages_written")), (reads, writes), "a cache of {room} pages");
    }
}
