//! What `joulefs lab` prints and writes: a list, the papers' numbers next to ours, result files, and a page.

use serde_json::Value;

use crate::typed::{done, misused, refused};

#[test]
fn the_list_names_every_experiment() {
    let people = done(&["list"]);
    let machines: Value = serde_json::from_str(&done(&["list", "--json"])).unwrap();
    let rows = machines.as_array().unwrap();
    assert_eq!(rows.len(), people.lines().count());
    assert!(rows.iter().any(|r| r["name"] == "microdrive-table31" && r["published"] == 6));
}

#[test]
fn a_run_compares_and_is_kept_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let run = ["run", "microdrive-table31", "--quick", "--results", &results];
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
    done(&["report", "--results", &results]);
    let page = std::fs::read_to_string(format!("{results}/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("microdrive-table31"));
}

#[test]
fn an_experiment_shows_what_it_claims_takes_and_can_be_changed_in() {
    let text = done(&["show", "microdrive-table31"]);
    let shown: Value = serde_json::from_str(&done(&["show", "microdrive-table31", "--json"])).unwrap();
    assert_eq!((&shown["schema"], &shown["published"]), (&"joulefs-lab-show".into(), &6.into()));
    let claim = shown["claim"].as_str().unwrap();
    assert!(claim.len() > 20 && text.split_whitespace().collect::<Vec<_>>().join(" ").contains(claim), "{text}");
    let reads = shown["parameters"].as_array().unwrap().iter().find(|p| p["name"] == "random_reads").unwrap();
    let plan: toml::Table = include_str!("../../../experiments/microdrive-table31/plan.toml").parse().unwrap();
    assert_eq!(reads["value"].as_i64(), plan["parameters"]["random_reads"].as_integer());
    assert_eq!(reads["read_in"], "lab/src/experiments/disk_modes.rs");
    assert!(text.contains(&format!("  random_reads = {}", reads["value"])), "{text}");
    // The variants shown are those that run, and every variant's own profile is shown.
    let none: Value = serde_json::from_str(&done(&["show", "gc-bound", "--json"])).unwrap();
    let variants = none["variants"].as_array().unwrap();
    assert!(variants.iter().any(|v| v["name"] == "none" && v["control"] == true), "{none}");
    let policy = none["parameters"].as_array().unwrap().iter().find(|p| p["name"] == "policy").unwrap();
    assert_eq!((&policy["value"], &policy["variants"]["atgc"]), (&"cost-benefit".into(), &"atgc".into()));
    // A whole run needs external recordings, so no run time is known, and the output states that.
    let whole = done(&["show", "fagc-sizes"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let why =
        "full run not measured: variants need mobigen.out.facebook and telegram_exec.csv.gz, which are not shipped";
    assert!(whole.contains(why), "{whole}");
    let sizes: Value = serde_json::from_str(&done(&["show", "fagc-sizes", "--json"])).unwrap();
    assert_eq!(sizes["not_shipped"], serde_json::json!(["mobigen.out.facebook", "telegram_exec.csv.gz"]));
    assert_eq!((&sizes["took"]["full"], &shown["not_shipped"]), (&Value::Null, &serde_json::json!([])));
    misused(&["show", "gc-bond"], &["gc-bond", "did you mean gc-bound?"]);
    misused(&["run", "gc-bound", "--set", "fil_percent=1"], &["fill_percent", "joulefs lab show gc-bound"]);
}

#[test]
fn in_a_terminal_the_papers_numbers_are_wrapped_between_words() {
    let run = format!("stty cols 70 rows 24; {} papers --paper Scherl", env!("CARGO_BIN_EXE_joulefs-lab"));
    let mut script = std::process::Command::new("script");
    let ran =
        script.args(["-q", "-e", "-c", &run, "/dev/null"]).env_remove("COLUMNS").output().expect("script, of bsdutils");
    let shown = String::from_utf8_lossy(&ran.stdout).replace('\r', "");
    let piped = done(&["papers", "--paper", "Scherl"]);
    let widest = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap_or_default();
    assert!(widest(&shown) <= 70, "{shown}");
    assert!(widest(&piped) > 70, "in a pipe a number is a line");
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), piped.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn what_a_run_takes_is_written_beside_its_plan_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/microdrive-table31");
    let own = dir.path().join("mine");
    std::fs::create_dir(&own).unwrap();
    for file in ["README.md", "plan.toml", "paper.csv"] {
        std::fs::copy(format!("{shipped}/{file}"), own.join(file)).unwrap();
    }
    let (own, results) = (own.display().to_string(), dir.path().join("results").display().to_string());
    assert!(done(&["show", &own]).contains("not measured"));
    for quick in [&[][..], &["--quick"]] {
        let run = ["run", &own, "--threads", "1", "--keep-time", "--results", &results];
        assert!(done(&[&run, quick].concat()).contains("took.csv"));
    }
    let shown: Value = serde_json::from_str(&done(&["show", &own, "--json"])).unwrap();
    for size in ["full", "quick"] {
        let run = &shown["took"][size];
        // At least what any linked program takes, and at most what this small one needs.
        let bytes = run["peak_bytes"].as_u64().unwrap();
        assert!((1 << 20..1 << 30).contains(&bytes) && run["threads"] == 1, "{run}");
        assert!(run["time_ns"].as_u64().unwrap() < 600_000_000_000 && run["processors"].as_u64().unwrap() > 0, "{run}");
    }
    assert!(!done(&["show", &own]).contains("not measured"));
    // The time is that of the unchanged plan.
    misused(&["run", &own, "--keep-time", "--seed", "2"], &["--keep-time", "--seed"]);
    assert!(!std::path::Path::new(&own).join("ours.csv").exists(), "numbers were kept unasked");
}

#[test]
fn a_plan_can_be_changed_and_a_wrong_change_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().display().to_string();
    fn run<'a>(results: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["run", "microdrive-table31", "--quick", "--results", results], more].concat()
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
    misused(&["run", "nothing"], &["nothing", "microdrive-table31"]);
    refused(&["report", "--results", "/nonexistent"], &["/nonexistent"]);
}

#[test]
fn what_a_full_run_measured_is_kept_beside_its_plan_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/microdrive-table31");
    let own = dir.path().join("microdrive-table31");
    std::fs::create_dir(&own).unwrap();
    for file in ["README.md", "plan.toml", "paper.csv"] {
        std::fs::copy(format!("{shipped}/{file}"), own.join(file)).unwrap();
    }
    let (own, results) = (own.display().to_string(), dir.path().join("results").display().to_string());
    refused(&["keep", &own, "--results", dir.path().to_str().unwrap()], &["no result", "lab run"]);
    done(&["run", &own, "--quick", "--results", &results]);
    refused(&["keep", &own, "--results", &results], &["a quick run"]);
    misused(&["run", &own, "--keep", "--quick"], &["--keep", "--quick"]);
    misused(&["run", &own, "--keep", "--seed", "2"], &["--keep", "--seed"]);
    misused(&["run", &own, "--keep", "--seeds", "2"], &["--keep", "--seeds"]);
    done(&["run", &own, "--keep", "--results", &results]);
    let kept = std::fs::read_to_string(format!("{own}/ours.csv")).unwrap();
    assert_eq!(kept, std::fs::read_to_string(format!("{shipped}/ours.csv")).unwrap(), "not what is shipped");
    std::fs::remove_file(format!("{own}/ours.csv")).unwrap();
    assert!(done(&["keep", &own, "--results", &results]).contains("ours.csv"));
    assert_eq!(kept, std::fs::read_to_string(format!("{own}/ours.csv")).unwrap());
    // A run without options has further seeds; those of the plan are kept.
    let repeated = dir.path().join("repeated").display().to_string();
    done(&["run", &own, "--results", &repeated]);
    assert!(std::path::Path::new(&format!("{repeated}/microdrive-table31/microdrive.seed-1+2+3+4+5.json")).exists());
    done(&["keep", &own, "--results", &repeated]);
    assert_eq!(kept, std::fs::read_to_string(format!("{own}/ours.csv")).unwrap());
    // Outside of the source tree nothing is written for shipped experiments.
    refused(&["keep", "microdrive-table31", "--results", &results], &["experiments/microdrive-table31", "sources"]);
}

/// The completions of `joulefs` call these functions for words after `lab` (cli/src/commands/generate/options.rs).
#[test]
fn completions_have_the_functions_that_joulefs_asks() {
    let dir = tempfile::tempdir().unwrap();
    done(&["generate", dir.path().to_str().unwrap()]);
    let read = |name: &str| std::fs::read_to_string(dir.path().join("completions").join(name)).unwrap();
    assert!(
        read("bash/joulefs-lab").contains("\n_joulefs__lab() {")
            || read("bash/joulefs-lab").starts_with("_joulefs__lab() {")
    );
    assert!(read("zsh/_joulefs-lab").contains("\n_joulefs-lab() {"));
    assert!(read("fish/joulefs-lab.fish").contains("complete -c joulefs-lab "));
}
