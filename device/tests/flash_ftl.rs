//! The translation layer against a plain map: reads return what was written, whatever power cuts occur.

use std::collections::BTreeSet;

use device::energy::profile::{DeviceSpec, FlashSpec, Profile};
use device::energy::{Bill, Nanos};
use device::model::flash::Flash;
use device::model::{Ask, Model, Remap};
use device::{Lba, Rng, Tag};
use proptest::prelude::*;

/// Three translation pages.
const BLOCKS: u64 = 2500;

/// Small chips that few writes fill.
fn small(dies: u64, planes: u64, page: u64) -> FlashSpec {
    let DeviceSpec::Flash(mut spec) = Profile::find("kirin9000-ufs31").expect("a shipped profile").device else {
        panic!("a phone with a disk");
    };
    spec.nand.channels.value = 1;
    spec.nand.dies.value = dies;
    spec.nand.planes.value = planes;
    spec.nand.page.value = page;
    spec.nand.endurance.value = 500;
    spec.map.cached_pages.value = 2;
    spec.buffer.value = 128 << 10;
    *spec
}

/// The host's view: which write each block shows, and which it may show after a power cut.
struct Plain {
    shows: Vec<Option<u64>>,
    may: Vec<BTreeSet<Option<u64>>>,
    discarded: Vec<bool>,
    writes: u64,
}

impl Plain {
    fn new(blocks: u64) -> Self {
        let n = blocks as usize;
        Plain { shows: vec![None; n], may: vec![[None].into(); n], discarded: vec![false; n], writes: 0 }
    }
    fn show(&mut self, at: u64, what: Option<u64>) {
        self.shows[at as usize] = what;
        self.may[at as usize].insert(what);
        self.discarded[at as usize] = false;
    }
    fn apply(&mut self, ask: Ask) {
        match ask {
            Ask::Read { .. } => {}
            Ask::Write { at, blocks } => {
                for b in at.0..at.0 + blocks {
                    self.writes += 1;
                    self.show(b, Some(self.writes));
                }
            }
            Ask::Flush => {
                for (may, shows) in self.may.iter_mut().zip(&self.shows) {
                    *may = [*shows].into();
                }
                self.discarded.fill(false);
            }
            Ask::Discard { at, blocks } => {
                for b in at.0..at.0 + blocks {
                    self.show(b, None);
                    self.discarded[b as usize] = true;
                }
            }
            Ask::Remap { from, to, blocks, how } => {
                for (a, b) in (from.0..from.0 + blocks).zip(to.0..) {
                    let (at_a, at_b) = (self.shows[a as usize], self.shows[b as usize]);
                    self.show(b, at_a);
                    match how {
                        Remap::Exchange => self.show(a, at_b),
                        Remap::Share => {}
                        Remap::Move => {
                            self.show(a, None);
                            self.discarded[a as usize] = true;
                        }
                    }
                }
            }
        }
    }
    fn agrees(&self, flash: &Flash) -> Result<(), String> {
        for (b, shows) in self.shows.iter().enumerate() {
            let found = flash.generation(Lba(b as u64));
            if found != *shows {
                return Err(format!("block {b} shows {found:?} in place of {shows:?}"));
            }
        }
        flash.audit()
    }
    /// After a cut: blocks that are not lost are unchanged, lost ones have older contents.
    fn cut(&mut self, flash: &Flash, lost: &[Lba]) -> Result<(), String> {
        if !lost.is_sorted() {
            return Err("lost blocks are not in order".into());
        }
        for b in 0..self.shows.len() {
            let found = flash.generation(Lba(b as u64));
            let is_lost = lost.binary_search(&Lba(b as u64)).is_ok();
            if !self.may[b].contains(&found) {
                return Err(format!("block {b} shows {found:?}, durable or later are {:?}", self.may[b]));
            }
            if !is_lost && found != self.shows[b] && !self.discarded[b] {
                return Err(format!("block {b} shows {found:?} in place of {:?} and is not lost", self.shows[b]));
            }
            (self.shows[b], self.may[b], self.discarded[b]) = (found, [found].into(), false);
        }
        flash.audit()
    }
}

