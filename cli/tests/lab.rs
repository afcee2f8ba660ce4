//! What a person who types `joulefs lab` gets: a list, the papers' numbers beside ours, results in files, and a page.

mod typed;

use serde_json::Value;
use typed::{done, misused, refused};

#[test]
fn the_list_names_every_experiment() {
    let people = done(&["lab", "list"]);
    let machines: Value = serde_json::from_str(&done(&["lab", "list", "--json"])).unwrap();
    let rows = machines.as_array().unwrap();
    assert_eq!(rows.len(), people.lines().count());
    assert!(rows.iter().any(|r| r["name"] == "microdrive-table31" && r["published"] == 6));
}

#[test]
fn a_run_compares_and_is_kept_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let run = ["lab", "run", "microdrive-table31", "--quick", "--results", &results];
    let text = done(&run);
    assert!(text.contains("7.64 mJ") && text.contains("Scherl 2004, Table 3.1"), "{text}");
    let file = format!("{results}/microdrive-table31/microdrive.seed-1.quick.json");
    let first = std::fs::read(&file).unwrap();
    done(&run);
    assert!(std::fs::read(&file).unwrap() == first, "a second run left another file");
    let kept: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(kept["variants"][0]["seed"], 1);
    assert_eq!(kept["variants"][0]["profile"], "microdrive");
    assert_eq!(kept["version"], env!("CARGO_PKG_VERSION"));
    done(&["lab", "report", "--results", &results]);
    let page = std::fs::read_to_string(format!("{results}/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("microdrive-table31"));
}

#[test]
fn a_plan_can_be_changed_and_a_wrong_change_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().display().to_string();
    fn run<'a>(results: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "run", "microdrive-table31", "--quick", "--results", results], more].concat()
    }
    let run = |more: &[&'static str]| run(&results, more);
    done(&run(&["--seed", "7", "--set", "random_reads=50"]));
    let file = format!("{results}/microdrive-table31/microdrive.seed-7.quick.json");
    let kept: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(kept["variants"][0]["parameters"]["random_reads"], 50);
    misused(&run(&["--set", "random_reeds=50"]), &["random_reeds"]);
    misused(&run(&["--set", "random_reads"]), &["NAME=VALUE"]);
    misused(&run(&["--profile", "kirin9000-ufs31"]), &["--profile kirin9000-ufs31", "not a disk"]);
    misused(&run(&["--variant", "other"]), &["--variant other", "plain"]);
    misused(&["lab", "run", "nothing"], &["nothing", "microdrive-table31"]);
    refused(&["lab", "report", "--results", "/nonexistent"], &["/nonexistent"]);
}
