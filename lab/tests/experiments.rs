//! Every shipped experiment parses, runs in small size, repeats to the last picojoule, and has consistent accounts.
//!
//! One variant in four is repeated; `JOULEFS_DEEP=1` repeats all.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use device::energy::Energy;
use lab::plan::{Changes, Experiment, Kind, SHIPPED};
use lab::result::Outcome;

mod cleaning;
mod scherl;

fn run(name: &str, variants: Vec<String>, threads: usize) -> Outcome {
    let changes = Changes { quick: true, variants, ..Changes::default() };
    let threads = NonZeroUsize::new(threads).unwrap();
    lab::run::run(&Experiment::find(name).unwrap(), &changes, threads, &|_| ()).unwrap()
}

/// Checks that a second run gives the same. Variants do not depend on each other, so some of them suffice.
fn repeats(name: &str, outcome: &Outcome) {
    if std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1") {
        let text = |outcome: &Outcome| serde_json::to_string_pretty(outcome).unwrap();
        assert!(text(&run(name, Vec::new(), 1)) == text(outcome), "{name}: a second run differs");
        return;
    }
    let mut variants: Vec<String> = outcome.variants.iter().map(|v| v.name.clone()).collect();
    variants.dedup();
    let variants: Vec<String> = variants.into_iter().step_by(4).collect();
    let again = run(name, variants.clone(), 1).variants;
    let first: Vec<_> = outcome.variants.iter().filter(|v| variants.contains(&v.name)).collect();
    assert_eq!(again.len(), first.len(), "{name}");
    for (first, again) in first.into_iter().zip(&again) {
        let same = serde_json::to_string(first).unwrap() == serde_json::to_string(again).unwrap();
        assert!(same, "{name}: a second run of {} differs", again.name);
    }
}

/// Phases of what is compared: defragmenting, and work on the charger.
const TREATMENTS: [&str; 2] = ["put-in-order", "charger"];

/// Checks that every variant does the same work as its control: it requests as many bytes in the same phases.
fn compares_equal_work(name: &str, outcome: &Outcome) {
    let experiment = Experiment::find(name).unwrap();
    if experiment.plan.kind == Kind::Days {
        // The bytes are those of the device, which differ by file system; the recorded days are the same by the plan.
        return;
    }
    let jobs = experiment.jobs(&Changes { quick: true, ..Changes::default() }).unwrap();
    let work = |name: &str| {
        let variant = outcome.variants.iter().find(|v| v.name == name).unwrap();
        let own = variant.judged().filter(|p| !TREATMENTS.contains(&&*p.name));
        own.map(|p| (p.name.clone(), p.bytes)).collect::<Vec<_>>()
    };
    for judged in lab::judged::all(&experiment, &jobs, outcome) {
        let Some(control) = judged.against else { continue };
        assert_eq!(work(&judged.name), work(&control), "{name}: {} and {control} do different work", judged.name);
    }
}

/// Runs it, some of it twice, and checks the result.
fn runs_and_repeats(name: &str) -> Outcome {
    let outcome = run(name, Vec::new(), 2);
    repeats(name, &outcome);
    compares_equal_work(name, &outcome);
    let text = serde_json::to_string_pretty(&outcome).unwrap();
    let back: Outcome = serde_json::from_str(&text).unwrap();
    assert_eq!(back.file_name(), outcome.file_name());
    for (v, p) in outcome.phases() {
        let what = format!("{name}, {}, {}", v.name, p.name);
        let by_operation: Energy = p.operations.iter().map(|o| o.energy).sum();
        let by_owner: Energy = p.owners.iter().map(|(_, e)| *e).sum();
        assert_eq!(p.total(), by_operation, "{what}: by operation");
        assert_eq!(p.total(), by_owner, "{what}: by owner");
        assert_eq!(p.total(), sim::flame::phase::flame(p).total(), "{what}: by owner, cause and part");
        // By owner, cause and component: the totals match the account without owners.
        let (mut with_owners, mut without) = (BTreeMap::new(), BTreeMap::new());
        for a in p.amounts() {
            *with_owners.entry((a.cause, a.component as u8)).or_insert(Energy::ZERO) += a.energy;
        }
        for s in &p.spent {
            *without.entry((s.cause, s.part.component() as u8)).or_insert(Energy::ZERO) += s.energy;
        }
        assert_eq!(with_owners, without, "{what}: by every owner");
        assert!(p.amounts().is_sorted_by_key(|a| (a.owner, a.cause, a.component as u8)), "{what}: each once");
        if let Some(last) = p.timeline.last() {
            let over_time: Energy = last.spent.into_iter().sum();
            assert_eq!(p.total(), over_time, "{what}: over time");
            assert_eq!(p.took, last.at, "{what}: time");
        }
    }
    for c in &outcome.compared {
        let of = |select: &str| outcome.skipped.iter().any(|s| select.split('/').next() == Some(&*s.variant));
        let skipped = of(&c.claim.of) || of(&c.claim.over);
        assert!(c.ours.is_some() != skipped, "{name}: {:?} for {:?}", c.ours, c.claim.quantity);
    }
    outcome
}