/// A device and the host's view of it.
struct Pair {
    flash: Flash,
    plain: Plain,
    now: Nanos,
    bill: Bill,
}

impl Pair {
    fn new(spec: &FlashSpec, blocks: u64) -> Self {
        let flash = Flash::with_generations(spec, blocks);
        Pair { flash, plain: Plain::new(blocks), now: Nanos(0), bill: Bill::default() }
    }
    fn ask(&mut self, ask: Ask) {
        self.now = self.flash.serve(self.now, ask, Tag::default(), &mut self.bill);
        self.plain.apply(ask);
    }
    /// Submits a request and continues before it is done.
    fn ask_ahead(&mut self, ask: Ask, gap: u64) {
        let _ = self.flash.serve(self.now, ask, Tag::default(), &mut self.bill);
        self.plain.apply(ask);
        self.now += Nanos(gap);
    }
    fn write(&mut self, at: u64, blocks: u64) {
        self.ask(Ask::Write { at: Lba(at), blocks });
    }
    fn cut(&mut self, after: u64) -> Result<Vec<Lba>, String> {
        self.now += Nanos(after);
        let lost = self.flash.cut(self.now);
        self.plain.cut(&self.flash, &lost)?;
        Ok(lost)
    }
    fn shows(&self, at: u64) -> Option<u64> {
        self.flash.generation(Lba(at))
    }
    fn counter(&self, name: &str) -> u64 {
        self.flash.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ask(Ask),
    Ahead(Ask, u64),
    Rest(u64),
    Cut(u64),
}

fn asks(blocks: u64) -> impl Strategy<Value = Ask> {
    // Most requests target few blocks, so that they collide.
    let range = move |longest: u64| {
        prop_oneof![3 => 0..100.min(blocks), 1 => 0..blocks].prop_flat_map(move |at| {
            (Just(Lba(at)), prop_oneof![4 => 1..9u64, 1 => 0..longest].prop_map(move |n| n.min(blocks - at)))
        })
    };
    prop_oneof![
        6 => range(600).prop_map(|(at, blocks)| Ask::Write { at, blocks }),
        2 => range(600).prop_map(|(at, blocks)| Ask::Read { at, blocks }),
        2 => range(2500).prop_map(|(at, blocks)| Ask::Discard { at, blocks }),
        1 => Just(Ask::Flush),
        3 => (range(300), 0..blocks, 0..4_usize).prop_map(move |((from, n), to, how)| {
            let to = to.min(blocks - n);
            let n = n.min(from.0.abs_diff(to));
            let how = [Remap::Exchange, Remap::Move, Remap::Share, Remap::Share][how];
            Ask::Remap { from, to: Lba(to), blocks: n, how }
        }),
    ]
}

fn steps(blocks: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => asks(blocks).prop_map(Step::Ask),
        6 => (asks(blocks), 0..3_000_000u64).prop_map(|(a, gap)| match a {
            Ask::Flush => Step::Ask(a),
            _ => Step::Ahead(a, gap),
        }),
        1 => (0..400_000_000u64).prop_map(Step::Rest),
        1 => (0..8_000_000u64).prop_map(Step::Cut),
    ];
    prop::collection::vec(step, 1..120)
}

