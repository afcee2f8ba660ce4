//! A flash device that cleans while idle: writers find erased blocks, and the energy is booked as idle time.

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Nanos, Part};
use device::model::flash::Flash;
use device::model::{Ask, Model};
use device::{Lba, Rng, Tag};

const BLOCKS: u64 = 30_000;
const MS: u64 = 1_000_000;

fn spec(ahead: Option<f64>) -> FlashSpec {
    let profile = Profile::find("kirin9000-ufs31").expect("shipped");
    let profile = match ahead {
        Some(percent) => profile.with("device.nand.ahead", percent, Some("%"), "tried").expect("a number"),
        None => profile,
    };
    let DeviceSpec::Flash(spec) = profile.device else { panic!("a phone with a disk") };
    *spec
}

struct Chip {
    flash: Flash,
    now: Nanos,
    bill: Bill,
}

impl Chip {
    /// Overwritten at random until no erased blocks are left.
    fn worn(ahead: Option<f64>) -> Self {
        let mut chip =
            Chip { flash: Flash::with_generations(&spec(ahead), BLOCKS), now: Nanos(0), bill: Bill::default() };
        let mut rng = Rng::new(5);
        (0..BLOCKS).step_by(8).for_each(|at| chip.write(at, 8));
        (0..4 * BLOCKS).for_each(|_| chip.write(rng.below(BLOCKS), 1));
        chip
    }
    fn write(&mut self, at: u64, blocks: u64) {
        self.now = self.flash.serve(self.now, Ask::Write { at: Lba(at), blocks }, Tag::default(), &mut self.bill);
    }
    fn rest(&mut self, ms: u64) -> u64 {
        self.bill.clear();
        self.now.0 += ms * MS;
        self.flash.wait(self.now, &mut self.bill);
        self.bill.amounts().iter().filter(|(part, _)| *part == Part::FlashClean).map(|(_, e)| e.0).sum()
    }
    fn cleanings(&self) -> u64 {
        self.flash.counters().iter().find(|c| c.0 == "cleanings").expect("a counter").1
    }
    /// Number of cleanings during `blocks` sequential writes.
    fn burst(&mut self, blocks: u64) -> u64 {
        let before = self.cleanings();
        (0..blocks).step_by(8).for_each(|at| self.write(at, 8));
        self.cleanings() - before
    }
}

#[test]
fn a_writer_after_a_rest_finds_erased_blocks_and_one_without_a_rest_cleans() {
    for (ahead, rest, cleans) in [(None, 60_000, true), (Some(3.0), 0, true), (Some(3.0), 60_000, false)] {
        let mut chip = Chip::worn(ahead);
        let paid = chip.rest(rest);
        assert_eq!(paid > 0, !cleans, "{ahead:?}, {rest} ms: {paid} pJ");
        assert_eq!(chip.burst(BLOCKS * 2 / 100) > 0, cleans, "{ahead:?}, {rest} ms");
        chip.flash.audit().expect("the device's map is whole");
        let same = (0..BLOCKS).all(|at| chip.flash.generation(Lba(at)).is_some());
        assert!(same, "a block was lost");
    }
}

#[test]
fn it_cleans_until_there_is_enough_and_then_rests_however_often_it_is_looked_at() {
    let (mut once, mut often) = (Chip::worn(Some(3.0)), Chip::worn(Some(3.0)));
    let paid = once.rest(60_000);
    let pieces: u64 = (0..6_000).map(|_| often.rest(10)).sum();
    assert_eq!((pieces, often.cleanings()), (paid, once.cleanings()), "looking changes nothing");
    assert_eq!(once.rest(60_000), 0, "there is enough");
}
