//! Do recipes produce what they specify? The tests run each kind of step and count the results: sizes, lifetimes,
//! changes, shares, fill level.

use std::sync::Arc;

use device::clock::VirtualClock;
use device::{Fingerprint, Rng};
use f2fs::{MountOptions, Volume};
use volume::Kind;

use super::files::{Files, whole};
use super::recipe::{BUILT_IN, Sizes, Spread, Step};
use super::run::Ager;
use super::{Done, Recipe, clock, format};

const MIB: u64 = 1 << 20;

fn volume(mib: u64) -> (Arc<Volume>, Arc<VirtualClock>) {
    let (device, clock) = (Arc::new(Fingerprint::new(mib * 256)), clock());
    format(Kind::F2fs, device.clone(), &*clock, 1, true).unwrap();
    (Volume::mount(device, clock.clone(), MountOptions::default()).unwrap(), clock)
}

/// Runs a recipe's steps on 256 MiB, their reference size.
fn carry_out<T>(steps: &str, look: impl FnOnce(&Files<'_>, Done) -> T) -> T {
    let head = "name='x'\nsummary='x'\nsource='x'\nreference='256M'\nrate='100M'\n";
    let recipe = Recipe::parse("x", &format!("{head}{steps}")).unwrap();
    let (volume, clock) = volume(256);
    let mut ager = Ager::new(&*volume, &clock, 1);
    let done = ager.all(&[recipe], &mut |_| ()).unwrap();
    look(&ager.files, done)
}

/// The share of a standard normal distribution below `x` (Abramowitz and Stegun 26.2.17, to 1e-7).
fn below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let tail = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = tail.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    let above = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x > 0.0 { 1.0 - above } else { above }
}

fn spreads(step: &Step) -> Vec<Spread> {
    let sizes: Vec<Sizes> = match step {
        Step::Write(w) => [Some(w.size), w.then.as_ref().map(|o| o.size)].into_iter().flatten().collect(),
        Step::Live(l) => l.kinds.iter().map(|k| k.size).collect(),
        Step::Delete(_) | Step::Rewrite(_) => Vec::new(),
    };
    let spread = |s| match s {
        Sizes::Spread(s) => Some(s),
        Sizes::Fixed(_) => None,
    };
    sizes.into_iter().filter_map(spread).collect()
}

