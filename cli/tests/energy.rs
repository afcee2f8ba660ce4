//! Tests of `joulefs energy`: profiles, the sources of their numbers, and a fit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::typed::{done, joulefs, misused, refused};

fn profiles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/profiles")
}

fn calibration(name: &str) -> String {
    profiles().join("calibration").join(name).display().to_string()
}

#[test]
fn every_profile_in_the_repository_is_shipped_and_listed() {
    let machines: Value = serde_json::from_str(&done(&["energy", "profiles", "--json"])).unwrap();
    let mut listed: Vec<&str> = machines.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    listed.sort_unstable();
    let files = std::fs::read_dir(profiles()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter_map(|f| f.strip_suffix(".toml").map(str::to_owned)).collect();
    files.sort_unstable();
    assert_eq!(listed, files);
    assert_eq!(done(&["energy", "profiles"]).lines().count(), files.len());
}

#[test]
fn every_number_is_shown_with_its_source_and_confidence() {
    for file in std::fs::read_dir(profiles()).unwrap().map(|f| f.unwrap().path()) {
        if file.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let shown = done(&["energy", "show", file.to_str().unwrap()]);
        let words = ["measured", "vendor", "simulator", "derived", "fitted", "assumed"];
        let (_, table) = shown.split_once("\n\n").unwrap();
        for row in table.lines().skip(1) {
            assert!(words.iter().any(|w| row.contains(&format!("  {w}"))), "{row}");
        }
        let numbers = std::fs::read_to_string(&file).unwrap().matches("confidence = ").count();
        assert_eq!(table.lines().count(), 1 + numbers, "{}", file.display());
    }
    let microdrive = done(&["energy", "show", "microdrive"]);
    assert!(microdrive.contains("saves energy after 2.35 s"), "{microdrive}");
    let row = microdrive.lines().find(|l| l.starts_with("device.seek_power ")).unwrap();
    assert!(
        row.contains("637 mW") && row.contains("569..713") && row.contains("measured") && row.contains("Table 3.1"),
        "{row}"
    );
}

#[test]
fn the_shipped_profile_comes_out_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("kirin9000-ufs31.toml");
    let held_out = calibration("kirin9000-held-out.csv");
    let args = ["energy", "fit", &calibration("kirin9000.csv"), "--predict", &held_out, "-o", out.to_str().unwrap()];
    let text = done(&args);
    for parameter in ["cpu_byte", "cpu_request", "storage_byte", "storage_request", "board", "dram_byte"] {
        assert!(text.lines().any(|l| l.starts_with(parameter)), "{parameter} in:\n{text}");
    }
    let fitted = std::fs::read_to_string(out).unwrap();
    let shipped = std::fs::read_to_string(profiles().join("kirin9000-ufs31.toml")).unwrap();
    let ranges = |text: &str| text.matches("range = [").count();
    assert_eq!(ranges(&fitted), ranges(&shipped) + 13);
    for (fitted, shipped) in fitted.lines().zip(shipped.lines()) {
        // What the shipped one says of its data is written by hand, and its ranges are those of its confidences.
        if ["calibrated_on = ", "predicts = "].iter().any(|of_data| shipped.starts_with(of_data)) {
            assert!(fitted.contains("numbers, off by "), "{fitted}");
            continue;
        }
        let without = |line: &str| {
            let (before, after) = line.split_once(", range = [").unwrap_or((line, ""));
            format!("{before}{}", after.split_once(']').map_or("", |(_, after)| after))
        };
        assert_eq!(without(fitted), without(shipped));
    }
    assert_eq!(fitted.lines().count(), shipped.lines().count());
}

