//! Runs the program, for tests that look at all that it prints.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::typed;

pub fn command() -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.env("JOULEFS_CACHE", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub fn run(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

/// The same in a directory.
pub fn run_in(dir: &Path, args: &[&str]) -> Output {
    command().args(args).current_dir(dir).output().unwrap()
}

/// Standard output and standard error.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Standard error.
pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// [`text`] of a command that succeeds.
#[track_caller]
pub fn done(args: &[&str]) -> String {
    let out = run(args);
    assert!(out.status.success(), "joulefs {args:?}: {}", text(&out));
    text(&out)
}

/// The answer with `--json`.
#[track_caller]
pub fn json(args: &[&str]) -> Value {
    parsed(&typed::done(&[args, &["--json"]].concat()))
}

#[track_caller]
pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A page for people: at most 40 lines of 100 columns.
#[track_caller]
pub fn fits(text: &str) {
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
}
