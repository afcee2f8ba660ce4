//! `joulefs lab run --parquet` writes rows whose sums equal the result, to the picojoule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use ::parquet::record::{Field, Row};
use serde_json::Value;

use crate::parquet_rows::{cell, rows, sums, text, whole};
use crate::room::Room;
use crate::typed::done;

/// Runs an experiment in small size, compares its rows with its result, and returns the rows of its runs.
fn agrees(room: &Room, experiment: &str, options: &[&str]) -> Vec<Row> {
    let (results, dir) = (room.text("results"), room.path(experiment));
    let args = ["run", experiment, "--quick", "--results", &results, "--parquet", dir.to_str().unwrap()];
    let answer: Value = serde_json::from_str(&done(&[&["--json"], &args[..], options].concat())).unwrap();
    // Compare with the result's file: the rows were not made from it.
    let file = fs::read_to_string(answer[0]["file"].as_str().unwrap()).unwrap();
    let outcome: Value = serde_json::from_str(&file).unwrap();
    let [runs, energy, timeline, measures] = ["runs", "energy", "timeline", "measures"].map(|name| rows(&dir, name));
    let variants = outcome["variants"].as_array().unwrap();
    let phases: Vec<(&Value, &Value)> =
        variants.iter().flat_map(|v| v["phases"].as_array().unwrap().iter().map(move |p| (v, p))).collect();
    assert_eq!(runs.len(), phases.len());
    for (n, (run, (variant, phase))) in runs.iter().zip(phases).enumerate() {
        let what = format!("{experiment}, {}, {}", variant["name"], phase["name"]);
        assert_eq!(whole(run, "run"), n as u64);
        assert_eq!(
            [text(run, "variant"), text(run, "phase")].map(Value::from),
            [variant, phase].map(|v| v["name"].clone())
        );
        assert_eq!(
            (text(run, "experiment"), whole(run, "seed").into()),
            (experiment.to_owned(), variant["seed"].clone())
        );
        let own = |rows: &[Row]| rows.iter().filter(|r| whole(r, "run") == n as u64).cloned().collect::<Vec<_>>();
        let (energy, timeline, measures) = (own(&energy), own(&timeline), own(&measures));
        let pj = |value: &Value| value.as_u64().unwrap();
        let spent = phase["spent"].as_array().unwrap();
        let total: u64 = spent.iter().map(|s| pj(&s["pj"])).sum();
        assert!(total > 0, "{what}");
        assert_eq!((whole(run, "total_pj"), energy.iter().map(|r| whole(r, "pj")).sum()), (total, total), "{what}");
        let mut by_cause: BTreeMap<String, u64> = BTreeMap::new();
        spent.iter().for_each(|s| *by_cause.entry(s["cause"].to_string()).or_default() += pj(&s["pj"]));
        assert_eq!(sums(&energy, |r| whole(r, "cause_number").to_string()), by_cause, "{what}");
        for (component, energy) in sums(&energy, |r| text(r, "component")) {
            assert_eq!(whole(run, &format!("{component}_pj")), energy, "{what}: {component}");
        }
        // The owners named in the result; all others are combined there.
        let by_owner = sums(&energy, |r| whole(r, "owner").to_string());
        let named = phase["owners_pj"].as_array().unwrap();
        for owner in named.iter().filter(|o| o[0] != 0) {
            assert_eq!(by_owner[&owner[0].to_string()], pj(&owner[1]), "{what}: {owner}");
        }
        assert!(by_owner.len() >= named.len(), "{what}");
        for (inode, path) in phase["files"].as_object().unwrap().iter().filter(|(_, path)| *path != "deleted") {
            let row = energy.iter().find(|r| whole(r, "owner").to_string() == *inode).unwrap();
            assert_eq!(text(row, "owner_name"), path.as_str().unwrap(), "{what}");
        }
        let keys = energy
            .iter()
            .map(|r| ["owner", "cause_number"].map(|c| whole(r, c).to_string()).join(" ") + &text(r, "component"));
        assert_eq!(keys.collect::<BTreeSet<_>>().len(), energy.len(), "{what}: each once");
        let looks = phase["timeline"].as_array().unwrap();
        assert_eq!(timeline.len(), 4 * looks.len(), "{what}");
        if let Some(last) = timeline.last_chunk::<4>() {
            assert_eq!(last.iter().map(|r| whole(r, "pj")).sum::<u64>(), total, "{what}");
            assert_eq!(whole(&last[0], "time_ns"), whole(run, "time_ns"), "{what}");
        }
        let told = phase["measures"].as_object().unwrap();
        assert_eq!(measures.len(), told.len(), "{what}");
        for row in &measures {
            let (name, value) = (text(row, "measure"), cell(row, "value").clone());
            assert_eq!(told[&name]["unit"], text(row, "unit"), "{what}: {name}");
            let Field::Double(number) = value else { panic!("{what}: {name}: {value:?}") };
            // Parsing a number from the result's text may change its last digit.
            let read = told[&name]["value"].as_f64().unwrap();
            assert!((number - read).abs() <= 2.0 * f64::EPSILON * read.abs(), "{what}: {name}: {number}, {read}");
            assert_eq!(*cell(run, &format!("measured_{name}")), value, "{what}: {name}");
        }
        for (name, value) in variant["parameters"].as_object().unwrap().iter().filter(|(_, v)| v.is_u64()) {
            assert_eq!(whole(run, &format!("parameter_{name}")), pj(value), "{what}: {name}");
        }
    }
    let keys: BTreeSet<String> = runs.iter().map(|r| text(r, "key")).collect();
    assert_eq!(keys.len(), runs.len());
    let there: BTreeSet<String> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(
        there,
        ["comparison", "energy", "latency", "measures", "runs", "timeline"]
            .map(|name| format!("{name}.parquet"))
            .into()
    );
    runs
}