#[test]
fn every_directory_of_experiments_is_shipped_and_parses() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");
    let mut found: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    let mut shipped: Vec<_> = SHIPPED.iter().map(|(n, _)| (*n).to_owned()).collect();
    shipped.sort();
    assert_eq!(found, shipped);
    for name in &found {
        let e = Experiment::find(name).unwrap();
        assert!(!e.claim().is_empty(), "{name}: README.md claims nothing");
        for section in ["## How it is run", "## What it takes", "## What to expect"] {
            assert!(e.readme.contains(section), "{name}: README.md has no {section:?}");
        }
        assert!(!e.paper.is_empty(), "{name}: paper.csv has no number");
        assert!(!e.jobs(&Changes::default()).unwrap().is_empty());
        let by_path = Experiment::find(&format!("{dir}/{name}")).unwrap();
        assert_eq!((by_path.plan, by_path.paper), (e.plan, e.paper), "{name}: the shipped one is another");
    }
}

#[test]
fn microdrive_table31_runs_and_repeats() {
    let outcome = runs_and_repeats("microdrive-table31");
    for c in &outcome.compared {
        let d = c.difference().unwrap();
        assert!(d.abs() < 5.0, "{}: {}", c.claim.quantity, c.difference_text());
    }
}

#[test]
fn fagc_fig4_runs_and_repeats() {
    runs_and_repeats("fagc-fig4");
}

#[test]
fn fagc_fig5_runs_and_repeats() {
    let outcome = runs_and_repeats("fagc-fig5");
    for v in &outcome.variants {
        let pieces: Vec<f64> =
            v.phases.iter().filter_map(|p| p.measures.get("mean_request")).map(|m| m.value).collect();
        assert!(pieces[1..].is_sorted() && pieces[0] > pieces[1], "{}: files do not lie in pieces: {pieces:?}", v.name);
    }
}

#[test]
fn fagc_fig6_runs_and_repeats_and_a_launch_is_its_computing_and_what_it_waits_for() {
    let outcome = runs_and_repeats("fagc-fig6");
    let of = |variant: &str, phase: &str, name: &str| measure(&outcome, variant, phase, name);
    for v in &outcome.variants {
        let of = |phase: &str, name: &str| of(&v.name, phase, name);
        let (thinking, waiting) = (of("video", "launch_thinking"), of("video", "launch_waiting"));
        assert!(thinking > 0.01 && waiting > 0.01, "{}: {thinking} s and {waiting} s", v.name);
        // With everything cached, only the computing remains.
        assert!((of("video-in-memory", "time") - thinking).abs() < 1e-6, "{}", v.name);
        let (alone, all) = (of("video-in-memory", "energy_cpu"), of("video", "energy_cpu"));
        assert!(alone > 10.0 && all > alone, "{}: {alone} mJ and {all} mJ", v.name);
        assert_eq!(of("video-in-memory", "energy_storage"), 0.0, "{}", v.name);
        // Every file that the launch looked up exists.
        assert_eq!(of("video", "calls_left_out"), 0.0, "{}", v.name);
        assert!(of("video", "own_files") > 50.0 && of("video", "system_files") > 1000.0, "{}", v.name);
    }
    // Files installed before the volume was filled keep their layout; later files are in the holes.
    let pieces = |variant: &str| of(variant, "video", "own_pieces");
    assert_eq!(pieces("pristine"), pieces("full-fragmented"));
    assert!(pieces("full-fragmented-after") > pieces("pristine-after"), "{}", pieces("full-fragmented-after"));
}

