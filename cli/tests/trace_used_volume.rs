//! Recorded calls on a used volume: aged, full, used by another program before; and the errors if that is impossible.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// Fills a database of 2,000 blocks, then changes blocks all over it for a minute, with occasional fsyncs; reads an
/// existing picture.
fn calls() -> String {
    let mut text = String::from("1 0 open /data/chat.db O_RDWR|O_CREAT|O_LARGEFILE 30\n");
    for n in 0..6_000_u64 {
        let block = if n < 2_000 { n } else { n * 7919 % 2_000 };
        writeln!(text, "1 {} pwrite 30 {} 4096", 1000 + n * 10_000, block * 4096).unwrap();
        if n % 50 == 0 {
            writeln!(text, "1 {} fsync 30 0", 2000 + n * 10_000).unwrap();
        }
    }
    text + "2 1200000 open \"/data/photos/a.jpg\" O_RDONLY|O_LARGEFILE 31\n2 1200100 read 31 500000\n2 1300000 close 31 0\n"
}

fn recorded(room: &Room) -> String {
    let file = room.text("app.trace");
    fs::write(&file, calls()).unwrap();
    file
}

#[test]
fn a_full_volume_is_as_full_as_was_asked_and_cleaning_that_hurries_tells_policies_apart() {
    let room = Room::new();
    let file = recorded(&room);
    let plain = json(&["trace", "replay", &file]);
    assert!(plain["replay"]["began"]["full"].as_f64().unwrap() < 0.5);
    let full = json(&[
        "trace",
        "replay",
        &file,
        "--fill",
        "92%",
        "--hurry",
        "--repeat",
        "3",
        "--seeds",
        "1",
        "--compare",
        "gc=greedy,fagc",
    ]);
    let variants = full["variants"].as_array().unwrap();
    let of = |v: &Value, what: &str| v["replay"][what].as_u64().unwrap();
    for v in variants {
        let began = v["replay"]["began"]["full"].as_f64().unwrap();
        assert!((0.91..0.94).contains(&began), "{began}");
        assert_eq!(of(v, "written"), 3 * of(&plain, "written"));
        assert_eq!(of(v, "failed"), 0, "{}", v["replay"]);
    }
    let cleaned: Vec<u64> = variants.iter().map(|v| of(v, "sections_cleaned")).collect();
    assert!(cleaned[0] < cleaned[1] && cleaned[2] > 0, "{cleaned:?}");
    assert_ne!(variants[1]["total_pj"], variants[2]["total_pj"], "the two policies do not choose alike");
    // Repeated with the same result, to the picojoule.
    assert_eq!(
        full,
        json(&[
            "trace",
            "replay",
            &file,
            "--fill",
            "92%",
            "--hurry",
            "--repeat",
            "3",
            "--seeds",
            "1",
            "--compare",
            "gc=greedy,fagc"
        ])
    );
    let table = done(&["trace", "replay", &file, "--compare", "gc=greedy,fagc"]);
    assert!(table.contains("does not compare policies"), "{table}");
}

#[test]
fn atgc_goes_by_age_on_a_volume_of_a_year_and_on_a_young_one_it_is_said_that_it_does_not() {
    let room = Room::new();
    let file = recorded(&room);
    let compared = |state: &[&str]| {
        let policies = ["trace", "replay", &file, "--hurry", "--seeds", "1", "--compare", "gc=atgc,cost-benefit"];
        let args = [&policies[..], state].concat();
        let value = json(&args);
        let row = |n: usize| (value["variants"][n]["total_pj"].clone(), value["variants"][n]["replay"].clone());
        (row(1), row(2), done(&args).contains("cost-benefit was used in place of ATGC"))
    };
    let (atgc, cost_benefit, said) = compared(&["--fill", "92%"]);
    assert!(atgc.1["sections_cleaned"].as_u64().unwrap() > 0, "{}", atgc.1);
    assert_eq!((atgc.0, said), (cost_benefit.0, true));
    let (atgc, cost_benefit, said) = compared(&["--age", "phone-year", "--fill", "92%", "--size", "512M"]);
    assert_eq!(atgc.1["began"]["waits_for_age"], false);
    assert_ne!(atgc.0, cost_benefit.0);
    assert!(!said);
}

