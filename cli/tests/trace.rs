//! Recordings by other programs: numbers equal to plain sums, reproducible joules, and one-line errors.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// Requests in the format of SNIA's Microsoft Research traces: 100 ns, host, disk, type, byte, bytes, response time.
fn msr(requests: u64) -> (String, Vec<(bool, u64, u64)>) {
    let (mut text, mut list, mut state) = (String::new(), Vec::new(), 88_172_645_463_325_252_u64);
    let mut rng = |below: u64| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut time, mut at) = (128_166_372_003_061_629_u64, 0);
    for _ in 0..requests {
        time += rng(50_000);
        let write = rng(3) > 0;
        let bytes = 512 * (1 + rng(64));
        at = if rng(2) == 0 { at } else { 512 * rng(1 << 18) };
        let kind = if write { "Write" } else { "Read" };
        writeln!(text, "{time},host,0,{kind},{at},{bytes},{}", rng(100_000)).unwrap();
        list.push((write, at, bytes));
        at += bytes;
    }
    (text, list)
}

#[test]
fn totals_are_those_of_plain_sums() {
    let room = Room::new();
    let (text, list) = msr(3000);
    let file = room.text("t.csv");
    fs::write(&file, &text).unwrap();
    let stat = json(&["trace", "stat", &file]);
    let sum = |write: bool| list.iter().filter(|r| r.0 == write).map(|r| r.2).sum::<u64>();
    let count = |write: bool| list.iter().filter(|r| r.0 == write).count();
    for (op, write) in [("read", false), ("write", true)] {
        let row = stat["operations"].as_array().unwrap().iter().find(|o| o["op"] == op).unwrap();
        assert_eq!((row["bytes"].as_u64(), row["count"].as_u64()), (Some(sum(write)), Some(count(write) as u64)));
    }
    let blocks = |write: Option<bool>| -> u64 {
        let of = list.iter().filter(|r| write.is_none_or(|w| r.0 == w));
        let all: BTreeSet<u64> = of.flat_map(|(_, at, n)| at / 4096..(at + n).div_ceil(4096)).collect();
        all.len() as u64 * 4096
    };
    let places = &stat["places"];
    assert_eq!(places["touched"], blocks(None));
    assert_eq!((&places["read"], &places["written"]), (&blocks(Some(false)).into(), &blocks(Some(true)).into()));
    // By the 32 KiB rule, without flushes: runs that end where another begins.
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (_, at, n) in list.iter().filter(|r| r.0) {
        match runs.iter_mut().rev().find(|(end, _)| end == at) {
            Some(run) => *run = (at + n, run.1 + n),
            None => runs.push((at + n, *n)),
        }
    }
    let random: u64 = runs.iter().filter(|r| r.1 < 32 << 10).map(|r| r.1).sum();
    assert_eq!(stat["write_order"]["random_bytes"], random);
    assert_eq!(stat["write_order"]["sequential_bytes"], sum(true) - random);
    assert!(stat["between"]["p99_ns"].as_u64().unwrap() > 0);

    // The same, compressed, from standard input.
    let zip = room.text("t.csv.gz");
    let packed = std::process::Command::new("gzip").args(["-kc", &file]).output().unwrap().stdout;
    fs::write(&zip, packed).unwrap();
    let mut unpacked = json(&["trace", "stat", &zip]);
    assert_eq!(unpacked, stat);
    unpacked["format"] = Value::Null;
    let page = room.text("t.html");
    let table = done(&["trace", "stat", &file, "--html", &page]);
    assert!(table.contains("updates") && table.contains("p99.9"), "{table}");
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
    // Wide plots scroll, and use the page's colours in dark mode.
    assert_eq!(page.matches("<svg").count(), page.matches("<div class=\"plot\"><svg").count());
}