#[test]
fn a_restart_of_the_device_empties_its_map_and_files_are_named() {
    let experiment = Experiment::find("fagc-fig5").unwrap();
    let fetched = |restarts: bool| {
        let parameters = format!("device_restarts = {restarts}").parse().unwrap();
        let variants = vec!["pristine".to_owned()];
        let changes = Changes { quick: true, parameters, variants, ..Changes::default() };
        let outcome = lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap();
        let phase = |name: &str| outcome.phases().find(|(_, p)| p.name == name).unwrap().1.clone();
        let (whole, pieces) = (phase("contiguous"), phase("pieces-4k"));
        assert!(whole.files.values().any(|f| f == "/contiguous"), "{:?}", whole.files);
        assert!(pieces.files.values().any(|f| f == "/pieces-4k"), "{:?}", pieces.files);
        outcome.phases().filter(|(_, p)| p.name != "aging").map(|(_, p)| p.counters["map_pages_fetched"]).sum::<u64>()
    };
    assert_eq!(fetched(false), 0, "pages of the map");
    assert!(fetched(true) > 0, "no page of the map is fetched");
}

#[test]
fn medfs_fig7_10_runs_and_repeats() {
    let outcome = runs_and_repeats("medfs-fig7-10");
    let sum = |variant: &str, measure: &str| -> f64 {
        outcome.phases().filter(|(v, _)| v.name == variant).map(|(_, p)| p.measures[measure].value).sum()
    };
    // The paper's layout writes a meta page for each fsync of deltas, ours none; the stand-in for FPC packs pages.
    assert!(sum("dcm-paper", "blocks_meta") > 100.0 && sum("dcm", "blocks_meta") == 0.0);
    assert!(sum("dcm-paper", "blocks") > sum("dcm", "blocks") + sum("dcm-paper", "blocks_meta"));
    assert!(sum("fpc", "packed") > 50.0 && sum("fpc", "blocks_contents") < 0.95 * sum("log", "blocks_contents"));
}

#[test]
fn medfs_fig12a_runs_and_repeats() {
    let outcome = runs_and_repeats("medfs-fig12a");
    let made = |variant: &str| outcome.phases().find(|(v, _)| v.name == variant).unwrap().1.measures["deltas"].value;
    assert!(made("paper-8") < made("paper-5") && made("paper-5") < made("paper-2"), "the threshold does nothing");
}

#[test]
fn medfs_fig11a_runs_and_repeats() {
    let outcome = runs_and_repeats("medfs-fig11a");
    let files: f64 = (outcome.phases().flat_map(|(_, p)| &p.measures))
        .filter(|(name, m)| name.starts_with("sqlite_") && m.unit == "files")
        .map(|(_, m)| m.value)
        .sum();
    assert!(files > 20.0, "{files} databases in all minutes");
}

#[test]
fn medfs_fig12_runs_and_repeats_and_every_delta_makes_way() {
    let outcome = runs_and_repeats("medfs-fig12");
    for (v, p) in outcome.phases() {
        let of = |name: &str| p.measures[name].value;
        // With delta nodes, the inode of a long file may have no deltas.
        let nodes = v.name.starts_with("nodes");
        assert!(of("deltas_evicted") > 0.0 || nodes, "{}, {}", v.name, p.name);
        assert_eq!(of("deltas_moved"), if nodes { of("deltas_evicted") } else { 0.0 }, "{}, {}", v.name, p.name);
        assert!(
            (of("eviction_time") > 0.0 || nodes) && of("deltas_evicted") <= of("deltas_held"),
            "{}, {}",
            v.name,
            p.name
        );
    }
}

