//! Experiments do what their plans define: bytes, calls, shares of reads and writes, order, fragments, numbers of
//! files.

use std::num::NonZeroUsize;

use device::energy::Operation;
use f2fs::cause::Cause;
use lab::plan::{Changes, Experiment};
use lab::result::Outcome;
use sim::result::{Phase, Stage};

const MIB: u64 = 1 << 20;

fn run(name: &str, variants: &[&str], parameters: &str) -> Outcome {
    let variants = variants.iter().map(|v| (*v).to_owned()).collect();
    let changes = Changes { quick: true, variants, parameters: parameters.parse().unwrap(), ..Changes::default() };
    lab::run::run(&Experiment::find(name).unwrap(), &changes, NonZeroUsize::MIN, &|_| ()).unwrap()
}

fn phase<'o>(outcome: &'o Outcome, name: &str) -> &'o Phase {
    outcome.phases().find(|(_, p)| p.name == name).unwrap_or_else(|| panic!("no phase {name}")).1
}

/// Requests and blocks of file contents: reads, then writes.
fn contents(p: &Phase) -> [(u64, u64); 2] {
    let of = p.traffic.iter().filter(|t| t.cause == Cause::UserData as u8);
    of.fold([(0, 0); 2], |[r, w], t| [(r.0 + t.reads, r.1 + t.blocks_read), (w.0 + t.writes, w.1 + t.blocks_written)])
}

fn flushes(p: &Phase) -> u64 {
    p.operations.iter().find(|o| o.operation == Operation::Flush).map_or(0, |o| o.count)
}

#[test]
fn file_phases_read_or_write_so_much_in_calls_so_large_and_sync_as_often_as_planned() {
    let outcome = run("nexus-fileops", &["f2fs"], "");
    let phases = Experiment::find("nexus-fileops").unwrap().plan.parameters["phase"].as_array().unwrap().clone();
    for spec in &phases {
        let word = |name: &str| spec[name].as_str().unwrap();
        let p = phase(&outcome, word("name"));
        let call = spec["io_kib"].as_integer().unwrap() as u64 / 4;
        // A quick run transfers 4 MiB of a file of 16 MiB.
        let (calls, blocks) = (1024 / call, 1024);
        assert_eq!(p.bytes, 4 * MIB, "{}", p.name);
        let [read, written] = contents(p);
        match word("do") {
            "read" => assert_eq!((read.1, written.1), (blocks, 0), "{}", p.name),
            _ => assert_eq!((read.1, written.1), (0, blocks), "{}", p.name),
        }
        // One request per call at random offsets; sequential calls may be merged, and split at a segment's end.
        let requests = read.0 + written.0;
        match word("order") {
            "random" => assert!(requests >= calls * 98 / 100 && requests <= calls, "{}: {requests}", p.name),
            _ => assert!(requests <= 2 * calls, "{}: {requests}", p.name),
        }
        if spec.get("fsync_each").is_some() {
            assert!(flushes(p) >= calls, "{}: {} flushes for {calls} calls", p.name, flushes(p));
        }
    }
}

#[test]
fn direct_calls_are_one_request_each_and_touch_every_place_once() {
    let outcome = run("fagc-fig4", &["pristine"], "");
    // 8 MiB: random writes without a sync each are written once, unless an offset was drawn twice.
    let [_, written] = contents(phase(&outcome, "random-write"));
    assert_eq!(written, (2048, 2048));
    let [read, _] = contents(phase(&outcome, "random-read"));
    assert_eq!(read.1, 2048);
    let [read, _] = contents(phase(&outcome, "sequential-read"));
    assert!(read.1 == 2048 && read.0 <= 16, "{read:?}");
}

#[test]
fn files_in_pieces_lie_in_pieces_of_the_size_that_names_them() {
    let outcome = run("fagc-fig5", &["pristine"], "");
    for kib in [4.0, 8.0, 16.0, 24.0, 32.0, 64.0] {
        let mean = phase(&outcome, &format!("pieces-{kib}k")).measures["mean_request"].value;
        assert!((mean / kib - 1.0).abs() < 0.1, "pieces of {kib} KB are read in requests of {mean:.1}");
    }
    assert!(phase(&outcome, "contiguous").measures["mean_request"].value > 250.0);
}