#[test]
fn calls_made_before_are_on_no_account_but_leave_the_volume_used() {
    let room = Room::new();
    let file = recorded(&room);
    let (alone, after) = (json(&["trace", "replay", &file]), json(&["trace", "replay", &file, "--after", &file]));
    assert_eq!(alone["replay"]["written"], after["replay"]["written"]);
    let free = |v: &Value| v["replay"]["began"]["free_segments"].as_u64().unwrap();
    let size = |v: &Value| v["replay"]["device_bytes"].as_u64().unwrap();
    assert!(size(&after) >= size(&alone));
    assert!(free(&after) < free(&alone) + (size(&after) - size(&alone)) / (2 << 20), "something was written before");
    refused(&["trace", "replay", &file, "--after", "/no/such"], &["/no/such"]);
}

#[test]
fn a_volume_without_room_is_refused_before_the_first_call_with_the_size_that_would_do() {
    let room = Room::new();
    let file = room.text("big.trace");
    // Writes 300 MiB.
    let mut text = String::from("1 0 open /data/film.mp4 O_RDWR|O_CREAT|O_LARGEFILE 30\n");
    for n in 0..300_u64 {
        writeln!(text, "1 {} pwrite 30 {} 1048576", 1000 + n, n << 20).unwrap();
    }
    fs::write(&file, text).unwrap();
    refused(&["trace", "replay", &file, "--size", "256M"], &["give --size 512M"]);
    let error = joulefs(&["trace", "replay", &file, "--size", "256M"]).err;
    let size = error.rsplit("--size ").next().unwrap().trim().to_owned();
    let now = json(&["trace", "replay", &file, "--size", &size]);
    assert_eq!((&now["replay"]["failed"], &now["replay"]["written"]), (&0.into(), &(300_u64 << 20).into()));
    // The default size is large enough in every state.
    for state in [&["--fill", "90%"][..], &["--age", "full", "--fill", "96%"]] {
        let now = json(&[&["trace", "replay", &file], state].concat());
        assert_eq!(&now["replay"]["no_space"], 0, "{state:?}");
        assert_eq!(&now["replay"]["written"], 300_u64 << 20, "{state:?}");
    }
}

/// The sufficient size given in a refusal.
fn would_do(args: &[&str]) -> String {
    let error = joulefs(args).err;
    error.rsplit("--size ").next().unwrap().trim().to_owned()
}

#[test]
fn a_volume_without_room_for_what_calls_find_is_refused_with_the_size_that_would_do() {
    let room = Room::new();
    let file = room.text("read.trace");
    // Reads 100 MiB of an existing file.
    let mut text = String::from("1 0 open \"/data/film.mp4\" O_RDONLY|O_LARGEFILE 30\n");
    for n in 0..100 {
        writeln!(text, "1 {} read 30 1048576", 1000 + n).unwrap();
    }
    fs::write(&file, text).unwrap();
    for state in [&[][..], &["--age", "full"], &["--fill", "90%"]] {
        let replay = [&["trace", "replay", &file], state].concat();
        let small = [&replay[..], &["--size", "64M"]].concat();
        refused(&small, &["104857600 bytes", "give --size "]);
        let now = json(&[&replay[..], &["--size", &would_do(&small)]].concat());
        assert_eq!(
            (&now["replay"]["failed"], &now["replay"]["read"]),
            (&0.into(), &(100_u64 << 20).into()),
            "{state:?}"
        );
    }
    let image = room.text("small.img");
    done(&["mkfs", &image, "--size", "64M"]);
    refused(&["trace", "replay", &file, "--image", &image], &["small.img", "give an image of"]);
}