#[test]
fn medfs_all_runs_and_repeats_on_a_volume_that_is_cleaned_and_begins_the_same_for_all() {
    let outcome = runs_and_repeats("medfs-all");
    let of = |variant: &str, phase: &str, measure: &str| {
        let found = outcome.phases().find(|(v, p)| v.name == variant && p.name == phase);
        found.unwrap().1.measures[measure].value
    };
    let first = &outcome.variants[0];
    for v in &outcome.variants {
        assert_eq!(v.phases[0].spent, first.phases[0].spent, "{}: aged otherwise", v.name);
        assert_eq!(v.histograms[0], first.histograms[0], "{}: aged otherwise", v.name);
        let (name, cleaned) = (v.name.as_str(), of(&v.name, "use", "gc_count"));
        // The controls do not clean ahead of time. `joule` may find nothing worth cleaning in so short a use; every
        // other policy must clean.
        let rests = ["f2fs", "deltas", "log", "medfs"].contains(&name);
        let ahead = cleaned - of(name, "use", "foreground_gc_count");
        if !name.contains("joule") {
            assert_eq!(ahead > 0.0, !rests, "{name}: {ahead} sections cleaned ahead of time");
        }
        assert_eq!(of(name, "use", "longest_step") > 0.0, ahead > 0.0, "{name}");
        let made = of(name, "use", "deltas");
        assert_eq!(name.starts_with("deltas") || name.starts_with("medfs"), made > 10.0, "{name}: {made} deltas");
        assert!(of(name, "use", "sync_time_p99") >= of(name, "use", "sync_time") / 2.0, "{name}");
    }
    assert!(of("greedy", "use", "fewest_free_segments") >= of("f2fs", "use", "fewest_free_segments"));
    assert!(of("medfs", "use", "blocks") < 0.85 * of("log", "use", "blocks"));
}

#[test]
fn medfs_fig8_runs_and_repeats_and_reads_every_file_at_launch() {
    let outcome = runs_and_repeats("medfs-fig8");
    for (v, p) in outcome.phases().filter(|(_, p)| p.name.ends_with("-launch")) {
        let files = p.measures["files"].value;
        assert!(files >= 2.0 && p.bytes > 0 && p.measures["read"].value > 0.0, "{}, {}", v.name, p.name);
        let written = p.measures["written"].value;
        assert_eq!(written, 0.0, "{}, {}: a launch writes", v.name, p.name);
    }
    let import = |variant: &str, measure: &str| {
        outcome.phases().find(|(v, p)| v.name == variant && p.name == "IM").unwrap().1.measures[measure].value
    };
    // Each of the hundred contacts is a transaction that syncs its journal and its database.
    assert!(import("import-log", "syncs") >= 200.0);
    assert!(import("import-deltas", "blocks") < import("import-log", "blocks"));
}

#[test]
fn medfs_fig11_runs_and_repeats_and_deltas_return_where_they_are_asked_to() {
    let outcome = runs_and_repeats("medfs-fig11");
    for (v, p) in outcome.phases().filter(|(_, p)| !p.name.ends_with("-first")) {
        let of = |name: &str| p.measures[name].value;
        let what = format!("{}, {}", v.name, p.name);
        assert_eq!(of("deltas_made") > 40.0, v.name != "log", "{what}");
        let (back, left) = (of("deltas_restored"), of("deltas_left"));
        assert_eq!(back, if v.name == "dcm-return" { of("deltas_made") } else { 0.0 }, "{what}");
        assert_eq!(left, of("deltas_made") - back, "{what}");
        // 1000 random reads of 256 pages miss five on average; a few nodes are read, too.
        assert!(of("read_time") > 0.0 && (244.0..=262.0).contains(&of("blocks_read")), "{what}");
    }
}

/// A measure of a variant's phase.
fn measure(outcome: &Outcome, variant: &str, phase: &str, name: &str) -> f64 {
    let found = outcome.phases().find(|(v, p)| v.name == variant && p.name == phase);
    let (_, phase) = found.unwrap_or_else(|| panic!("{variant} has no phase {phase}"));
    phase.measures.get(name).unwrap_or_else(|| panic!("{variant}, {}: no {name}", phase.name)).value
}

