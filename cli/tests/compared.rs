//! What a comparison says: verdicts, intervals, and reasons.

use serde_json::Value;

use crate::typed::{done, misused};

const CHAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/chat-delete.rec");

fn replay(more: &[&str]) -> Vec<&'static str> {
    // Arguments live as long as the test program.
    let more = more.iter().map(|arg| &*arg.to_string().leak());
    ["trace", "replay", CHAT].into_iter().chain(more).collect()
}

fn comparison(more: &[&str]) -> Vec<Value> {
    let all = done(&replay(&[more, &["--json"]].concat()));
    let all: Value = serde_json::from_str(&all).unwrap();
    all["comparison"].as_array().unwrap().clone()
}

#[test]
fn runs_with_several_seeds_are_compared_in_pairs_and_the_interval_holds_the_mean() {
    let all = comparison(&["--fill", "80%", "--compare", "delta=on", "--seeds", "3"]);
    let [control, deltas] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&control["name"], &control["verdict"]), (&"delta=off".into(), &"control".into()));
    assert_eq!((&deltas["against"], &deltas["verdict"]), (&"delta=off".into(), &"better".into()));
    assert_eq!(deltas["seeds"], serde_json::json!([1, 2, 3]));
    let total = |of: &Value, n: usize| of["total_pj"][n].as_f64().unwrap();
    let changes: Vec<f64> = (0..3).map(|n| (total(deltas, n) / total(control, n) - 1.0) * 100.0).collect();
    let mean = deltas["difference_percent"].as_f64().unwrap();
    assert!((mean - changes.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{changes:?} {mean}");
    let [low, high] = [0, 1].map(|n| deltas["interval_percent"][n].as_f64().unwrap());
    assert!(low < mean && mean < high && high < 0.0, "{low} {mean} {high}");
}

#[test]
fn a_random_state_is_drawn_five_times_unless_told_otherwise_and_one_seed_is_not_judged() {
    let five = comparison(&["--fill", "60%", "--compare", "delta=on"]);
    assert_eq!(five[1]["seeds"], serde_json::json!([1, 2, 3, 4, 5]));
    let one = comparison(&["--fill", "60%", "--compare", "delta=on", "--seeds", "1"]);
    assert_eq!((&one[1]["verdict"], &one[1]["interval_percent"]), (&"not judged: one seed".into(), &Value::Null));
    // Nothing is random on a new volume.
    let new = comparison(&["--compare", "delta=on"]);
    assert_eq!((&new[1]["verdict"], &new[1]["seeds"]), (&"better".into(), &serde_json::json!([1])));
}

#[test]
fn medfs_own_layout_is_compared_with_ours_on_a_volume_that_holds_deltas() {
    let all = comparison(&["--compare", "delta_layout=joulefs,medfs"]);
    let [ours, theirs] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&ours["verdict"], &theirs["verdict"]), (&"control".into(), &"worse".into()), "{all:?}");
}

#[test]
fn a_policy_that_did_nothing_is_said_to_have_done_nothing_and_why() {
    let all = comparison(&["--compare", "gc=fagc,joule"]);
    assert_eq!(all.len(), 3);
    for policy in &all[1..] {
        assert_eq!(policy["verdict"], "did nothing", "{policy}");
        assert!(policy["why"][0].as_str().unwrap().contains("no section was cleaned"), "{policy}");
    }
}

#[test]
fn devices_are_compared_by_what_both_profiles_count_and_the_rest_is_listed() {
    let table = done(&replay(&["--compare", "profile=kirin9000-ufs31,samsung-970evoplus"]));
    let line = |begin: &str| table.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{table}"));
    let why = line("samsung-970evoplus: left out of the difference");
    for part in ["CPU", "DRAM", "waiting", "board"] {
        assert!(why.contains(part), "{why}");
    }
    // In all, the drive spends 7 % less; of what both count, half.
    let all = comparison(&["--compare", "profile=kirin9000-ufs31,samsung-970evoplus"]);
    let difference = all[1]["difference_percent"].as_f64().unwrap();
    assert!((-60.0..-40.0).contains(&difference), "{difference}");
}

#[test]
fn a_device_slower_than_the_recording_is_said_to_be_overloaded() {
    let all = comparison(&["--compare", "profile=kirin9000-ufs31,microdrive"]);
    let overloaded = |of: &Value| of["why"].to_string().contains("overloaded");
    assert!(!overloaded(&all[0]) && overloaded(&all[1]), "{all:?}");
}

#[test]
fn seeds_without_a_comparison_or_with_a_list_of_seeds_are_refused() {
    misused(&replay(&["--seeds", "3"]), &["--seeds 3", "--compare"]);
    misused(&replay(&["--compare", "seed=1,2", "--seeds", "3"]), &["--seeds 3", "leave out one"]);
}

#[test]
fn what_is_uncertain_about_both_runs_of_a_device_cancels_and_a_sign_that_could_turn_is_said() {
    let range = |of: &Value| [0, 1].map(|n| of["price_range_percent"][n].as_f64().unwrap());
    let deltas = comparison(&["--compare", "delta=on"]);
    let [low, high] = range(&deltas[1]);
    let mean = deltas[1]["difference_percent"].as_f64().unwrap();
    assert!(low < mean && mean < high && high < 0.0, "{low} {mean} {high}");
    let one: Value = serde_json::from_str(&done(&replay(&["--json"]))).unwrap();
    let [total, least, most] =
        [&one["total_pj"], &one["range_pj"][0], &one["range_pj"][1]].map(|pj| pj.as_f64().unwrap());
    assert!(least < total && total < most, "{least} {total} {most}");
    let alone = (most - least) / total * 100.0;
    assert!(high - low < alone, "{low} {high} of a total that varies by {alone} %");
    // What this drive draws at rest was not measured.
    let drives = comparison(&["--compare", "profile=samsung-980pro,intel-s4510"]);
    let [low, high] = range(&drives[1]);
    assert!(low < 0.0 && high > 0.0 && drives[1]["verdict"] == "depends on the profile's numbers", "{drives:?}");
}