#[test]
fn the_same_recording_costs_the_same_every_time_and_each_account_has_all_of_it() {
    let room = Room::new();
    let (text, list) = msr(3000);
    let file = room.text("t.csv");
    fs::write(&file, &text).unwrap();
    let replay = ["trace", "replay", &file, "--profile", "galaxy-nexus-emmc"];
    let first = json(&replay);
    assert_eq!(first, json(&replay));
    let sum = |of: &Value| -> u64 { of.as_object().unwrap().values().map(|v| v["pj"].as_u64().unwrap()).sum() };
    assert_eq!(Some(sum(&first["causes"])), first["total_pj"].as_u64());
    assert_eq!(Some(sum(&first["operations"])), first["total_pj"].as_u64());
    let owners: u64 = first["files"].as_array().unwrap().iter().map(|f| f["pj"].as_u64().unwrap()).sum();
    assert_eq!(Some(owners), first["total_pj"].as_u64());
    assert_eq!(first["replay"]["requests"], list.len());
    let bytes: u64 = list.iter().filter(|r| r.0).map(|r| r.2).sum();
    assert_eq!(first["replay"]["written"], bytes);

    let two = json(&["trace", "replay", &file, "--compare", "profile=galaxy-nexus-emmc,kirin9000-ufs31"]);
    let variants = two["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    assert_eq!(variants[0]["total_pj"], first["total_pj"]);
    assert_ne!(variants[1]["total_pj"], first["total_pj"]);
    // Without pauses it is not slower.
    let dense = json(&[&replay[..], &["--back-to-back"]].concat());
    assert!(dense["time_ns"].as_u64() <= first["time_ns"].as_u64());
}

#[test]
fn a_queue_takes_requests_beside_each_other_and_each_is_told_of() {
    let room = Room::new();
    let (text, list) = msr(3000);
    let (file, table) = (room.text("t.csv"), room.text("requests.csv"));
    fs::write(&file, &text).unwrap();
    let given = |queue: &str| {
        json(&["trace", "replay", &file, "--profile", "kirin9000-ufs31", "--back-to-back", "--queue", queue])
    };
    let (one, many) = (given("1"), given("32"));
    assert_eq!((&one["replay"]["most_at_once"], &many["replay"]["most_at_once"]), (&1.into(), &32.into()));
    assert!(many["time_ns"].as_u64() < one["time_ns"].as_u64());
    assert!(many["total_pj"].as_u64() < one["total_pj"].as_u64());

    done(&["trace", "replay", &file, "--profile", "kirin9000-ufs31", "--requests", &table]);
    let mut lines = csv::Reader::from_path(&table).unwrap();
    assert_eq!(
        lines.headers().unwrap(),
        "process,operation,sector,bytes,recorded_ns,came_ns,given_ns,done_ns,failed".split(',').collect::<Vec<_>>()
    );
    let rows: Vec<csv::StringRecord> = lines.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), list.len());
    let time = |row: &csv::StringRecord, at: usize| row[at].parse::<u64>().unwrap();
    assert!(rows.iter().all(|r| time(r, 5) <= time(r, 6) && time(r, 6) <= time(r, 7)));
    let bytes: u64 = rows.iter().filter(|r| &r[1] == "write").map(|r| time(r, 3)).sum();
    assert_eq!(bytes, list.iter().filter(|r| r.0).map(|r| r.2).sum::<u64>());
    misused(&["trace", "replay", &file, "--queue", "0"], &["--queue"]);
    misused(
        &["trace", "replay", &file, "--requests", &table, "--compare", "profile=galaxy-nexus-emmc"],
        &["--requests", "a single run"],
    );
    refused(&["trace", "replay", &file, "--requests", "/no/such/table"], &["--requests", "/no/such/table"]);
}

