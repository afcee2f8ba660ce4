//! Random operations on a volume and on a plain model agree, however the volume is made.

use f2fs::{MountOptions, mkfs};
use joulefs_conformance::model::{Lockstep, Op, Variant, sequence};
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use vfs::{Error, FileSystem};

fn plain() -> Variant {
    Variant { mkfs: mkfs::Options::default(), mount: MountOptions::default(), mib: 128 }
}

fn variants() -> [Variant; 4] {
    let modern = Variant { mkfs: mkfs::Options::modern(), ..plain() };
    let sections = Variant { mkfs: mkfs::Options { segs_per_sec: 2, ..mkfs::Options::default() }, ..plain() };
    // Nothing inline, and so little memory that everything goes to the device at once.
    let mount = MountOptions { inline: false, dirty_limit: 4, node_cache: 16, dir_cache: 4, ..MountOptions::default() };
    [plain(), modern, sections, Variant { mount, ..plain() }]
}

fn cases(usual: u32) -> u32 {
    if std::env::var_os("JOULEFS_DEEP").is_some() { usual * 50 } else { usual }
}

fn check(cases: u32, longest: usize, run: impl Fn(&[Op]) -> Result<(), String>) {
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 3000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/model.txt"))),
        ..Config::default()
    });
    let outcome = runner.run(&sequence(longest), |ops| run(&ops).map_err(TestCaseError::fail));
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

#[test]
fn a_volume_does_what_the_model_does() {
    check(cases(1500), 120, |ops| Lockstep::new(&plain())?.run(ops));
}

#[test]
fn how_a_volume_is_made_does_not_show() {
    check(cases(300), 100, |ops| {
        for (i, variant) in variants().iter().enumerate().skip(1) {
            Lockstep::new(variant)?.run(ops).map_err(|e| format!("variant {i}: {e}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_volume_filled_and_emptied_again_and_again_stays_what_it_is() {
    use joulefs_conformance::model::{Dir, Name, Place, Range};
    for variant in variants().into_iter().filter(|v| v.mkfs.segs_per_sec == 1) {
        let mut both = Lockstep::new(&Variant { mib: 64, ..variant }).expect("a volume");
        let empty = both.real.statfs().expect("statfs").blocks_free;
        for round in 0..6u64 {
            let mut rng = device::Rng::new(round);
            let mut written = 0u64;
            let full = loop {
                let place = Place(Dir(0), Name(rng.below(8) as u8));
                let range = Range { at: rng.below(1800) * 4096, len: 1 + rng.below(600_000) };
                let _ = joulefs_conformance::model::apply(&*both.real, &Op::Create(place));
                let op = Op::Write(place, range, round as u8);
                match joulefs_conformance::model::apply(&*both.real, &op) {
                    Ok(_) => written += 1,
                    Err(e) => break e,
                }
                assert!(written < 5000, "64 MiB never fill");
                if written % 50 == 0 {
                    both.real.sync().expect("sync");
                }
            };
            assert_eq!(full, Error::NoSpace, "round {round}, after {written} writes");
            both.real.sync().expect("a full volume still syncs");
            for name in 0..Name::COUNT {
                let gone = joulefs_conformance::model::apply(&*both.real, &Op::Unlink(Place(Dir(0), Name(name))));
                assert!(matches!(gone, Ok(_) | Err(Error::NotFound)), "deleting always works: {gone:?}");
            }
            both.remount().expect("clean and empty");
            let free = both.real.statfs().expect("statfs").blocks_free;
            assert!(free + 8 >= empty, "round {round}: {free} blocks free of {empty}");
        }
    }
}