#[test]
fn transactions_move_a_record_each_and_a_log_is_synced_once_in_many() {
    let outcome = run("nexus-sqlite", &[], "");
    for kind in ["insert", "update", "delete"] {
        let p = phase(&outcome, kind);
        assert_eq!(p.bytes, 300 * 4096, "{kind}");
        let of = |name: &str| p.measures[name].value;
        // A record of a page's size takes an overflow page and a part of a leaf, first in the log, then in the
        // database.
        let least = if kind == "delete" { 4.0 } else { 8.0 };
        assert!((least..60.0).contains(&of("written_per_transaction")), "{kind}: {}", of("written_per_transaction"));
        assert!(of("fsyncs_per_transaction") < 0.1, "{kind}: {}", of("fsyncs_per_transaction"));
    }
}

#[test]
fn a_bare_disk_is_asked_for_as_many_places_and_as_long_as_planned() {
    let outcome = run("microdrive-table31", &[], "");
    let count = |name: &str, operation| {
        let found = phase(&outcome, name).operations.iter().find(|o| o.operation == operation);
        found.map_or(0, |o| o.count)
    };
    assert_eq!(count("random-read", Operation::Read), 1000);
    assert_eq!(phase(&outcome, "random-read").bytes, 1000 * 4096);
    for (name, operation) in [("sequential-read", Operation::Read), ("sequential-write", Operation::Write)] {
        assert_eq!((count(name, operation), phase(&outcome, name).bytes), (64, 4 * MIB), "{name}");
    }
    assert_eq!([phase(&outcome, "idle"), phase(&outcome, "standby")].map(|p| p.took.0 / 1_000_000_000), [1, 60]);
}

#[test]
fn the_work_after_is_the_same_for_all_and_nobody_cleans_ahead_of_it() {
    let parameters = "volume_mib = 1024\nfill_percent = 80\noverwrite_percent = 30\nbatch_blocks = 1024\n\
        keep_free_percent = 22\nafter = { mib = 32, file_kib = 16 }";
    let outcome = run("gc-bound", &["none", "greedy", "fagc"], parameters);
    for v in &outcome.variants {
        let after = v.phases.last().unwrap();
        let of = |name: &str| after.measures[name].value;
        assert_eq!((after.stage, after.bytes, of("files") as u64), (Stage::After, 32 * MIB, 2048), "{}", v.name);
        assert_eq!(of("background_gc_count"), 0.0, "{}", v.name);
        let [_, written] = contents(after);
        assert_eq!(written.1, 8192, "{}: contents", v.name);
        let c = v.costs.as_ref().unwrap();
        let total = |name: &str| v.phases.iter().find(|p| p.name == name).unwrap().total();
        assert_eq!((c.measured, c.after), (total("overwriting"), total("after")), "{}", v.name);
        assert_eq!(c.in_all, c.measured + c.after, "{}", v.name);
        assert_eq!(c.held as f64, of("free_segments_held"), "{}", v.name);
        let overwriting = &v.phases.iter().find(|p| p.name == "overwriting").unwrap().measures;
        let background = overwriting["gc_count"].value - overwriting["foreground_gc_count"].value;
        assert_eq!(background > 0.0, v.name != "none", "{}", v.name);
    }
    let held = |name: &str| outcome.variants.iter().find(|v| v.name == name).unwrap().costs.as_ref().unwrap().held;
    assert!(held("none") < held("greedy"), "{} and {}", held("none"), held("greedy"));
}

#[test]
fn every_shipped_comparison_of_policies_has_controls_and_the_work_after() {
    let mut compared = Vec::new();
    for (name, _) in lab::plan::SHIPPED {
        let experiment = Experiment::find(name).unwrap();
        lab::run::check(&experiment, &Changes::default()).unwrap();
        if !experiment.plan.control.is_empty() {
            compared.push(*name);
            let mut without = experiment.clone();
            without.plan.control.clear();
            let e = lab::run::check(&without, &Changes::default()).unwrap_err().to_string();
            assert!(e.contains("no control"), "{name}: {e}");
        }
    }
    assert_eq!(
        compared,
        [
            "fagc-fig11",
            "fagc-fig12",
            "fagc-fig9-table5",
            "fagc-table6",
            "gc-bound",
            "gc-day",
            "gc-idle",
            "gc-streams",
            "gc-streams-worn",
            "gc-worth",
            "medfs-all"
        ]
    );
    let demo = Experiment::find(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/demo-plan")).unwrap();
    lab::run::check(&demo, &Changes::default()).unwrap();
    assert_eq!(demo.plan.control, ["none"]);
}
