//! Which requests of a recording count? `stat`, `replay`, `energy` and `convert` agree, and report what they leave out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/fixtures/stacked").join(name);
    path.to_str().unwrap().to_owned()
}

fn plain(file: &str) -> String {
    let mut out = vec![0; 16 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&fs::read(file).unwrap(), &mut out).unwrap();
    out.truncate(n);
    String::from_utf8(out).unwrap()
}

/// The lower disk, as if recorded alone.
fn alone(room: &Room) -> String {
    let text = plain(&fixture("stacked.txt.zst"));
    let file = room.text("alone.txt");
    let lines: String =
        text.lines().filter(|l| l.starts_with('#') || l.contains(": 98,")).map(|l| format!("{l}\n")).collect();
    fs::write(&file, lines).unwrap();
    file
}

fn left_out(value: &Value) -> Vec<(&str, u64)> {
    let all = value.as_array().unwrap().iter().filter(|l| l["why"] != "given_none");
    all.map(|l| (l["device"].as_str().unwrap(), l["count"].as_u64().unwrap())).collect()
}

#[test]
fn every_command_counts_a_stack_as_the_disk_below_alone() {
    let room = Room::new();
    let (stack, alone) = (fixture("stacked.txt.zst"), alone(&room));
    let stat = json(&["trace", "stat", &stack]);
    assert_eq!(stat["requests"], json(&["trace", "stat", &alone])["requests"]);
    assert_eq!(left_out(&stat["not_counted"]), [("7,0", 73)]);
    let replay = json(&["trace", "replay", &stack]);
    assert_eq!(replay["total_pj"], json(&["trace", "replay", &alone])["total_pj"]);
    assert_eq!((&replay["replay"]["device"], &replay["replay"]["requests"]), (&"98,0".into(), &stat["requests"]));
    assert_eq!(left_out(&replay["replay"]["not_counted"]), [("7,0", 73)]);
    let energy = json(&["energy", &stack]);
    assert_eq!(energy["by_simulation"], json(&["energy", &alone])["by_simulation"]);
    assert_eq!((&energy["requests"], left_out(&energy["not_counted"])), (&stat["requests"], vec![("7,0", 73)]));
    let (log, of_alone) = (room.text("stack.log"), room.text("alone.log"));
    let written = json(&["trace", "convert", &stack, "--to", "iolog", "--output", &log]);
    done(&["trace", "convert", &alone, "--to", "iolog", "--output", &of_alone]);
    assert_eq!((&written["records"], left_out(&written["devices_left_out"])), (&stat["requests"], vec![("7,0", 73)]));
    assert!(fs::read(&log).unwrap() == fs::read(&of_alone).unwrap(), "the logs differ");
    for args in [&["trace", "replay", &stack][..], &["energy", &stack], &["trace", "stat", &stack]] {
        let said = done(args);
        assert!(said.contains("loop device: its requests reach the disk that holds its file"), "{args:?}: {said}");
    }
}