#[test]
fn sizes_are_distributed_as_every_recipe_says() {
    let (volume, clock) = volume(128);
    let mut files = Files::new(&*volume, &clock, 1);
    let mut seen = 0;
    for (name, text) in BUILT_IN {
        for s in Recipe::parse(name, text).unwrap().steps.iter().flat_map(spreads) {
            let drawn: Vec<u64> = (0..20_000).map(|_| files.draw_size(&Sizes::Spread(s), 1.0)).collect();
            let (least, most) = (whole(s.min.0), whole(s.max.0));
            assert!(drawn.iter().all(|n| (least..=most).contains(n)), "{name}: {s:?}");
            for deviations in [-1.5f64, -0.5, 0.0, 0.5, 1.5] {
                // Files are whole blocks, so the share is evaluated at block sizes.
                let at = whole((s.median.0 as f64 * (s.sigma * deviations).exp()) as u64);
                if (least..most).contains(&at) {
                    let wanted = below((at as f64 / s.median.0 as f64).ln() / s.sigma);
                    let found = drawn.iter().filter(|n| **n <= at).count() as f64 / drawn.len() as f64;
                    assert!((found - wanted).abs() < 0.015, "{name}: {s:?}: {found:.3} up to {at}, not {wanted:.3}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 60, "{seen} shares");
}

#[test]
fn files_live_as_long_as_their_kind_says() {
    // By Little's law, the number of files is the arrival rate times the mean lifetime, which is exp(1/2) medians.
    // Files are deleted at the beginning of an hour, so at its end there are half an hour's files more than the mean.
    let steps = "[[step]]\ndo='live'\ndays=12\nfill='95%'\n\
        [[step.kind]]\nset='days'\nsize='500'\nper_day=1200\nlife_days=0.5\n\
        [[step.kind]]\nset='hours'\nsize='500'\nper_day=4800\nlife_days=0.05\n\
        [[step.kind]]\nset='forever'\nsize='500'\nper_day=10\n";
    carry_out(steps, |files, _| {
        for (set, a_day, life) in [("days", 1200.0, 0.5), ("hours", 4800.0, 0.05)] {
            let wanted = a_day * (life * 0.5f64.exp() + 0.5 / 24.0);
            let found = files.set(set).unwrap().len() as f64;
            assert!((found / wanted - 1.0).abs() < 0.08, "{set}: {found} are there, not {wanted:.0}");
        }
        let made = ["days", "hours", "forever"].map(|set| files.set(set).unwrap().created());
        // Fractions per hour are carried over, and the last file may be pending.
        for (made, wanted) in made.iter().zip([12 * 1200, 12 * 4800, 12 * 10]) {
            assert!((wanted - 1..=wanted).contains(made), "{made} made, not {wanted}");
        }
        assert_eq!(files.set("forever").unwrap().len() as u32, made[2]);
    });
}

#[test]
fn changes_have_the_kinds_count_and_share_of_appends_and_spread_over_its_files() {
    let steps = "[[step]]\ndo='write'\nset='db'\nsize='100K'\ncount=50\n\
        [[step]]\ndo='live'\ndays=10\nfill='95%'\n\
        [[step.kind]]\nset='db'\nsize='100K'\nper_day=0\nchanges_per_day=500\nappends=0.3\n";
    carry_out(steps, |files, done| {
        let made = 50 * 100 * 1024;
        // Fractions per hour are carried over, and the last change may be pending.
        let changes = (done.bytes_written - made) / 4096;
        assert!((4999..=5000).contains(&changes), "{changes} changes of a block");
        let grown: Vec<u64> = files.set("db").unwrap().files().map(|f| (f.bytes - 100 * 1024) / 4096).collect();
        let appended = grown.iter().sum::<u64>();
        assert!((1400..1600).contains(&appended), "{appended} of 5,000 changes extended a file");
        // Thirty per file: all but one of a thousand files are within three deviations.
        assert!(grown.iter().all(|n| (12..50).contains(n)), "{grown:?}");
    });
}

#[test]
fn rewriting_overwrites_so_much_in_pieces_so_large_and_changes_no_size() {
    let steps = "[[step]]\ndo='write'\nset='a'\nsize='1M'\ncount=20\n\
        [[step]]\ndo='rewrite'\nset='a'\npiece='8K'\ntotal='4M'\n";
    carry_out(steps, |files, done| {
        assert_eq!(done.bytes_written, 24 * MIB);
        assert!(files.set("a").unwrap().files().all(|f| f.bytes == MIB));
    });
}

#[test]
fn normal_numbers_have_mean_0_and_deviation_1() {
    let mut rng = Rng::new(5);
    let drawn: Vec<f64> = (0..50_000).map(|_| super::files::normal(&mut rng)).collect();
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
    assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    for at in [-2.0, -1.0, 0.0, 1.0, 2.0] {
        let found = drawn.iter().filter(|x| **x < at).count() as f64 / drawn.len() as f64;
        assert!((found - below(at)).abs() < 0.008, "{found} below {at}");
    }
}

/// Runs a shipped recipe and its predecessors.
fn carry_out_shipped<T>(name: &str, mib: u64, look: impl FnOnce(&Files<'_>, Done) -> T) -> T {
    let (volume, clock) = volume(mib);
    let mut ager = Ager::new(&*volume, &clock, 1);
    let done = ager.all(&Recipe::chain(name).unwrap(), &mut |_| ()).unwrap();
    look(&ager.files, done)
}

/// Bytes for files in total, and free.
fn space(files: &Files<'_>) -> (f64, f64) {
    let st = files.vol.statfs().unwrap();
    (st.blocks as f64 * 4096.0, st.blocks_free as f64 * 4096.0)
}

fn in_use(files: &Files<'_>) -> f64 {
    let (all, free) = space(files);
    100.0 * (1.0 - free / all)
}

/// Asserts that `found` is within `percent` of `wanted`.
#[track_caller]
fn assert_near(what: &str, found: f64, wanted: f64, percent: f64) {
    assert!((found / wanted - 1.0).abs() * 100.0 <= percent, "{what}: {found:.2}, not {wanted:.2}");
}

#[test]
fn a_phones_year_makes_the_files_of_365_days_and_ends_one_large_file_below_four_fifths() {
    let recipe = Recipe::chain("phone-year").unwrap().pop().unwrap();
    let lives = recipe.steps.iter().filter_map(|s| if let Step::Live(l) = s { Some(l) } else { None });
    let lives: Vec<_> = lives.collect();
    assert_eq!(lives.iter().map(|l| l.days).collect::<Vec<_>>(), [365]);
    let mib = 1024;
    carry_out_shipped("phone-year", mib, |files, done| {
        let scale = (mib * MIB) as f64 / recipe.reference.0 as f64;
        let made = |set: &str| f64::from(files.set(set).unwrap().created());
        for kind in lives.iter().flat_map(|l| &l.kinds) {
            let wanted = kind.per_day * 365.0 * scale;
            // Applications, settings and databases also came with the phone. The last of a kind may be pending.
            let before = if kind.set == "applications" { wanted } else { 0.05 * wanted + 1.0 };
            assert!((wanted - 1.0..=wanted + before).contains(&made(&kind.set)), "{}: {wanted:.1}", kind.set);
        }
        // Four fifths of the changes and new files, which are writes of programs, are SQLite's.
        let databases = done.changes as f64 + made("journals") + made("databases");
        assert_near("% by SQLite", 100.0 * databases / (done.changes + done.files_made) as f64, 81.0, 1.0);
        // Above 80 %, whole files are deleted; the largest take 6 % of this volume.
        assert!((75.0..80.0).contains(&in_use(files)), "{:.2} % in use", in_use(files));
    });
}

#[test]
fn large_and_small_files_are_as_many_as_on_the_aged_phone_and_fill_it_to_95_percent() {
    // A tenth of the phone's 11.8 GB, which had 86 large files and 24,000 small ones of 1.8 GB; a small volume's
    // reserve is larger.
    let mib = 1208;
    carry_out_shipped("large-and-small", mib, |files, done| {
        let (large, small) = (files.set("large").unwrap(), files.set("small").unwrap());
        assert_eq!(large.len() as u32, large.created(), "no large one is deleted");
        assert_near("large files", f64::from(large.created()), 86.0, 10.0);
        // 109 MB, scaled; the last file is cut to fit.
        let each = whole((109.0 * MIB as f64 * mib as f64 / (11.8 * 1024.0)) as u64);
        assert!(large.files().filter(|f| f.bytes == each).count() + 1 >= large.len());
        assert_near("small files for a large one", f64::from(small.created()) / f64::from(large.created()), 27.9, 3.0);
        let bytes: u64 = small.files().map(|f| f.bytes).sum();
        assert_near("bytes of a small file", bytes as f64 / small.len() as f64, 1.8e9 / 24_000.0, 3.0);
        assert!(small.files().all(|f| f.bytes <= 100 * 1024));
        assert_near(
            "% deleted",
            100.0 * done.files_deleted as f64 / f64::from(small.created()),
            100.0 * 6700.0 / 24e3,
            3.0,
        );
        assert_near("% in use", in_use(files), 95.0, 0.1);
    });
}

#[test]
fn full_and_fragmented_means_every_second_small_file_gone_and_holes_that_hardly_meet() {
    // Share of the space for files that lies in pieces under 128 KiB, by volume size.
    let (mib, wanted) = match std::env::var_os("JOULEFS_DEEP") {
        Some(deep) if deep == "1" => (16_384, 39.2),
        _ => (2048, 26.2),
    };
    carry_out_shipped("full-fragmented", mib, |files, _| {
        for set in ["4k", "8k"] {
            let set = files.set(set).unwrap();
            assert_eq!(set.len() as u32, set.created().div_ceil(2), "{} made", set.created());
        }
        let (pieces, (_, free)) = (files.vol.free_fragments(), space(files));
        let (small, blocks) = pieces.fragments();
        assert_near("% of the free space in small pieces", 100.0 * blocks as f64 * 4096.0 / free, wanted, 2.0);
        let of_a_file = pieces.count[0] + pieces.count[1];
        assert!(of_a_file as f64 > 0.9 * small as f64, "{of_a_file} of {small} holes are those of one file");
    });
}
