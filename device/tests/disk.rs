//! The disk model: Table 3.1 of Scherl 2004, and behaviour that differs from flash.

use std::sync::Arc;
use std::time::Duration;

use device::clock::VirtualClock;
use device::energy::profile::{DeviceSpec, DiskSpec, Profile};
use device::energy::{Bill, Energy, Ledger, Meter, Nanos, Part};
use device::model::disk::{Disk, break_even};
use device::model::{Ask, Model, Pace, Remap, Simulated};
use device::{BLOCK, BlockDevice, DeviceError, Lba, Memory, Rng, Tag};

use crate::drives::near;

fn microdrive() -> DiskSpec {
    let DeviceSpec::Disk(spec) = Profile::find("microdrive").unwrap().device else { panic!("not a disk") };
    *spec
}

const SIZE: u64 = 1 << 18;
const TAG: Tag = Tag { cause: 0, owner: 0 };

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
    fn pause(&mut self, time: Nanos) {
        self.now += time;
        self.disk.wait(self.now, &mut self.bill);
    }
    fn spent(&self, part: Part) -> Energy {
        self.bill.amounts().iter().find(|(p, _)| *p == part).map_or(Energy::ZERO, |(_, e)| *e)
    }
    fn counter(&self, name: &str) -> u64 {
        self.disk.counters().iter().find(|(n, _)| *n == name).unwrap().1
    }
}

#[test]
fn microdrive_table31_the_energies_of_single_operations_come_out() {
    let n = 20_000;
    let mut random = Bench::new(&microdrive());
    let mut rng = Rng::new(31);
    for _ in 0..n {
        random.read(rng.below(SIZE), 1);
    }
    let seek = random.spent(Part::Seek).millijoules() / n as f64;
    let rotation = random.spent(Part::Rotate).millijoules() / n as f64;
    near("a seek, mJ", seek, 7.64, 1.0);
    near("a rotational delay, mJ", rotation, 4.95, 1.0);
    near("the mean delay, ms", rotation / 0.594, 8.33, 1.0);

    let (mut read, mut written) = (Bench::new(&microdrive()), Bench::new(&microdrive()));
    for at in (0..16_384).step_by(16) {
        read.read(at, 16);
        written.write(at, 16);
    }
    written.ask(Ask::Flush);
    let kb = 65_536.0;
    near("reading a kilobyte, mJ", read.spent(Part::PlatterRead).millijoules() / kb, 0.19, 0.5);
    near("writing a kilobyte, mJ", written.spent(Part::PlatterWrite).millijoules() / kb, 0.23, 0.5);
    near("kilobytes for a seek and a delay", (seek + rotation) / 0.19, 66.0, 1.0);
}

#[test]
fn reading_in_order_goes_on_without_another_revolution() {
    for io in [1, 16, 256] {
        let mut bench = Bench::new(&microdrive());
        for at in (0..4096).step_by(io as usize) {
            bench.read(at, io);
        }
        assert!(bench.spent(Part::Rotate) < Energy::from_joules(0.011), "requests of {io}");
        near("milliseconds a megabyte", bench.now.0 as f64 / 16e6, 310.96, 2.0);
    }
}

#[test]
fn a_write_through_disk_loses_a_revolution_with_each_small_write_and_a_cache_saves_it() {
    let mut through = microdrive();
    through.write_cache.value = 0;
    let [mut slow, mut fast] = [Bench::new(&through), Bench::new(&microdrive())];
    for at in 0..100 {
        slow.write(at, 1);
        fast.write(at, 1);
    }
    fast.ask(Ask::Flush);
    assert!(slow.now.0 > 99 * 16_000_000, "{:?}", slow.now);
    assert!(fast.now.0 < 160_000_000, "{:?}", fast.now);
}

#[test]
fn a_flush_waits_for_the_platter() {
    let mut bench = Bench::new(&microdrive());
    let accepted = bench.write(100_000, 4);
    assert!(accepted < Nanos(3_000_000), "{accepted:?}");
    assert!(bench.ask(Ask::Flush) > Nanos(4_000_000));
    assert!(bench.ask(Ask::Flush) < Nanos(1_000_000), "nothing is left to write");
}

#[test]
fn a_cut_loses_what_had_not_reached_the_platter_and_nothing_else() {
    let mut bench = Bench::new(&microdrive());
    bench.write(500, 4);
    bench.ask(Ask::Flush);
    bench.write(90_000, 4);
    let lost = bench.disk.cut(bench.now);
    assert_eq!(lost, (90_000..90_004).map(Lba).collect::<Vec<_>>());
    bench.write(7, 1);
    bench.ask(Ask::Flush);
    assert_eq!(bench.disk.cut(bench.now), []);
    assert_eq!(bench.counter("spin_ups"), 1, "power came back to a standing platter");
}

