//! Checks the results of schedules with Linux: after an unmount it finds our tree, and after a cut it recovers the same
//! tree as we do.
//!
//! The seeds are a sample of those of the crate `schedules`: each image takes Linux two seconds. Compressed files need
//! a kernel built by `scripts/install-tools kernel`: Debian's does not support them. `JOULEFS_DEEP=1` checks a hundred
//! times as many; `JOULEFS_REPLAY=SEED` checks one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use joulefs_schedules::course::Course;
use joulefs_schedules::{Case, plain, run_and_keep};
use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;
use judges::oracle::tree;

use crate::rig::*;

/// One seed in this many.
const EACH: u64 = 17;

fn is_compressed(seed: u64) -> bool {
    Course::of(&Case::new(seed)).mounting.compress.is_some()
}

/// Returns how the two differ, or the errors that either finds.
fn compare(seed: u64, dir: &std::path::Path) -> Result<bool, String> {
    let (outcome, left) = run_and_keep(&Case::new(seed)).map_err(|f| f.to_string())?;
    let image = dir.join(format!("{seed}.img"));
    plain(left)?.save(&image).map_err(|e| e.to_string())?;
    let theirs = dir.join(format!("{seed}.linux.img"));
    std::fs::copy(&image, &theirs).map_err(|e| e.to_string())?;

    let volume = mount_rw(&image);
    let ours = list(&volume);
    unmount(volume);
    let kernel = match Linux::complete() {
        Ok(linux) if is_compressed(seed) => equipped(Kernel::of(linux)),
        _ => kernel(),
    };
    let run = kernel.run(&theirs, &format!("{TREELIST} >$OUT/tree"));
    // Linux's message for a pack whose head was written before the cut but not its tail: it does not count.
    let complaints: Vec<_> = run.complaints().into_iter().filter(|l| !l.ends_with("invalid crc_offset: 0")).collect();
    if !run.ok() || !complaints.is_empty() {
        return Err(format!("{complaints:?}\n{}", run.describe()));
    }
    let linux = printed(run.out(), "tree");
    let [ours, linux] = [&ours, &linux].map(|text| without_directory_times(text));
    if let Some(how) = tree::difference(("ours", &ours), ("Linux", &linux), 5) {
        return Err(how);
    }
    for (who, image) in [("ours", &image), ("Linux", &theirs)] {
        let report = our_fsck(image);
        if !report.is_clean() {
            return Err(format!("fsck of what {who} recovered: {:?}", report.errors().take(3).collect::<Vec<_>>()));
        }
    }
    let _ = std::fs::remove_file(image).and_then(|()| std::fs::remove_file(theirs));
    Ok(outcome.cut)
}

#[test]
fn linux_finds_what_we_find_in_what_schedules_leave() {
    let work = work_dir();
    let seeds: Vec<u64> = match std::env::var("JOULEFS_REPLAY") {
        Ok(seed) => vec![seed.parse().expect("JOULEFS_REPLAY is a seed")],
        Err(_) => (0..if deep() { 2000 } else { 20 }).map(|n| n * EACH).collect(),
    };
    let seeds = match Linux::complete() {
        Ok(_) => seeds,
        Err(why) => {
            let others = seeds.into_iter().filter(|seed| !is_compressed(*seed)).collect();
            testlog::missing(format_args!("images with compressed files are not shown: {why}"));
            others
        }
    };
    let (next, cuts, failed) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Relaxed) as usize) {
                    match compare(*seed, work.path()) {
                        Ok(cut) => drop(cuts.fetch_add(u64::from(cut), Relaxed)),
                        Err(what) => {
                            println!(
                                "JOULEFS_REPLAY={seed} cargo test -p joulefs-conformance --test together scheduled::\n{what}"
                            );
                            failed.lock().expect("nobody panicked").push(*seed);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panicked");
    assert!(failed.is_empty(), "{failed:?}");
    println!("{} images, {} of them after a cut", seeds.len(), cuts.load(Relaxed));
    assert!(seeds.len() == 1 || cuts.into_inner() as usize > seeds.len() / 8, "hardly any cut");
}
