//! Errors are one line that names the cause, and come before anything runs.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::room::Room;
use crate::typed::{done, joulefs, misused};

#[test]
fn a_change_that_no_plan_takes_is_refused_before_anything_runs() {
    let room = Room::new();
    let results = room.text("results");
    fn with<'a>(results: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--quick", "--results", results], more].concat()
    }
    let run = |more: &[&'static str]| with(&results, more);
    misused(&run(&["microdrive-table31", "--set", "nope=1"]), &["--set nope=1", "random_reads"]);
    misused(&run(&["nexus-sqlite", "--set", "rows=abc"]), &["--set rows=abc", "u64"]);
    misused(&run(&["fagc-fig5", "--set", "nope=1"]), &["--set nope=1", "volume_mib", "pieces_kib"]);
    misused(&run(&["fagc-fig5", "--set", "volume_mib=1"]), &["--set volume_mib=1", "52 MiB"]);
    misused(&run(&["fagc-fig5", "--set", "state=nope"]), &["--set state=nope", "full-fragmented"]);
    misused(&run(&["gc-bound", "--set", "policy=nope"]), &["--set policy=nope", "fagc"]);
    misused(&run(&["microdrive-table31", "--variant", "nope"]), &["--variant nope", "plain"]);
    misused(&run(&["microdrive-table31", "--profile", "nope"]), &["nope", "microdrive"]);
    // Among many experiments, before the first runs.
    misused(&run(&["--all", "--set", "rows=1000"]), &["--set rows=1000", "rows"]);
    assert!(!room.path("results").exists(), "something was run");
    misused(&["run", "gc-bound", "--threads", "0"], &["--threads", "1 or more"]);
    let meant = |args: &[&str], word: &str| misused(args, &[&format!("did you mean {word}?")]);
    meant(&["run", "fagc-fig55"], "fagc-fig5");
    meant(&["run", "nexus-sqlite", "--set", "row=5"], "rows");
}

#[test]
fn hidden_characters_of_a_name_do_not_reach_the_terminal() {
    for command in ["run", "show"] {
        let ran = joulefs(&[command, "a\u{1b}[31mb\u{202e}c"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("31mb") && !ran.err.contains(['\u{1b}', '\u{202e}']), "{:?}", ran.err);
    }
}

#[test]
fn an_interrupted_experiment_leaves_no_directory() {
    let room = Room::new();
    let mut running =
        Command::new(crate::PROGRAM).args(["run", "fagc-fig7-8", "--results", &room.text("results")]).spawn().unwrap();
    let waited = (0..6000).find(|_| {
        std::thread::sleep(Duration::from_millis(10));
        room.path("results/fagc-fig7-8").exists()
    });
    assert!(waited.is_some(), "no directory for the results in a minute");
    rustix::process::kill_process(rustix::process::Pid::from_child(&running), rustix::process::Signal::INT).unwrap();
    assert!(!running.wait().unwrap().success());
    assert!(!room.path("results").exists());
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let out = Command::new(crate::PROGRAM).args(["list", "--json"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("standard output"), "{said}");
}

#[test]
fn every_answer_that_is_an_object_carries_its_schema() {
    let room = Room::new();
    let page = room.text("report.html");
    let commands = [(&["papers"][..], 2), (&["show", "microdrive-table31"], 2), (&["report", "--output", &page], 1)];
    for (args, version) in commands {
        let answer: serde_json::Value = serde_json::from_str(&done(&[&["--json"], args].concat())).unwrap();
        assert_eq!(answer["schema"], format!("joulefs-lab-{}", args[0]));
        assert_eq!(answer["schema_version"], version);
    }
}

#[test]
fn a_joulefs_of_another_version_is_refused_with_both_versions() {
    let out = Command::new(crate::PROGRAM).arg("list").env("JOULEFS_VERSION", "0.0.9").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("0.0.9") && said.contains(env!("CARGO_PKG_VERSION")), "{said}");
}
