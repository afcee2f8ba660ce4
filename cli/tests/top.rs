//! `joulefs top` without a kernel: playing a recording gives the numbers of its replay, to the picojoule, and costs are
//! charged to the requesting process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

/// Recordings of real kernels, in four formats.
const RECORDINGS: [&str; 5] = [
    "ftrace/pipe.txt.zst",
    "ftrace/tgid.txt.zst",
    "ftrace/v7.dat.zst",
    "blktrace/vdb.blktrace.zst",
    "perfetto/events.pftrace.zst",
];

/// The JSON objects printed, one per line.
fn lines(args: &[&str]) -> Vec<Value> {
    done(&[args, &["--json"]].concat()).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn the_total_is_that_of_a_replay_to_the_picojoule() {
    for name in RECORDINGS {
        let file = fixture(name);
        for profile in ["kirin9000-ufs31", "laptop-disk-4200"] {
            let top = json(&["top", "--from", &file, "--once", "--profile", profile]);
            let disks = top["disks"].as_array().unwrap();
            assert!(!disks.is_empty(), "{name}");
            let mut sum = 0;
            for disk in disks {
                let of = disk["device"].as_str().unwrap();
                let replay = json(&["trace", "replay", &file, "--profile", profile, "--of", of]);
                assert_eq!(disk["pj"], replay["total_pj"], "{name} {of} on {profile}");
                assert_eq!(disk["replay_pj"], replay["total_pj"], "{name} {of} on {profile}");
                assert_eq!(disk["requests"], replay["replay"]["requests"], "{name} {of}");
                for (component, pj) in replay["components_pj"].as_object().unwrap() {
                    assert_eq!(disk["components_pj"][component], *pj, "{name} {of} {component}");
                }
                let of_processes: u64 =
                    disk["processes"].as_array().unwrap().iter().map(|p| p["pj"].as_u64().unwrap()).sum();
                assert_eq!(Some(of_processes), disk["pj"].as_u64(), "{name} {of}: who paid is not all that was spent");
                sum += of_processes;
            }
            assert_eq!(top["total_pj"].as_u64(), Some(sum));
        }
    }
}

#[test]
fn refreshes_add_up_and_end_with_what_a_replay_says() {
    for name in ["ftrace/pipe.txt.zst", "blktrace/vdb.blktrace.zst"] {
        let file = fixture(name);
        let all = lines(&["top", "--from", &file, "--no-wait", "--delay", "0.1"]);
        assert!(all.len() > 2, "{name}: {} refreshes", all.len());
        assert!(all[..all.len() - 1].iter().all(|l| l["ended"] == false) && all[all.len() - 1]["ended"] == true);
        let (mut joules, mut last, mut seconds) = (0.0, 0, 0.0);
        for line in &all {
            let interval = line["interval_ns"].as_u64().unwrap() as f64 / 1e9;
            joules += line["power_uw"].as_u64().unwrap() as f64 / 1e6 * interval;
            seconds += interval;
            let total = line["total_pj"].as_u64().unwrap();
            assert!(total >= last, "{name}: joules went back");
            last = total;
        }
        // Powers are whole microwatts.
        assert!(
            (joules - last as f64 / 1e12).abs() < 1e-6 * seconds,
            "{name}: {joules} J in refreshes, {last} pJ in all"
        );
        let disk = &all[all.len() - 1]["disks"][0];
        let replay = json(&["trace", "replay", &file, "--of", disk["device"].as_str().unwrap()]);
        assert_eq!(disk["replay_pj"], replay["total_pj"], "{name}");
    }
}

/// A line of the block layer: event, device, operation, position, size, process.
fn said(line: &str) -> Option<(&str, &str, &str, u64, u64, &str)> {
    // DEV RWBS [BYTES ()] SECTOR + SECTORS [PROCESS]
    let (what, rest) = line.split_once(": block_")?.1.split_once(": ")?;
    let (rest, name) = rest.rsplit_once(" [")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let plus = words.iter().position(|w| *w == "+")?;
    let number = |w: &str| w.parse().unwrap_or(0);
    Some((what, words[0], words[1], number(words[plus - 1]), number(words[plus + 1]), name.trim_end_matches(']')))
}

/// Number of requests by process: each is charged to the last process that queued its first sector, or a flush.
fn asked(text: &str) -> BTreeMap<&str, u64> {
    let all: Vec<_> = text.lines().filter_map(said).collect();
    let mut sums = BTreeMap::new();
    for (n, (_, dev, rwbs, sector, sectors, name)) in all.iter().enumerate().filter(|(_, e)| e.0 == "rq_issue") {
        // An empty flush is recorded as "FF", "FN" and the like, one before a write as "FW".
        let asks = |e: &&(&str, &str, &str, u64, u64, &str)| match *sectors {
            0 => e.2.contains('F') && name.starts_with("kworker/"),
            _ => (e.3..e.3 + e.4).contains(sector),
        };
        let before = all[..n].iter().rev().filter(|e| e.0 == "bio_queue" && e.1 == *dev).find(asks);
        assert!(*sectors > 0 || rwbs.contains('F'), "{rwbs}");
        let who = before.map_or(*name, |e| e.5);
        *sums.entry(if who.starts_with("kworker/") { "<" } else { who }).or_default() += 1;
    }
    sums
}

#[test]
fn requests_are_whose_who_asked_and_not_of_the_thread_that_gave_them_to_the_disk() {
    let file = fixture("ftrace/pipe.txt.zst");
    let text = String::from_utf8(zstd(&file)).unwrap();
    assert!(text.lines().filter(|l| l.contains("rq_issue")).filter(|l| l.contains("[kworker/")).count() > 50);
    let top = json(&["top", "--from", &file, "--once"]);
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for row in top["disks"][0]["processes"].as_array().unwrap() {
        let name = row["process"].as_str().unwrap();
        let requests = row["requests"].as_u64().unwrap();
        if requests > 0 {
            *found.entry(if name.starts_with('<') { "<" } else { name }).or_default() += requests;
        }
    }
    let expected = asked(&text);
    assert!(expected.len() > 2, "{expected:?}");
    assert_eq!(found, expected);
}

fn zstd(file: &str) -> Vec<u8> {
    let mut out = vec![0; 16 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&std::fs::read(file).unwrap(), &mut out).unwrap();
    out.truncate(n);
    out
}

#[test]
fn disks_have_profiles_of_their_own_and_others_are_left_out() {
    let file = fixture("perfetto/events.pftrace.zst");
    let all = json(&["top", "--from", &file, "--once"]);
    let disks = all["disks"].as_array().unwrap();
    let first = disks[0]["device"].as_str().unwrap();
    let named = format!("{first}=microdrive");
    let one = json(&["top", "--from", &file, "--once", "--profile", &named, "--of", first]);
    assert_eq!(one["disks"].as_array().unwrap().len(), 1);
    assert_eq!(one["disks"][0]["profile"], "microdrive");
    assert_ne!(one["total_pj"], disks[0]["pj"]);
    let others: u64 = disks[1..].iter().map(|d| d["requests"].as_u64().unwrap()).sum();
    assert_eq!(one["notes"]["requests_of_other_disks"].as_u64(), Some(others));
}

/// A recording of `seconds` in which a process reads 20 times a second.
fn slow(room: &Room, seconds: u64) -> String {
    let file = room.text("slow.txt");
    let line = |n: u64| {
        let (at, us) = (n * 8 % 4096, n * 50_000);
        format!(
            " reader-7 [000] ..... {}.{:06}: block_rq_issue: 8,0 R 4096 () {at} + 8 [reader]\n",
            100 + us / 1_000_000,
            us % 1_000_000
        )
    };
    std::fs::write(&file, (0..seconds * 20).map(line).collect::<String>()).unwrap();
    file
}

#[test]
fn counters_are_scraped_while_a_recording_is_played_and_a_signal_ends_it_cleanly() {
    let room = Room::new();
    let file = slow(&room, 600);
    let args = ["top", "--from", &file, "--delay", "0.2", "--json", "--prometheus", "127.0.0.1:0"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_joulefs"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let at = said.trim().split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(|l| l.unwrap());
    let line: Value = serde_json::from_str(&out.nth(2).unwrap()).unwrap();
    let scrape = |method: &str| {
        let mut client = TcpStream::connect(&at).unwrap();
        write!(client, "{method} /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = scrape("GET");
    assert!(
        answer.starts_with("HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(answer.contains(&format!("Content-Length: {}\r\n", body.len())) && body.ends_with("# EOF\n"), "{answer}");
    let counted: f64 = body
        .lines()
        .filter(|l| l.starts_with("joulefs_joules_total{device=\"8,0\""))
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!(counted >= line["total_pj"].as_u64().unwrap() as f64 / 1e12 * 0.999, "{counted} {line}");
    assert!(body.contains("process=\"reader\",component=\"storage\""), "{body}");
    assert!(scrape("POST").starts_with("HTTP/1.0 405 "));
    // Not the terminal's signal, which a shell ignores for background processes.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let last: Value = serde_json::from_str(&out.last().unwrap()).unwrap();
    assert_eq!((last["ended"].as_bool(), child.wait().unwrap().code()), (Some(true), Some(0)));
}

#[test]
fn a_recording_is_played_at_its_own_pace_and_a_count_ends_it() {
    let room = Room::new();
    let file = slow(&room, 600);
    let all = lines(&["top", "--from", &file, "--delay", "0.5", "--count", "2"]);
    assert_eq!(all.len(), 2);
    // Twenty per second; the number in the first second depends on the clock.
    assert_eq!(all[1]["disks"][0]["requests"], 20);
    let watts = all[1]["disks"][0]["processes"][0]["requests_per_s"].as_f64().unwrap();
    assert!((watts - 20.0).abs() < 0.1, "{watts}");
}

#[test]
fn a_person_sees_disks_and_processes() {
    let text = done(&["top", "--from", &fixture("ftrace/pipe.txt.zst"), "--once"]);
    let words = ["disk", "watts", "joules", "requests/s", "MB/s", "<waiting>", "kirin9000-ufs31 of 1.00 GiB"];
    words.iter().for_each(|w| assert!(text.contains(w), "no {w} in\n{text}"));
    let one = done(&["top", "--from", &fixture("ftrace/pipe.txt.zst"), "--once", "--rows", "1"]);
    assert!(one.lines().last().unwrap().ends_with(" more"), "{one}");
}

#[test]
fn what_cannot_be_shown_is_said_in_one_line() {
    let room = Room::new();
    let pipe = fixture("ftrace/pipe.txt.zst");
    refused(&["top", "--from", &room.text("none")], &["none", "No such file"]);
    refused(&["top", "--from", &fixture("strace/programs.y.strace.gz"), "--once"], &["calls to a file system"]);
    misused(&["top", "--from", &pipe, "--profile", "warp"], &["--profile warp", "kirin9000-ufs31"]);
    misused(&["top", "--from", &pipe, "--profile", "a=microdrive", "--profile", "a=microdrive"], &["given twice"]);
    misused(&["top", "--from", &pipe, "--delay", "0"], &["0.1 to 86400"]);
    misused(&["top", "--no-wait"], &["--from"]);
    refused(&["top", "--from", &pipe, "--prometheus", "nowhere", "--once"], &["--prometheus nowhere"]);
    // A truncated recording is played up to its end.
    let text = zstd(&pipe);
    let cut = room.text("cut.txt");
    std::fs::write(&cut, &text[..text.len() / 2]).unwrap();
    let ran = joulefs(&["top", "--from", &cut, "--once"]);
    assert!(ran.code == 1 && ran.out.contains("mount") && ran.err.lines().count() == 1, "{}{}", ran.out, ran.err);
    // If tracing is not permitted, the error gives the next step.
    let ran = joulefs(&["top", "--once", "--delay", "0.1"]);
    assert!(ran.code == 0 || ran.code == 1 && ran.err.contains("--from FILE"), "{}{}", ran.out, ran.err);
}
