//! Experiments of cleaning alone.

use f2fs::cause::Cause;
use lab::result::Outcome;
use sim::result::Phase;

use super::runs_and_repeats;

/// The use is the same under every policy, and the control does not clean; returns the number of phases with cleaning.
fn the_use_is_the_same_whoever_cleans(outcome: &Outcome, works: &[&str]) -> usize {
    for v in &outcome.variants {
        let phase =
            |v: &lab::result::VariantResult, name: &str| v.phases.iter().find(|p| p.name == name).unwrap().clone();
        let (cell, _) = v.name.split_at(works.iter().find_map(|w| Some(v.name.find(w)? + w.len())).unwrap());
        let control = outcome.variants.iter().find(|w| w.name == format!("{cell}-none")).unwrap();
        let (used, unclean) = (phase(v, "use"), phase(control, "use"));
        assert_eq!(used.bytes, unclean.bytes, "{}: bytes", v.name);
        for name in ["full", "free_segments_before", "syncs_made"] {
            assert_eq!(used.measures[name], unclean.measures[name], "{}: {name}", v.name);
        }
        let (full, wanted) = (used.measures["full"].value, if v.name.contains("-85-") { 85.0 } else { 95.0 });
        match v.name.contains("-programs-") {
            // Their files are created later.
            true => assert!((wanted - 8.0..=wanted).contains(&full), "{}: {full}", v.name),
            false => assert!((full - wanted).abs() < 1.5, "{}: {full}", v.name),
        }
        let in_background = used.measures["gc_count"].value - used.measures["foreground_gc_count"].value;
        assert!(!v.name.ends_with("-none") || in_background == 0.0, "{}: the control cleans", v.name);
        // A call during cleaning waits for at most a step or a checkpoint; without cleaning no call waits.
        let wait = |name: &str| used.measures.get(name).map(|n| n.value);
        assert_eq!(wait("wait_p99") > Some(0.0), wait("steps") > Some(0.0), "{}", v.name);
        assert!(!v.name.ends_with("-none") || wait("pauses_with_waits") == Some(0.0), "{}", v.name);
        assert!(wait("wait_median") <= wait("wait_p99") && wait("wait_p99") <= wait("wait_most"), "{}", v.name);
        assert!(in_background == 0.0 || wait("wait_most") >= wait("longest_step"), "{}", v.name);
    }
    outcome.phases().filter(|(_, p)| p.measures.get("gc_count").is_some_and(|n| n.value > 0.0)).count()
}

#[test]
fn gc_worth_runs_and_repeats_and_whoever_cleans_the_use_is_the_same() {
    let outcome = runs_and_repeats("gc-worth");
    let cleaned = the_use_is_the_same_whoever_cleans(&outcome, &["small-files", "downloads", "pages"]);
    assert!(cleaned > 10, "{cleaned} variants clean at all");
}

#[test]
fn gc_day_runs_and_repeats_and_whoever_cleans_the_use_is_the_same() {
    let outcome = runs_and_repeats("gc-day");
    let cleaned = the_use_is_the_same_whoever_cleans(&outcome, &["day", "programs"]);
    assert!(cleaned > 5, "{cleaned} variants clean at all");
    for (v, used) in outcome.phases().filter(|(v, p)| v.name.contains("-programs-") && p.name == "use") {
        assert!(used.measures["calls"].value > 100.0, "{}", v.name);
        for calls in ["calls_without_space", "calls_left_out", "calls_ended_otherwise"] {
            assert_eq!(used.measures[calls].value, 0.0, "{}: {calls}", v.name);
        }
    }
}

