//! Tests of `joulefs energy diff`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::typed::{done, joulefs, refused};

/// Screen 0.8 W, processor 0.5 W, flash 0.7 W; recordings of a meter and of `joulefs energy measure`.
pub fn measured(dir: &Path) -> String {
    let monsoon = |watts: f64, seconds: u64| {
        let samples = (0..=seconds * 10).map(|n| format!("{},{},4.0,\n", n as f64 / 10.0, watts / 4.0 * 1e3));
        format!("Time(ms),Main(mA),Main Voltage(V),\n{}", samples.collect::<String>())
    };
    for (n, factor) in [0.99, 1.0, 1.01].into_iter().enumerate() {
        fs::write(dir.join(format!("idle-{n}.csv")), monsoon(0.8 * factor, 20)).unwrap();
        fs::write(dir.join(format!("memory-{n}.csv")), monsoon(1.3 * factor, 10)).unwrap();
        let joules = 2.0 * factor * 30.0;
        fs::write(dir.join(format!("flash-{n}.csv")), format!("seconds,wall (J)\n0.0,0.0\n30.0,{joules}\n")).unwrap();
    }
    let run = |name: &str, active: &str| {
        format!(
            "[[run]]\nname = \"{name}\"\nactive = [{active}]\n\
             recording = [\"{name}-0.csv\", \"{name}-1.csv\", \"{name}-2.csv\"]\n"
        )
    };
    let text =
        "title = \"A made-up phone\"\n[[component]]\nname = \"screen\"\n[[component]]\nname = \"cpu\"\nfit = \"cpu\"\n\
                [[component]]\nname = \"flash\"\nfit = \"storage\"\n"
            .to_owned()
            + &run("idle", "\"screen\"")
            + &run("memory", "\"screen\", \"cpu\"")
            + &run("flash", "\"screen\", \"cpu\", \"flash\"")
            + "workload = { mb_written = 100, write_requests = 25600 }\n";
    let plan = dir.join("plan.toml");
    fs::write(&plan, text).unwrap();
    plan.display().to_string()
}

#[test]
fn shares_come_with_bars_and_residuals() {
    let dir = tempfile::tempdir().unwrap();
    let plan = measured(dir.path());
    let text = done(&["energy", "diff", &plan]);
    for words in
        ["A made-up phone", "of flash (60.000 +- ", "screen ", "40.00 +- ", "25.00 +- ", "35.00 +- ", "0.8000 +- "]
    {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    let value: Value = serde_json::from_str(&done(&["energy", "diff", &plan, "--json"])).unwrap();
    let number = |v: &Value| (v["value"].as_f64().unwrap(), v["bar"].as_f64().unwrap());
    for (c, percent) in [(0, 40.0), (1, 25.0), (2, 35.0)] {
        let (share, bar) = number(&value["components"][c]["percent"]);
        assert!((share - percent).abs() < 1e-6 && bar > 0.1 && bar < 3.0, "{share} +- {bar}");
    }
    assert_eq!((number(&value["runs"][1]["measured_pj"]).0 / 1e12).round(), 13.0);
    assert_eq!(
        (value["confidence_percent"].as_u64(), value["runs"][2]["contradicted"].as_bool()),
        (Some(95), Some(false))
    );
}

#[test]
fn rows_are_what_energy_fit_reads() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.csv").display().to_string();
    done(&["energy", "diff", &measured(dir.path()), "--rows", &rows]);
    // A single row is too little for a fit.
    refused(&["energy", "fit", &rows], &["2 measured numbers cannot determine 8 parameters"]);
}

#[test]
fn what_the_runs_do_not_determine_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let plan = measured(dir.path());
    let text = fs::read_to_string(&plan).unwrap().replace("active = [\"screen\"]", "active = [\"screen\", \"cpu\"]");
    fs::write(&plan, text).unwrap();
    refused(&["energy", "diff", &plan], &["plan.toml", "the runs do not determine screen and cpu"]);
}

#[test]
fn a_damaged_recording_and_a_damaged_plan_are_named_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let plan = measured(dir.path());
    let file = dir.path().join("idle-1.csv");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\n0.3,", "\nx,")).unwrap();
    refused(&["energy", "diff", &plan], &["run \"idle\"", "idle-1.csv: line 5", "Monsoon CSV"]);
    fs::write(&plan, "title = \"x\"\n[[component]]\nnom = 1\n").unwrap();
    refused(&["energy", "diff", &plan], &["plan.toml: line 3", "nom"]);
}

#[test]
fn a_run_measured_once_has_no_bar_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let plan = measured(dir.path());
    let text = fs::read_to_string(&plan).unwrap().replace("\"flash-0.csv\", ", "").replace("\"flash-1.csv\", ", "");
    fs::write(&plan, text).unwrap();
    let ran = joulefs(&["energy", "diff", &plan]);
    assert!(ran.out.contains("measured only once") && ran.out.trim_end().ends_with(": flash"), "{}", ran.out);
}
