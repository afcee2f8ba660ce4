//! All energy of a flash device is booked once, on an owner, and reproducibly.

use std::sync::Arc;

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Component, Energy, Ledger, Meter, Nanos, Operation, Part};
use device::model::flash::Flash;
use device::model::{Ask, Model, Pace, Remap, Simulated};
use device::{BLOCK, BlockDevice, Clock, Lba, Memory, Rng, Tag, Time, VirtualClock};

const BLOCKS: u64 = 6000;

fn phone() -> (Profile, FlashSpec) {
    let profile = Profile::find("kirin9000-ufs31").expect("a shipped profile");
    let DeviceSpec::Flash(mut spec) = profile.device.clone() else { panic!("a phone with a disk") };
    // Small enough that it is cleaned, and that its map does not fit.
    (spec.nand.channels.value, spec.nand.dies.value, spec.map.cached_pages.value) = (1, 2, 2);
    spec.nand.page.value = 4096;
    spec.buffer.value = 256 << 10;
    (profile, *spec)
}

fn workload(n: u64, mut ask: impl FnMut(Ask, Tag, u64)) {
    let mut rng = Rng::new(21);
    for _ in 0..n {
        let tag = Tag { cause: rng.below(5) as u8, owner: rng.below(7) };
        let (at, blocks) = (rng.below(BLOCKS - 64), 1 + rng.below(12));
        let (at, to) = (Lba(at), Lba((at + 100) % (BLOCKS - 64)));
        let what = match rng.below(20) {
            0..10 => Ask::Write { at, blocks },
            10..16 => Ask::Read { at, blocks },
            16 => Ask::Discard { at, blocks },
            17 => Ask::Flush,
            18 if at.0.abs_diff(to.0) >= blocks => Ask::Remap { from: at, to, blocks, how: Remap::Exchange },
            _ => Ask::Write { at, blocks: 1 },
        };
        ask(what, tag, if rng.below(50) == 0 { 300_000_000 } else { rng.below(400_000) });
    }
}

#[test]
fn the_same_requests_take_and_cost_the_same() {
    let run = || {
        let mut flash = Flash::new(&phone().1, BLOCKS);
        let (mut now, mut seen) = (Nanos(0), Vec::new());
        workload(5000, |ask, tag, gap| {
            let mut bill = Bill::default();
            let done = flash.serve(now, ask, tag, &mut bill);
            seen.push((done, bill.amounts().to_vec()));
            now += Nanos(gap);
        });
        let lost = flash.cut(now);
        (seen, lost, flash.counters())
    };
    let first = run();
    assert!(first.2.iter().any(|c| c.0 == "cleanings" && c.1 > 10), "{:?}", first.2);
    assert!(first == run());
}