#[test]
fn what_is_assumed_is_named_beside_the_result_with_how_far_it_moves_it() {
    let room = Room::new();
    let (text, _) = msr(2000);
    let file = room.text("t.csv");
    fs::write(&file, &text).unwrap();
    let replay = ["trace", "replay", &file, "--profile", "kirin9000-ufs31"];
    let plain = json(&replay);
    assert!(plain["assumed"].as_array().unwrap().iter().any(|n| n == "device.buffer"), "{}", plain["assumed"]);
    let total = |v: &Value| v["total_pj"].as_u64().unwrap();

    // Half and twice a number, one at a time, as with --assume.
    let all = json(&[&replay[..], &["--sensitivity"]].concat());
    assert_eq!(total(&all), total(&plain));
    let rows = all["sensitivity"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|r| r["number"] == name).unwrap_or_else(|| panic!("no {name}"));
    let moved = rows.iter().filter(|r| r["twice_pj"].as_u64().is_some_and(|pj| pj != total(&plain))).count();
    assert!(moved >= 5, "only {moved} numbers move anything");
    let program = row("device.nand.program_energy");
    let twice = format!("device.nand.program_energy={}mJ/MB", program["value"].as_f64().unwrap() * 2.0);
    assert_eq!(Some(total(&json(&[&replay[..], &["--assume", &twice]].concat()))), program["twice_pj"].as_u64());
    assert!(program["half_pj"].as_u64().unwrap() < total(&plain));
    assert_eq!(row("device.ready")["twice_pj"], Value::Null, "0 has no half");
    let table = done(&[&replay[..], &["--sensitivity"]].concat());
    for word in ["assumed:", "by half", "by twice", "device.nand.program_energy", "assumed to be 0"] {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }

    // Idle power, and flushes that were not recorded.
    let idle = json(&[&replay[..], &["--assume", "device.ready=10mW"]].concat());
    assert!(total(&idle) > total(&plain));
    let flushed = json(&[&replay[..], &["--assume", "flush=100ms"]].concat());
    let flushes = flushed["replay"]["assumed_flushes"].as_u64().unwrap();
    let tried = json(&[&replay[..], &["--assume", "flush=100ms", "--sensitivity"]].concat());
    let row = tried["sensitivity"].as_array().unwrap().iter().find(|r| r["number"] == "flush").expect("they are tried");
    let twice = json(&[&replay[..], &["--assume", "flush=200ms"]].concat());
    assert_eq!(row["twice_pj"].as_u64(), Some(total(&twice)));
    assert!(flushes > 10 && Some(flushes) == flushed["operations"]["flush"]["count"].as_u64(), "{flushes}");
    assert_eq!(flushed["replay"]["requests"], plain["replay"]["requests"]);
    assert!(total(&flushed) > total(&plain));

    let refuse = |given: &str, words: &[&str]| misused(&["trace", "replay", &file, "--assume", given], words);
    refuse("device.colour=1", &["--assume device.colour", "unknown field"]);
    refuse("device.ready=1s", &["device.ready", "unit"]);
    refuse("device.ready", &["NAME=NUMBER"]);
    refuse("flush=5mW", &["flush=5mW"]);
}

#[test]
fn joules_stand_behind_the_packets_of_a_perfetto_trace_and_alone_beside_another() {
    let room = Room::new();
    let packed = fs::read("../trace/fixtures/perfetto/events.pftrace.zst").unwrap();
    let mut original = Vec::new();
    std::io::copy(&mut ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap(), &mut original).unwrap();
    let (file, out) = (room.text("phone.pftrace"), room.text("with-joules.pftrace"));
    fs::write(&file, &original).unwrap();
    let replay = ["trace", "replay", &file, "--profile", "kirin9000-ufs31"];
    let plain = json(&replay);
    let with = json(&[&replay[..], &["--perfetto", &out]].concat());
    assert_eq!(plain, with, "to write them costs nothing");
    let written = fs::read(&out).unwrap();
    assert!(written.starts_with(&original) && written.len() > original.len() + 1000);
    let lines = String::from_utf8_lossy(&written[original.len()..]).into_owned();
    for name in ["watts on kirin9000-ufs31", "joules by process", "CPU", "storage"] {
        assert!(lines.contains(name), "no {name:?}");
    }
    // It is still the same recording.
    let operations = |file: &str| json(&["trace", "stat", file])["operations"].clone();
    assert_eq!(operations(&out), operations(&file));
    misused(&[&replay[..], &["--perfetto", &file]].concat(), &["--perfetto", "the recording, which is being read"]);
    assert_eq!(fs::read(&file).unwrap(), original);

    let (text, _) = msr(500);
    let csv = room.text("t.csv");
    fs::write(&csv, text).unwrap();
    done(&["trace", "replay", &csv, "--perfetto", &out]);
    let alone = fs::read(&out).unwrap();
    assert!(alone[0] == 10 && String::from_utf8_lossy(&alone).contains("joules by process"));
}