#[test]
fn ji_fig1_runs_and_repeats_and_databases_that_grow_together_lie_in_more_pieces() {
    let outcome = runs_and_repeats("ji-fig1");
    let dof = |variant: &str, of: &str| measure(&outcome, variant, of, "degree_of_fragmentation");
    let facebook = "com.facebook.katana";
    assert!(dof("reset", facebook) > 1.5 * dof("reset-one-by-one", facebook));
    assert_eq!(dof("reset", "executables"), 1.0);
    for v in ["aged", "reset", "reset-one-by-one"] {
        // Databases, each with its journal.
        assert_eq!(measure(&outcome, v, "com.facebook.katana", "files"), 8.0, "{v}");
        assert_eq!(measure(&outcome, v, "journals", "files"), 13.0, "{v}");
    }
    let used = |v: &str| measure(&outcome, v, "volume", "in_use");
    assert!(used("aged") > 90.0 && used("reset") < 25.0, "{} and {} % in use", used("aged"), used("reset"));
}

#[test]
fn ji_fig2_runs_and_repeats() {
    let outcome = runs_and_repeats("ji-fig2");
    for v in ["new", "large-and-small"] {
        let pieces = |phase: &str| measure(&outcome, v, phase, "fragments");
        assert!(pieces("put-in-order") < pieces("use"), "{v}");
    }
}

#[test]
fn ji_fig3_runs_and_repeats_and_writes_are_of_databases_where_they_lie() {
    let outcome = runs_and_repeats("ji-fig3");
    for (v, p) in outcome.phases().filter(|(_, p)| p.name == "use") {
        let blocks = measure(&outcome, &v.name, "use", "database_blocks_written");
        let bars = v.histograms.iter().find(|h| h.name.contains("by address")).unwrap();
        assert_eq!(bars.bars.iter().map(|(_, n)| *n).sum::<u64>(), blocks as u64, "{}", v.name);
        assert!(!p.writes_at.is_empty() && p.writes_at.len() as f64 <= blocks, "{}", v.name);
    }
    let range = |v: &str| measure(&outcome, v, "use", "range_of_writes");
    assert!(range("aged") > range("reset"), "{} and {}", range("aged"), range("reset"));
}

#[test]
fn ji_fig4_runs_and_repeats_and_files_are_overwritten_in_place() {
    let outcome = runs_and_repeats("ji-fig4");
    let f2fs = outcome.phases().filter(|(v, _)| v.name == "f2fs");
    let pieces: Vec<f64> = f2fs.map(|(_, p)| p.measures["pieces_of_the_file"].value).collect();
    // On a small volume the log has no contiguous space for the whole file.
    assert!(pieces[0] <= 4.0 && pieces.iter().all(|n| *n == pieces[0]), "not in place: {pieces:?}");
    let of = |variant: &str, measured: &str| measure(&outcome, variant, "write-1024m", measured);
    assert!(of("device-1", "map_reads") > 0.9 && of("device-8", "map_reads") > 0.5);
    assert!(
        of("device-whole-map", "map_writes") == 0.0 && of("device-1", "latency") > of("device-whole-map", "latency")
    );
}

#[test]
fn ji_fig5_runs_and_repeats_and_its_control_is_in_order_already() {
    let outcome = runs_and_repeats("ji-fig5");
    for v in ["aged", "reset", "reset-one-by-one"] {
        let before = measure(&outcome, v, "cache-1", "translation_reads_before");
        let after = measure(&outcome, v, "cache-1", "translation_reads_after");
        assert!(before > 0.0 && after > 0.0, "{v}: {before} and {after}");
    }
}

#[test]
fn ji_prealloc_runs_and_repeats_and_keeps_databases_together() {
    let outcome = runs_and_repeats("ji-prealloc");
    let pieces = |variant: &str| measure(&outcome, variant, "databases", "fragments");
    assert!(pieces("reset-100k") < 0.7 * pieces("reset"), "{} and {}", pieces("reset-100k"), pieces("reset"));
    assert_eq!(measure(&outcome, "reset-100k", "databases", "files"), measure(&outcome, "reset", "databases", "files"),);
}

