//! Typical recordings: left running for weeks, out of order, damaged from the first line; and input files are unchanged
//! afterwards.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// Seconds per day.
const DAY: u64 = 86_400;

/// Two sessions of 100 seconds with ten requests per second, 60 days apart; times in units of 100 ns.
fn two_sessions() -> String {
    let mut text = String::new();
    for begins in [0, 60 * DAY] {
        for n in 0..1000 {
            let (time, at) = (128_166_372_000_000_000 + begins * 10_000_000 + n * 1_000_000, n * 4096);
            writeln!(text, "{time},host,0,Write,{at},4096,100").unwrap();
        }
    }
    text
}

#[test]
fn rates_and_idle_energy_are_those_of_the_sessions() {
    let room = Room::new();
    let file = room.text("t.csv");
    fs::write(&file, two_sessions()).unwrap();
    let stat = |options: &[&str]| json(&[&["trace", "stat", &file], options].concat());
    let rate = |stat: &Value| stat["requests"].as_f64().unwrap() * 1e9 / stat["span_ns"].as_f64().unwrap();
    assert!(rate(&stat(&[])) < 0.001, "two sessions and a gap");
    let dense = stat(&["--max-gap", "5s"]);
    assert!((rate(&dense) - 10.0).abs() < 0.5, "{} a second", rate(&dense));
    assert_eq!(dense["timing"]["pauses"], 1);
    let gap = dense["timing"]["pauses_ns"].as_u64().unwrap() / 1_000_000_000;
    assert_eq!(gap, 60 * DAY - 100);
    let one = stat(&["--from", "1h"]);
    assert_eq!((&one["requests"], &one["timing"]["before"]), (&1000.into(), &1000.into()));
    assert!((rate(&one) - 10.0).abs() < 0.5);
    let some = stat(&["--from", "10s", "--to", "20s"]);
    assert_eq!((&some["requests"], &some["timing"]["after"]), (&100.into(), &1800.into()));
    let told = done(&["trace", "stat", &file, "--max-gap", "5s", "--to", "70d"]);
    assert!(told.contains("1 pauses, ") && told.contains("shortened to 5.000 s each"), "{told}");

    let page = room.text("t.html");
    done(&["trace", "stat", &file, "--max-gap", "5s", "--html", &page]);
    assert!(fs::read_to_string(&page).unwrap().contains("1 pauses, "));

    // Idle energy decreases with the pause.
    let replay = |options: &[&str]| json(&[&["trace", "replay", &file, "--profile", "microdrive"], options].concat());
    let (whole, short) = (replay(&[]), replay(&["--max-gap", "5s"]));
    let idle = |v: &Value| v["operations"]["idle"]["pj"].as_u64().unwrap();
    assert!(idle(&whole) > 1000 * idle(&short) && idle(&short) > 0, "{} and {}", idle(&whole), idle(&short));
    assert_eq!(short["replay"]["timing"]["pauses"], 1);
    let energy = ["energy", &file, "--profile", "galaxy-nexus-emmc"];
    let energy = |options: &[&str]| json(&[&energy[..], options].concat());
    let half = energy(&["--from", "1h"]);
    assert_eq!((&half["requests"], &half["timing"]["before"]), (&1000.into(), &1000.into()));
    let told =
        done(&["trace", "replay", &file, "--max-gap", "5s", "--compare", "profile=galaxy-nexus-emmc,kirin9000-ufs31"]);
    assert!(told.contains("1 pauses, "), "{told}");

    // A conversion writes only the session, too.
    let other = room.text("t.txt");
    let said = json(&["trace", "convert", &file, "--to", "blkparse", "--output", &other, "--max-gap", "5s"]);
    assert_eq!((&said["records"], &said["timing"]["pauses"]), (&2000.into(), &1.into()));
    assert_eq!(json(&["trace", "stat", &other])["span_ns"], dense["span_ns"]);

    misused(&["trace", "stat", &file, "--from", "soon"], &["--from soon", "1h30m"]);
    misused(&["trace", "stat", &file, "--from", "5m", "--to", "4m"], &["--to"]);
    refused(&["trace", "replay", &file, "--from", "90d"], &["t.csv", "no request", "in the session", "before it"]);
}

