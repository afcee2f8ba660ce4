//! Alumet's measurements next to the cost of requests: its file is read, followed as it grows, and compared over the
//! same period.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::room::Room;
use crate::typed::{done, misused, refused};

const HEADER: &str = "metric;timestamp;value;resource_kind;resource_id;consumer_kind;consumer_id;__late_attributes\n";

/// Milliseconds since midnight in Alumet's time format.
fn at(ms: u64) -> String {
    format!("2026-11-24T05:{:02}:{:02}.{:03}Z", ms / 60_000, ms / 1000 % 60, ms % 1000)
}

fn process(ms: u64, pid: u32, joules: f64) -> String {
    format!("attributed_energy_J;{};{joules};local_machine;;process;{pid};kind=total\n", at(ms))
}

fn disk(ms: u64, watts: f64) -> String {
    format!("disk_power_W;{};{watts};local_machine;;local_machine;;\n", at(ms))
}

/// Two processes that each use one disk 20 times per second, for `seconds`.
fn recording(room: &Room, seconds: u64) -> String {
    let file = room.text("requests.txt");
    let line = |n: u64| {
        let (at, us, who) = (n * 8 % 4096, n * 50_000, if n.is_multiple_of(2) { ("reader", 7) } else { ("writer", 8) });
        let (sec, us, how) = (100 + us / 1_000_000, us % 1_000_000, if who.1 == 7 { "R" } else { "WS" });
        let (name, pid) = who;
        format!(" {name}-{pid} [000] ..... {sec}.{us:06}: block_rq_issue: 8,0 {how} 4096 () {at} + 8 [{name}]\n")
    };
    fs::write(&file, (0..seconds * 20).map(line).collect::<String>()).unwrap();
    file
}

