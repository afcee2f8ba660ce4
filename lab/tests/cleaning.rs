//! Cleaning until nothing is worth cleaning: how many sections each policy empties.

use std::num::NonZeroUsize;

use lab::plan::{Changes, Experiment};
use lab::result::Outcome;

fn run(variants: &[&str], threads: usize) -> Outcome {
    let changes =
        Changes { quick: true, variants: variants.iter().map(|v| (*v).to_owned()).collect(), ..Changes::default() };
    let experiment = Experiment::find("fagc-table6").unwrap();
    lab::run::run(&experiment, &changes, NonZeroUsize::new(threads).unwrap(), &|_| ()).unwrap()
}

fn measure(outcome: &Outcome, variant: &str, name: &str) -> f64 {
    let (_, phase) = outcome.phases().find(|(v, p)| v.name == variant && p.name == "cleaning").unwrap();
    phase.measures[name].value
}

#[test]
fn fagc_cleans_by_the_published_shares_less_than_f2fs_and_atgc() {
    let outcome = run(&["f2fs", "atgc", "fagc"], 2);
    let count = |variant| measure(&outcome, variant, "gc_count");
    assert!(1.0 - count("fagc") / count("f2fs") >= 0.8268, "{} of {}", count("fagc"), count("f2fs"));
    assert!(1.0 - count("fagc") / count("atgc") >= 0.7451, "{} of {}", count("fagc"), count("atgc"));
    // As in the paper: half of type B is emptied into the other half and takes no free segment.
    assert_eq!(measure(&outcome, "fagc", "blocks_per_gc"), 296.0);
    assert_eq!(measure(&outcome, "fagc", "moved_threaded"), measure(&outcome, "fagc", "moved_blocks"));
    // F2FS leaves no dirty segment and moves all valid blocks.
    assert!(count("f2fs") >= 900.0 && measure(&outcome, "f2fs", "moved_threaded") == 0.0);
}

#[test]
fn a_second_run_is_the_same_byte_for_byte() {
    let text = |threads| serde_json::to_string_pretty(&run(&["fagc", "joule"], threads)).unwrap();
    assert!(text(2) == text(1));
}