#[test]
fn what_was_held_out_is_printed_beside_what_was_measured() {
    let args = ["energy", "fit", &calibration("kirin9000.csv"), "--predict", &calibration("kirin9000-held-out.csv")];
    let people = done(&args);
    assert!(people.contains("fragmented file      total, mJ        8.580"), "{people}");
    let machines: Value = serde_json::from_str(&done(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(machines["numbers"], 14);
    let rows = machines["predicted"][0]["rows"].as_array().unwrap();
    for (workload, measured) in [("background cleaning", 102.79), ("foreground cleaning", 438.95)] {
        let row = rows.iter().find(|r| r["workload"] == workload).unwrap();
        assert_eq!(row["measured_pj"], (measured * 1e9_f64).round() as u64);
        assert!(row["difference_percent"].as_f64().unwrap() < -50.0, "{row}");
    }
}

#[test]
fn an_outlier_is_named_with_its_line_and_does_not_stop_the_fit() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, out) = (dir.path().join("rows.csv"), dir.path().join("mine.toml"));
    let text = std::fs::read_to_string(calibration("kirin9000.csv")).unwrap();
    // The same four workloads three times; one number, in line 13, is twice what it was.
    let (head, lines) = text.split_once("source\n").unwrap();
    let again: String =
        ["", "2nd ", "3rd "].iter().flat_map(|n| lines.lines().map(move |line| format!("{n}{line}\n"))).collect();
    let again = again.replace("2nd sequential read,1,0,1,0,0,2.84,17.91%", "2nd sequential read,1,0,1,0,0,2.84,35.82%");
    std::fs::write(&rows, format!("{head}source\n{again}")).unwrap();
    let (rows, out) = (rows.to_str().unwrap(), out.to_str().unwrap());
    let said = done(&["energy", "fit", rows, "-o", out]);
    let line = said.lines().find(|l| l.starts_with("outlier: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("outlier: line 13, 2nd sequential read, CPU, mJ: measured 1.017"), "{line}");
    assert!(line.ends_with("; --without-outliers leaves it out"), "{line}");
    let profile = std::fs::read_to_string(out).unwrap();
    assert!(profile.contains("with the outlier in line 13 (2nd sequential read, CPU)"), "{profile}");
    let machines: Value =
        serde_json::from_str(&done(&["--json", "energy", "fit", rows, "--without-outliers"])).unwrap();
    let outlier = &machines["outliers"][0];
    assert_eq!((outlier["line"].as_u64(), outlier["left_out"].as_bool()), (Some(13), Some(true)));
    // The rest is what CPU and storage leave of the total, so it is off, too.
    assert_eq!((machines["outliers"][1]["number"].as_str(), machines["numbers"].as_u64()), (Some("rest"), Some(40)));
}

#[test]
fn another_anchor_is_written_into_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("fast.toml");
    let out = out.to_str().unwrap();
    done(&["energy", "fit", &calibration("kirin9000.csv"), "--anchor", "100us", "-o", out]);
    let shown = done(&["energy", "show", out]);
    let row = shown.lines().find(|l| l.starts_with("anchor.time ")).unwrap();
    assert!(row.contains("100") && row.contains("us"), "{row}");
    for wrong in ["100", "us", "100 parsecs", "0us"] {
        let code = joulefs(&["energy", "fit", &calibration("kirin9000.csv"), "--anchor", wrong]).code;
        assert_eq!(code, 2, "{wrong}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_one_line() {
    misused(&["energy", "show", "pdp11"], &["pdp11", "microdrive"]);
    refused(&["energy", "fit", "/nowhere/rows.csv"], &["/nowhere/rows.csv"]);
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.csv");
    std::fs::write(&rows, "workload,mb_read,read_requests,total\na,1,1,much\n").unwrap();
    refused(&["energy", "fit", rows.to_str().unwrap()], &["rows.csv", "line: 2"]);
    let out = dir.path().join("out.toml");
    let args = ["energy", "fit", &calibration("kirin9000.csv"), "--profile", "microdrive", "-o", out.to_str().unwrap()];
    refused(&args, &["microdrive is not a flash device"]);
    assert!(!out.exists());
}

fn report(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/tests/nvme").join(name).display().to_string()
}

#[test]
fn a_drive_s_power_states_become_a_profile_that_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("mine.toml");
    let out = out.to_str().unwrap();
    let said = done(&["energy", "nvme", &report("970-2.3.text"), "--output", out]);
    assert!(said.contains("ps4") && said.contains("after 100 ms") && said.contains("not entered"), "{said}");
    let shown = done(&["energy", "show", out]);
    assert!(shown.contains("device.idle.ps4.power") && shown.contains("serial left out"), "{shown}");
    assert!(!std::fs::read_to_string(out).unwrap().contains("S000000000000000"));

    // From standard input, as JSON, with another base and another size.
    let json = std::fs::read(report("idle-1.12.json")).unwrap();
    let args = ["energy", "nvme", "-", "--base", "micron-2550", "--size", "512G", "-o", out, "--json"];
    let mut typed = Command::new(env!("CARGO_BIN_EXE_joulefs"));
    let mut run = typed.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(&json).unwrap();
    let said: Value = serde_json::from_slice(&run.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said["states"][2]["after_ns"], 2_100_000_000_u64);
    assert_eq!(said["states"][0]["idle_uw"], 600_000);
    let text = std::fs::read_to_string(out).unwrap();
    assert!(text.contains("name = \"mine\"") && text.contains("on top of micron-2550"), "{text}");

    let none = done(&["energy", "nvme", &report("970.bin"), "--default-ps-max-latency-us", "0"]);
    assert!(none.contains("sleep in none"), "{none}");
}

#[test]
fn a_report_that_is_none_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("not.txt");
    std::fs::write(&file, "Node  SN  Model\n").unwrap();
    refused(&["energy", "nvme", file.to_str().unwrap()], &["not.txt", "nvme id-ctrl"]);
    refused(&["energy", "nvme", "/nowhere"], &["/nowhere"]);
    refused(&["energy", "nvme", &report("970.bin"), "--base", "microdrive"], &["disk"]);
    misused(&["energy", "nvme", &report("970.bin"), "--base", "pdp11"], &["pdp11"]);
    misused(&["energy", "nvme", &report("970.bin"), "--size", "1G"], &["--output"]);
    let same = dir.path().join("same.toml");
    std::fs::copy(report("970.bin"), &same).unwrap();
    let same = same.to_str().unwrap();
    misused(&["energy", "nvme", same, "-o", same], &["--output"]);
}

#[test]
fn the_numbers_of_a_profile_in_json_have_their_ranges() {
    let shown: Value = serde_json::from_str(&done(&["energy", "show", "kirin9000-ufs31", "--json"])).unwrap();
    let (host, device) = (&shown["host"], &shown["device"]);
    let encode = &host["delta_encode"];
    assert_eq!(
        encode["range"],
        json!([encode["value"].as_f64().unwrap() / 2.0, encode["value"].as_f64().unwrap() * 2.0])
    );
    assert_eq!(device["idle"][0]["power"]["range"], json!([0.0, 5.0]), "its own");
    assert!(device["nand"]["program"][1]["range"][1].as_f64() > device["nand"]["program"][1]["value"].as_f64());
    assert_eq!((&device["nand"]["dies"]["range"], &device["size"]["range"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_table_of_loads_gives_a_profile_whose_watts_are_those_of_the_loads() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("mine.toml");
    let loads = calibration("samsung-980pro.csv");
    let held_out = calibration("samsung-980pro-held-out.csv");
    let args = ["energy", "fit", &loads, "--predict", &held_out, "-o", out.to_str().unwrap(), "--json"];
    let value: Value = serde_json::from_str(&done(&args)).unwrap();
    assert_eq!((value["rest_uw"].as_u64(), value["sleep_uw"].as_u64()), (Some(1_750_000), Some(1_200_000)));
    let off = |row: &Value| row["difference_percent"].as_f64().unwrap().abs();
    assert!(value["fitted"].as_array().unwrap().iter().all(|row| off(row) < 5.0), "{value}");
    let predicted = value["predicted"][0]["rows"].as_array().unwrap();
    assert!(predicted.iter().filter(|row| off(row) < 10.0).count() * 10 > predicted.len() * 8, "{value}");
    let shown = done(&["energy", "show", out.to_str().unwrap()]);
    assert!(
        shown.starts_with(
            "mine: samsung-980pro: prices fitted to the watts of 9 loads; size, chips and times of requests are those of \
             samsung-970evoplus"
        ),
        "{shown}"
    );
    std::fs::write(place.path().join("few.csv"), "load,way,bytes,per_second,watts\nread,read,4096,1000,2\n").unwrap();
    let few = place.path().join("few.csv");
    refused(&["energy", "fit", few.to_str().unwrap()], &["too few loads (1)", "at least 2"]);
    // The column's name is misspelled, so the table is known by the others.
    std::fs::write(&few, "load,way,bytes,per_second,power\nread,read,4096,1000,2\n").unwrap();
    refused(&["energy", "fit", few.to_str().unwrap()], &["few.csv: no column watts"]);
}
