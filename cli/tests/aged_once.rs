//! Are volumes aged once for all runs and commands that begin with the same, without a change of any result?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::program::parsed;
use crate::room::Room;

fn recording(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings").join(name).display().to_string()
}

/// A command with this cache.
fn begin(cache: &Path, words: &[&str]) -> Child {
    Command::new(crate::PROGRAM)
        .args(["trace", "replay", "--json"])
        .args(words)
        .env("JOULEFS_CACHE", cache)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
fn end(child: Child, words: &[&str]) -> Value {
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{words:?}");
    parsed(&String::from_utf8_lossy(&out.stdout))
}

#[track_caller]
fn replay(cache: &Path, words: &[&str]) -> Value {
    end(begin(cache, words), words)
}

/// The files of a cache.
fn kept(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("aged")).into_iter().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// What a run says about itself, without its name.
fn numbers(run: &Value) -> Value {
    let mut run = run.clone();
    ["variant", "name", "control", "run"].iter().for_each(|name| _ = run.as_object_mut().unwrap().remove(*name));
    run
}

/// Compares a command without a cache, with an empty one and with a full one; returns the number of volumes that it kept.
#[track_caller]
fn same_three_times(words: &[&str]) -> usize {
    let room = Room::new();
    let cache = room.path("cache");
    let without = replay(&cache, &[words, &["--no-cache"]].concat());
    assert_eq!(kept(&cache), Vec::<PathBuf>::new(), "--no-cache keeps nothing");
    for _ in 0..2 {
        let with = replay(&cache, words);
        assert!(with == without, "{words:?}: {with}\nwithout a cache: {without}");
    }
    kept(&cache).len()
}

/// Options of a used volume.
const USED: [&str; 5] = ["--age", "phone-year", "--fill", "90%", "--hurry"];

#[test]
fn results_are_the_same_without_a_cache_and_with_an_empty_and_a_full_one() {
    let file = recording("chat-delete.rec");
    let file = file.as_str();
    let of = |words: &[&str]| same_three_times(&[&[file][..], words].concat());
    let policies = "gc=greedy,atgc,fagc,joule";
    assert_eq!(of(&[&USED[..], &["--compare", policies, "--seeds", "2"]].concat()), 2, "one for each seed");
    assert_eq!(of(&[&USED[..], &["--compare", "delta=off,on", "--seeds", "1"]].concat()), 2);
    assert_eq!(of(&["--age", "full", "--profile", "laptop-disk-4200", "--fs", "scherlfs"]), 1);
    assert_eq!(of(&["--age", "full-fragmented", "--page-cache", "8M", "--back-to-back"]), 1);
    assert_eq!(of(&["--fill", "80%", "--repeat", "2", "--after", file]), 1);
    assert_eq!(of(&["--compare", policies]), 0, "a new volume is not kept");
}

#[test]
fn a_run_of_a_comparison_equals_the_same_run_alone() {
    let (room, file) = (Room::new(), recording("mail.rec"));
    let cache = room.path("cache");
    let words =
        [&[file.as_str()][..], &["--age", "three-fifths", "--fill", "95%", "--hurry", "--size", "320M"]].concat();
    let compared =
        replay(&cache, &[&words[..], &["--compare", "gc=atgc,joule", "--seeds", "1", "--no-cache"]].concat());
    let options = [&["-o", "background_gc=off"][..], &["-o", "gc=atgc"], &["-o", "gc=joule"]];
    let runs = compared["variants"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for (run, options) in runs.iter().zip(options) {
        let alone = replay(&cache, &[&words[..], options, &["--no-cache"]].concat());
        assert_eq!(run["total_pj"], alone["total_pj"], "{options:?}");
        assert_eq!(numbers(run)["replay"], numbers(&alone)["replay"], "{options:?}");
    }
}

#[test]
fn a_foreign_recording_shares_its_volume_with_cold_and_keeps_its_memory_without() {
    let room = Room::new();
    let file = room.text("app.strace");
    let mut calls = String::new();
    for n in 0..400 {
        calls +=
            &format!("1 {}.000000 pwrite64(3</data/a.db>, \"\"..., 4096, {}) = 4096 <0.000010>\n", 100 + n, n * 4096);
        calls += &format!("1 {}.500000 fsync(3</data/a.db>) = 0 <0.000010>\n", 100 + n);
    }
    fs::write(&file, calls).unwrap();
    let words = [&[file.as_str()][..], &USED].concat();
    assert_eq!(same_three_times(&[&words[..], &["--cold"]].concat()), 1);
    assert_eq!(same_three_times(&words), 0);
}

#[test]
fn a_damaged_volume_is_made_again() {
    let (room, file) = (Room::new(), recording("settings.rec"));
    let cache = room.path("cache");
    let words = [&[file.as_str()][..], &USED].concat();
    let first = replay(&cache, &words);
    let [path] = &kept(&cache)[..] else { panic!("one volume") };
    let whole = fs::read(path).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damage in [&changed[..], &whole[..whole.len() / 2], b""] {
        fs::write(path, damage).unwrap();
        assert_eq!(replay(&cache, &words), first);
        assert!(fs::read(path).unwrap() == whole, "it is whole again");
    }
}

#[test]
fn everything_that_changes_the_volume_makes_another_one() {
    let (room, file) = (Room::new(), recording("settings.rec"));
    let cache = room.path("cache");
    let plain = [&[file.as_str()][..], &["--age", "full-fragmented", "--size", "256M"]].concat();
    let same: [&[&str]; 6] = [
        &[],
        &["-o", "gc=fagc"],
        &["-o", "gc=joule"],
        &["-o", "power=powered"],
        &["--repeat", "2"],
        &["-o", "background_gc=off"],
    ];
    for more in same {
        replay(&cache, &[&plain[..], more].concat());
        assert_eq!(kept(&cache).len(), 1, "{more:?}");
    }
    let others: [&[&str]; 8] = [
        &["--seed", "2"],
        &["--fill", "99%"],
        &["-o", "inline=off"],
        &["-o", "delta=on"],
        &["--profile", "oneplus8t-ufs31"],
        &["--assume", "device.ready=10mW"],
        &["--to", "1s"],
        &["--after", &file],
    ];
    for (n, more) in others.iter().enumerate() {
        replay(&cache, &[&plain[..], more].concat());
        assert_eq!(kept(&cache).len(), n + 2, "{more:?}");
    }
}

#[test]
fn two_commands_at_once_and_a_small_limit_do_no_harm() {
    let (room, file) = (Room::new(), recording("settings.rec"));
    let cache = room.path("cache");
    let words = [&[file.as_str()][..], &USED, &["--compare", "gc=greedy,joule", "--seeds", "2"]].concat();
    let both = [begin(&cache, &words), begin(&cache, &words)].map(|child| end(child, &words));
    assert_eq!(both[0], both[1]);
    assert_eq!(kept(&cache).len(), 2);
    let bytes = |cache: &Path| kept(cache).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    let limit = bytes(&cache) - 1;
    let more = [&words[..], &["--seed", "7"]].concat();
    let small = |words: &[&str], limit: &str| {
        let mut command = Command::new(crate::PROGRAM);
        command.args(["trace", "replay"]).args(words).env("JOULEFS_CACHE", &cache).env("JOULEFS_CACHE_LIMIT", limit);
        command.output().unwrap()
    };
    assert!(small(&more, &limit.to_string()).status.success());
    assert!(bytes(&cache) <= limit, "{} of {limit}", bytes(&cache));
    let wrong = small(&words, "much");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("JOULEFS_CACHE_LIMIT much"), "{wrong:?}");
}
