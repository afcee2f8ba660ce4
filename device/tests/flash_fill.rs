//! A device filled before its first request equals one on which the same blocks were written one by one.
//!
//! A device that records generations is filled block by block: it is the judge of filling by rows, and of tables
//! that are created on demand.

use joulefs_device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use joulefs_device::energy::{Bill, Nanos};
use joulefs_device::model::flash::Flash;
use joulefs_device::model::{Ask, Model, Remap};
use joulefs_device::{Lba, Rng, Tag};

fn spec(profile: &str) -> FlashSpec {
    let DeviceSpec::Flash(spec) = Profile::find(profile).unwrap().device else { panic!("a disk") };
    *spec
}

/// Devices of several shapes whose bottleneck in a fill is the link, the chips, the buffer or the map.
fn shapes() -> Vec<(&'static str, FlashSpec)> {
    let mut all: Vec<(&str, FlashSpec)> = ["kirin9000-ufs31", "galaxy-nexus-emmc", "samsung-850evo", "micron-2550"]
        .into_iter()
        .map(|name| (name, spec(name)))
        .collect();
    let phone = || spec("kirin9000-ufs31");
    let mut chips = phone();
    chips.link.write.value.0 /= 40;
    all.push(("slow chips", chips));
    let mut map = phone();
    map.map.cached_pages.value = 3;
    map.link.write.value.0 /= 7;
    all.push(("a map that does not fit", map));
    let mut buffer = phone();
    buffer.buffer.value = 64 << 10;
    buffer.link.write.value.0 /= 7;
    all.push(("a buffer of two rows", buffer));
    let mut odd = phone();
    (odd.nand.channels.value, odd.nand.dies.value, odd.nand.planes.value) = (3, 1, 3);
    odd.nand.spare.value = 0.02;
    all.push(("three dies of three planes", odd));
    let mut small = phone();
    small.buffer.value = 16 << 10;
    all.push(("a buffer smaller than a row", small));
    all
}

fn read(at: u64, blocks: u64) -> Ask {
    Ask::Read { at: Lba(at), blocks }
}

/// A random request.
fn any(rng: &mut Rng, blocks: u64) -> Ask {
    let n = 1 + rng.below(40);
    let at = Lba(rng.below(blocks - n));
    match rng.below(20) {
        0..8 => read(at.0, n),
        8..16 => Ask::Write { at, blocks: n },
        16 => Ask::Flush,
        17 => Ask::Discard { at, blocks: n },
        _ => {
            let to = Lba((at.0 + blocks / 2) % (blocks - n));
            if at.0.abs_diff(to.0) < n {
                return read(at.0, n);
            }
            let how = [Remap::Exchange, Remap::Move, Remap::Share][rng.index(3)];
            Ask::Remap { from: at, to, blocks: n, how }
        }
    }
}

/// Sends the same requests to both, which must return the same results and bills.
fn compare(what: &str, fast: &mut Flash, slow: &mut Flash, seed: u64, requests: u64) {
    let mut rng = Rng::new(seed);
    let mut now = Nanos(0);
    for n in 0..requests {
        let (mut a, mut b) = (Bill::default(), Bill::default());
        match rng.below(400) {
            0 => assert_eq!(fast.cut(now), slow.cut(now), "{what}: lost by cut {n}"),
            1 => {
                let done = fast.power_cycle(now, &mut a);
                assert_eq!(done, slow.power_cycle(now, &mut b), "{what}: power cycle {n}");
                now = done;
            }
            _ => {
                let ask = any(&mut rng, fast.blocks());
                let done = fast.serve(now, ask, Tag::default(), &mut a);
                assert_eq!(done, slow.serve(now, ask, Tag::default(), &mut b), "{what}: {ask:?}, request {n}");
                now = done + Nanos(rng.below(50_000));
            }
        }
        assert_eq!(a.amounts(), b.amounts(), "{what}: bill {n}");
    }
    assert_eq!(fast.counters(), slow.counters(), "{what}");
    assert_eq!(fast.wear(), slow.wear(), "{what}");
    assert_eq!((fast.audit(), slow.audit()), (Ok(()), Ok(())), "{what}");
}