/// System calls in MobiBench's format (created files have no names): a messaging database written with syncs, and an
/// existing picture.
fn calls() -> String {
    let mut text = String::from("1 0 open /data/chat.db O_RDWR|O_CREAT|O_LARGEFILE 30\n");
    for n in 0..200 {
        let at = n * 7 % 50 * 4096;
        writeln!(text, "1 {} pwrite 30 {at} 4096\n1 {} fsync 30 0", 1000 + n * 5000, 2000 + n * 5000).unwrap();
    }
    text + "2 1200000 open \"/data/photos/a.jpg\" O_RDONLY|O_LARGEFILE 31\n2 1200100 read 31 500000\n2 1300000 close 31 0\n"
}

#[test]
fn calls_cost_joules_by_file_and_policies_stand_side_by_side() {
    let room = Room::new();
    let file = room.text("app.trace");
    fs::write(&file, calls()).unwrap();
    let one = json(&["trace", "replay", &file]);
    assert_eq!(one, json(&["trace", "replay", &file]));
    let replay = &one["replay"];
    assert_eq!((&replay["failed"], &replay["left_out"]), (&0.into(), &0.into()), "{replay}");
    assert_eq!((&replay["written"], &replay["read"]), (&(200 * 4096).into(), &500_000.into()));
    let costs = |name: &str| {
        let rows = one["files"].as_array().unwrap();
        rows.iter().find(|f| f["file"] == name).map_or(0, |f| f["pj"].as_u64().unwrap())
    };
    // Two hundred small writes with an fsync each cost more than one read of a picture.
    assert!(costs("/data/chat.db/unnamed-1") > 10 * costs("/data/photos/a.jpg"), "{one:#}");
    assert!(costs("/data/photos/a.jpg") > 0);
    assert!(replay["write_amplification_of_file_system"].as_f64().unwrap() >= 1.0);

    let several = json(&["trace", "replay", &file, "--compare", "gc=greedy,fagc", "--compare", "discard=on,off"]);
    let names: Vec<&str> =
        several["variants"].as_array().unwrap().iter().map(|v| v["variant"].as_str().unwrap()).collect();
    assert_eq!(names, ["none on", "none off", "greedy on", "greedy off", "fagc on", "fagc off"]);
    let table = done(&["trace", "replay", &file, "--compare", "gc=greedy,atgc,fagc,joule"]);
    for word in
        ["none", "greedy", "atgc", "fagc", "joule", "WA of fs", "segs held", "p50, p99, p99.9", "nodes for fsync"]
    {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }
}

/// Work that leaves holes: of a file's 10,000 blocks all but every 16th are written once more. Then the program rests for
/// an hour, in which the background has time to clean.
fn calls_that_leave_holes() -> String {
    let (mut text, mut time) = (String::from("1 0 open /data/a.db O_RDWR|O_CREAT|O_LARGEFILE 30\n"), 0);
    for round in 0..2 {
        for block in (0..10_000).filter(|block| round == 0 || block % 16 != 0) {
            time += 100;
            writeln!(text, "1 {time} pwrite 30 {} 4096", block * 4096).unwrap();
        }
        time += 100;
        writeln!(text, "1 {time} fsync 30 0").unwrap();
    }
    text + &format!("1 {} close 30 0\n", time + 3_600_000_000_u64)
}

