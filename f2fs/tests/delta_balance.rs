//! Deltas cost no file much more than it would cost without them, whatever its program writes.
//!
//! The same pages are changed and synced on two volumes, one without deltas, and the prices of all requests, flushes and
//! of encoding are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::energy::{Nanos, Processor, Work};
use device::{Counting, Loss, Rng, Tag};
use joulefs_f2fs::MountOptions;
use joulefs_f2fs::Volume;
use vfs::{FileSystem, Ino};
use victim::Prices;

use crate::log_rig::*;

const BLOCK: usize = 4096;
const PAGES: u64 = 400;

/// Which pages change with a sync, and how.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// Three pages of a database; of ten changes nine are small.
    Database,
    /// A saved state: six adjacent pages, a few more bytes of each every time.
    State,
    /// Three pages: first a small change, then all of it.
    Spiteful,
    /// The same with one page.
    SpitefulAlone,
    /// Four pages, for 500 syncs by a little, then for 500 all of them.
    Turning,
}

/// Counts what is encoded.
#[derive(Default)]
struct Encoded(AtomicU64);

impl Processor for Encoded {
    fn compute(&self, work: Work, _: Nanos, _: Tag) {
        self.0.fetch_add(u64::from(work == Work::DeltaEncode), Relaxed);
    }
}

/// A program and its file.
struct Course {
    program: Program,
    rng: Rng,
    /// Pages whose last change was small, of a spiteful program.
    touched: Vec<bool>,
    contents: Vec<u8>,
}

impl Course {
    fn new(program: Program, seed: u64) -> Self {
        let contents = pattern(seed, PAGES as usize * BLOCK);
        Course { program, rng: Rng::new(seed), touched: vec![false; PAGES as usize], contents }
    }

    /// The changes before the n-th sync.
    fn change(&mut self, vol: &Volume, file: Ino, sync: u64) {
        let Course { program, rng, touched, contents } = self;
        let page = |rng: &mut Rng| rng.below(PAGES) * rng.below(PAGES) / PAGES;
        let pages: Vec<u64> = match program {
            Program::State => (0..6).collect(),
            Program::SpitefulAlone => vec![page(rng) / 2, PAGES - 1],
            Program::Turning => (0..4).map(|_| rng.below(60)).collect(),
            Program::Database | Program::Spiteful => (0..3).map(|_| page(rng)).collect(),
        };
        for page in pages {
            let whole = match program {
                Program::Database => rng.below(10) == 0,
                Program::State => false,
                Program::Spiteful | Program::SpitefulAlone => {
                    touched[page as usize] = !touched[page as usize];
                    !touched[page as usize]
                }
                Program::Turning => sync / 500 % 2 == 1,
            };
            let len = if whole { BLOCK } else { 20 + rng.below(60) as usize };
            let first = page as usize * BLOCK;
            let at = first + rng.below((BLOCK - len + 1) as u64) as usize;
            rng.fill(&mut contents[at..at + len]);
            // Whole pages, as from a kernel's cache.
            write(vol, file, first as u64, &contents[first..first + BLOCK]);
        }
    }
}

/// The joules of a course by the prices of a phone, and how many deltas were made.
fn follow(program: Program, delta: bool, seed: u64) -> (f64, u64) {
    let dev = Arc::new(Counting::new(with_deltas(128)));
    let encoded = Arc::new(Encoded::default());
    let options = MountOptions { delta, processor: Some(encoded.clone()), ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    let file = new_file(&vol, vol.root(), "file");
    let mut course = Course::new(program, seed);
    write(&vol, file, 0, &course.contents);
    vol.sync().unwrap();
    let before = dev.snapshot().total();
    for sync in 0..2000 {
        course.change(&vol, file, sync);
        vol.fsync(file, true).unwrap();
    }
    let done = dev.snapshot().total() - before;
    let p = Prices::default();
    let requests = (done.reads + done.writes) * p.request + done.blocks_read * p.read_block;
    let written = done.blocks_written * p.write_block_sequential + done.flushes * p.flush;
    let computed = encoded.0.load(Relaxed) * MountOptions::default().delta_costs.encode_pj;
    ((requests + written + computed) as f64 / 1e12, vol.counters.deltas.load(Relaxed))
}

/// Excess over no deltas in percent, and how many deltas were made.
fn excess(program: Program, seed: u64) -> (f64, u64) {
    let ((without, _), (with, deltas)) = (follow(program, false, seed), follow(program, true, seed));
    (100.0 * (with / without - 1.0), deltas)
}

#[test]
fn deltas_cost_no_program_three_percent_more_and_a_database_keeps_its_gain() {
    let (mut most, mut database) = (Vec::new(), Vec::new());
    for seed in 1..4 {
        for program in [Program::State, Program::Spiteful, Program::SpitefulAlone] {
            most.push((excess(program, seed), program, seed));
        }
        database.push(excess(Program::Database, seed).0);
        let (turning, deltas) = excess(Program::Turning, seed);
        assert!(turning < -5.0 && deltas > 1000, "turning, {seed}: {turning} %");
    }
    for ((excess, deltas), program, seed) in most {
        assert!(excess < 3.0, "{program:?}, {seed}: {excess} %, {deltas} deltas");
        assert!(deltas > 0, "{program:?}: nothing was tried");
    }
    assert!(database.iter().all(|excess| *excess < -12.0), "{database:?}");
}

#[test]
fn what_was_synced_survives_a_cut_while_deltas_of_a_file_end() {
    for program in [Program::State, Program::Spiteful, Program::Database] {
        let cut = power_cut(&with_deltas(128));
        let vol = mount(cut.clone());
        let file = new_file(&vol, vol.root(), "file");
        let mut course = Course::new(program, 5);
        write(&vol, file, 0, &course.contents);
        vol.sync().unwrap();
        for sync in 0..240 {
            course.change(&vol, file, sync);
            vol.fsync(file, sync % 3 > 0).unwrap();
            let images = [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(sync)];
            for image in images.iter().take(if sync % 8 == 3 { 3 } else { 0 }) {
                recovered(image, |vol| {
                    let held = read_all(vol, find(vol, "file").unwrap());
                    assert!(held == course.contents, "{program:?}, sync {sync}");
                });
            }
        }
        assert!(vol.counters.deltas.load(Relaxed) > 0 && read_all(&vol, file) == course.contents);
        vol.unmount().unwrap();
        assert_clean(&*cut, "unmounted");
    }
}