#[test]
fn ji_remap_runs_and_repeats_and_writes_no_contents() {
    let outcome = runs_and_repeats("ji-remap");
    let of = |variant: &str, name: &str| measure(&outcome, variant, "put-in-order", name);
    assert_eq!(of("remap", "fragments"), of("copy", "fragments"));
    assert!(of("copy", "moved") > 1.0 && of("remap", "moved") == of("copy", "moved"));
    assert!(of("copy", "written") > of("copy", "moved"));
    assert!(of("remap", "written") < 0.5 * of("copy", "written"), "{} MB", of("remap", "written"));
    assert_eq!((of("remap", "refused_files"), of("copy", "refused_files")), (0.0, 0.0));
}

#[test]
fn ji_scan_runs_and_repeats_and_asks_for_less_once_in_order() {
    let outcome = runs_and_repeats("ji-scan");
    let of = |phase: &str, name: &str| measure(&outcome, "new", phase, name);
    assert_eq!(of("scan", "rows"), of("scan-in-order", "rows"));
    assert!(of("scan", "fragments") > 10.0 * of("scan-in-order", "fragments"));
    assert!(of("scan", "requests") > of("scan-in-order", "requests"));
}

#[test]
fn medfs_lifetime_runs_and_repeats() {
    runs_and_repeats("medfs-lifetime");
}

#[test]
fn medfs_table1_2_runs_and_repeats() {
    runs_and_repeats("medfs-table1-2");
}

#[test]
fn nexus_fileops_runs_and_repeats() {
    runs_and_repeats("nexus-fileops");
}

#[test]
fn nexus_apps_runs_and_repeats() {
    let outcome = runs_and_repeats("nexus-apps");
    let ran = |name: &str| outcome.variants.iter().any(|v| v.name == name);
    assert!(ran("f2fs") && ran("ext4"));
    // Variants that need external recordings are skipped with a message if these are missing.
    for v in Experiment::find("nexus-apps").unwrap().plan.variant {
        let why = outcome.skipped.iter().find(|s| s.variant == v.name).map(|s| s.why.clone());
        let here = v.needs.as_deref().is_none_or(|n| lab::theirs::find(n).is_some());
        assert_eq!((ran(&v.name), why.is_none()), (here, here), "{}: {why:?}", v.name);
        assert!(why.is_none_or(|w| w.starts_with(&v.needs.unwrap())));
    }
    for (v, p) in outcome.phases() {
        let is = |name: &str| p.measures[name].value;
        assert!(is("priced") > 0.0 && is("simulated") > 0.0, "{}, {}", v.name, p.name);
        let shares = ["random_reads", "random_writes", "random_bytes_read", "random_bytes_written"].map(is);
        assert!(shares.iter().all(|s| (0.0..=100.0).contains(s)), "{}, {}: {shares:?}", v.name, p.name);
    }
}

#[test]
fn nexus_sqlite_ext4_runs_and_repeats() {
    runs_and_repeats("nexus-sqlite-ext4");
}

#[test]
fn nexus_sqlite_runs_and_repeats() {
    let outcome = runs_and_repeats("nexus-sqlite");
    let (_, insert) = outcome.phases().find(|(_, p)| p.name == "insert").unwrap();
    // No fsync per transaction (WAL, NORMAL), but the whole record is written at least once.
    assert!(insert.measures["written_per_transaction"].value > 4.0);
    assert!(insert.measures["fsyncs_per_transaction"].value < 0.5);
}

#[test]
fn dir_fsync_runs_and_repeats() {
    let outcome = runs_and_repeats("dir-fsync");
    let of = |variant: &str, measure: &str| {
        let (_, p) = outcome.phases().find(|(v, p)| v.name == variant && p.name == "update").unwrap();
        p.measures[measure].value
    };
    // The new journal's directory, and with EXTRA that of the deleted one, each by a checkpoint or without one.
    for (variant, checkpoints) in [("checkpoint", 1.0), ("nodes", 0.0), ("extra-checkpoint", 2.0), ("extra-nodes", 0.0)]
    {
        let n = of(variant, "checkpoints_per_transaction");
        assert!((n - checkpoints).abs() < 0.05, "{variant}: {n}");
    }
    let written = |variant| of(variant, "written_per_transaction") / 4.0;
    assert!((written("nodes") - written("never")).abs() < 0.1, "a new name costs nothing");
    let withdrawal = written("extra-nodes") - written("nodes");
    assert!((withdrawal - 1.0).abs() < 0.1, "a deleted one costs one block: {withdrawal}");
}