#[test]
fn a_comparison_of_cleaning_begins_with_a_control_that_nobody_cleans() {
    let room = Room::new();
    let file = room.text("app.trace");
    fs::write(&file, calls_that_leave_holes()).unwrap();
    let compare = |what: &[&str]| {
        let given: Vec<&str> = what.iter().flat_map(|w| ["--compare", w]).collect();
        json(&[&["trace", "replay", &file, "--size", "160M"], &given[..]].concat())["variants"]
            .as_array()
            .unwrap()
            .clone()
    };
    let names = |of: &[Value]| of.iter().map(|v| v["variant"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let cleaned = |v: &Value| v["replay"]["sections_cleaned"].as_u64().unwrap();
    let held = |v: &Value| v["replay"]["free_segments_held"].as_u64().unwrap();

    let two = compare(&["gc=cost-benefit"]);
    assert_eq!(names(&two), ["none", "cost-benefit"]);
    assert!(cleaned(&two[0]) == 0 && cleaned(&two[1]) > 0, "{} and {}", cleaned(&two[0]), cleaned(&two[1]));
    assert!(held(&two[0]) < held(&two[1]), "{} and {} segments held", held(&two[0]), held(&two[1]));
    // Even if given explicitly, it appears once.
    assert_eq!(names(&compare(&["gc=cost-benefit,none"])), names(&two));
    // Power states change policies too; one control is enough for both.
    let by_power = compare(&["power=battery,powered", "gc=joule"]);
    assert_eq!(names(&by_power), ["none", "battery joule", "powered joule"]);
    // Runs without different cleaning need no control.
    assert_eq!(names(&compare(&["discard=on,off"])), ["on", "off"]);
    assert_eq!(names(&compare(&["background_gc=on,off"])), ["on", "off"]);
    let off = ["trace", "replay", &file, "--compare", "gc=greedy,atgc"];
    misused(&[&off[..], &["-o", "background_gc=off"]].concat(), &["gc=greedy,atgc", "control none", "background_gc"]);
    misused(&[&off[..], &["--compare", "background_gc=on,off"]].concat(), &["control none", "background_gc"]);
}

#[test]
fn calls_are_made_in_a_directory_of_the_host_too() {
    let room = Room::new();
    let (file, dir) = (room.text("app.trace"), room.text("there"));
    fs::write(&file, calls()).unwrap();
    fs::create_dir(&dir).unwrap();
    let out = json(&["trace", "replay", &file, "--into", &dir, "--back-to-back"]);
    assert_eq!((&out["replay"]["failed"], &out["replay"]["written"]), (&0.into(), &(200 * 4096).into()));
    assert_eq!(fs::metadata(room.path("there/data/chat.db/unnamed-1")).unwrap().len(), 50 * 4096);
    assert_eq!(fs::metadata(room.path("there/data/photos/a.jpg")).unwrap().len(), 500_000);
    refused(&["trace", "replay", &file, "--into", &dir], &["there", "not empty"]);
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_its_place() {
    let room = Room::new();
    let (mut text, _) = msr(100);
    let file = room.text("t.csv");
    text.insert_str(text.lines().take(50).map(|l| l.len() + 1).sum::<usize>(), "12,host,0,Fly,1,2,3\n");
    fs::write(&file, &text).unwrap();
    refused(&["trace", "stat", &file, "--strict"], &["t.csv", "line 51"]);
    // Everything before the damage is counted.
    let counted = joulefs(&["trace", "stat", &file, "--strict", "--json"]);
    let value: Value = serde_json::from_str(&counted.out).unwrap();
    assert_eq!((counted.code, value["requests"].as_u64()), (1, Some(50)));
    assert!(value["damage"].as_str().unwrap().contains("line 51"));
    refused(&["trace", "replay", &file, "--strict"], &["line 51"]);
    // Otherwise the line is skipped, and every command says so.
    let told = "1 invalid line skipped: line 51, \"12,host,0,Fly,1,2,3\": op is \"Fly\"";
    let counted = json(&["trace", "stat", &file]);
    assert_eq!((counted["requests"].as_u64(), &counted["damage"]), (Some(100), &Value::Null));
    for args in [&["trace", "stat", &file][..], &["trace", "replay", &file], &["energy", &file]] {
        assert!(done(args).contains(told), "{args:?}: {}", done(args));
    }
    let converted = joulefs(&["trace", "convert", &file, "--to", "blkparse"]);
    assert!(converted.code == 0 && converted.err.contains(told), "{}", converted.err);

    let nonsense = room.text("n");
    fs::write(&nonsense, "hello\n").unwrap();
    refused(&["trace", "stat", &nonsense], &["known format", "hello"]);
    fs::write(&nonsense, "").unwrap();
    refused(&["trace", "stat", &nonsense], &["empty"]);
    refused(&["trace", "stat", "/no/such"], &["/no/such"]);
    refused(&["trace", "stat", "/"], &["directory"]);
    misused(&["trace", "replay", "-"], &["twice"]);
    let (good, _) = msr(10);
    fs::write(&file, good).unwrap();
    misused(&["trace", "replay", &file, "--of", "8,0"], &["--of 8,0", "1,0"]);
    misused(&["trace", "replay", &file, "--size", "1M"], &["--size 1M", "t.csv", "too small"]);
    misused(&["trace", "replay", &file, "--compare", "gc=greedy,atgc"], &["for a recording of a block device only"]);
    misused(&["trace", "replay", &file, "--profile", "none"], &["none"]);
    misused(&["trace", "replay", &file, "--size", "big"], &["--size"]);
    fs::write(&file, calls()).unwrap();
    misused(&["trace", "replay", &file, "--compare", "gc=magic"], &["gc=magic", "greedy"]);
    misused(&["trace", "replay", &file, "--compare", "colour=red"], &["colour"]);
    misused(&["trace", "replay", &file, "--full"], &["--full"]);
}

#[test]
fn a_recording_in_another_format_holds_the_same() {
    let room = Room::new();
    let (text, _) = msr(500);
    let file = room.text("t.csv");
    fs::write(&file, &text).unwrap();
    let sums = |stat: &Value| -> Vec<(String, u64, u64)> {
        let rows = stat["operations"].as_array().unwrap();
        let row =
            |o: &Value| (o["op"].as_str().unwrap().into(), o["count"].as_u64().unwrap(), o["bytes"].as_u64().unwrap());
        rows.iter().map(row).collect()
    };
    let first = json(&["trace", "stat", &file]);
    for (to, name) in [("blkparse", "t.txt"), ("iolog", "t3.log"), ("iolog2", "t2.log")] {
        let other = room.text(name);
        done(&["trace", "convert", &file, "--to", to, "--output", &other]);
        let again = json(&["trace", "stat", &other]);
        assert_eq!(sums(&again), sums(&first), "{to}");
        assert_eq!(again["write_order"], first["write_order"], "{to}");
        if to == "blkparse" {
            assert_eq!(again["span_ns"], first["span_ns"]);
            assert_eq!(done(&["trace", "convert", &file, "--to", to]), fs::read_to_string(&other).unwrap());
        }
    }
    let table = room.text("t.parquet");
    let said = json(&["trace", "convert", &file, "--to", "parquet", "--output", &table]);
    assert_eq!((said["records"].as_u64(), &fs::read(&table).unwrap()[..4]), (Some(500), &b"PAR1"[..]));
    misused(&["trace", "convert", &file, "--to", "parquet"], &["--output"]);

    // Damaged input leaves no output file, and keeps an existing one.
    fs::write(&file, text + "nonsense\n").unwrap();
    let strict = &["trace", "convert", &file, "--to", "blkparse", "--output", &table, "--strict"];
    refused(strict, &["line 501"]);
    assert_eq!(&fs::read(&table).unwrap()[..4], b"PAR1");
    assert!(fs::read_dir(room.path("")).unwrap().all(|e| !e.unwrap().file_name().to_string_lossy().ends_with(".part")));
    let kept = joulefs(&[&strict[..], &["--until-damage"]].concat());
    assert_eq!((kept.code, fs::read_to_string(&table).unwrap().lines().count()), (1, 500));
    fs::write(&file, calls()).unwrap();
    misused(&["trace", "convert", &file, "--to", "iolog"], &["calls", "parquet"]);
}

#[test]
fn a_table_by_its_columns_is_what_the_known_format_is() {
    let room = Room::new();
    let (text, _) = msr(200);
    let (file, table) = (room.text("t.csv"), room.text("t.txt"));
    fs::write(&file, &text).unwrap();
    let moved = |line: &str| {
        let [time, host, disk, op, at, bytes, took] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        format!("{op};{bytes};{at};{time};{host};{disk};{took}\r\n")
    };
    fs::write(&table, "op;bytes;at;time;host;disk;took\r\n".to_owned() + &text.lines().map(moved).collect::<String>())
        .unwrap();
    let columns = "time=4:100ns,host=5,device=6,op=1:Read=read:Write=write,offset=3,bytes=2,took=7:100ns";
    let (known, by_columns) = (json(&["trace", "stat", &file]), json(&["trace", "stat", &table, "--columns", columns]));
    for key in ["requests", "span_ns", "operations", "write_order", "places"] {
        assert_eq!(by_columns[key], known[key], "{key}");
    }
    let joules = |args: &[&str]| json(&[&["trace", "replay"], args].concat())["total_pj"].as_u64().unwrap();
    assert_eq!(joules(&[&table, "--columns", columns]), joules(&[&file]));
    let iolog = |args: &[&str]| done(&[&["trace", "convert", "--to", "iolog"], args].concat());
    assert_eq!(iolog(&[&table, "--columns", columns]), iolog(&[&file]));
    misused(&["trace", "stat", &table, "--columns", "time=4:h,op=1,offset=3,bytes=2"], &["--columns", "datetime"]);
    refused(&["trace", "stat", &table], &["known format", "give the columns"]);
}

#[test]
fn a_recording_of_several_files_is_what_one_file_is() {
    let room = Room::new();
    let (text, _) = msr(200);
    let (file, odd, even) = (room.text("t.csv"), room.text("odd.csv"), room.text("even.csv"));
    fs::write(&file, &text).unwrap();
    for (part, first) in [(&even, 0), (&odd, 1)] {
        let lines = text.lines().skip(first).step_by(2);
        fs::write(part, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }
    let (whole, joined) = (json(&["trace", "stat", &file]), json(&["trace", "stat", &odd, &even]));
    for key in ["requests", "span_ns", "operations", "timing"] {
        assert_eq!(joined[key], whole[key], "{key}");
    }
    let blkparse = |args: &[&str]| done(&[&["trace", "convert", "--to", "blkparse"], args].concat());
    assert_eq!(blkparse(&[&odd, &even]).lines().count(), blkparse(&[&file]).lines().count());
    misused(&["trace", "stat", &odd, &even, "--html", &even], &["--html", "which is being read"]);
    let joules = |files: &[&str]| json(&[&["trace", "replay"], files].concat())["total_pj"].as_u64().unwrap();
    assert_eq!(joules(&[&odd, &even]), joules(&[&file]));
    let write = |n: u64| format!("1 {n}.000000 pwrite64(3, \"\"..., 4096, {}) = 4096 <0.000010>\n", n * 4096);
    let open = "1 99.000000 openat(AT_FDCWD, \"/data/a.db\", O_RDWR|O_CREAT, 0600) = 3 <0.000010>\n";
    let [first, second] = [100..130, 130..150].map(|range| range.map(write).collect::<String>());
    let [both, one, two] = ["both.strace", "one.strace", "two.strace"].map(|name| room.text(name));
    fs::write(&both, open.to_owned() + &first + &second).unwrap();
    fs::write(&one, open.to_owned() + &first).unwrap();
    fs::write(&two, second).unwrap();
    assert_eq!(joules(&[&two, &one]), joules(&[&both]));
    assert_ne!(joules(&[&one]), joules(&[&both]));
    misused(&["trace", "replay", &odd, &even, "--perfetto", &room.text("p")], &["--perfetto", "give one"]);
    misused(&["trace", "replay", &odd, &even, "--requests", &even], &["--requests", "which is being read"]);
}

#[test]
fn energy_is_told_by_a_table_and_by_simulation_with_the_difference() {
    let room = Room::new();
    let (text, list) = msr(1000);
    let (file, table) = (room.text("t.csv"), room.text("prices.toml"));
    fs::write(&file, text).unwrap();
    let prices =
        "read_sequential = 10\nread_random = 100\nwrite_sequential = 20\nwrite_random = 200\nsource = 'mine'\n";
    fs::write(&table, prices.replace("10\n", "10.0\n").replace("00\n", "00.0\n").replace("20\n", "20.0\n")).unwrap();
    let out = json(&["energy", &file, "--profile", "galaxy-nexus-emmc", "--prices", &table]);
    let kinds = out["by_table"]["kinds"].as_array().unwrap();
    let bytes: u64 = kinds.iter().map(|k| k["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, list.iter().map(|r| r.2).sum::<u64>());
    let plain: f64 = kinds
        .iter()
        .zip([10.0, 100.0, 20.0, 200.0])
        .map(|(k, p)| k["bytes"].as_f64().unwrap() / 1024.0 * p / 1e6)
        .sum();
    let told = out["by_table"]["pj"].as_i64().unwrap();
    assert!((told as f64 / 1e12 - plain).abs() < 1e-9 * plain, "{told} for {plain}");
    let replayed = json(&["trace", "replay", &file, "--profile", "galaxy-nexus-emmc"]);
    let idle = replayed["operations"]["idle"]["pj"].as_u64().unwrap();
    assert_eq!(out["by_simulation"]["pj"].as_u64(), replayed["total_pj"].as_u64().map(|all| all - idle));
    let difference = told - out["by_simulation"]["pj"].as_i64().unwrap();
    assert!((out["difference_pj"].as_i64().unwrap() - difference).abs() <= 1);
    let page = done(&["energy", &file, "--profile", "galaxy-nexus-emmc"]);
    assert!(page.contains("written at random") && page.contains("by simulation"), "{page}");
    fs::write(&table, "read_sequential = -1.0\n").unwrap();
    refused(&["energy", &file, "--prices", &table], &["prices.toml"]);
    refused(&["energy", &room.text("none")], &["none"]);
}

/// Page reads and writes of a cache with `room` pages, by a simple list: requests in multiples of 512 bytes, pages of
/// 64 KiB.
fn cached(list: &[(bool, u64, u64)], room: usize) -> (u64, u64) {
    let (mut held, mut reads, mut writes) = (Vec::<(u64, bool)>::new(), 0, 0);
    for (write, at, n) in list {
        for page in at / 65536..=(at + n - 1) / 65536 {
            let known = held.iter().position(|(p, _)| *p == page);
            let changed = known.is_some_and(|i| held.remove(i).1);
            reads += u64::from(known.is_none());
            held.push((page, changed || *write));
            if held.len() > room {
                writes += u64::from(held.remove(0).1);
            }
        }
    }
    (reads, writes)
}

#[test]
fn mapping_caches_of_every_size_are_told_before_and_after_blocks_moved() {
    let room = Room::new();
    let (text, list) = msr(3000);
    let file = room.text("t.csv");
    fs::write(&file, &text).unwrap();
    // Map pages of 64 bytes, each for 16 blocks of 4 KiB.
    let stat = ["trace", "stat", &file, "--map-cache", "--map-page", "64"];
    let whole = json(&stat);
    let map = &whole["map_cache"];
    assert_eq!((&map["schema"], &map["covers_bytes"]), (&"joulefs-map-cache".into(), &65536.into()), "{map}");
    let at = |curve: &Value, pages: u64| {
        let steps = curve["steps"].as_array().unwrap();
        let step = steps.iter().rev().find(|s| s["pages"].as_u64().unwrap() <= pages).unwrap();
        (step["reads"].as_u64().unwrap(), step["writes"].as_u64().unwrap())
    };
    let before = &map["devices"][0]["before"];
    for pages in [1, 2, 5, 40, 256, 700, 3000] {
        assert_eq!(at(before, pages), cached(&list, pages as usize), "{pages} pages");
    }
    let own = &map["devices"][0]["at_profile"]["before"];
    assert_eq!(
        (own["reads"].as_u64().unwrap(), own["writes"].as_u64().unwrap()),
        cached(&list, 256),
        "kirin9000-ufs31"
    );

    // Moves everything close together: every eighth requested block, consecutively.
    let log = room.text("moved.csv");
    let mut lines = "from,to,blocks\n# by hand\n".to_owned();
    (0..(1 << 15)).step_by(8).for_each(|b| writeln!(lines, "{b},{},8", (1 << 20) + b / 64 * 8).unwrap());
    fs::write(&log, &lines).unwrap();
    let page = room.text("t.html");
    let moved = [&stat[..], &["--moved", &log, "--html", &page]].concat();
    let both = json(&moved);
    let both = &both["map_cache"];
    assert_eq!(both["devices"][0]["before"], *before);
    assert!(at(&both["devices"][0]["after"], 40).0 < at(before, 40).0, "{both}");
    let table = done(&moved);
    assert!(table.contains("ratio") && table.contains("256*"), "{table}");
    assert!(fs::read_to_string(&page).unwrap().contains("Mapping cache"));

    fs::write(&log, "from,to,blocks\n1,2,3\n1,2\n").unwrap();
    refused(&moved, &["line 3", "moved.csv", "from,to,blocks"]);
    let of_calls = room.text("app.trace");
    fs::write(&of_calls, calls()).unwrap();
    misused(&["trace", "stat", &of_calls, "--map-cache"], &["--map-cache", "block device"]);
    misused(&["trace", "stat", &file, "--map-cache", "--map-unit", "1000"], &["--map-unit", "4 KiB"]);
}