fn follows(spec: &FlashSpec, blocks: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(spec, blocks);
    for step in steps {
        match *step {
            Step::Ask(ask) => pair.ask(ask),
            Step::Ahead(ask, gap) => pair.ask_ahead(ask, gap),
            Step::Rest(time) => {
                pair.now += Nanos(time);
                pair.flash.wait(pair.now, &mut pair.bill);
            }
            Step::Cut(after) => {
                pair.plain.agrees(&pair.flash).map_err(TestCaseError::fail)?;
                pair.cut(after).map_err(TestCaseError::fail)?;
            }
        }
    }
    pair.plain.agrees(&pair.flash).map_err(TestCaseError::fail)?;
    prop_assert_eq!(pair.counter("misuses"), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_map_whatever_is_asked_and_whenever_the_power_is_cut(steps in steps(BLOCKS)) {
        follows(&small(2, 2, 8192), BLOCKS, &steps)?;
    }

    #[test]
    fn it_is_a_map_with_any_chips(
        steps in steps(300), dies in 1..4u64, planes in 1..4u64, pages in 1..5u64, buffer in 1..40u64, spare in 2..30u64
    ) {
        let mut spec = small(dies, planes, pages * 4096);
        spec.buffer.value = (buffer * 4096).max(pages * 4096);
        spec.nand.spare.value = spare as f64 / 100.0;
        follows(&spec, 300, &steps)?;
    }
}

#[test]
fn a_full_device_is_overwritten_a_thousand_times_and_cut_again_and_again() {
    for (dies, planes, page, blocks) in [(1, 1, 4096, 700), (2, 2, 4096, 5000), (3, 1, 16384, 9000)] {
        let mut spec = small(dies, planes, page);
        spec.nand.spare.value = 0.02;
        let (mut pair, mut rng) = (Pair::new(&spec, blocks), Rng::new(blocks));
        pair.write(0, blocks);
        for round in 0..40 {
            for _ in 0..300 {
                let at = rng.below(blocks);
                pair.write(at, (1 + rng.below(8)).min(blocks - at));
                if rng.below(20) == 0 {
                    pair.ask(Ask::Flush);
                }
            }
            pair.plain.agrees(&pair.flash).unwrap_or_else(|e| panic!("{e}"));
            pair.cut(rng.below(5_000_000)).unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        assert!(pair.counter("cleanings") > 50 && pair.counter("misuses") == 0);
    }
}

#[test]
fn the_map_is_what_the_out_of_band_areas_say() {
    let (mut pair, mut rng) = (Pair::new(&small(2, 2, 8192), BLOCKS), Rng::new(5));
    for round in 0..60 {
        for _ in 0..100 {
            let at = rng.below(BLOCKS);
            pair.ask_ahead(Ask::Write { at: Lba(at), blocks: (1 + rng.below(9)).min(BLOCKS - at) }, rng.below(90_000));
        }
        pair.cut(rng.below(2_000_000)).unwrap_or_else(|e| panic!("{e}"));
        let scan = pair.flash.scan();
        for b in 0..BLOCKS {
            assert_eq!(scan.get(&Lba(b)).copied(), pair.shows(b), "round {round}, block {b}");
        }
    }
    assert!(pair.counter("cleanings") > 20);
}

#[test]
fn a_write_not_flushed_is_lost_and_the_one_before_is_there() {
    let mut pair = Pair::new(&small(1, 1, 4096), BLOCKS);
    pair.write(7, 1);
    pair.ask(Ask::Flush);
    pair.write(7, 1);
    assert_eq!(pair.shows(7), Some(2));
    assert_eq!(pair.cut(0), Ok(vec![Lba(7)]));
    assert_eq!(pair.shows(7), Some(1));
}

#[test]
fn an_unflushed_remap_is_undone_whole_and_a_flushed_one_stays() {
    for how in [Remap::Exchange, Remap::Move] {
        let mut pair = Pair::new(&small(1, 1, 4096), BLOCKS);
        pair.write(0, 20);
        pair.ask(Ask::Flush);
        let remap = Ask::Remap { from: Lba(2), to: Lba(1100), blocks: 9, how };
        pair.ask(remap);
        assert_eq!(pair.shows(1100), Some(3));
        let lost = pair.cut(1_000_000).unwrap_or_else(|e| panic!("{e}"));
        assert!(lost.contains(&Lba(1100)));
        for i in 0..9 {
            assert_eq!((pair.shows(2 + i), pair.shows(1100 + i)), (Some(3 + i), None));
        }
        pair.ask(remap);
        pair.ask(Ask::Flush);
        assert_eq!(pair.cut(0), Ok(vec![]));
        for i in 0..9 {
            assert_eq!((pair.shows(2 + i), pair.shows(1100 + i)), (None, Some(3 + i)));
        }
    }
}

#[test]
fn what_an_unflushed_remap_replaced_is_not_erased_before_the_remap_is_durable() {
    for how in [Remap::Exchange, Remap::Move, Remap::Share] {
        let (mut pair, mut rng) = (Pair::new(&small(2, 1, 4096), BLOCKS), Rng::new(31));
        pair.write(0, BLOCKS);
        pair.ask(Ask::Flush);
        for round in 0..20 {
            for i in 0..20 {
                pair.ask(Ask::Remap { from: Lba(40 * i), to: Lba(1000 + 40 * i), blocks: 9, how });
            }
            let cleanings = pair.counter("cleanings");
            while pair.counter("cleanings") < cleanings + 4 * (round % 7) {
                pair.write(2000 + rng.below(500), 1);
            }
            pair.cut(rng.below(1_000_000)).unwrap_or_else(|e| panic!("round {round}: {e}"));
            pair.write(0, BLOCKS);
            pair.ask(Ask::Flush);
        }
    }
}

#[test]
fn a_shared_unit_counts_once_and_stays_until_its_last_block_is_gone() {
    let (mut pair, mut rng) = (Pair::new(&small(2, 1, 4096), BLOCKS), Rng::new(7));
    pair.write(0, BLOCKS / 2);
    pair.ask(Ask::Flush);
    let programmed = pair.counter("blocks_programmed");
    for (from, to) in [(0, BLOCKS / 2), (0, BLOCKS - 400), (BLOCKS / 2 + 20, BLOCKS - 40)] {
        pair.ask(Ask::Remap { from: Lba(from), to: Lba(to), blocks: 40, how: Remap::Share });
    }
    assert_eq!(pair.counter("blocks_programmed"), programmed);
    pair.ask(Ask::Flush);
    // They disappear one by one, while cleaning moves the rest.
    for gone in [0, BLOCKS / 2, BLOCKS - 400] {
        for _ in 0..6000 {
            pair.write(100 + rng.below(BLOCKS / 2 - 100), 1);
        }
        pair.plain.agrees(&pair.flash).unwrap_or_else(|e| panic!("before {gone}: {e}"));
        pair.ask(Ask::Discard { at: Lba(gone), blocks: 40 });
        pair.cut(rng.below(1_000_000)).unwrap_or_else(|e| panic!("{gone}: {e}"));
    }
    assert!(pair.counter("cleanings") > 20 && pair.counter("blocks_copied") > 0);
    // The last twenty were shared twice.
    let before = pair.shows(BLOCKS - 40);
    assert!(before.is_some());
    pair.write(BLOCKS - 40, 1);
    assert_ne!(pair.shows(BLOCKS - 40), before);
}

#[test]
fn a_remap_copies_nothing() {
    let mut pair = Pair::new(&small(2, 2, 8192), BLOCKS);
    pair.write(0, 1000);
    pair.ask(Ask::Flush);
    let programmed = pair.counter("blocks_programmed");
    pair.ask(Ask::Remap { from: Lba(0), to: Lba(1200), blocks: 1000, how: Remap::Move });
    pair.ask(Ask::Flush);
    assert_eq!(pair.counter("blocks_programmed"), programmed);
    assert_eq!(pair.shows(1200 + 999), Some(1000));
}

#[test]
fn a_discard_counts_once_it_is_flushed_and_makes_cleaning_cheap() {
    let mut spec = small(2, 2, 8192);
    spec.nand.endurance.value = 1_000_000;
    let mut pair = Pair::new(&spec, BLOCKS);
    pair.write(0, BLOCKS);
    pair.ask(Ask::Flush);
    pair.ask(Ask::Discard { at: Lba(0), blocks: BLOCKS });
    pair.ask(Ask::Flush);
    assert_eq!(pair.cut(0), Ok(vec![]));
    assert!((0..BLOCKS).all(|b| pair.shows(b).is_none()));
    for _ in 0..20 {
        pair.write(0, BLOCKS / 2);
        pair.ask(Ask::Discard { at: Lba(0), blocks: BLOCKS });
    }
    assert!(pair.counter("cleanings") > 20);
    assert_eq!(pair.counter("blocks_copied"), 0);
}

#[test]
fn a_block_written_again_while_it_waits_is_programmed_once() {
    let mut pair = Pair::new(&small(2, 2, 8192), BLOCKS);
    for _ in 0..50 {
        pair.write(3, 1);
    }
    pair.ask(Ask::Flush);
    assert_eq!((pair.counter("blocks_programmed"), pair.counter("writes_absorbed")), (1, 49));
    assert_eq!(pair.shows(3), Some(50));
}