fn metered(n: u64) -> (Ledger, Vec<(&'static str, u64)>, Nanos) {
    let (profile, spec) = phone();
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let model = Box::new(Flash::new(&spec, BLOCKS));
    let device = Simulated::new(Memory::new(BLOCKS), model, meter, Pace::Virtual(clock.clone()));
    workload(n, |ask, tag, gap| {
        match ask {
            Ask::Read { at, blocks } => device.read(at, &mut vec![0; blocks as usize * BLOCK], tag),
            Ask::Write { at, blocks } => device.write(at, &vec![7; blocks as usize * BLOCK], tag),
            Ask::Flush => device.flush(tag),
            Ask::Discard { at, blocks } => device.discard(at, blocks, tag),
            Ask::Remap { from, to, blocks, how } => device.remap(from, to, blocks, how, tag),
        }
        .expect("a request within the device");
        clock.advance(Nanos(gap).duration());
    });
    device.flush(Tag::default()).expect("a flush");
    let ledger = device.ledger();
    (ledger, device.counters(), Nanos::from_duration(clock.monotonic()))
}

#[test]
fn every_picojoule_is_in_every_account() {
    let (ledger, ..) = metered(4000);
    let total = ledger.total();
    assert_eq!(Component::ALL.iter().map(|c| ledger.component(*c)).sum::<Energy>(), total);
    assert_eq!(Part::ALL.iter().map(|p| ledger.part(*p)).sum::<Energy>(), total);
    assert_eq!(ledger.causes().map(|c| ledger.cause(c)).sum::<Energy>(), total);
    assert_eq!(ledger.owners().values().flatten().copied().sum::<Energy>(), total);
    assert_eq!(Operation::ALL.iter().map(|o| ledger.operation(*o).energy).sum::<Energy>(), total);
    let (again, _, _) = metered(4000);
    assert_eq!(again, ledger);
}

#[test]
fn what_is_paid_is_what_was_done_at_the_profiles_prices() {
    let (ledger, counters, _) = metered(4000);
    let n = |name: &str| counters.iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1;
    let (_, spec) = phone();
    let (nand, link) = (&spec.nand, &spec.link);
    let requests = n("reads") + n("writes") + n("discards") + n("remaps");
    assert_eq!(ledger.part(Part::Controller), link.request_energy.value.times(requests));
    assert_eq!(ledger.part(Part::Flush), spec.flush_energy.value.times(n("flushes")));
    let map = n("map_pages_fetched") + n("map_pages_written") + n("journal_pages");
    assert_eq!(ledger.part(Part::FlashMap), spec.map.access_energy.value.times(map));
    let (read, program) = (nand.read_energy.value.of(4096), nand.program_energy.value.of(4096));
    assert_eq!(ledger.part(Part::FlashRead), read.times(n("blocks_read_from_flash")));
    let flash = ledger.part(Part::FlashProgram) + ledger.part(Part::FlashClean);
    let programmed = n("blocks_programmed") + n("blocks_copied") + n("blocks_padded");
    let copied = read.times(n("blocks_copied"));
    let spare_change = flash - (program.times(programmed) + copied);
    // A block discarded while it waited was paid for; the next written block was not.
    assert!(flash >= program.times(programmed) + copied && spare_change < program.times(13), "{spare_change}");
    assert!(ledger.part(Part::FlashClean) > Energy::ZERO && ledger.part(Part::FlashErase) > Energy::ZERO);
    let moved =
        link.read_energy.value.of(n("blocks_read") * 4096) + link.write_energy.value.of(n("blocks_written") * 4096);
    let short = moved - ledger.part(Part::Link);
    assert!(short < Energy(requests), "a part of a picojoule is dropped for each request: {short}");
}

#[test]
fn a_write_pays_for_programming_and_a_flush_for_padding() {
    let (_, spec) = phone();
    let mut flash = Flash::new(&spec, BLOCKS);
    let cost = |flash: &mut Flash, now: u64, ask| {
        let mut bill = Bill::default();
        flash.serve(Nanos(now), ask, Tag::default(), &mut bill);
        bill.amounts().iter().filter(|a| a.0 == Part::FlashProgram).map(|a| a.1).sum::<Energy>()
    };
    let unit = spec.nand.program_energy.value.of(4096);
    for at in 0..7 {
        assert_eq!(cost(&mut flash, at, Ask::Write { at: Lba(at), blocks: 1 }), unit);
    }
    assert_eq!(cost(&mut flash, 100, Ask::Flush), Energy::ZERO);
    let mut wide = spec.clone();
    wide.nand.page.value = 16384;
    let mut flash = Flash::new(&wide, BLOCKS);
    assert_eq!(cost(&mut flash, 0, Ask::Write { at: Lba(0), blocks: 1 }), unit);
    assert_eq!(cost(&mut flash, 0, Ask::Write { at: Lba(0), blocks: 1 }), Energy::ZERO);
    assert_eq!(cost(&mut flash, 1, Ask::Flush), unit.times(3));
}

#[test]
fn requests_in_the_queue_share_the_device_and_those_outside_wait() {
    let (_, mut spec) = phone();
    (spec.nand.channels.value, spec.nand.dies.value, spec.map.cached_pages.value) = (2, 4, 256);
    let mut reads = |queue| {
        spec.link.queue.value = queue;
        let mut flash = Flash::new(&spec, BLOCKS);
        let mut bill = Bill::default();
        let filled = flash.serve(Nanos(0), Ask::Write { at: Lba(0), blocks: BLOCKS }, Tag::default(), &mut bill);
        let start = flash.serve(filled, Ask::Flush, Tag::default(), &mut bill);
        let mut rng = Rng::new(4);
        let mut last = start;
        for _ in 0..320 {
            let ask = Ask::Read { at: Lba(rng.below(BLOCKS)), blocks: 1 };
            last = last.max(flash.serve(start, ask, Tag::default(), &mut bill));
        }
        last.since(start).0 as f64 / 320.0
    };
    let (one, four, many) = (reads(1), reads(4), reads(32));
    let alone = (spec.link.request.value + spec.nand.read[0].value).0 as f64;
    assert!(one > alone && one > four * 3.0 && four > many * 1.5, "{one} {four} {many}");
    assert!(many >= spec.link.read.value.of(4096).0 as f64, "the link is one");
}