#[test]
fn gc_idle_runs_and_repeats_and_joule_leaves_a_volume_at_rest_alone() {
    let outcome = runs_and_repeats("gc-idle");
    let of = |variant: &str, measure: &str| {
        let (_, rest) = outcome.phases().find(|(v, p)| v.name == variant && p.name == "rest").unwrap();
        rest.measures[measure].value
    };
    for share in ["99", "90"] {
        let of = |name: &str, measure: &str| of(&format!("{share}-{name}"), measure);
        assert_eq!((of("joule", "gc_count"), of("none", "calls")), (0.0, 0.0));
        assert_eq!(of("joule", "joules_per_hour"), of("none", "joules_per_hour"), "{share}: looking costs nothing");
        assert!(of("linux-6.1", "joules_per_hour") > 10.0 * of("none", "joules_per_hour"), "{share}");
        for measure in ["calls", "moved_blocks", "joules_per_hour"] {
            assert_eq!(of("linux-6.1", measure), of("linux-6.12", measure), "{share}: {measure}");
        }
        // 6.12 skips a section that is 95 % full, 6.19 one that is 80 % full.
        assert!(of("linux-6.19-zoned", "gc_count") <= 1.0, "{share}");
        assert_eq!(of("linux-6.12-zoned", "gc_count") > 1.0, share == "90", "{share}");
        let (calls, slower) = (of("linux-6.12-urgent-200ms", "calls"), of("linux-6.12-urgent", "calls"));
        assert!(calls > 2.0 * slower && slower > 7000.0, "{share}: {calls} and {slower} calls");
        assert!(of("linux-6.12-urgent", "nothing_found") > 0.9 * slower, "{share}");
    }
}

/// Every variant writes the same, whatever the device separates, and the device copies something inside.
fn streams_change_the_device_alone(name: &str, phase: &str) {
    let outcome = runs_and_repeats(name);
    for (v, p) in outcome.phases().filter(|(_, p)| p.name == phase) {
        let mapping = ["-data-moved", "-logs-moved", "-moved", "-data", "-logs", "-one"];
        let rest = mapping.iter().find_map(|m| v.name.strip_suffix(m)).unwrap();
        let one = format!("{rest}-one");
        let (_, control) = outcome.phases().find(|(w, p)| w.name == one && p.name == phase).unwrap();
        assert_eq!(p.bytes, control.bytes, "{}", v.name);
        let inside = p.measures["flash_write_amplification"].value;
        assert!((1.0..20.0).contains(&inside), "{}: {inside}", v.name);
        // F2FS writes the same with any stream handles if nothing depends on the device's latency.
        if v.name.contains("none") {
            assert_eq!(p.counters["blocks_written"], control.counters["blocks_written"], "{}", v.name);
        }
        if v.name.ends_with("-logs") {
            assert_ne!(
                p.counters["blocks_padded"], control.counters["blocks_padded"],
                "{}: no handle is named",
                v.name
            );
        }
    }
}

#[test]
fn gc_streams_runs_and_repeats_and_every_mapping_writes_the_same() {
    streams_change_the_device_alone("gc-streams", "overwriting");
}

#[test]
fn gc_streams_worn_runs_and_repeats_and_every_mapping_writes_the_same() {
    streams_change_the_device_alone("gc-streams-worn", "use");
}

#[test]
fn gc_regret_runs_and_repeats_and_its_control_does_not_clean() {
    let outcome = runs_and_repeats("gc-regret");
    let mut cleaned = 0.0;
    let cleaning = [Cause::BackgroundGcData as u8, Cause::BackgroundGcNode as u8];
    for v in &outcome.variants {
        let of = |name: &str| v.phases.iter().find(|p| p.name == name).unwrap();
        let (none, joule) = (of("none"), of("joule"));
        let note = |name: &str| joule.measures[name].value;
        assert_eq!(note("courses"), 4.0, "{}", v.name);
        let placebo = v.name.ends_with("-placebo");
        assert_eq!(joule.bytes, none.bytes, "{}: bytes", v.name);
        let moved = |p: &Phase| p.traffic.iter().any(|t| cleaning.contains(&t.cause));
        assert!(!moved(none), "{}: the control cleans", v.name);
        assert_eq!(moved(joule), note("courses_cleaned") > 0.0, "{}", v.name);
        assert!(!placebo || note("courses_cleaned") == 0.0, "{}", v.name);
        assert!(note("within_2_percent") <= note("within_5_percent"), "{}", v.name);
        // The promise, where chance inside the flash does not decide.
        assert!(!v.name.ends_with("-roomy") || note("within_5_percent") == 100.0, "{}", v.name);
        cleaned += note("courses_cleaned");
    }
    assert!(cleaned > 3.0, "{cleaned} courses are cleaned at all");
}
