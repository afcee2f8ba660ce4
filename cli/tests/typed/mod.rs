//! Runs command lines and checks their results.

use std::process::{Command, Output};

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Where the program keeps aged volumes in tests.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

pub fn joulefs(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        Command::new(crate::PROGRAM).args(args).env("JOULEFS_CACHE", CACHE).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    Ran { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

/// Both file systems by their `--type` names.
#[allow(dead_code, reason = "every test program has its own copy of this module")]
pub const KINDS: [&str; 2] = ["f2fs", "scherlfs"];

/// The contents of a place in an image; `None` if it cannot be read.
#[allow(dead_code, reason = "every test program has its own copy of this module")]
pub fn contents(place: &str) -> Option<Vec<u8>> {
    let out = Command::new(crate::PROGRAM).args(["cat", place]).output().unwrap();
    out.status.success().then_some(out.stdout)
}

#[track_caller]
pub fn done(args: &[&str]) -> String {
    let r = joulefs(args);
    assert_eq!(r.code, 0, "joulefs {args:?}: {}{}", r.out, r.err);
    r.out
}

/// Fails with one line that contains all of `words`.
#[allow(dead_code, reason = "every test program has its own copy of this module")]
#[track_caller]
pub fn refused(args: &[&str], words: &[&str]) {
    // As with `fsck.f2fs`, 8 means that the check was impossible.
    ends(if args.first() == Some(&"fsck") { 8 } else { 1 }, args, words);
}

/// The same for a usage error.
#[allow(dead_code, reason = "every test program has its own copy of this module")]
#[track_caller]
pub fn misused(args: &[&str], words: &[&str]) {
    ends(2, args, words);
}

#[allow(dead_code, reason = "every test program has its own copy of this module")]
#[track_caller]
fn ends(code: i32, args: &[&str], words: &[&str]) {
    let r = joulefs(args);
    assert_eq!(r.code, code, "joulefs {args:?}: {}{}", r.out, r.err);
    assert_eq!(r.err.trim_end().lines().count(), 1, "joulefs {args:?}: one line, not:\n{}", r.err);
    for w in words {
        assert!(r.err.contains(w), "joulefs {args:?}: no {w:?} in: {}", r.err);
    }
}