#[test]
fn a_session_of_calls_opens_the_files_that_were_open() {
    let room = Room::new();
    let file = room.text("app.strace");
    let mut text = String::from("7 100.0 openat(AT_FDCWD, \"/data/a.db\", O_RDWR|O_CREAT|O_TRUNC, 0600) = 3\n");
    for n in 0..100 {
        writeln!(text, "7 {}.5 write(3, \"\"..., 4096) = 4096", 100 + n).unwrap();
    }
    for n in 0..100 {
        writeln!(text, "7 {}.5 write(3, \"\"..., 4096) = 4096", 1_000_000 + n).unwrap();
    }
    fs::write(&file, text).unwrap();
    let stat = json(&["trace", "stat", &file, "--from", "1h"]);
    assert_eq!((&stat["operations"]["write"], &stat["operations"]["open"]), (&100.into(), &1.into()));
    assert_eq!((&stat["timing"]["before"], &stat["timing"]["opened_before"]), (&101.into(), &1.into()));
    let replay = json(&["trace", "replay", &file, "--from", "1h"])["replay"].clone();
    assert_eq!((&replay["written"], &replay["failed"], &replay["left_out"]), (&409_600.into(), &0.into(), &0.into()));
    let short = json(&["trace", "replay", &file, "--max-gap", "1s"]);
    let whole = json(&["trace", "replay", &file]);
    assert_eq!(short["replay"]["written"], 819_200);
    let took = |v: &Value| v["time_ns"].as_u64().unwrap() / 1_000_000_000;
    assert!(took(&short) < 210 && took(&whole) > 900_000, "{} and {} s", took(&short), took(&whole));
    let said = short["replay"]["said"].to_string();
    assert!(said.contains("1 pauses"), "{said}");
}

#[test]
fn what_is_out_of_order_is_said_with_how_far() {
    let room = Room::new();
    let file = room.text("t.csv");
    let line = |seconds: u64| {
        format!("{},host,0,Read,{},4096,100\n", 128_166_372_000_000_000 + seconds * 10_000_000, seconds * 4096)
    };
    fs::write(&file, [0, 5, 2, 6, 4].map(line).concat()).unwrap();
    let said = "2 events out of time order, by 3.000 s at most";
    for args in [&["trace", "stat"][..], &["trace", "replay"], &["energy"]] {
        let told = done(&[args, &[&file]].concat());
        assert!(told.contains(said), "{args:?}: {told}");
    }
    // Playing it live reports the same.
    let shown = joulefs(&["top", "--from", &file, "--once", "--no-wait", "--delay", "10", "-p", "microdrive"]);
    assert!(shown.out.contains("2 events out of time order"), "{}{}", shown.out, shown.err);
    let converted = joulefs(&["trace", "convert", &file, "--to", "blkparse"]);
    assert!(converted.err.contains(said), "{}", converted.err);
    fs::write(&file, [0, 2, 4, 5, 6].map(line).concat()).unwrap();
    assert!(!done(&["trace", "stat", &file]).contains("out of order"));
}

#[test]
fn a_recording_of_threads_one_after_the_other_is_put_in_order_and_lines_out_of_order_are_said() {
    let room = Room::new();
    let file = room.text("calls");
    let open = "1 0 open /data/a.db O_RDWR|O_CREAT|O_LARGEFILE 30\n";
    // Another thread's times start again: this is normal for such recordings.
    let in_order = format!("{open}1 4000 pwrite 30 0 4096\n1 9000 fsync 30 0\n2 10 pwrite 30 4096 4096\n");
    fs::write(&file, &in_order).unwrap();
    assert!(!done(&["trace", "stat", &file]).contains("out of order"));
    fs::write(&file, format!("{in_order}1 6000 pwrite 30 0 4096\n")).unwrap();
    for args in [&["trace", "stat"][..], &["trace", "replay"]] {
        let told = done(&[args, &[&file]].concat());
        assert!(told.contains("1 events out of time order, by 3.00 ms at most"), "{args:?}: {told}");
    }
}