#[test]
fn rows_of_experiments_are_what_their_results_say_to_the_picojoule() {
    let room = Room::new();
    // A disk without files, databases with deltas, and recordings of requests and of calls.
    agrees(&room, "microdrive-table31", &[]);
    agrees(&room, "medfs-fig11a", &[]);
    agrees(&room, "nexus-apps", &[]);
    let latency = rows(&room.path("nexus-apps"), "latency");
    assert!(latency.iter().any(|r| text(r, "kind") == "fsync") && latency.iter().all(|r| whole(r, "count") > 0));
}

#[test]
fn a_phase_names_the_same_phase_in_which_nobody_cleans() {
    let room = Room::new();
    let some = ["--variant", "none", "--variant", "fagc", "--seed", "1"];
    let runs = agrees(&room, "gc-bound", &some);
    let by_key: BTreeMap<String, &Row> = runs.iter().map(|r| (text(r, "key"), r)).collect();
    let (mut controls, mut compared) = (0, 0);
    for run in &runs {
        match cell(run, "control") {
            Field::Null => controls += 1,
            Field::Str(key) => {
                let control = by_key[key];
                assert_eq!(["variant", "phase"].map(|c| text(control, c)), ["none".to_owned(), text(run, "phase")]);
                compared += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(controls > 0 && controls == compared, "{controls} {compared}");
    // A key identifies a run's inputs: the run alone has the same key, with another seed another.
    let keys = |runs: &[Row]| runs.iter().map(|r| text(r, "key")).collect::<BTreeSet<_>>();
    let alone = keys(&agrees(&room, "gc-bound", &some[2..]));
    assert!(alone.is_subset(&keys(&runs)));
    assert!(alone.is_disjoint(&keys(&agrees(&room, "gc-bound", &["--variant", "fagc", "--seed", "2"]))));
}

#[test]
fn several_experiments_have_a_directory_each() {
    let room = Room::new();
    let (dir, results) = (room.text("rows"), room.text("results"));
    done(&["run", "microdrive-table31", "nexus-apps", "--quick", "--results", &results, "--parquet", &dir]);
    for name in ["microdrive-table31", "nexus-apps"] {
        let runs = rows(&Path::new(&dir).join(name), "runs");
        assert!(!runs.is_empty() && runs.iter().all(|r| text(r, "experiment") == name));
    }
}

#[test]
fn the_module_for_python_reads_the_rows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/tools/python/bin/python");
    assert!(python.exists(), "{}: missing: scripts/install-tools suites", python.display());
    let ran = Command::new(&python)
        .args(["-m", "pytest", "-rs", "tests/test_lab.py"])
        .current_dir(root.join("python"))
        .env("JOULEFS_LAB", crate::PROGRAM)
        .env("PYTHONPATH", root.join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_run_with_several_seeds_says_of_each_variant_how_sure_its_difference_is() {
    let room = Room::new();
    let (results, dir) = (room.text("results"), room.path("rows"));
    let variants = ["--variant", "launch-log", "--variant", "launch-deltas"];
    let args = [&["run", "medfs-fig8", "--quick", "--seeds", "3", "--results", &results][..], &variants[..]].concat();
    let rows_there = ["--json", "--parquet", dir.to_str().unwrap()];
    let answer: Value = serde_json::from_str(&done(&[&args[..], &rows_there].concat())).unwrap();
    let outcome = &answer[0]["outcome"];
    let [control, other] = &outcome["comparison"].as_array().unwrap()[..] else { panic!("{outcome}") };
    assert_eq!((&control["verdict"], &control["seeds"]), (&"control".into(), &vec![1, 2, 3].into()));
    assert_eq!((&other["against"], &other["seeds"]), (&control["name"], &vec![1, 2, 3].into()));
    let number = |value: &Value| value.as_f64().unwrap();
    let (mean, interval) = (number(&other["difference_percent"]), &other["interval_percent"]);
    assert!(number(&interval[0]) < mean && mean < number(&interval[1]), "{other}");
    let words = ["better", "worse", "no difference seen", "depends on the profile's numbers"];
    assert!(words.contains(&other["verdict"].as_str().unwrap()), "{other}");
    for phase in outcome["variants"][0]["phases"].as_array().unwrap() {
        assert!(phase["range_pj"][0].as_u64().unwrap() < phase["range_pj"][1].as_u64().unwrap(), "{phase}");
    }
    let file = fs::read_to_string(answer[0]["file"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap()["comparison"], outcome["comparison"]);
    let written = rows(&dir, "comparison");
    assert_eq!(
        [text(&written[1], "verdict"), text(&written[1], "seeds")],
        [other["verdict"].as_str().unwrap(), "1,2,3"]
    );
    for run in rows(&dir, "runs") {
        let [low, total, high] = ["range_low_pj", "total_pj", "range_high_pj"].map(|name| whole(&run, name));
        assert!(low < total && total < high, "{low} {total} {high}");
    }
    let said = done(&args);
    assert!(said.contains("95 % interval") && said.contains("3 seeds (1, 2, 3)"), "{said}");
}
