//! One volume, nearly full, written in turn by us and by Linux.

use std::sync::atomic::Ordering;

use f2fs::gc::settings::Settings;
use f2fs::mkfs::Options;
use judges::churn::round;
use judges::oracle::tools::Mkfs;
use judges::oracle::tree::assert_same;
use judges::zoo::in_process;
use vfs::FileSystem;
use victim::Policy;

use crate::rig::*;

/// Plays `rounds` rounds from a new volume; each side lists what the other left before it continues. On our turns the
/// background repeatedly cleans by `policy`, if any; returns the number of blocks it moved into holes of used segments.
fn play(image: &std::path::Path, seed: u64, rounds: u64, policy: Option<Policy>) -> u64 {
    let mut threaded = 0;
    let room = {
        let volume = mount_rw(image);
        let fs = volume.statfs().expect("statfs");
        unmount(volume);
        fs.blocks_available * u64::from(fs.block_size)
    };
    let budget = room / 10 * 9;
    let mut left: Option<String> = None;
    for number in 0..rounds {
        let now = if number % 2 == 0 {
            let volume = mount_rw(image);
            if let Some(left) = &left {
                assert_same(("Linux", left), ("ours", &list(&volume)));
            }
            let work = round(seed, budget, number);
            let settings = policy.map(|policy| {
                volume.tune("atgc_age_threshold", "0").expect("a number");
                let settings = Settings { policy, ..volume.cleaning() };
                volume.set_cleaning(settings);
                settings
            });
            for part in work.chunks(work.len().div_ceil(12)) {
                in_process::perform(&*volume, part).unwrap_or_else(|e| panic!("round {number}: {e}"));
                if let Some(settings) = &settings {
                    volume.clean_in_background(settings).unwrap_or_else(|e| panic!("round {number}: {e}"));
                }
            }
            threaded += volume.counters.moved_threaded.load(Ordering::Relaxed);
            let now = list(&volume);
            unmount(volume);
            now
        } else {
            let script = format!(
                "{TREELIST} >$OUT/before; churn round . {seed} {budget} {number}; sync; {TREELIST} >$OUT/after"
            );
            let run = kernel().run(image, &script).expect_ok();
            run.assert_no_f2fs_complaints();
            let left = left.as_deref().unwrap_or_default();
            assert_same(("ours", left), ("Linux", &printed(run.out(), "before")));
            printed(run.out(), "after")
        };
        assert_clean(image);
        left = Some(now);
    }
    threaded
}

#[test]
fn rounds_by_turns_on_a_volume_nine_tenths_full() {
    let rounds = if deep() { 200 } else { 10 };
    let work = work_dir();
    let image = work.path().join("volume.img");
    format(&image, 200 * MIB, &Options::modern());
    play(&image, 31, rounds, None);
}

#[test]
fn a_few_rounds_on_a_volume_of_theirs_with_large_sections() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    let mkfs = Mkfs { segments_per_section: Some(2), ..Mkfs::default() };
    mkfs.format(&image, 160 * MIB).expect("mkfs.f2fs formats");
    play(&image, 32, 4, None);
}

#[test]
fn linux_takes_over_what_cleaning_put_into_holes_by_age() {
    let work = work_dir();
    for (policy, seed, segs_per_sec) in [(Policy::Atgc, 33, 1), (Policy::Fagc, 34, 1), (Policy::Fagc, 35, 2)] {
        let image = work.path().join(format!("{}.{segs_per_sec}.img", policy.name()));
        format(&image, 160 * MIB, &Options { segs_per_sec, ..Options::modern() });
        let threaded = play(&image, seed, if deep() { 40 } else { 6 }, Some(policy));
        println!("{}: {threaded} blocks into holes", policy.name());
        assert!(threaded > 0, "{}", policy.name());
    }
}