fn lines(args: &[&str]) -> Vec<Value> {
    done(&[args, &["--json"]].concat()).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn close(is: &Value, should: f64) {
    let is = is.as_f64().unwrap_or_else(|| panic!("{is} is no number"));
    assert!((is - should).abs() < 1e-6 * should.abs().max(1e-6), "{is} is not {should}");
}

/// Ten seconds from 05:01:00: two joules per second for the reader, one for the writer, three for another process; 4 W
/// of the disk.
fn measured(room: &Room) -> String {
    let file = room.text("alumet.csv");
    let mut text = HEADER.to_owned();
    // Sources write one after the other, several seconds at a time.
    for begins in [0, 5] {
        for (pid, joules) in [(7, 2.0), (8, 1.0), (9, 3.0)] {
            (begins..begins + 5).for_each(|s| text += &process(60_000 + s * 1000, pid, joules));
        }
        (begins..begins + 5).for_each(|s| text += &disk(60_000 + s * 1000, 4.0));
    }
    text += &process(70_000, 7, f64::NAN);
    text += &disk(70_000, 4.0);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn each_process_has_its_joules_of_the_processor_and_the_disk_its_measured_watts() {
    let room = Room::new();
    let (file, alumet) = (recording(&room, 10), measured(&room));
    let all = lines(&["top", "--from", &file, "--no-wait", "--alumet", &alumet, "--alumet-began", &at(60_000)]);
    let last = &all[all.len() - 1]["alumet"];
    let of = |name: &str| &last["by_process"][name];
    close(&of("reader")["joules"], 20.0);
    close(&of("reader")["watts"], 2.0);
    close(&of("writer")["joules"], 10.0);
    close(&last["other_processes"]["joules"], 30.0);
    assert_eq!((&last["other_processes"]["count"], &last["metric"]), (&1.into(), &"attributed_energy_J".into()));
    let power = &last["disk"];
    close(&power["last_watts"], 4.0);
    close(&power["measured_joules"], 4.0 * power["compared_s"].as_f64().unwrap());
    assert_eq!((&power["device"], &last["beginning_guessed"]), (&"8,0".into(), &false.into()));
    // In all refreshes covered by measurements, the model's storage equals its account.
    let compared = power["compared_s"].as_f64().unwrap();
    assert!((8.9..=10.0).contains(&compared), "{compared}");
    let n = all.iter().position(|l| (l["seconds"].as_f64().unwrap() - compared).abs() < 1e-6).expect("a refresh");
    let storage = all[n]["disks"][0]["components_pj"]["storage"].as_f64().unwrap() / 1e12;
    close(&power["model_storage_joules"], storage);
    close(&power["model_by_measured"], storage / (4.0 * compared));
    // The account is the same without Alumet.
    let plain = lines(&["top", "--from", &file, "--no-wait"]);
    assert_eq!(plain[plain.len() - 1]["total_pj"], all[all.len() - 1]["total_pj"]);
    assert!(plain[0]["alumet"].is_null());

    let text = done(&["top", "--from", &file, "--once", "--alumet", &alumet]);
    for words in [
        "cpu joules",
        "20.00 J",
        "attributed_energy_J",
        "1 processes without disk requests",
        "model / measured",
        "assuming that the recording begins",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn measurements_that_are_elsewhere_in_time_are_not_counted() {
    let room = Room::new();
    let (file, alumet) = (recording(&room, 10), measured(&room));
    let from = |began: u64| {
        let all = lines(&["top", "--from", &file, "--once", "--alumet", &alumet, "--alumet-began", &at(began)]);
        all[0]["alumet"]["by_process"]["reader"]["joules"].as_f64().unwrap_or(0.0)
    };
    // From the fifth second: five and a half of ten are left.
    assert_eq!([from(60_000), from(64_500), from(80_000)], [20.0, 10.0, 0.0]);
}

#[test]
fn a_file_is_followed_while_it_grows_and_when_it_is_made_anew() {
    let room = Room::new();
    let (file, alumet) = (recording(&room, 8), room.text("alumet.csv"));
    fs::write(&alumet, "").unwrap();
    let mut top = Command::new(env!("CARGO_BIN_EXE_joulefs"));
    let top =
        top.args(["top", "--from", &file, "--alumet", &alumet, "--delay", "0.2", "--json"]).stdout(Stdio::piped());
    let mut top = top.spawn().unwrap();
    let mut out = BufReader::new(top.stdout.take().unwrap());
    let mut joules = |until: f64| {
        #[allow(clippy::disallowed_methods, reason = "how long this machine waits is what is bounded")]
        let began = Instant::now();
        loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended before {until} J");
            let value: Value = serde_json::from_str(&line).unwrap();
            let is = value["alumet"]["by_process"]["reader"]["joules"].as_f64().unwrap_or(0.0);
            if is == until {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30) && is < until, "{is} J, not {until}");
        }
    };
    joules(0.0);
    let mut grows = fs::OpenOptions::new().append(true).open(&alumet).unwrap();
    // A line arrives in two parts.
    let (first, rest) = process(60_000, 7, 2.0).split_at(20).to_owned_pair();
    grows.write_all(format!("{HEADER}{first}").as_bytes()).unwrap();
    joules(0.0);
    grows.write_all(rest.as_bytes()).unwrap();
    joules(2.0);
    grows.write_all(process(61_000, 7, 3.0).as_bytes()).unwrap();
    joules(5.0);
    // Alumet restarted, with other columns.
    fs::write(&alumet, HEADER.replace(';', ",")).unwrap();
    joules(5.0);
    let mut grows = fs::OpenOptions::new().append(true).open(&alumet).unwrap();
    grows.write_all(process(62_000, 7, 1.0).replace(';', ",").as_bytes()).unwrap();
    joules(6.0);
    top.kill().unwrap();
    top.wait().unwrap();
}

/// Both parts as owned strings.
trait Owned {
    fn to_owned_pair(&self) -> (String, String);
}

impl Owned for (&str, &str) {
    fn to_owned_pair(&self) -> (String, String) {
        (self.0.to_owned(), self.1.to_owned())
    }
}

#[test]
fn what_is_no_file_of_alumets_is_refused_in_a_line() {
    let room = Room::new();
    let file = recording(&room, 1);
    refused(&["top", "--from", &file, "--once", "--alumet", &room.text("none")], &["--alumet", "none"]);
    refused(&["top", "--from", &file, "--once", "--alumet", &file], &["--alumet", "not Alumet CSV"]);
    let alumet = measured(&room);
    let began = ["top", "--from", &file, "--once", "--alumet", &alumet, "--alumet-began", "noon"];
    misused(&began, &["--alumet-began noon", "2026-11-24T"]);
}