#[test]
fn nexus_differential_finds_what_was_planted_and_repeats() {
    let outcome = runs_and_repeats("nexus-differential");
    for v in &outcome.variants {
        let of = |phase: &str| v.phases.iter().find(|p| p.name == phase).unwrap();
        let number = |phase: &str, name: String| of(phase).measures[&name].value;
        let mut sum = 0.0;
        for c in ["screen", "cpu_and_memory", "network", "storage"] {
            let share = number("shares", format!("{c}_share"));
            let (planted, bar) = (number("shares", format!("{c}_planted")), number("shares", format!("{c}_bar")));
            // One series of measurements: one case in twenty may be outside its bar, none by twice the bar.
            assert!((share - planted).abs() < 2.0 * bar, "{}, {c}: {share} for {planted} +- {bar}", v.name);
            let held = number("trials", format!("{c}_held"));
            assert!((92.0..=98.0).contains(&held), "{}, {c}: bars of 95 % hold in {held} %", v.name);
            sum += share;
        }
        assert!((sum - 100.0).abs() < 1e-6, "{}: shares of {sum} %", v.name);
    }
}

#[test]
fn another_seed_gives_another_result() {
    let experiment = Experiment::find("microdrive-table31").unwrap();
    let run = |seed| {
        let changes = Changes { quick: true, seed: Some(seed), ..Changes::default() };
        lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap()
    };
    let (a, b) = (run(1), run(2));
    assert_ne!(a.variants[0].phases, b.variants[0].phases);
    assert_ne!(a.file_name(), b.file_name());
}

#[test]
fn a_failure_names_experiment_variant_and_seed() {
    let experiment = Experiment::find("fagc-fig4").unwrap();
    let changes = Changes { parameters: "file_mib = \"many\"".parse().unwrap(), ..Changes::default() };
    let e = lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap_err().to_string();
    assert!(e.starts_with("fagc-fig4, variant ") && e.contains("seed 1: parameters:"), "{e}");
}

#[test]
fn a_report_stands_alone() {
    let outcomes = [run("fagc-fig4", Vec::new(), 2), run("microdrive-table31", Vec::new(), 2)];
    let page = lab::report::html(&outcomes).unwrap();
    assert_eq!(page.matches("<h2 id=\"x-").count(), SHIPPED.len());
    assert!(page.matches("<svg").count() >= 6, "no plots");
    let outside = ["src=", "@import", "url(", "<link", "<script"];
    let found: Vec<_> = outside.into_iter().filter(|o| page.contains(o)).collect();
    assert!(found.is_empty(), "the page fetches: {found:?}");
}

#[test]
fn a_result_that_is_read_again_has_every_number_to_the_last_digit() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("microdrive-table31");
    std::fs::create_dir(&results).unwrap();
    let mut outcome = run("microdrive-table31", Vec::new(), 1);
    // Digit-by-digit parsing would turn these into their neighbours.
    let numbers = [200.58267641511242, 122.53616194181673, 95.95164639621437, 448.26335341010883];
    for (i, n) in numbers.into_iter().enumerate() {
        outcome.variants[0].phases[0].note(&format!("number_{i}"), n, "x");
    }
    std::fs::write(results.join("x.json"), serde_json::to_string_pretty(&outcome).unwrap()).unwrap();
    let [back] = &lab::report::load(dir.path()).unwrap()[..] else { panic!("one result") };
    for ((_, wrote), (_, read)) in outcome.phases().zip(back.phases()) {
        assert_eq!(read.measures, wrote.measures);
    }
    assert_eq!(back.phases().count(), outcome.phases().count());
    assert_eq!(back.compared, outcome.compared);
}

#[test]
fn a_report_of_a_directory_names_the_file_that_is_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("fagc-fig4");
    std::fs::create_dir(&results).unwrap();
    assert!(lab::report::load(dir.path()).unwrap().is_empty());
    std::fs::write(results.join("x.json"), "{}").unwrap();
    let e = lab::report::load(dir.path()).unwrap_err().to_string();
    assert!(e.contains("x.json: not a result"), "{e}");
}