#[test]
fn a_session_without_calls_is_no_replay() {
    let room = Room::new();
    let (file, dir) = (room.text("calls"), room.text("d"));
    fs::write(&file, "1 0 open /data/a.db O_RDWR|O_CREAT|O_LARGEFILE 30\n1 10 pwrite 30 0 4096\n1 20 fsync 30 0\n")
        .unwrap();
    fs::create_dir(&dir).unwrap();
    let words = ["calls: no call in the session", "3 are before it, 0 after it"];
    let replay = ["trace", "replay", &file, "--from", "1h"];
    refused(&replay, &words);
    refused(&[&replay[..], &["--into", &dir]].concat(), &words);
    // A JouleFS recording, by inode.
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/chat-wal.rec");
    refused(&["trace", "replay", ours, "--from", "9h"], &["chat-wal.rec: no call in the session"]);
}

#[test]
fn what_strace_wrote_without_times_is_told_from_what_is_no_recording() {
    let room = Room::new();
    let (file, other) = (room.text("app.strace"), room.text("other"));
    for line in ["openat(AT_FDCWD, \"/a\", O_RDONLY) = 3", "[pid  7] read(3, \"x\", 1) = 1", "12 close(3) = 0"] {
        fs::write(&file, format!("{line}\n")).unwrap();
        refused(&["trace", "stat", &file], &["not a recording in a known format", "strace -f -ttt"]);
    }
    fs::write(&other, "let n = f(3);\n").unwrap();
    assert!(!joulefs(&["trace", "stat", &other]).err.contains("run strace"), "a program is no recording of one");
}

#[test]
fn damage_before_the_first_request_is_shown_by_every_command() {
    let room = Room::new();
    let (file, calls) = (room.text("t.csv"), room.text("app.strace"));
    // Formats identified by their first line, with an error in the second.
    let lines =
        "proces,device,rw_flag,sector,size,timestamp\napp-7,8388608,Fly,800,8,10.0\napp-7,8388608,W,800,8,10.0\n";
    fs::write(&file, lines).unwrap();
    let html = room.text("t.html");
    for args in [
        &["trace", "stat", &file][..],
        &["trace", "stat", &file, "--html", &html],
        &["trace", "replay", &file],
        &["trace", "convert", &file, "--to", "blkparse"],
        &["energy", &file],
    ] {
        refused(&[args, &["--strict"]].concat(), &["t.csv", "line 2"]);
    }
    fs::write(&calls, "7 1.0 close(3 = 0\n7 2.0 close(3) = 0\n").unwrap();
    for args in [
        &["trace", "stat", &calls][..],
        &["trace", "replay", &calls],
        &["trace", "convert", &calls, "--to", "parquet", "--output", &html],
    ] {
        refused(&[args, &["--strict"]].concat(), &["app.strace", "line 1"]);
    }
}

#[test]
fn what_is_read_is_never_written_over() {
    let room = Room::new();
    let (file, link, hard) = (room.text("t.csv"), room.text("link"), room.text("hard"));
    fs::write(&file, two_sessions()).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    fs::hard_link(&file, &hard).unwrap();
    for out in [&file, &link, &hard] {
        misused(&["trace", "stat", &file, "--html", out], &["--html", "the recording, which is being read"]);
        misused(
            &["trace", "convert", &file, "--to", "blkparse", "--output", out],
            &["--output", "which is being read"],
        );
        misused(&["trace", "replay", &file, "--requests", out], &["--requests", "which is being read"]);
    }
    misused(&["trace", "convert", &link, "--to", "blkparse", "--output", &file], &["--output", "which is being read"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), two_sessions());
    // One per-CPU file of blktrace stands for all.
    let (one, two) = (room.text("sda.blktrace.0"), room.text("sda.blktrace.1"));
    fs::copy(&file, &one).unwrap();
    fs::copy(&file, &two).unwrap();
    misused(&["trace", "stat", &one, "--html", &two], &["--html", "which is being read"]);
}
