//! `joulefs energy measure` on a simulated machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::typed::{self, done, joulefs, refused};

/// A package with a core, 1 J before its counter wraps.
pub fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (zone, name, energy) in [("intel-rapl:0", "package-0", 9_000_000), ("intel-rapl:0:0", "core", 0)] {
        let zone = dir.path().join(zone);
        fs::create_dir(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(zone.join("max_energy_range_uj"), "10000000\n").unwrap();
    }
    dir
}

/// A command that uses energy: the package 3 J, beyond the counter's maximum, the core 2 J. As with real counters, a
/// file is never empty.
fn spends(machine: &Path) -> String {
    let dir = machine.display();
    format!("echo 2000000 1<> {dir}/intel-rapl:0/energy_uj; echo 2000000 1<> {dir}/intel-rapl:0:0/energy_uj; exit 7")
}

fn measure(machine: &Path, options: &[&str], script: &str) -> typed::Ran {
    let powercap = machine.to_str().unwrap();
    let mut args = vec!["energy", "measure", "--powercap", powercap];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    joulefs(&args)
}

#[test]
fn joules_are_those_of_the_command_and_its_exit_code_is_passed_on() {
    let machine = machine();
    let ran = measure(machine.path(), &["--json"], &spends(machine.path()));
    assert_eq!(ran.code, 7, "{}", ran.err);
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((value["exit_code"].as_i64(), value["command"][0].as_str()), (Some(7), Some("sh")));
    assert_eq!(
        (value["domains"][0]["name"].as_str(), value["domains"][0]["pj"].as_u64()),
        (Some("package-0"), Some(3_000_000_000_000))
    );
    assert_eq!(value["domains"][1]["name"], "package-0/core");
    assert_eq!(value["domains"][1]["pj"], 2_000_000_000_000_u64);
    let seconds = value["time_ns"].as_u64().unwrap() as f64 / 1e9;
    assert!((value["domains"][0]["mean_uw"].as_u64().unwrap() as f64 / 1e6 * seconds - 3.0).abs() < 1e-5);
}

#[test]
fn the_table_leaves_standard_output_to_the_command() {
    let machine = machine();
    assert_eq!(done(&["energy", "measure", "--powercap", machine.path().to_str().unwrap(), "--", "true"]), "");
    let ran = measure(machine.path(), &[], &format!("echo mine; {}", spends(machine.path())));
    assert_eq!((ran.code, ran.out.as_str()), (7, "mine\n"));
    assert!(ran.err.contains("package-0/core") && ran.err.contains("3.000"), "{}", ran.err);
}

#[test]
fn the_machine_at_rest_is_taken_off() {
    let machine = machine();
    let ran = measure(machine.path(), &["--idle", "1", "--json"], &spends(machine.path()));
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    // The simulated machine counts nothing when idle.
    assert_eq!(
        (value["domains"][0]["idle_uw"].as_u64(), value["domains"][0]["above_idle_pj"].as_i64()),
        (Some(0), Some(3_000_000_000_000))
    );
    assert!(value["idle_ns"].as_u64().unwrap() >= 1_000_000_000);
}

#[test]
fn a_recording_is_written_that_is_read_again() {
    let machine = machine();
    let file = machine.path().join("run.csv");
    let options = ["--output", file.to_str().unwrap(), "--interval", "1"];
    assert_eq!(measure(machine.path(), &options, &format!("sleep 0.05; {}", spends(machine.path()))).code, 7);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("seconds,package-0 (J),package-0/core (J)\n0.000000000,0.000000,0.000000\n"), "{text}");
    assert!(text.ends_with(",3.000000,2.000000\n") && text.lines().count() > 5, "{text}");
}

#[test]
fn a_command_that_cannot_be_started_or_is_ended_by_a_signal_has_the_shells_code() {
    let machine = machine();
    let powercap = machine.path().to_str().unwrap();
    let ran = joulefs(&["energy", "measure", "--powercap", powercap, "--", "/no/such/program"]);
    assert!(ran.code == 127 && ran.err.contains("/no/such/program"), "{} {}", ran.code, ran.err);
    let ran = joulefs(&["energy", "measure", "--powercap", powercap, "--", powercap]);
    assert_eq!(ran.code, 126, "{}", ran.err);
    assert_eq!(measure(machine.path(), &[], "kill -9 $$").code, 128 + 9);
}

#[test]
fn who_wants_it_stopped_stops_the_command_and_still_gets_the_joules() {
    let machine = machine();
    let script = format!("trap '{}' TERM; kill -TERM $PPID; while :; do sleep 0.01; done", spends(machine.path()));
    let ran = measure(machine.path(), &["--json"], &script);
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.out.contains("\"pj\": 3000000000000"), "{}", ran.out);
}

#[test]
fn a_machine_without_counters_runs_nothing() {
    let empty = tempfile::tempdir().unwrap();
    let mark = empty.path().join("ran");
    let powercap = empty.path().join("powercap");
    refused(
        &["energy", "measure", "--powercap", powercap.to_str().unwrap(), "--", "touch", mark.to_str().unwrap()],
        &["powercap", "no RAPL counters", "virtual machine"],
    );
    assert!(!mark.exists());
}

#[test]
fn a_counter_that_cannot_be_read_any_more_is_an_error_after_the_command() {
    let machine = machine();
    let file = machine.path().join("intel-rapl:0/energy_uj");
    let ran = measure(machine.path(), &[], &format!("rm {0}; mkdir {0}", file.display()));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("energy_uj") && ran.err.trim_end().lines().count() == 1, "{}", ran.err);
}

#[test]
fn who_may_not_read_the_counters_is_told_why_and_what_to_do() {
    let machine = machine();
    fs::set_permissions(machine.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = machine.path().join("intel-rapl:0/energy_uj");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    // A copy at a place where every user may run it. Made by another process: a writable descriptor of this one could
    // be inherited by a child of another test, which would prevent execution.
    let program = machine.path().join("joulefs");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status().unwrap().success());
    let mut command = Command::new(&program);
    command.args(["energy", "measure", "--powercap"]).arg(machine.path()).args(["--", "true"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    for word in ["intel-rapl:0/energy_uj", "permission denied", "CVE-2020-8694", "root", "chmod a+r"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}
