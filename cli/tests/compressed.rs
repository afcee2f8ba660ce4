//! Creating a volume for compressed files, copying some in, and the errors for wrong options.

use std::path::Path;
use std::process::{Command, Output};

use crate::program::run_in;

/// Data blocks of one kind written by a copy.
fn written(out: &Output, kind: &str) -> u64 {
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find(|l| l.trim_start().starts_with(kind)).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn files_copied_in_are_compressed_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    let words = "of words there is no end. ".repeat(40_000);
    std::fs::write(dir.path().join("words.txt"), &words).unwrap();
    assert!(run(&["mkfs", "v.img", "--size", "64M", "--features", "modern,compression"]).status.success());
    let plain = written(&run(&["cp", "--stats", "words.txt", "v.img:/plain"]), "user data");
    let how = "compress_algorithm=zstd:3,compress_log_size=4,compress_extension=txt";
    let packed = written(&run(&["cp", "--stats", "-o", how, "words.txt", "v.img:/words.txt"]), "compressed data");
    assert_eq!(plain, words.len().div_ceil(4096) as u64);
    assert!(packed * 8 < plain, "{packed} blocks of {plain}");
    let out = run(&["cat", "v.img:/words.txt"]);
    assert!(out.status.success() && out.stdout == words.as_bytes());
    let told: serde_json::Value = serde_json::from_slice(&run(&["--json", "info", "v.img"]).stdout).unwrap();
    assert_eq!((&told["compressed"]["files"], &told["compressed"]["released_files"]), (&1.into(), &0.into()));
    assert!(told["compressed"]["saved_bytes"].as_u64().unwrap() > 800_000, "{told}");
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let out = Command::new("fsck.f2fs").args(["--dry-run", "v.img"]).current_dir(dir.path()).env("PATH", path).output();
    assert!(out.expect("fsck.f2fs of f2fs-tools").status.success());
}

#[test]
fn a_wrong_option_is_named_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    std::fs::write(dir.path().join("f"), "text").unwrap();
    assert!(run(&["mkfs", "v.img", "--size", "64M"]).status.success());
    for (option, code, says) in [
        ("compress_algorithm=gzip", 2, "compress_algorithm=gzip: lzo, lz4, zstd"),
        ("compress_log_size=9", 2, "compress_log_size=9: a number from 2 to 8"),
        ("compress_level=3", 2, "no option \"compress_level\""),
        ("compress_extension=*", 1, "lacks the feature compression"),
    ] {
        let out = run(&["cp", "-o", option, "f", "v.img:/"]);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{option}: {error}");
        assert!(error.contains(says) && error.lines().count() == 1, "{option}: {error}");
    }
    let out = run(&["cp", "-o", "inline=off", "v.img:/f", "."]);
    assert_eq!(out.status.code(), Some(2));
}

/// Joules by cause, according to a replay.
fn replayed(options: &[&str]) -> serde_json::Value {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings/dpkg.rec");
    let dir = tempfile::tempdir().unwrap();
    let args = [&["--json", "trace", "replay", recording.to_str().unwrap()], options].concat();
    let out = run_in(dir.path(), &args);
    assert!(out.status.success(), "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_recording_of_a_program_is_replayed_with_compressed_files() {
    let pj = |told: &serde_json::Value, cause: &str| told["causes"][cause]["pj"].as_u64();
    let plain = replayed(&[]);
    assert_eq!((pj(&plain, "compressed_data"), pj(&plain, "compressing")), (None, None));
    let packed = replayed(&["-o", "compress_extension=*,compress_algorithm=lz4"]);
    let zstd = replayed(&["-o", "compress_extension=*,compress_algorithm=zstd,compress_log_size=2"]);
    assert!(pj(&packed, "compressed_data") > Some(0), "{packed}");
    // The same number of clusters, each taking twice the time.
    assert_eq!(pj(&zstd, "compressing"), pj(&packed, "compressing").map(|pj| 2 * pj));
    // Every fsync of a compressed file is a checkpoint.
    assert!(pj(&packed, "checkpoint_packs") > pj(&plain, "checkpoint_packs").map(|pj| 10 * pj));
    let no_more = replayed(&["-o", "compress_extension=*,compress_mode=user"]);
    assert_eq!((pj(&no_more, "compressed_data"), pj(&no_more, "compressing")), (None, None));
    let few = replayed(&["-o", "compress_extension=deb"]);
    assert_eq!(pj(&few, "nodes_for_fsync"), pj(&plain, "nodes_for_fsync"), "no file has that ending");
}