#[test]
fn a_loop_device_that_moved_more_than_the_disk_below_is_not_replayed_unless_it_is_named() {
    let room = Room::new();
    let file = room.text("t.txt");
    let line = |n: u64, dev: &str, sectors: u64| {
        let (at, bytes) = (n * 64, sectors * 512);
        format!(" dd-7 [000] ..... 1.{n:06}: block_rq_issue: {dev} WS {bytes} () {at} + {sectors} [dd]\n")
    };
    let all: String = (0..50).map(|n| line(n, "7,0", 64) + &line(n, if n < 20 { "8,0" } else { "8,16" }, 8)).collect();
    fs::write(&file, all).unwrap();
    assert_eq!(json(&["trace", "replay", &file])["replay"]["device"], "8,16");
    let replay = json(&["trace", "replay", &file, "--of", "loop0"]);
    assert_eq!((&replay["replay"]["device"], &replay["replay"]["requests"]), (&"7,0".into(), &50.into()));
    let stat = |of: &[&str]| json(&[&["trace", "stat", &file], of].concat())["requests"].as_u64().unwrap();
    assert_eq!([stat(&[]), stat(&["--of", "sda"]), stat(&["--of", "8:16", "--of", "/dev/loop0"])], [50, 20, 80]);
    for args in [&["trace", "stat", &file][..], &["trace", "replay", &file], &["energy", &file]] {
        misused(&[args, &["--of", "nvme0n1"]].concat(), &["--of nvme0n1", "7,0, 8,0, 8,16"]);
    }
    misused(&["trace", "stat", &file, "--of", "9,9"], &["--of 9,9", "7,0, 8,0, 8,16"]);
    misused(&["trace", "stat", &file, "--of", "8,"], &["--of 8,", "MAJOR,MINOR"]);
    let log = room.text("t.log");
    misused(&["trace", "convert", &file, "--to", "iolog", "--of", "9,9", "--output", &log], &["--of 9,9", "7,0, 8,0"]);
    assert!(!Path::new(&log).exists());
    let written = json(&["trace", "convert", &file, "--to", "iolog", "--of", "loop0", "--output", &log]);
    assert_eq!((&written["records"], &written["devices_left_out"]), (&50.into(), &Value::Array(vec![])));

    // A pipe can be read only once: double counting is reported.
    let mut stat = Command::new(env!("CARGO_BIN_EXE_joulefs"));
    let mut stat = stat.args(["trace", "stat", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    stat.stdin.take().unwrap().write_all(&fs::read(&file).unwrap()).unwrap();
    let out = stat.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("100 requests") && said.contains("counted twice"), "{said}");
}

#[test]
fn a_mapped_device_that_is_named_is_replayed_by_what_ended_there() {
    let stack = fixture("stacked.txt.zst");
    let stat = json(&["trace", "stat", &stack, "--of", "253,1"]);
    assert_eq!((&stat["requests_are"], stat["devices"].as_array().unwrap().len()), (&"C".into(), 1));
    let replay = json(&["trace", "replay", &stack, "--of", "253,1"]);
    assert_eq!(replay["replay"]["requests"], stat["requests"]);
    assert_eq!(replay["replay"]["device"], "253,1");
    assert_eq!(json(&["energy", &stack, "--of", "253,1"])["requests"], stat["requests"]);
}

/// A recording by others, if present.
fn theirs(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("JOULEFS_TRACES").map(PathBuf::from).into_iter();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(|p| p.join("shared").join("traces"));
    let found = places.chain(beside).map(|p| p.join(name)).find(|p| p.exists());
    if found.is_none() {
        testlog::not_shipped(format_args!("{name}: set JOULEFS_TRACES to a directory that has it"));
    }
    found
}

/// Converts with and without --clear, and compares replays of the results with one of the recording.
fn told_otherwise(room: &Room, file: &str, again: u64, discards: u64) {
    let [told, cleared] = ["told.txt", "cleared.txt"].map(|name| room.text(name));
    let kept = json(&["trace", "convert", file, "--to", "blkparse", "--output", &told]);
    let clear = json(&["trace", "convert", file, "--to", "blkparse", "--clear", "--output", &cleared]);
    for (said, cleared) in [(&kept, false), (&clear, true)] {
        assert_eq!((&said["requests_told_again"], &said["discards_told_as_reads"]), (&again.into(), &discards.into()));
        assert_eq!(said["cleared"], cleared);
    }
    let records = |said: &Value| said["records"].as_u64().unwrap();
    assert_eq!(records(&kept) - records(&clear), again);
    let (kept, clear) = (again.to_string(), discards.to_string());
    for (option, words) in [(None, ["kept", "--clear"]), (Some("--clear"), ["skipped", "corrected"])] {
        let to = room.text("said.txt");
        let args = [&["trace", "convert", file, "--to", "blkparse", "--output", &to][..], option.as_slice()].concat();
        let said = joulefs(&args).err;
        assert!(words.iter().chain(&[kept.as_str(), clear.as_str()]).all(|w| said.contains(w)), "{said}");
    }
    let pj = |file: &str| json(&["trace", "replay", file])["total_pj"].as_u64().unwrap();
    assert_eq!(pj(file), pj(&cleared), "cleared");
    assert_ne!(pj(file), pj(&told), "as told");
}

#[test]
fn what_is_converted_cleared_costs_what_a_replay_of_the_recording_costs() {
    let room = Room::new();
    let file = room.text("phone.csv");
    let mut text = "proces,device,rw_flag,sector,size,timestamp\n".to_owned();
    for n in 0..200 {
        let (at, s) = (n * 800, 10 + n);
        text += &format!("app-7,8388608,W,{at},64,{s}.000000\nkworker/u17:0-9,8388608,W,{at},64,{s}.001100\n");
        text += &format!("f2fs_discard-25-692,8388608,R,{at},8,{s}.500000\n");
    }
    fs::write(&file, text).unwrap();
    told_otherwise(&room, &file, 200, 200);
    let log = room.text("log");
    let plain =
        joulefs(&["trace", "convert", &fixture("striped.txt.zst"), "--to", "iolog", "--clear", "--output", &log]);
    assert!(plain.err.contains("no duplicate requests"), "{}", plain.err);
    misused(&["trace", "convert", &room.text("phone.csv"), "--to", "calls", "--output", &log, "--clear"], &["--clear"]);
}

#[test]
fn the_same_of_a_phones_recording() {
    let Some(file) = theirs("telegram_exec.csv.gz") else { return };
    told_otherwise(&Room::new(), file.to_str().unwrap(), 36_570, 1_165);
}
