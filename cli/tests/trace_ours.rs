//! JouleFS recordings accept the options for other recordings of calls: parts, repetition, states of the volume, a
//! closed loop.

use std::path::Path;

use serde_json::Value;

use crate::room;
use crate::typed::{done, misused};

fn recording(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings").join(name).to_str().unwrap().to_owned()
}

fn replay(file: &str, options: &[&str]) -> Value {
    serde_json::from_str(&done(&[&["trace", "replay", file, "--json"], options].concat())).unwrap()
}

fn of(value: &Value, name: &str) -> u64 {
    value["replay"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", value["replay"]))
}

fn pj(value: &Value) -> u64 {
    value["total_pj"].as_u64().unwrap()
}

#[test]
fn a_recording_that_is_made_three_times_makes_every_call_three_times_and_costs_as_much() {
    let file = recording("settings.rec");
    let (once, thrice) = (replay(&file, &[]), replay(&file, &["--repeat", "3"]));
    assert_eq!(of(&thrice, "calls"), 3 * of(&once, "calls"));
    assert_eq!((of(&once, "failed"), of(&thrice, "failed")), (0, 0), "{}", thrice["replay"]["first_failure"]);
    assert_eq!(of(&thrice, "written"), 3 * of(&once, "written"));
    let times = pj(&thrice) as f64 / pj(&once) as f64;
    assert!((2.7..3.3).contains(&times), "{times} times as much");
    // Work between repetitions is not charged.
    assert!(of(&thrice, "span_ns") < 4 * of(&once, "span_ns"));
}

#[test]
fn the_parts_of_a_recording_are_paid_for_once_each_and_the_later_one_finds_what_the_earlier_left() {
    let file = recording("settings.rec");
    let whole = replay(&file, &[]);
    let cut = format!("{}ns", of(&whole, "span_ns") / 2);
    let (first, second) = (replay(&file, &["--to", &cut]), replay(&file, &["--from", &cut]));
    assert!(of(&first, "calls") > 0 && of(&second, "calls") > 0);
    assert_eq!(of(&first, "calls") + of(&second, "calls"), of(&whole, "calls"));
    assert_eq!(of(&first, "written") + of(&second, "written"), of(&whole, "written"));
    assert_eq!((of(&first, "failed"), of(&second, "failed")), (0, 0), "{}", second["replay"]["first_failure"]);
    assert!(second["replay"]["timing"]["before"].as_u64().unwrap() > 0);
    // Splitting costs no more than the unmount at the end of the first part.
    let parts = (pj(&first) + pj(&second)) as f64 / pj(&whole) as f64;
    assert!((0.98..1.05).contains(&parts), "{parts}");
    let said = done(&["trace", "replay", &file, "--from", &cut]);
    assert!(said.contains("replayed, and not counted"), "{said}");
}

#[test]
fn pauses_are_shortened_and_what_is_written_is_the_same() {
    let file = recording("settings.rec");
    let (whole, short) = (replay(&file, &[]), replay(&file, &["--max-gap", "1ms"]));
    assert!(short["replay"]["timing"]["pauses"].as_u64().unwrap() > 0);
    assert!(of(&short, "span_ns") < of(&whole, "span_ns"));
    assert_eq!((of(&short, "written"), of(&short, "failed")), (of(&whole, "written"), 0));
    assert!(pj(&short) < pj(&whole), "waiting costs something");
}

#[test]
fn in_a_closed_loop_a_slower_device_makes_the_program_later_and_calls_do_not_pile_up() {
    let file = recording("settings.rec");
    let slow = ["--profile", "microdrive"];
    let (open, closed) = (replay(&file, &slow), replay(&file, &[&slow[..], &["--closed-loop"]].concat()));
    let fsync = |v: &Value| {
        let all = v["replay"]["latencies"].as_array().unwrap();
        all.iter().find(|l| l["op"] == "fsync").unwrap()["p50_ns"].as_u64().unwrap()
    };
    assert_eq!((of(&closed, "calls"), of(&closed, "failed")), (of(&open, "calls"), 0));
    assert!(fsync(&closed) < fsync(&open), "{} {}", fsync(&closed), fsync(&open));
    misused(&["trace", "replay", &file, "--closed-loop", "--on-time"], &["--closed-loop"]);
}

#[test]
fn a_used_and_full_volume_is_cleaned_for_a_recording_of_ours_as_for_others() {
    let file = recording("settings.rec");
    let used = ["--age", "three-fifths", "--fill", "90%", "--hurry", "--repeat", "2", "--seeds", "1"];
    let compared = replay(&file, &[&used[..], &["--compare", "gc=greedy"]].concat());
    let [control, greedy] = [0, 1].map(|n| &compared["variants"][n]);
    assert!(control["replay"]["began"]["full"].as_f64().unwrap() > 0.89, "{}", control["replay"]["began"]);
    assert_eq!(of(control, "sections_cleaned"), 0);
    assert!(of(greedy, "sections_cleaned") > 0, "nothing was cleaned: {}", greedy["replay"]);
    assert_eq!((of(control, "failed"), of(greedy, "failed")), (0, 0));
}

#[test]
fn a_volume_that_another_recording_of_ours_used_is_not_left_unmounted() {
    let (file, before) = (recording("settings.rec"), recording("chat-wal.rec"));
    let after = replay(&file, &["--after", &before]);
    assert_eq!((of(&after, "failed"), of(&after, "calls")), (0, of(&replay(&file, &[]), "calls")));
}

/// A program that appends to a log and saves a file like an editor, each with an fsync, with pauses.
const PROGRAM: &str = "
import os, sys, time
d = sys.argv[1]
for n in range(60):
    f = os.open(d + '/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(f, b'x' * 3000); os.fsync(f); os.close(f); time.sleep(0.01)
    f = os.open(d + '/part', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(f, b'y' * 20000); os.fsync(f); os.close(f); os.rename(d + '/part', d + '/settings'); time.sleep(0.005)
";

/// Unmounts after a failed test.
struct Mounted<'a>(&'a str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = std::process::Command::new("fusermount3").args(["-u", "-z", self.0]).status();
        }
    }
}

