//! Whatever our repair calls repaired, `fsck.f2fs` calls clean: wrong fields, and whole blocks with wrong contents.
//!
//! `JOULEFS_DEEP=1` tries fifty times as much, `JOULEFS_FIRST_SEED=<n>` other cases; `JOULEFS_REPLAY=<volume>:<n>`
//! repeats one case and prints its damage.

use std::path::Path;
use std::process::Command;

use device::{Memory, Rng};
use f2fs::mkfs;
use judges::forge::Forger;
use judges::misplace::Misplacer;
use judges::oracle::tools::{Mkfs, Sload, assert_fsck_clean, fsck, locate};
use trials::populated::unmounted;

use crate::endure::{all_end_well, watched};

/// A volume to damage, by what made it.
fn base(volume: u64) -> Memory {
    match volume {
        1 => unmounted(&mkfs::Options::default()),
        2 => unmounted(&mkfs::Options::modern()),
        3 => theirs(&["lost_found"]),
        4 => theirs(&["lost_found", "extra_attr", "inode_checksum", "sb_checksum", "inode_crtime", "compression"]),
        5 => theirs(&["extra_attr", "quota", "project_quota", "lost_found"]),
        _ => unreachable!("volumes are 1 to 5"),
    }
}

/// In memory if possible: no case needs a real disk.
fn work_dir() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.expect("a temporary directory")
}

/// A tree with files of every layout, put on a volume by f2fs-tools.
fn theirs(features: &[&str]) -> Memory {
    let dir = work_dir();
    let (image, tree) = (dir.path().join("image"), dir.path().join("tree"));
    fill(&tree);
    let mkfs = Mkfs::with_features(features.iter().copied());
    mkfs.format(&image, 128 << 20).unwrap();
    Sload::default().fill(&image, &tree).unwrap();
    assert_fsck_clean(&image);
    Memory::load(&image).unwrap()
}

fn fill(tree: &Path) {
    let at = |name: &str| tree.join(name);
    std::fs::create_dir_all(at("entry_many")).unwrap();
    std::fs::create_dir_all(at("entry_dir/entry_deep")).unwrap();
    for i in 0..300 {
        std::fs::write(at(&format!("entry_many/entry_number_{i}")), format!("number {i}")).unwrap();
    }
    // Every block is recognizable as contents, with words that are not node numbers.
    let bytes = vec![0xA5; 9 << 20];
    std::fs::write(at("entry_big"), &bytes).unwrap();
    std::fs::write(at("entry_blocks"), &bytes[..50_000]).unwrap();
    std::fs::write(at("entry_inline"), b"inline").unwrap();
    std::fs::write(at("entry_dir/entry_deep/entry_leaf"), b"leaf").unwrap();
    // In the same directory: sload.f2fs 1.15 leaves a wrong checksum in an inode named in two directories.
    std::fs::hard_link(at("entry_blocks"), at("entry_again")).unwrap();
    std::os::unix::fs::symlink("entry_inline", at("entry_link")).unwrap();
}

/// A copy with one to three damages.
fn damaged(base: &Memory, forger: &Forger, misplacer: &Misplacer, volume: u64, n: u64) -> (Memory, String) {
    let image = base.fork();
    let mut rng = Rng::new(volume << 32 | n);
    let times = if rng.chance(1, 4) { 2 + rng.below(2) } else { 1 };
    let places: Vec<String> = (0..times)
        .map(
            |_| if n.is_multiple_of(2) { misplacer.misplace(&image, &mut rng) } else { forger.forge(&image, &mut rng) },
        )
        .collect();
    (image, format!("{volume}:{n} ({})", places.join("; ")))
}

/// False if there was no repair; panics if `fsck.f2fs` disagrees with it.
fn agreed(image: &Memory) -> bool {
    let told = std::env::var_os("JOULEFS_REPLAY").is_some();
    let done = match ::fsck::repair(image, &::fsck::Options::default()) {
        Ok(done) => done,
        Err(e) => {
            if told {
                println!("refused: {e}");
            }
            return false;
        }
    };
    if told {
        println!("{}", done.before);
        done.actions.iter().for_each(|action| println!("{action}"));
    }
    clean_for_f2fs_tools(image, told);
    true
}

