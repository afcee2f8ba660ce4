//! The experiments on the cost and benefit of cleaning run in small size, repeat to the last picojoule, and have the
//! properties that do not depend on size.
//!
//! One variant is repeated; `JOULEFS_DEEP=1` repeats all.

use std::num::NonZeroUsize;

use lab::plan::{Changes, Experiment};
use lab::result::Outcome;
use sim::result::Phase;

fn run(name: &str, variants: &[&str], threads: usize) -> Outcome {
    let variants = variants.iter().map(|v| (*v).to_owned()).collect();
    let changes = Changes { quick: true, variants, ..Changes::default() };
    lab::run::run(&Experiment::find(name).unwrap(), &changes, NonZeroUsize::new(threads).unwrap(), &|_| ()).unwrap()
}

fn repeats(name: &str, variants: &[&str]) -> Outcome {
    let one = run(name, variants, 2);
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let other = run(name, if deep { variants } else { &variants[..1] }, 1);
    assert!(!other.variants.is_empty() && one.variants.starts_with(&other.variants), "{name}: a second run differs");
    one
}

fn phase<'o>(outcome: &'o Outcome, variant: &str, phase: &str) -> &'o Phase {
    let found = outcome.phases().find(|(v, p)| v.name == variant && p.name == phase);
    found.unwrap_or_else(|| panic!("{}: no {variant}/{phase}", outcome.experiment)).1
}

fn measure(p: &Phase, name: &str) -> f64 {
    p.measures.get(name).unwrap_or_else(|| panic!("{}: no {name}", p.name)).value
}

#[test]
fn the_papers_hours_of_standby_are_those_of_its_least_energies_and_not_of_its_means() {
    let outcome = repeats("fagc-battery", &["published"]);
    let lost = |name: &str| (measure(phase(&outcome, "published", name), "standby_lost") * 100.0).round() / 100.0;
    assert_eq!((lost("foreground-least"), lost("foreground-mean")), (4.26, 4.90));
    assert_eq!((lost("background-least"), lost("background-mean-1000ms")), (1.36, 1.61));
}

#[test]
fn one_cleaning_costs_more_than_moving_its_blocks_and_less_than_moving_all_of_a_segment_at_random() {
    let outcome = repeats("fagc-fig7-8", &["full-fragmented"]);
    let p = phase(&outcome, "full-fragmented", "foreground");
    let (one, moving) = (measure(p, "energy_per_gc"), measure(p, "energy_per_gc_moving"));
    assert!(0.0 < moving && moving < one, "{moving} of {one}");
    assert!(moving < measure(p, "moving_at_most"));
    // 15 sleeps of 1, 2, ... seconds fit into 120, whatever cleaning finds.
    assert_eq!(measure(phase(&outcome, "full-fragmented", "background-1000ms"), "wakes") as u64, 15);
}

#[test]
fn cleaning_turns_small_pieces_into_large_ones_and_makes_no_space() {
    let outcome = repeats("fagc-fig9-table5", &["foreground", "f2fs", "atgc", "fagc"]);
    for (v, p) in outcome.phases().filter(|(_, p)| p.name == "cleaning") {
        let of = |class: &str| measure(p, &format!("capacity_{class}"));
        let changes = [of("under_128k"), of("128k_1m"), of("1m_2m"), of("from_2m")];
        assert!(changes[0] < 0.0 && changes[3] > 0.0, "{}: {changes:?}", v.name);
        // Except for a block or two of a table, which are a hundred or more on the published scale.
        let sum: f64 = changes.iter().sum();
        assert!(sum.abs() < 0.02 * changes[3], "{}: {sum} MB of {changes:?}", v.name);
    }
}

#[test]
fn recorded_programs_write_the_same_under_every_policy() {
    let outcome = repeats("fagc-fig11", &["f2fs-small", "fagc-small", "joule-small"]);
    for program in ["chat", "clone", "unpack"] {
        let of = |v: &str, name: &str| measure(phase(&outcome, v, program), name);
        for policy in ["fagc-small", "joule-small"] {
            for same in ["calls", "replay_written", "replay_read"] {
                assert_eq!(of(policy, same), of("f2fs-small", same), "{program}, {policy}: {same}");
            }
        }
        assert_eq!(of("f2fs-small", "calls_left_out"), 0.0, "{program}");
    }
}

#[test]
fn a_file_is_read_and_written_on_a_volume_that_each_policy_has_cleaned() {
    let outcome = repeats("fagc-fig12", &["f2fs", "fagc"]);
    for v in ["f2fs", "fagc"] {
        assert!(measure(phase(&outcome, v, "cleaning"), "gc_count") > 0.0, "{v}");
        assert!(measure(phase(&outcome, v, "sequential-read"), "speed") > 0.0, "{v}");
    }
}

#[test]
fn a_recording_that_is_not_there_is_named_with_those_that_are() {
    let changes = Changes {
        quick: true,
        parameters: "recordings = [\"game\"]\nvolume_mib = 256".parse().unwrap(),
        variants: vec!["f2fs-small".into()],
        ..Changes::default()
    };
    let mut experiment = Experiment::find("fagc-fig11").unwrap();
    experiment.plan.parameters.remove("state");
    let e = lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap_err().to_string();
    assert!(e.contains("game") && e.contains("choose chat, clone, unpack, download"), "{e}");
}