#[test]
fn a_recording_and_a_strace_of_one_program_cost_alike_and_wait_alike() {
    let strace = std::process::Command::new("strace").arg("-V").output();
    if !strace.is_ok_and(|out| out.status.success()) {
        return testlog::missing("strace: apt-get install strace");
    }
    let room = room::Room::new();
    let [image, mnt, rec, traced, part] = ["v.img", "mnt", "x.rec", "x.strace", "y.strace"].map(|name| room.text(name));
    std::fs::create_dir(&mnt).unwrap();
    done(&["mkfs", &image, "--size", "512M"]);
    done(&["mount", &image, &mnt, "--record", &rec, "--contents"]);
    let mounted = Mounted(&mnt);
    let mut command = std::process::Command::new("strace");
    let command = command.args(["-f", "-ttt", "-T", "-y", "-o", &traced, "python3", "-c", PROGRAM, &mnt]);
    assert!(command.status().unwrap().success());
    done(&["unmount", &mnt]);
    drop(mounted);
    // Calls of the program to other file systems do not count.
    let text = std::fs::read_to_string(&traced).unwrap();
    let lines = text.lines().filter(|l| l.contains(&mnt) && !l.contains("execve"));
    std::fs::write(&part, lines.map(|l| format!("{l}\n")).collect::<String>()).unwrap();

    let written = |v: &Value| {
        let of = |name: &str| v["operations"][name]["pj"].as_u64().unwrap_or(0);
        of("write") + of("flush")
    };
    let fsync = |v: &Value| {
        let all = v["replay"]["latencies"].as_array().unwrap();
        let one = all.iter().find(|l| l["op"] == "fsync").unwrap();
        (one["count"].as_u64().unwrap(), one["p50_ns"].as_f64().unwrap())
    };
    let near = |a: f64, b: f64, by: f64| assert!((a / b - 1.0).abs() < by, "{a} and {b}");
    let (ours, theirs) = (replay(&rec, &["--closed-loop"]), replay(&part, &["--page-cache", "none"]));
    assert_eq!((fsync(&ours).0, fsync(&theirs).0), (120, 120));
    assert_eq!((of(&ours, "failed"), of(&theirs, "failed")), (0, 0));
    near(written(&ours) as f64, written(&theirs) as f64, 0.05);
    near(fsync(&ours).1, fsync(&theirs).1, 0.15);
    // On a device slower than the recorded one, both delay requests.
    let slow = ["--profile", "microdrive"];
    let (ours, theirs) = (
        replay(&rec, &[&slow[..], &["--closed-loop"]].concat()),
        replay(&part, &[&slow[..], &["--page-cache", "none"]].concat()),
    );
    near(fsync(&ours).1, fsync(&theirs).1, 0.25);
}
