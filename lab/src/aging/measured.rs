//! Do recipes make what they say? Each kind of step is carried out and what came of it is counted: sizes, lives,
//! changes, shares, the level of filling.

use std::sync::Arc;

use device::clock::VirtualClock;
use device::{Fingerprint, Rng};
use f2fs::{MountOptions, Volume};

use super::files::{Files, whole};
use super::recipe::{BUILT_IN, Sizes, Spread, Step};
use super::run::Ager;
use super::{Done, Recipe, clock, format};

const MIB: u64 = 1 << 20;

fn volume(mib: u64) -> (Arc<Volume>, Arc<VirtualClock>) {
    let (device, clock) = (Arc::new(Fingerprint::new(mib * 256)), clock());
    format(&*device, &*clock, 1, true).unwrap();
    (Volume::mount(device, clock.clone(), MountOptions::default()).unwrap(), clock)
}

/// Carries out a recipe's steps on 256 MiB, which is their reference.
fn carry_out<T>(steps: &str, look: impl FnOnce(&Files<'_>, Done) -> T) -> T {
    let head = "name='x'\nsummary='x'\nsource='x'\nreference='256M'\nrate='100M'\n";
    let recipe = Recipe::parse("x", &format!("{head}{steps}")).unwrap();
    let (volume, clock) = volume(256);
    let mut ager = Ager::new(&volume, &clock, 1);
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
    let mut files = Files::new(&volume, &clock, 1);
    let mut seen = 0;
    for (name, text) in BUILT_IN {
        for s in Recipe::parse(name, text).unwrap().steps.iter().flat_map(spreads) {
            let drawn: Vec<u64> = (0..20_000).map(|_| files.draw_size(&Sizes::Spread(s), 1.0)).collect();
            let (least, most) = (whole(s.min.0), whole(s.max.0));
            assert!(drawn.iter().all(|n| (least..=most).contains(n)), "{name}: {s:?}");
            for deviations in [-1.5f64, -0.5, 0.0, 0.5, 1.5] {
                // Files are whole blocks, so the share is asked for at one.
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
    // By Little's law as many are there as come in a mean life, which is exp(1/2) medians. Files go as an hour begins,
    // so that at its end half an hour's files more are there than in the mean.
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
        let made = ["days", "hours", "forever"].map(|set| files.set(set).unwrap().made());
        // Fractions of an hour's files are added up, and the last may be owed.
        for (made, wanted) in made.iter().zip([12 * 1200, 12 * 4800, 12 * 10]) {
            assert!((wanted - 1..=wanted).contains(made), "{made} made, not {wanted}");
        }
        assert_eq!(files.set("forever").unwrap().len() as u32, made[2]);
    });
}

#[test]
fn changes_are_as_many_and_extend_as_often_as_a_kind_says_and_spread_over_its_files() {
    let steps = "[[step]]\ndo='write'\nset='db'\nsize='100K'\ncount=50\n\
        [[step]]\ndo='live'\ndays=10\nfill='95%'\n\
        [[step.kind]]\nset='db'\nsize='100K'\nper_day=0\nchanges_per_day=500\nappends=0.3\n";
    carry_out(steps, |files, done| {
        let made = 50 * 100 * 1024;
        // Fractions of an hour's changes are added up, and the last may be owed.
        let changes = (done.bytes_written - made) / 4096;
        assert!((4999..=5000).contains(&changes), "{changes} changes of a block");
        let grown: Vec<u64> = files.set("db").unwrap().files().map(|f| (f.bytes - 100 * 1024) / 4096).collect();
        let appended = grown.iter().sum::<u64>();
        assert!((1400..1600).contains(&appended), "{appended} of 5,000 changes extended a file");
        // Thirty for each file: all but one of a thousand files are within three deviations.
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