/// Panics if `fsck.f2fs` finds errors in an image.
pub fn clean_for_f2fs_tools(image: &Memory, told: bool) {
    let work = work_dir();
    let path = work.path().join("image");
    image.save(&path).unwrap();
    let verdict = fsck(&path);
    if told {
        println!("{}", verdict.output);
        if let Some(keep) = std::env::var_os("JOULEFS_KEEP") {
            std::fs::copy(&path, keep).unwrap();
        }
    }
    if !verdict.checkpoint_state.iter().any(|flag| flag == "quota_need_fsck") {
        let faults = faults(&verdict.output.text);
        assert!(faults.is_empty(), "exit {:?}: {}", verdict.output.exit, faults.join(" | "));
        return;
    }
    // Usage must be recounted. `fsck.f2fs` does that even in a dry run, where it trips over its own unwritten changes.
    // So the result of a run that may write counts, and what it finds afterwards.
    let run = Command::new(locate("fsck.f2fs", "f2fs-tools")).arg("-f").arg(&path).output().expect("fsck.f2fs");
    let said = String::from_utf8_lossy(&run.stdout);
    if told {
        println!("{said}");
    }
    assert!(faults(&said).is_empty(), "{}", faults(&said).join(" | "));
    let after = fsck(&path).output.text;
    assert!(faults(&after).is_empty(), "after counting usage: {}", faults(&after).join(" | "));
}

/// What `fsck.f2fs` changes on any writable volume without reporting it in a dry run: it sets every count of failed
/// cleanings to zero, including those of pinned files, and the SIT types of the segments to which it has just written
/// usage.
fn is_habit(line: &str) -> bool {
    line.contains("reset i_gc_failures") || line.contains("(check_sit_types:")
}

/// The lines that report errors, except those about the contents of quota files, which our checker leaves out
/// (docs/fsck.md).
fn faults(text: &str) -> Vec<&str> {
    let of_quota = |line: &&str| ["quotaio", "fsck_chk_quota_files"].iter().any(|origin| line.contains(origin));
    let marks = ["[Fail", "ASSERT", "[FIX]", "[ERROR]", "Error:", "Can't find a valid"];
    let fault = |line: &&str| marks.iter().any(|mark| line.contains(mark)) && !is_habit(line);
    let quota = text.lines().any(|line| of_quota(&line));
    // The sum that every error adds to.
    let sum = |line: &&str| quota && line.contains("other corrupted bugs");
    text.lines().filter(fault).filter(|line| !of_quota(line) && !sum(line)).collect()
}

fn both_agree(volume: u64) {
    let count = match std::env::var("JOULEFS_CASES") {
        Ok(n) => n.parse().expect("a number"),
        Err(_) if std::env::var_os("JOULEFS_DEEP").is_some() => 5000,
        Err(_) => 100,
    };
    let first = std::env::var("JOULEFS_FIRST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut cases: Vec<u64> = (first..first + count).collect();
    if let Ok(replay) = std::env::var("JOULEFS_REPLAY") {
        let (of, n) = replay.split_once(':').expect("JOULEFS_REPLAY=<volume>:<n>");
        if of != volume.to_string() {
            return;
        }
        cases = vec![n.parse().expect("a number")];
    }
    let base = base(volume);
    let (forger, misplacer) = (Forger::of(&base), Misplacer::of(&base));
    let all = cases.len();
    let make = move |n| damaged(&base, &forger, &misplacer, volume, n);
    let done = all_end_well(watched(cases, make, |image, _| agreed(image)));
    println!("volume {volume}: {done} of {all} were repaired");
    assert!(all < 100 || done > all / 2, "only {done} of {all} were repaired");
}

#[test]
fn what_is_repaired_on_a_plain_volume_is_clean_for_f2fs_tools() {
    both_agree(1);
}

#[test]
fn what_is_repaired_on_a_volume_with_modern_features_is_clean_for_f2fs_tools() {
    both_agree(2);
}

#[test]
fn what_is_repaired_on_a_volume_of_f2fs_tools_is_clean_for_them() {
    both_agree(3);
}

#[test]
fn what_is_repaired_on_their_volume_with_checksums_and_compression_is_clean_for_them() {
    both_agree(4);
}

#[test]
fn what_is_repaired_on_their_volume_with_quotas_is_clean_for_them() {
    both_agree(5);
}
