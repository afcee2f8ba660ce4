//! Which tests did not run, and why? Which kernel checked results?
//!
//! A test that cannot run on this machine calls [`missing`] and returns. It then passes, unless `JOULEFS_REQUIRE=1`:
//! then it fails, so that a complete run cannot lose a test unnoticed. Tests that need not run on every machine call
//! [`not_shipped`], [`kernel_lacks`] or [`only_in`] instead; they pass either way.
//!
//! All of them, and [`judged_by`], add a line to the file that `JOULEFS_TESTLOG` names. `scripts/with-testlog` sets it
//! for `make test` and prints a summary at the end.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The file that collects the reports; without it, reports are only printed.
pub const FILE: &str = "JOULEFS_TESTLOG";
/// If set to 1, a test that lacks something fails.
pub const REQUIRE: &str = "JOULEFS_REQUIRE";

/// The test lacks something that can be installed or granted; `what` names it, and the command that installs it.
///
/// # Panics
/// If `JOULEFS_REQUIRE=1`.
#[track_caller]
pub fn missing(what: impl Display) {
    let what = what.to_string();
    report("missing", Location::caller(), &what);
    assert!(!required(), "this test cannot run, and {REQUIRE}=1 allows no skipped test: {what}");
}

/// The test reads a file that the project cannot ship, such as an external recording.
#[track_caller]
pub fn not_shipped(what: impl Display) {
    report("not shipped", Location::caller(), &what.to_string());
}

/// The test needs a part of the running kernel that cannot be installed, such as a file system.
#[track_caller]
pub fn kernel_lacks(what: impl Display) {
    report("not in this kernel", Location::caller(), &what.to_string());
}

/// The test belongs to another command (`make deep`, `make kernel`), which takes too long for every run.
#[track_caller]
pub fn only_in(command: &str) {
    report("only in another command", Location::caller(), command);
}

/// This kernel checks `what` in the calling process. Bypasses the test harness, which captures the output of tests.
pub fn judged_by(what: &str, kernel: &str) {
    // Failing to print does not fail the test.
    let _ = writeln!(std::io::stderr(), "judge of {what}: {kernel}");
    add(&["judge", what, kernel]);
}

/// The kernel that an earlier process of the same run reported with [`judged_by`].
pub fn judge_so_far(what: &str) -> Option<String> {
    let text = std::fs::read_to_string(file()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix(&format!("judge\t{what}\t")).map(str::to_owned))
}

/// Whether `JOULEFS_REQUIRE=1`.
pub fn required() -> bool {
    std::env::var_os(REQUIRE).is_some_and(|value| value == "1")
}

fn report(kind: &str, at: &Location<'_>, what: &str) {
    println!("skipped: {kind}: {what}");
    add(&[kind, &format!("{}:{}", at.file(), at.line()), what]);
}

fn file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

fn add(fields: &[&str]) {
    if let Some(file) = file() {
        append(&file, fields).unwrap_or_else(|e| panic!("{FILE}={}: {e}", file.display()));
    }
}

/// Appends a line in one write, so that lines of concurrent tests do not mix.
fn append(file: &Path, fields: &[&str]) -> std::io::Result<()> {
    let fields: Vec<String> = fields.iter().map(|field| field.replace(['\t', '\n', '\r'], " ")).collect();
    let line = format!("{}\n", fields.join("\t"));
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs one of the tests below, which call this crate, in a process with these variables.
    fn child(name: &str, file: &Path, require: &str) -> (bool, String) {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::{name}"), "--include-ignored", "--nocapture"])
            .env(FILE, file)
            .env(REQUIRE, require)
            .output()
            .unwrap();
        (
            ran.status.success(),
            String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr),
        )
    }

    #[test]
    #[ignore = "a_skip_is_a_failure_if_all_tests_are_required runs it"]
    fn lacks_a_program() {
        missing("a program:\tapt-get install it\nnow");
    }

    #[test]
    #[ignore = "a_skip_is_a_failure_if_all_tests_are_required runs it"]
    fn lacks_what_nobody_has_to_have() {
        not_shipped("a recording");
        only_in("make deep");
        judged_by("a volume", "a kernel");
    }

    #[test]
    fn a_skip_is_a_failure_if_all_tests_are_required() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let (passed, said) = child("lacks_a_program", &file, "0");
        assert!(passed && said.contains("skipped: missing: a program"), "{said}");
        let (passed, said) = child("lacks_a_program", &file, "1");
        assert!(!passed && said.contains("JOULEFS_REQUIRE=1 allows no skipped test: a program"), "{said}");
        let (passed, said) = child("lacks_what_nobody_has_to_have", &file, "1");
        assert!(passed && said.contains("judge of a volume: a kernel"), "{said}");
        let log = std::fs::read_to_string(&file).unwrap();
        let fields: Vec<Vec<&str>> = log.lines().map(|line| line.split('\t').collect()).collect();
        let kinds: Vec<&str> = fields.iter().map(|f| f[0]).collect();
        assert_eq!(kinds, ["missing", "missing", "not shipped", "only in another command", "judge"]);
        assert!(fields.iter().all(|f| f.len() == 3), "{log}");
        assert!(fields[0][1].starts_with("testlog/src/lib.rs:"), "{log}");
        assert_eq!(fields[0][2], "a program: apt-get install it now");
        assert_eq!(fields[4][1..], ["a volume", "a kernel"]);
    }

    #[test]
    fn lines_of_many_threads_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let long = "x".repeat(300);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| append(&file, &["kind", "where", &long]).unwrap()));
            }
        });
        let log = std::fs::read_to_string(&file).unwrap();
        assert_eq!(log.lines().count(), 1600);
        assert!(log.lines().all(|line| line == format!("kind\twhere\t{long}")));
    }
}