#[test]
fn a_full_device_answers_to_the_nanosecond_and_picojoule_as_if_it_had_been_written() {
    let mut cleaned = 0;
    for (what, spec) in shapes() {
        for blocks in [1 << 15, (1 << 16) + 77] {
            let [mut fast, mut slow] = [Flash::new(&spec, blocks), Flash::with_generations(&spec, blocks)];
            let all = [(Lba(0), blocks)];
            fast.fill(Nanos(0), &all);
            slow.fill(Nanos(0), &all);
            compare(what, &mut fast, &mut slow, blocks, 3_000);
            cleaned += fast.counters().into_iter().find(|(name, _)| *name == "cleanings").unwrap().1;
        }
    }
    assert!(cleaned > 1_000, "{cleaned} cleanings");
}

#[test]
fn a_device_filled_in_part_and_in_any_order_is_the_same() {
    for (what, spec) in shapes() {
        let blocks = 1 << 15;
        for seed in 0..4 {
            let mut rng = Rng::new(seed);
            // Pieces of the device in random order, some left out, some shorter.
            let mut cuts: Vec<u64> = (0..rng.below(40)).map(|_| rng.below(blocks)).chain([0, blocks]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let mut runs: Vec<_> = cuts.windows(2).map(|w| (Lba(w[0]), w[1] - w[0])).collect();
            runs.retain(|_| rng.below(5) > 0);
            for n in (1..runs.len()).rev() {
                runs.swap(n, rng.index(n + 1));
            }
            for run in &mut runs {
                run.1 = if rng.below(3) == 0 { 1 + rng.below(run.1) } else { run.1 };
            }
            let [mut fast, mut slow] = [Flash::new(&spec, blocks), Flash::with_generations(&spec, blocks)];
            fast.fill(Nanos(7), &runs);
            slow.fill(Nanos(7), &runs);
            compare(what, &mut fast, &mut slow, seed, 1_500);
        }
    }
}

#[test]
fn runs_that_overlap_and_devices_already_written_are_filled_all_the_same() {
    for (what, spec) in shapes() {
        let blocks = 1 << 14;
        let [mut fast, mut slow] = [Flash::new(&spec, blocks), Flash::with_generations(&spec, blocks)];
        let runs = [(Lba(0), 9_000), (Lba(8_000), 4_000), (Lba(20), 0)];
        fast.fill(Nanos(0), &runs);
        slow.fill(Nanos(0), &runs);
        compare(what, &mut fast, &mut slow, 1, 1_000);

        let [mut fast, mut slow] = [Flash::new(&spec, blocks), Flash::with_generations(&spec, blocks)];
        for device in [&mut fast, &mut slow] {
            device.serve(Nanos(0), Ask::Write { at: Lba(5), blocks: 100 }, Tag::default(), &mut Bill::default());
            device.fill(Nanos(1_000_000_000), &[(Lba(0), blocks)]);
        }
        let mut bills = [Bill::default(), Bill::default()];
        for (device, bill) in [&mut fast, &mut slow].into_iter().zip(&mut bills) {
            device.serve(Nanos(2_000_000_000), read(0, blocks), Tag::default(), bill);
        }
        assert_eq!(bills[0].amounts(), bills[1].amounts(), "{what}");
    }
}

#[test]
fn a_full_terabyte_of_flash_takes_little_memory() {
    // Complete tables of its blocks would take 2 GiB.
    let spec = spec("samsung-850evo");
    let blocks = 1_000_204_886_016 / 4096;
    let mut flash = Flash::new(&spec, blocks);
    flash.fill(Nanos(0), &[(Lba(0), blocks)]);
    let (mut bill, mut now) = (Bill::default(), Nanos(0));
    let mut rng = Rng::new(2);
    for _ in 0..2_000 {
        let at = Lba(rng.below(blocks - 64));
        let blocks = 1 + rng.below(64);
        now = flash.serve(now, Ask::Write { at, blocks }, Tag::default(), &mut bill);
        now = flash.serve(now, Ask::Read { at, blocks }, Tag::default(), &mut bill);
    }
    let count = |name: &str| flash.counters().into_iter().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!((count("misuses"), count("reads")), (0, 2_000));
    assert!(resident() < 512 << 20, "{} bytes in memory", resident());
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
