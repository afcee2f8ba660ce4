//! Whenever the power goes, what was made durable is there and everything else is old or new.
//!
//! `JOULEFS_REPLAY=create-fsync:17:random:3` repeats one case.

use std::sync::atomic::{AtomicUsize, Ordering};

use device::Loss;
use joulefs_conformance::crash::{Cut, Plan, SCENARIOS, Scenario, judge, plan, surviving};
use joulefs_conformance::oracle::tools;

fn deep() -> bool {
    std::env::var_os("JOULEFS_DEEP").is_some()
}

fn losses(write: u64) -> Vec<Loss> {
    let tries = if deep() { 20 } else { 2 };
    let mut all = vec![Loss::AllKept, Loss::AllLost, Loss::AllButFirst, Loss::Reversed, Loss::LastTorn(3)];
    all.extend((0..tries).map(|i| Loss::Random(write * 1000 + i)));
    all
}

/// Every case at one write; the failures by name.
fn at_write(scenario: &Scenario, plan: &Plan<'_>, write: u64, only: Option<Loss>) -> Vec<String> {
    let (dev, record) = surviving(plan, write).expect("the image is made");
    let mut failures = Vec::new();
    for (i, loss) in only.map_or_else(|| losses(write), |l| vec![l]).into_iter().enumerate() {
        let name = format!("{}:{write}:{loss}", scenario.name);
        let image = dev.image(loss);
        match judge(&image, &record, None) {
            Err(e) => failures.push(format!("{name}: {e}")),
            Ok(after) if i == 0 && (write.is_multiple_of(10) || only.is_some()) => {
                let dir = tempfile::tempdir().expect("a temporary directory");
                for (image, which) in [(&image, "before"), (&after, "after")] {
                    let path = dir.path().join("image");
                    image.save(&path).expect("the image is saved");
                    let verdict = tools::fsck(&path);
                    if !verdict.clean() {
                        failures.push(format!(
                            "{name}: fsck.f2fs {which} recovery: {:?}\n{}",
                            verdict.complaints, verdict.output
                        ));
                    }
                }
            }
            Ok(_) => {}
        }
        if (write + i as u64).is_multiple_of(7) || only.is_some() {
            for second in 1..4 {
                let cut = Cut { write: second, loss: Loss::Random(second) };
                failures.extend(judge(&image, &record, Some(cut)).err().map(|e| format!("{name}: {e}")));
            }
        }
    }
    failures
}

/// `fsck.f2fs` judges both what the cut left and what recovery made of it.
fn survive(names: &[&str]) {
    let replay = std::env::var("JOULEFS_REPLAY").ok();
    let replay = replay.as_deref().and_then(|r| r.split_once(':')).and_then(|(name, rest)| {
        let (write, loss) = rest.split_once(':')?;
        Some((name, write.parse::<u64>().ok()?, loss.parse::<Loss>().ok()?))
    });
    let mut failures = Vec::new();
    for name in names {
        let scenario = SCENARIOS.iter().find(|s| s.name == *name).expect("a scenario of that name");
        let ready = plan(scenario).unwrap_or_else(|e| panic!("{name} without a cut: {e}"));
        if let Some((wanted, write, loss)) = replay {
            if wanted == *name {
                failures.extend(at_write(scenario, &ready, write, Some(loss)));
            }
            continue;
        }
        assert!(ready.writes > 0, "{name} writes nothing");
        // Every write of a short scenario; of a long one as many, evenly spread.
        let most = if deep() { 2000 } else { 150 };
        let step = ready.writes.div_ceil(most).max(1) as usize;
        let writes: Vec<u64> = (1..=ready.writes).step_by(step).collect();
        println!("{name}: {} of {} writes", writes.len(), ready.writes);
        let next = AtomicUsize::new(0);
        let found = std::thread::scope(|scope| {
            let work = || {
                let mut mine = Vec::new();
                while let Some(write) = writes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mine.extend(at_write(scenario, &ready, *write, None));
                }
                mine
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.map(|t| t.join().expect("no panic")).concat()
        });
        failures.extend(found);
    }
    failures.truncate(40);
    assert!(failures.is_empty(), "{} broken promises:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn files_keep_what_was_synced() {
    survive(&["create", "create-fsync", "append-fsync", "overwrite-fsync", "truncate", "attributes"]);
}

#[test]
fn names_are_old_or_new() {
    survive(&["rename-over", "link-unlink", "directories", "many-files"]);
}

#[test]
fn checkpoints_lose_nothing() {
    survive(&["checkpoint"]);
}

#[test]
fn cleaning_loses_nothing() {
    survive(&["cleaning"]);
}
