//! Correct in any thread order, with any device failure and any power cut.
//!
//! `JOULEFS_DEEP=1` runs two hundred times as many schedules. A failure is printed with the command that reproduces it.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use joulefs_schedules::{Case, Type, many, plain, run, run_and_keep};

#[test]
fn five_thousand_schedules_break_no_promise() {
    let count = if std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1") { 1_000_000 } else { 5_000 };
    let told = |f: &joulefs_schedules::Failure| {
        println!("{}\n    cargo run --release -p joulefs-schedules -- replay {} --show --shrink", f.what, f.case);
    };
    let sum = many(Type::F2fs, 0, count, &AtomicBool::new(false), &told);
    println!("{sum}");
    assert_eq!(sum.failures, 0, "{sum}");
    assert!(sum.distinct_schedules() as u64 > count * 95 / 100, "schedules repeat: {sum}");
    assert!(sum.names.iter().all(|n| *n > count / 100), "names are hardly ever synced: {:?}", sum.names);
    assert!(sum.distinct_crashes() as u64 > count / 10, "the power hardly ever goes: {sum}");
    assert!(sum.deltas > count / 10, "hardly any update is small: {sum}");
    assert!(sum.packed > count / 10, "hardly any cluster is packed: {sum}");
    assert!(sum.released > count / 200, "room is hardly ever given back: {sum}");
    assert!(sum.packed_pages > count / 100, "hardly any new page is packed: {sum}");
    assert!(sum.together > count / 10, "blocks are hardly ever brought together: {sum}");
}

/// Another thread wrote a new delta node before it was initialized, which ended the chain for every file synced later.
#[test]
fn a_delta_node_is_one_before_another_thread_can_write_it() {
    assert!(run(&Case::new(200_356)).is_ok());
}

/// A name was removed after an fsync checked that it may put the name into the chain and before it did. The account of
/// names then contained the name, an fsync of the directory wrote nothing, and a power cut brought the name back.
#[test]
fn a_name_removed_while_an_fsync_puts_it_into_the_chain_does_not_come_back() {
    assert!(run(&Case::new(4741)).is_ok());
}

/// Image, ledger and thread order are the same, whichever cases ran before.
#[test]
fn the_same_seed_gives_the_same_digest() {
    let (once, again): (Vec<_>, Vec<_>) =
        ((0..200).map(|s| run(&Case::new(s))).collect(), (0..200).rev().map(|s| run(&Case::new(s))).collect());
    assert_eq!(once, again.into_iter().rev().collect::<Vec<_>>());
    assert!(once.windows(2).all(|pair| pair[0] != pair[1]), "and another seed another");
}

#[test]
fn fsck_f2fs_agrees_on_what_schedules_leave() {
    let dir = std::env::temp_dir().join(format!("joulefs-schedules-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let image = dir.join("image");
    for seed in (0..400).step_by(10) {
        let Ok((_, left)) = run_and_keep(&Case::new(seed)) else { panic!("seed {seed}") };
        plain(left).expect("settles").save(&image).expect("an image");
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let out = Command::new("fsck.f2fs").arg("--dry-run").arg(&image).env("PATH", path).output();
        let out = out.expect("fsck.f2fs of f2fs-tools");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && !text.contains("[FAIL]"), "seed {seed}: {:?}\n{text}", out.status);
    }
    std::fs::remove_dir_all(&dir).expect("removes");
}