#[test]
fn a_full_write_cache_makes_writers_wait() {
    let mut bench = Bench::new(&microdrive());
    let mut rng = Rng::new(5);
    let mut longest = Nanos(0);
    for _ in 0..100 {
        longest = longest.max(bench.write(rng.below(SIZE), 1));
    }
    assert!(longest > Nanos(10_000_000));
    near("a write's time once the cache is full, ms", bench.now.0 as f64 / 1e8, 21.5, 20.0);
}

#[test]
fn what_was_read_ahead_needs_neither_arm_nor_motor() {
    let mut bench = Bench::new(&microdrive());
    bench.read(1000, 1);
    bench.pause(Nanos(10_000_000_000));
    let (moved, slept) = (bench.spent(Part::Seek), bench.spent(Part::Sleep));
    assert!(slept > Energy::ZERO);
    assert!(bench.read(1001, 8) < Nanos(3_000_000));
    assert_eq!(bench.spent(Part::Seek), moved);
    assert_eq!(bench.counter("spin_ups"), 0);
    assert!(bench.read(200_000, 1) > Nanos(500_000_000), "this one has to wait for the motor");
    assert_eq!(bench.counter("spin_ups"), 1);
}

#[test]
fn a_change_on_the_platter_makes_the_buffer_forget() {
    let mut bench = Bench::new(&microdrive());
    bench.read(1000, 8);
    bench.pause(Nanos(100_000_000));
    bench.write(1004, 1);
    bench.ask(Ask::Flush);
    bench.read(1000, 8);
    assert_eq!(bench.counter("reads_from_buffer"), 0);
}

#[test]
fn at_the_break_even_time_standing_costs_what_idling_costs() {
    let spec = microdrive();
    let pause = break_even(&spec).unwrap();
    let cost = |after: u64, pause: Nanos| {
        let mut spec = microdrive();
        spec.standby_after.value = Nanos(after);
        spec.buffer.value = 0;
        let mut bench = Bench::new(&spec);
        bench.read(0, 1);
        let motions = [Part::Seek, Part::Rotate, Part::PlatterRead];
        let waiting = |b: &Bench| b.bill.total() - motions.into_iter().map(|p| b.spent(p)).sum();
        let begun = waiting(&bench);
        bench.pause(pause);
        bench.read(1, 1);
        (waiting(&bench) - begun).joules()
    };
    let never = 0;
    near("standing", cost(1, pause), cost(never, pause), 1.0);
    assert!(cost(1, pause.times(2)) < cost(never, pause.times(2)));
    let half = Nanos(pause.0 / 2);
    assert!(cost(1, half) > cost(never, half));

    let mut worse = microdrive();
    worse.standby_power = worse.idle_power.clone();
    assert_eq!(break_even(&worse), None);
}

#[test]
fn every_moment_has_one_mode() {
    // With the same power in every mode, energy is that power times the time, for any requests.
    let mut spec = microdrive();
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
    spec.spin_up_energy.value = Energy::from_joules(spec.spin_up.value.0 as f64 / 1e9);
    let mut bench = Bench::new(&spec);
    let mut rng = Rng::new(8);
    for _ in 0..5_000 {
        let (at, blocks) = (rng.below(SIZE - 64), 1 + rng.below(64));
        match rng.below(8) {
            0..=2 => bench.read(at, blocks),
            3..=5 => bench.write(at, blocks),
            6 => bench.ask(Ask::Flush),
            _ => {
                bench.pause(Nanos(1 << rng.below(34)));
                Nanos(0)
            }
        };
    }
    bench.ask(Ask::Flush);
    near("joules by watts and seconds", bench.bill.total().joules(), bench.now.0 as f64 / 1e9, 1e-4);
    assert!(bench.counter("standbys") > 10);
}

#[test]
fn the_same_requests_give_the_same_ledger_and_clock() {
    let run = || -> (Ledger, Duration) {
        let clock = Arc::new(VirtualClock::default());
        let meter = Arc::new(Meter::new(Profile::find("microdrive").unwrap().host.prices()));
        let model = Box::new(Disk::new(&microdrive(), 4096));
        let disk = Simulated::new(Memory::new(4096), model, meter, Pace::Virtual(clock.clone()));
        let (mut rng, mut buf) = (Rng::new(3), vec![0; BLOCK]);
        for _ in 0..500 {
            disk.write(Lba(rng.below(4096)), &buf, TAG).unwrap();
            disk.read(Lba(rng.below(4096)), &mut buf, TAG).unwrap();
        }
        disk.flush(TAG).unwrap();
        (disk.ledger(), device::Clock::monotonic(&*clock))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_disk_knows_no_remap() {
    let clock = Arc::new(VirtualClock::default());
    let meter = Arc::new(Meter::new(Profile::find("microdrive").unwrap().host.prices()));
    let model = Box::new(Disk::new(&microdrive(), 64));
    let disk = Simulated::new(Memory::new(64), model, meter, Pace::Virtual(clock));
    let answer = disk.remap(Lba(0), Lba(8), 4, Remap::Move, TAG);
    assert!(matches!(answer, Err(DeviceError::Unsupported { .. })), "{answer:?}");
}