#[test]
fn calls_that_find_no_space_while_they_are_made_end_with_the_size_that_would_do() {
    let room = Room::new();
    let file = room.text("many.strace");
    // Directories take space beyond file contents.
    let mut text = String::new();
    for n in 0..20_000 {
        let time = 1_700_000_000 + n / 1000;
        writeln!(text, "{time}.{:06} mkdir(\"/d{n}\", 0777) = 0 <0.000010>", n % 1000 * 1000).unwrap();
    }
    fs::write(&file, text).unwrap();
    let small = ["trace", "replay", &file, "--size", "64M"];
    refused(&small, &["calls failed with ENOSPC", "--size"]);
    let told = joulefs(&[&small[..], &["--json"]].concat());
    assert_eq!(told.code, 1);
    let value: Value = serde_json::from_str(&told.out).expect("one value");
    assert!(value["error"].as_str().unwrap().contains("--size"), "{}", value["error"]);
    let now = json(&["trace", "replay", &file, "--size", &would_do(&small)]);
    assert_eq!(now["replay"]["failed"], 0, "{}", now["replay"]);
}

#[test]
fn nothing_is_written_over_what_a_replay_reads() {
    let room = Room::new();
    let file = recorded(&room);
    let (earlier, image, profile) = (room.text("earlier"), room.text("v.img"), room.text("p.toml"));
    fs::copy(&file, &earlier).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../device/profiles/kirin9000-ufs31.toml"), &profile).unwrap();
    for (option, read) in [("--after", &earlier), ("--image", &image), ("--profile", &profile)] {
        let before = fs::read(read).unwrap();
        let flame = ["--flame", read, "--flame-format", "html"];
        misused(
            &[&["trace", "replay", &file, option, read], &flame[..]].concat(),
            &["--flame", "which is being read; give another file"],
        );
        assert!(fs::read(read).unwrap() == before, "{option}");
    }
}

#[test]
fn memory_of_the_host_never_makes_calls_dearer_and_a_cold_volume_reads_its_metadata() {
    let room = Room::new();
    let file = recorded(&room);
    let read = |more: &[&str]| {
        let v = json(&[&["trace", "replay", &file], more].concat());
        let causes = v["replay"]["blocks_by_cause"].as_object().unwrap();
        (causes.values().map(|c| c["read"].as_u64().unwrap()).sum::<u64>(), v["total_pj"].as_u64().unwrap())
    };
    let (without, with, cold) = (read(&["--page-cache", "none"]), read(&[]), read(&["--cold"]));
    assert!(with.0 <= without.0 && with.1 <= without.1, "{with:?} with memory, {without:?} without");
    assert!(cold.0 > with.0 && cold.1 > with.1, "{cold:?} cold, {with:?} warm");
}

#[test]
fn what_makes_no_sense_is_refused_by_its_option() {
    let room = Room::new();
    let file = recorded(&room);
    misused(&["trace", "replay", &file, "--fill", "100%"], &["--fill 100%", "1% to 99%"]);
    misused(&["trace", "replay", &file, "--fill", "full"], &["--fill full"]);
    misused(&["trace", "replay", &file, "--repeat", "0"], &["--repeat"]);
    misused(&["trace", "replay", &file, "--fill", "50%", "--paced"], &["--fill", "--paced"]);
    let blocks = room.text("t.csv");
    fs::write(&blocks, "128166372003061629,host,0,Write,0,4096,10\n").unwrap();
    for option in [&["--fill", "50%"][..], &["--repeat", "2"], &["--hurry"], &["--cold"], &["--on-time"]] {
        misused(&[&["trace", "replay", &blocks], option].concat(), &[option[0], "recordings of calls"]);
        // With any other option, a comparison of policies says why it cannot distinguish them.
        let compared = [&["trace", "replay", &blocks, "--compare", "gc=greedy,atgc"], option].concat();
        misused(&compared, &["--compare", "another one would have written different blocks"]);
    }
}
