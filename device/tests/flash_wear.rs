//! Cleaning, wear and the map's cache match theory.

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Nanos, Part};
use device::model::flash::Flash;
use device::model::flash::nand::{Geometry, Misuse, Nand};
use device::model::{Ask, Model};
use device::{Lba, Rng, Tag};

/// One unit per row, to measure cleaning without padding.
fn small(spare: f64) -> FlashSpec {
    let DeviceSpec::Flash(mut spec) = Profile::find("kirin9000-ufs31").expect("a shipped profile").device else {
        panic!("a phone with a disk");
    };
    let n = &mut spec.nand;
    (n.channels.value, n.dies.value, n.planes.value, n.page.value, n.pages.value) = (1, 2, 1, 4096, 64);
    n.spare.value = spare;
    n.endurance.value = 1_000_000;
    spec.buffer.value = 64 << 10;
    *spec
}

struct Chip {
    flash: Flash,
    now: Nanos,
    bill: Bill,
}

impl Chip {
    fn new(spec: &FlashSpec, blocks: u64) -> Self {
        Chip { flash: Flash::new(spec, blocks), now: Nanos(0), bill: Bill::default() }
    }
    fn ask(&mut self, ask: Ask) {
        self.now = self.flash.serve(self.now, ask, Tag::default(), &mut self.bill);
    }
    fn write(&mut self, at: u64) {
        self.ask(Ask::Write { at: Lba(at), blocks: 1 });
    }
    fn counter(&self, name: &str) -> u64 {
        self.flash.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

/// Write amplification of uniform random overwriting if the block written longest ago is cleaned, which greedy
/// cleaning approximates. The share `u` in it follows from data : room = (u - 1) / ln u (Desnoyers SYSTOR'12,
/// section 3).
fn theory(data: f64, room: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let u: f64 = (low + high) / 2.0;
        if (u - 1.0) / u.ln() < data / room { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

#[test]
fn random_overwriting_amplifies_writes_as_theory_says() {
    for spare in [0.1, 0.25, 0.5] {
        let blocks = 30_000;
        let (mut chip, mut rng) = (Chip::new(&small(spare), blocks), Rng::new(11));
        for at in 0..blocks {
            chip.write(at);
        }
        for _ in 0..blocks * 4 {
            chip.write(rng.below(blocks));
        }
        let before = (chip.counter("blocks_programmed"), chip.counter("blocks_copied"));
        for _ in 0..blocks * 3 {
            chip.write(rng.below(blocks));
        }
        let host = (chip.counter("blocks_programmed") - before.0) as f64;
        let found = 1.0 + (chip.counter("blocks_copied") - before.1) as f64 / host;
        let g = chip.flash.geometry();
        // On each die one block is erased and two are half full.
        let room = f64::from(g.dies * (g.blocks - 2) * g.block_units());
        let expected = theory(blocks as f64, room);
        assert!((found / expected - 1.0).abs() < 0.1, "spare {spare}: {found:.3}, theory {expected:.3}");
    }
}

#[test]
fn sequential_overwriting_copies_nothing() {
    let blocks = 30_000;
    let mut chip = Chip::new(&small(0.07), blocks);
    for _ in 0..5 {
        for at in 0..blocks {
            chip.write(at);
        }
    }
    let copied = chip.counter("blocks_copied");
    assert!(copied * 100 < chip.counter("blocks_programmed"), "{copied}");
}

#[test]
fn blocks_wear_alike_though_most_data_never_changes() {
    let wear = |endurance| {
        let mut spec = small(0.1);
        spec.nand.endurance.value = endurance;
        let (mut chip, mut rng) = (Chip::new(&spec, 10_000), Rng::new(12));
        for at in 0..10_000 {
            chip.write(at);
        }
        for _ in 0..300_000 {
            chip.write(rng.below(500));
        }
        (chip.flash.wear(), chip.counter("wear_levellings"))
    };
    let (levelled, times) = wear(1000);
    // A hundredth of the endurance; and levelling reaches a block after nine cleanings per block of the die, during
    // which blocks wear by nine on average.
    assert!(times > 0 && levelled.most - levelled.least <= 10 + 9, "{levelled:?}");
    let (left, times) = wear(1_000_000);
    assert!(times == 0 && left.least == 0 && left.most > 80, "{left:?}");
}

#[test]
fn the_map_is_fetched_and_written_back_as_a_list_of_the_least_recently_used_says() {
    let mut spec = small(0.2);
    spec.map.cached_pages.value = 4;
    let pages = 12;
    let (mut chip, mut rng) = (Chip::new(&spec, pages * 1024), Rng::new(13));
    // Page and changed mark; the most recently used last.
    let mut cache: Vec<(u64, bool)> = Vec::new();
    let mut stored = vec![false; pages as usize];
    let (mut fetched, mut written) = (0, 0);
    for round in 0..4000 {
        let at = rng.below(pages * 1024);
        let change = rng.below(3) == 0;
        match change {
            true => {
                chip.write(at);
                chip.ask(Ask::Flush);
            }
            false => chip.ask(Ask::Read { at: Lba(at), blocks: 1 }),
        }
        let page = at / 1024;
        let was = match cache.iter().position(|c| c.0 == page) {
            Some(i) => cache.remove(i).1,
            None => {
                fetched += u64::from(stored[page as usize]);
                if cache.len() == 4 {
                    let (out, dirty) = cache.remove(0);
                    written += u64::from(dirty);
                    stored[out as usize] |= dirty;
                }
                false
            }
        };
        cache.push((page, was || change));
        assert_eq!(chip.counter("map_pages_fetched"), fetched, "round {round}");
        assert_eq!(chip.counter("map_pages_written"), written, "round {round}");
    }
    assert!(fetched > 1000 && written > 500);
    let paid = chip.bill.amounts().iter().find(|a| a.0 == Part::FlashMap).expect("the map costs").1;
    assert_eq!(paid, spec.map.access_energy.value.times(fetched + written));
}

#[test]
fn dispersed_reading_pays_for_the_map_and_reading_in_order_does_not() {
    let spec = small(0.2);
    let blocks = 1 << 20;
    let mut chip = Chip::new(&spec, blocks);
    for at in (0..blocks).step_by(256) {
        chip.ask(Ask::Write { at: Lba(at), blocks: 256 });
    }
    let read = |chip: &mut Chip, next: &mut dyn FnMut(u64) -> u64| {
        let (before, from) = (chip.counter("map_pages_fetched"), chip.now);
        for i in 0..2000 {
            chip.ask(Ask::Read { at: Lba(next(i)), blocks: 1 });
        }
        (chip.counter("map_pages_fetched") - before, chip.now.since(from))
    };
    let mut rng = Rng::new(14);
    let (in_order, quick) = read(&mut chip, &mut |i| 4096 + i);
    let (dispersed, slow) = read(&mut chip, &mut |_| rng.below(blocks));
    assert!(in_order <= 3 && dispersed > 1000, "{in_order} {dispersed}");
    assert!(slow.0 > quick.0 + 1000 * spec.map.access.value.0);
}

#[test]
fn a_page_is_programmed_once_in_order_and_never_read_blank() {
    let geometry = Geometry::new(&small(0.1).nand, 1000);
    let mut nand = Nand::new(geometry);
    assert_eq!(nand.read(0), Err(Misuse::Blank { block: 0, page: 0 }));
    assert_eq!(nand.program(0, 0, 2), Ok(()));
    assert_eq!((nand.read(1), nand.read(2)), (Ok(()), Err(Misuse::Blank { block: 0, page: 2 })));
    assert_eq!(nand.program(0, 0, 1), Err(Misuse::Order { block: 0, page: 0, next: 2 }));
    assert_eq!(nand.program(0, 3, 1), Err(Misuse::Order { block: 0, page: 3, next: 2 }));
    let pages = geometry.block_pages();
    assert_eq!(nand.program(0, 2, pages), Err(Misuse::NoPage { block: 0, page: pages + 1 }));
    nand.erase(0);
    assert_eq!((nand.program(0, 0, pages), nand.erases(0), nand.erases(1)), (Ok(()), 1, 0));
}

#[test]
fn a_small_device_has_the_profiles_spare() {
    let DeviceSpec::Flash(spec) = Profile::find("kirin9000-ufs31").expect("a shipped profile").device else {
        panic!("a phone with a disk");
    };
    for gib in [2, 8, 32, 256u64] {
        let g = Geometry::new(&spec.nand, gib << 18);
        let spare = f64::from(g.units()) / (gib << 18) as f64 - 1.0;
        assert!((spare - spec.nand.spare.value).abs() < 0.012, "{gib} GiB: {spare}");
    }
}
