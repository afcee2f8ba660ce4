//! Handles of reclaim units: data that the host separates is stored separately, reads return what was written, and
//! a device without handles is unaffected.

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Nanos};
use device::model::flash::Flash;
use device::model::{Ask, Model};
use device::{Lba, Rng, Tag};

const BLOCKS: u64 = 20_000;
/// Every tenth block is hot.
const EVERY: u64 = 10;

fn spec(handles: Option<f64>) -> FlashSpec {
    let profile = Profile::find("kirin9000-ufs31").expect("shipped");
    let profile = match handles {
        Some(n) => profile.with("device.nand.handles", n, None, "tried").expect("a number"),
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
    fn new(handles: Option<f64>) -> Self {
        Chip { flash: Flash::with_generations(&spec(handles), BLOCKS), now: Nanos(0), bill: Bill::default() }
    }
    fn ask(&mut self, ask: Ask) {
        self.now = self.flash.serve(self.now, ask, Tag::default(), &mut self.bill);
    }
    fn write(&mut self, at: u64) {
        self.ask(Ask::Write { at: Lba(at), blocks: 1 });
    }
    fn count(&self, name: &str) -> u64 {
        self.flash.counters().into_iter().find(|(n, _)| *n == name).expect("a counter").1
    }
}

/// Writes hot blocks among cold ones and overwrites the hot ones repeatedly; returns the number of blocks that
/// cleaning copied. `handle` is for hot blocks.
fn copied(chip: &mut Chip, handle: u8) -> u64 {
    for at in (0..BLOCKS).step_by(EVERY as usize) {
        chip.flash.place(Lba(at), 1, handle);
    }
    (0..BLOCKS).for_each(|at| chip.write(at));
    let mut rng = Rng::new(3);
    for _ in 0..4 * BLOCKS {
        chip.write(rng.below(BLOCKS / EVERY) * EVERY);
    }
    chip.ask(Ask::Flush);
    chip.flash.audit().expect("two tables agree");
    assert_eq!(chip.count("misuses"), 0);
    chip.count("blocks_copied")
}

#[test]
fn hot_blocks_that_are_written_apart_are_cleaned_without_copying_cold_ones() {
    let (apart, together) = (copied(&mut Chip::new(Some(4.0)), 1), copied(&mut Chip::new(Some(4.0)), 0));
    assert!(5 * apart < together, "{apart} blocks copied apart, {together} together");
}

#[test]
fn a_handle_that_the_device_has_not_is_the_first_one() {
    let run = |handles: Option<f64>, handle: u8| {
        let mut chip = Chip::new(handles);
        copied(&mut chip, handle);
        (chip.now, format!("{:?}", chip.bill), chip.flash.counters())
    };
    let plain = run(None, 0);
    assert!(run(None, 1) == plain, "a device without handles asks for none");
    assert!(run(Some(1.0), 200) == plain, "one handle is none");
    assert!(run(Some(4.0), 4) == run(Some(4.0), 0));
    assert!(run(Some(4.0), 3) != run(Some(4.0), 0));
}

#[test]
fn with_many_handles_and_power_cuts_what_is_durable_is_read() {
    for seed in 0..12 {
        let (mut chip, mut rng) = (Chip::new(Some(6.0)), Rng::new(seed));
        let (mut shows, mut durable) = (vec![None; BLOCKS as usize], vec![None; BLOCKS as usize]);
        let mut writes = 0;
        for _ in 0..12_000 {
            match rng.below(200) {
                0 => {
                    chip.ask(Ask::Flush);
                    durable.clone_from(&shows);
                }
                1 if rng.below(8) == 0 => {
                    let lost = chip.flash.cut(chip.now);
                    for at in 0..BLOCKS {
                        let found = chip.flash.generation(Lba(at));
                        assert!(found >= durable[at as usize], "seed {seed}: block {at} shows {found:?}");
                        assert!(found == shows[at as usize] || lost.contains(&Lba(at)), "seed {seed}: block {at}");
                        (shows[at as usize], durable[at as usize]) = (found, found);
                    }
                    chip.flash.audit().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                }
                2..20 => chip.flash.place(Lba(rng.below(BLOCKS - 300)), rng.below(300), rng.below(7) as u8),
                _ => {
                    let (at, blocks) = (rng.below(BLOCKS - 20), 1 + rng.below(20));
                    chip.ask(Ask::Write { at: Lba(at), blocks });
                    for b in at..at + blocks {
                        writes += 1;
                        shows[b as usize] = Some(writes);
                    }
                }
            }
        }
        chip.ask(Ask::Flush);
        for at in 0..BLOCKS {
            assert_eq!(chip.flash.generation(Lba(at)), shows[at as usize], "seed {seed}: block {at}");
        }
        assert_eq!(chip.count("misuses"), 0, "seed {seed}");
    }
}

#[test]
fn a_buffer_full_of_parts_of_rows_makes_room() {
    let mut small = spec(Some(100.0));
    // About as many slots as a page has blocks.
    small.buffer.value = 8 << 12;
    let (mut flash, mut now, mut bill) = (Flash::new(&small, BLOCKS), Nanos(0), Bill::default());
    for at in 0..2_000 {
        flash.place(Lba(at), 1, (at % 100) as u8);
        now = flash.serve(now, Ask::Write { at: Lba(at), blocks: 1 }, Tag::default(), &mut bill);
    }
    flash.serve(now, Ask::Flush, Tag::default(), &mut bill);
    flash.audit().expect("two tables agree");
}
