//! Durations on a flash device with the shipped profile of a phone.

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Nanos, Part};
use device::model::flash::Flash;
use device::model::{Ask, Model};
use device::{Lba, Rng, Tag};

const MIB: u64 = 256;

fn phone() -> Box<FlashSpec> {
    match Profile::find("kirin9000-ufs31").expect("a shipped profile").device {
        DeviceSpec::Flash(spec) => spec,
        DeviceSpec::Disk(_) => panic!("a phone with a disk"),
    }
}

/// A device with one request at a time.
struct One {
    flash: Flash,
    now: Nanos,
    bill: Bill,
}

impl One {
    fn new(spec: &FlashSpec, blocks: u64) -> Self {
        One { flash: Flash::new(spec, blocks), now: Nanos(0), bill: Bill::default() }
    }
    /// Submits a request and returns its duration.
    fn ask(&mut self, ask: Ask) -> Nanos {
        let done = self.flash.serve(self.now, ask, Tag::default(), &mut self.bill);
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
    fn counter(&self, name: &str) -> u64 {
        self.flash.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }
    fn filled(spec: &FlashSpec, blocks: u64, with: u64) -> Self {
        let mut one = One::new(spec, blocks);
        for at in (0..with).step_by(MIB as usize) {
            one.write(at, MIB);
        }
        one.ask(Ask::Flush);
        one
    }
}

fn ms(n: Nanos) -> f64 {
    n.0 as f64 / 1e6
}

#[test]
fn a_large_read_is_bound_by_the_link() {
    let spec = phone();
    let mut one = One::filled(&spec, 1024 * MIB, 128 * MIB);
    let link = spec.link.read.value.of(MIB * 4096) + spec.link.request.value;
    for i in 0..128 {
        let took = one.read(i * MIB, MIB);
        assert!(took >= link && ms(took) < ms(link) * 1.04, "{} ms, the link {} ms", ms(took), ms(link));
    }
}

#[test]
fn a_small_random_read_takes_request_page_and_transfer() {
    let spec = phone();
    let mut one = One::filled(&spec, 1024 * MIB, 128 * MIB);
    let mut rng = Rng::new(3);
    let rest = spec.link.request.value + spec.nand.transfer.value.of(4096) + spec.link.read.value.of(4096);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let took = one.read(rng.below(128 * MIB), 1).since(rest);
        assert!(spec.nand.read.iter().any(|q| q.value == took), "{took:?}");
        seen.insert(took);
    }
    assert_eq!(seen.len(), spec.nand.read.len(), "each bit of the cell has its time");
}

#[test]
fn a_write_is_done_when_it_is_in_the_buffer_and_a_flush_when_it_is_on_flash() {
    let spec = phone();
    let mut one = One::new(&spec, 1024 * MIB);
    let request = spec.link.write_request.as_ref().unwrap_or(&spec.link.request).value;
    assert_eq!(one.write(5, 1), request + spec.link.write.value.of(4096));
    assert_eq!(one.counter("blocks_programmed"), 0);
    let flush = one.ask(Ask::Flush);
    assert!(flush >= spec.flush.value + spec.nand.program[0].value, "{flush:?}");
    assert_eq!(one.counter("blocks_programmed"), 1);
    assert!(one.ask(Ask::Flush) == spec.flush.value, "nothing was left to be written out");
}

#[test]
fn a_write_waits_for_room_in_the_buffer() {
    let mut spec = *phone();
    spec.nand.channels.value = 1;
    spec.nand.dies.value = 1;
    let mut one = One::new(&spec, 256 * MIB);
    let room = spec.buffer.value / 4096;
    let quick = one.write(0, room);
    let slow = one.write(room, room);
    let alone = spec.link.write.value.of(spec.buffer.value);
    assert!(ms(quick) < ms(alone) * 1.05 && ms(slow) > ms(alone) * 2.0, "{} {} {}", ms(quick), ms(slow), ms(alone));
    assert!(one.counter("buffer_stalls") > 0);
}

#[test]
fn a_read_overtakes_writes_that_wait_for_a_die() {
    let mut spec = *phone();
    spec.nand.channels.value = 1;
    spec.nand.dies.value = 1;
    let mut one = One::filled(&spec, 256 * MIB, 16 * MIB);
    let alone = one.read(4000, 1);
    let mut bill = Bill::default();
    let ask = Ask::Write { at: Lba(0), blocks: 4 * spec.buffer.value / 4096 };
    let written = one.flash.serve(one.now, ask, Tag::default(), &mut bill).since(one.now);
    one.now += Nanos(written.0 / 10);
    let link = spec.link.write.value.of(4 * spec.buffer.value);
    let longest = spec.nand.program.iter().map(|q| q.value).max().unwrap_or_default();
    let took = one.read(5000, 1);
    assert!(written > link, "{written:?}");
    assert!(took <= alone + link + longest, "{took:?}, alone {alone:?}, the write {written:?}");
}

#[test]
fn a_sleeping_device_wakes_and_its_sleep_costs_what_it_should() {
    use device::energy::{Energy, Power};
    let mut spec = *phone();
    spec.ready.value = Power(1000);
    spec.idle[0].power.value = Power(10);
    spec.idle[0].wake_energy.value = Energy(777);
    let mut one = One::new(&spec, 256 * MIB);
    one.write(0, 8);
    let awake = one.read(0, 1);
    one.now += Nanos(1_000_000_000);
    let mut waited = Bill::default();
    one.flash.wait(one.now, &mut waited);
    let of = |bill: &Bill, part| bill.amounts().iter().filter(|a| a.0 == part).map(|a| a.1).sum::<Energy>();
    let slept = of(&waited, Part::Sleep).joules() / (10e-6);
    let ready = of(&waited, Part::Idle).joules() / (1000e-6);
    let after = spec.idle[0].after.value.0 as f64 / 1e9;
    assert!((ready - after).abs() < 0.01 && (slept + ready - 1.0).abs() < 1e-3, "ready {ready} s, asleep {slept} s");
    one.bill.clear();
    let woken = one.read(0, 1);
    assert!(woken >= awake.since(Nanos(200_000)) + spec.idle[0].wake.value);
    assert_eq!(of(&one.bill, Part::Sleep), Energy(777));
    assert_eq!(one.counter("wakes"), 1);
}
