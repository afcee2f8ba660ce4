//! What `joulefs trace replay --parquet` writes: rows whose sums equal the ledger's, runs with keys, parts of all runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ::parquet::record::{Field, Row};
use serde_json::Value;

use crate::parquet_rows::{cell, rows, sums, text, whole};
use crate::program::json;
use crate::room::Room;
use crate::typed::{done, misused, refused};

fn here(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).display().to_string()
}

fn calls() -> String {
    here("recordings/editor.rec")
}

fn requests() -> String {
    here("trace/fixtures/blktrace/vdb.blktrace.zst")
}

/// Runs a command line twice, for its answer and for its rows, and compares the two.
fn agrees(recording: &str, options: &[&str]) -> Vec<Row> {
    let room = Room::new();
    let dir = room.path("rows");
    let args = [&["trace", "replay", recording, "--by-file", "1000000"], options].concat();
    let answer = json(&args);
    done(&[&["trace", "replay", recording], options, &["--parquet", dir.to_str().unwrap()]].concat());
    let variants = answer["variants"].as_array().cloned().unwrap_or_else(|| vec![answer.clone()]);
    let (runs, energy) = (rows(&dir, "runs"), rows(&dir, "energy"));
    let (timeline, latency) = (rows(&dir, "timeline"), rows(&dir, "latency"));
    assert_eq!(runs.len(), variants.len());
    for (n, (run, variant)) in runs.iter().zip(&variants).enumerate() {
        let pj = |value: &Value| value.as_u64().unwrap();
        let total = pj(&variant["total_pj"]);
        assert!(total > 0);
        let own = |rows: &[Row]| rows.iter().filter(|r| whole(r, "run") == n as u64).cloned().collect::<Vec<_>>();
        let energy = own(&energy);
        assert_eq!(energy.iter().map(|r| whole(r, "pj")).sum::<u64>(), total, "run {n}");
        assert_eq!((whole(run, "run"), whole(run, "total_pj")), (n as u64, total));
        assert_eq!(whole(run, "time_ns"), pj(&variant["time_ns"]));
        let said = variant["variant"].as_str().unwrap();
        assert!(said.is_empty() || text(run, "name") == said);
        let by_component = sums(&energy, |r| format!("{}_pj", text(r, "component")));
        for (component, energy) in variant["components_pj"].as_object().unwrap() {
            let name = format!("{component}_pj");
            assert_eq!(by_component.get(&name).copied().unwrap_or(0), pj(energy), "run {n}: {component}");
            assert_eq!(whole(run, &name), pj(energy));
        }
        let causes = variant["causes"].as_object().unwrap();
        let told = causes.iter().map(|(cause, energy)| (cause.clone(), pj(&energy["pj"])));
        assert_eq!(sums(&energy, |r| text(r, "cause_key")), told.collect(), "run {n}");
        // For the owners named in the answer; it merges deleted files with one name.
        let by_owner = sums(&energy, |r| whole(r, "owner").to_string());
        for file in variant["files"].as_array().unwrap().iter().filter(|f| f["inode"].is_u64()) {
            assert_eq!(by_owner[&file["inode"].to_string()], pj(&file["pj"]), "run {n}: {file}");
        }
        // The last sample is the total, and no sample is below the previous one.
        let looks = own(&timeline);
        assert!(looks.len() > 40, "run {n}: {} rows", looks.len());
        let mut last: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for look in &looks {
            let now = (whole(look, "time_ns"), whole(look, "pj"));
            let before = last.insert(text(look, "component"), now).unwrap_or_default();
            assert!(now.0 >= before.0 && now.1 >= before.1, "run {n}: {before:?} and then {now:?}");
        }
        assert_eq!(last.values().map(|(_, pj)| pj).sum::<u64>(), total, "run {n}");
        assert!(last.values().all(|(at, _)| *at == whole(run, "time_ns")), "run {n}: {last:?}");
        let kinds = variant["replay"]["latencies"].as_array().unwrap();
        let latency = own(&latency);
        assert_eq!(latency.len(), kinds.len());
        for (row, kind) in latency.iter().zip(kinds) {
            assert_eq!(text(row, "kind"), kind["op"].as_str().unwrap());
            for name in ["count", "min_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns"] {
                assert_eq!(whole(row, name), pj(&kind[name]), "{name}");
            }
        }
    }
    let left = fs::read_dir(&dir).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
    let mut files = vec!["energy", "latency", "prices", "runs", "timeline"];
    if let Some(comparison) = answer["comparison"].as_array() {
        files.push("comparison");
        let judged = rows(&dir, "comparison");
        assert_eq!(judged.len(), comparison.len());
        for (row, judged) in judged.iter().zip(comparison) {
            assert_eq!(text(row, "name"), judged["name"].as_str().unwrap());
            assert_eq!(text(row, "key"), text(&runs[whole(row, "run") as usize], "key"));
            assert_eq!(text(row, "verdict"), judged["verdict"].as_str().unwrap());
            assert_eq!(whole(row, "mean_pj"), judged["mean_pj"].as_u64().unwrap());
        }
    }
    let files = files.iter().map(|name| format!("{name}.parquet"));
    assert_eq!(left.collect::<BTreeSet<_>>(), files.collect());
    let prices = rows(&dir, "prices");
    for (run, variant) in runs.iter().zip(&variants) {
        let limits = ["range_low_pj", "range_high_pj"].map(|name| whole(run, name));
        assert_eq!(serde_json::json!(limits), variant["range_pj"]);
        // Nine in ten draws lie between them.
        let own = prices.iter().filter(|row| text(row, "key") == text(run, "key")).map(|row| whole(row, "pj"));
        let mut draws: Vec<u64> = own.collect();
        draws.sort_unstable();
        assert_eq!((draws.len(), [draws[100], draws[1899]]), (2000, limits));
    }
    runs
}

#[test]
fn rows_of_requests_are_what_the_ledger_says_to_the_picojoule() {
    let runs =
        agrees(&requests(), &["--compare", "profile=galaxy-nexus-emmc,laptop-disk-4200", "--compare", "full=off,on"]);
    let of = |row: &Row| (text(row, "profile"), cell(row, "full").clone());
    let all =
        ["galaxy-nexus-emmc", "laptop-disk-4200"].map(|p| [false, true].map(|full| (p.to_owned(), Field::Bool(full))));
    assert_eq!(runs.iter().map(of).collect::<Vec<_>>(), all.concat());
    agrees(&requests(), &["--queue", "1", "--assume", "flush=50ms"]);
}

#[test]
fn rows_of_calls_are_what_the_ledger_says_to_the_picojoule() {
    let used = ["--age", "full-fragmented", "--size", "256M", "--hurry"];
    let runs =
        agrees(&calls(), &[&used[..], &["--repeat", "2", "--compare", "gc=atgc", "--compare", "seed=1,2"]].concat());
    let key = |n: usize| text(&runs[n], "key");
    assert_eq!((text(&runs[2], "control"), text(&runs[3], "control")), (key(0), key(1)));
    assert_eq!(*cell(&runs[0], "control"), Field::Null);
    assert!(runs.iter().all(|r| whole(r, "size_bytes") == 256 << 20 && text(r, "age") == "full-fragmented"));
    assert!(whole(&runs[2], "sections_cleaned") > 0, "the volume is so full that something is cleaned");
    // A part of a recording: calls before it are replayed, but not metered.
    agrees(&calls(), &["--from", "1s", "--compare", "fs=f2fs,scherlfs"]);
    agrees(&here("trace/fixtures/strace/programs.y.strace.gz"), &[]);
}

/// The keys of a command line's runs, with their names.
fn keys(args: &[&str]) -> Vec<(String, String)> {
    let listed = json(&[&["trace", "replay"], args, &["--list"]].concat());
    assert_eq!((listed["schema"].as_str(), listed["schema_version"].as_u64()), (Some("joulefs-replay-runs"), Some(1)));
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    listed["runs"].as_array().unwrap().iter().map(|r| (text(&r["key"]), text(&r["name"]))).collect()
}

#[test]
fn a_key_is_of_what_a_run_depends_on_and_of_nothing_else() {
    let (room, calls) = (Room::new(), calls());
    let one = |args: &[&str]| {
        let all = keys(args);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].0.clone()
    };
    let plain = one(&[&calls]);
    // The same with other words, from another directory.
    let copy = room.text("copy.rec");
    fs::copy(&calls, &copy).unwrap();
    for same in [
        &[&*copy][..],
        &[&calls, "--seed", "1"],
        &[&calls, "--profile", "kirin9000-ufs31", "--fs", "f2fs"],
        &[&calls, "--page-cache", "none", "--repeat", "1"],
        &[&calls, "--by-file", "3", "--parquet", "nowhere"],
        &[&calls, "--compare", "seed=1"],
        &[&calls, "--compare", "profile=kirin9000-ufs31"],
    ] {
        assert_eq!(one(same), plain, "{same:?}");
    }
    // Different inputs.
    let (profile, changed, recipe) = (room.text("p.toml"), room.text("changed.rec"), room.text("r.toml"));
    let text = fs::read_to_string(here("device/profiles/kirin9000-ufs31.toml")).unwrap();
    fs::write(&profile, &text).unwrap();
    let mut bytes = fs::read(&calls).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&changed, bytes).unwrap();
    fs::write(&recipe, fs::read_to_string(here("recipes/pristine.toml")).unwrap()).unwrap();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M"]);
    let of_image = one(&[&calls, "--image", &image]);
    let mut seen = BTreeSet::from([plain.clone(), of_image.clone()]);
    for other in [
        &[&*changed][..],
        &[&calls, "--seed", "2"],
        &[&calls, "--profile", &profile],
        &[&calls, "--profile", "microdrive"],
        &[&calls, "--assume", "device.ready=10mW"],
        &[&calls, "--fs", "scherlfs"],
        &[&calls, "--size", "512M"],
        &[&calls, "--age", "pristine"],
        &[&calls, "--age", &recipe],
        &[&calls, "--fill", "90%"],
        &[&calls, "-o", "gc=atgc"],
        &[&calls, "--hurry"],
        &[&calls, "--cold"],
        &[&calls, "--repeat", "2"],
        &[&calls, "--closed-loop"],
        &[&calls, "--back-to-back"],
        &[&calls, "--page-cache", "64M"],
        &[&calls, "--from", "1s"],
        &[&calls, "--to", "1s"],
        &[&calls, "--max-gap", "10ms"],
        &[&calls, "--after", &calls],
    ] {
        assert!(seen.insert(one(other)), "{other:?}: a key that was there");
    }
    // A file's contents count, not its name.
    let before = one(&[&calls, "--profile", &profile]);
    let (from, to) = text.split_once("[host]").unwrap();
    fs::write(&profile, format!("{from}\n[host]{to}")).unwrap();
    assert_eq!(one(&[&calls, "--profile", &profile]), before, "an empty line more");
    done(&["mkdir", &format!("{image}:/d")]);
    assert!(seen.insert(one(&[&calls, "--image", &image])));
    // For a block device's recording, too.
    let requests = requests();
    let of_requests = ["", "--full", "--back-to-back"].map(|o| one(&[&*requests, o][..1 + usize::from(!o.is_empty())]));
    assert_eq!(BTreeSet::from(of_requests).len(), 3);
    assert_ne!(one(&[&requests, "--queue", "1"]), one(&[&requests, "--assume", "flush=1s"]));
}

/// The rows of each run in a directory, by key: everything but the run's name and number.
fn told(dir: &Path) -> BTreeMap<String, Vec<String>> {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["runs", "energy", "timeline", "latency"] {
        for row in rows(dir, name) {
            let rest =
                row.get_column_iter().filter(|(n, v)| !["run", "name"].contains(&n.as_str()) && **v != Field::Null);
            let rest: Vec<String> = rest.map(|(n, v)| format!("{n}={v}")).collect();
            told.entry(text(&row, "key")).or_default().push(rest.join(" "));
        }
    }
    told
}

#[test]
fn parts_are_the_whole_and_one_run_alone_is_what_it_is_among_others() {
    let (room, calls) = (Room::new(), calls());
    let used = ["trace", "replay", &calls, "--age", "full-fragmented", "--size", "256M", "--hurry"];
    let compared = ["--compare", "gc=atgc,fagc", "--compare", "seed=1,2", "--compare", "device.ready=5mW,10mW"];
    let into = |dir: &PathBuf, more: &[&str]| {
        done(&[&used[..], &compared, more, &["--parquet", dir.to_str().unwrap()]].concat());
    };
    let whole = room.path("whole");
    into(&whole, &[]);
    let whole = told(&whole);
    assert_eq!(whole.len(), 12);
    let mut together = BTreeMap::new();
    for part in 1..=3 {
        let dir = room.path(&format!("part-{part}"));
        into(&dir, &["--shard", &format!("{part}/3")]);
        let (part, runs) = (told(&dir), rows(&dir, "runs"));
        for run in runs.iter().filter(|r| *cell(r, "control") != Field::Null) {
            assert!(part.contains_key(&text(run, "control")), "each part can be read alone");
        }
        together.extend(part);
    }
    assert_eq!(together, whole);
    let (key, of_key) = whole.iter().nth(7).unwrap();
    let dir = room.path("one");
    into(&dir, &["--only", key]);
    assert_eq!(told(&dir), BTreeMap::from([(key.clone(), of_key.clone())]));
}

#[test]
fn what_cannot_be_compared_or_parted_is_said() {
    let (calls, requests) = (calls(), requests());
    let misused = |file: &str, options: &[&str], words: &[&str]| {
        misused(&[&["trace", "replay", file], options].concat(), words);
    };
    for part in ["0/3", "4/3", "1", "a/b", "1/0"] {
        misused(&calls, &["--compare", "seed=1,2", "--shard", part], &["--shard", part, "I/N"]);
    }
    misused(&calls, &["--only", "0123"], &["--only 0123", "--list"]);
    misused(&calls, &["--compare", "seed=1,x"], &["--compare seed=1,x", "\"x\"", "whole number"]);
    misused(&calls, &["--compare", "seed=1,2", "--seed", "3"], &["seed is given twice"]);
    misused(&calls, &["--compare", "age=none,nonsense"], &["--compare age=", "nonsense"]);
    misused(&calls, &["--compare", "size=1G,huge"], &["--compare size=", "huge"]);
    misused(&calls, &["--compare", "fill=50%,120%"], &["--compare fill=", "120%", "99%"]);
    misused(&calls, &["--compare", "full=off,on"], &["full", "block device"]);
    misused(&calls, &["--compare", "device.nothing=1W,2W"], &["--compare device.nothing"]);
    misused(&calls, &["--compare", "device.ready=1W,2W", "--assume", "device.ready=3W"], &["given twice"]);
    misused(&requests, &["--compare", "seed=1,2"], &["for a recording of a block device only"]);
    misused(&requests, &["--compare", "full=maybe"], &["\"maybe\"", "on or off"]);
    misused(&requests, &["--compare", "queue=0,1"], &["\"0\""]);
    let many = (1..300).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    misused(&calls, &["--compare", &format!("seed={many}")], &["299 runs", "--shard 1/3"]);
    let room = Room::new();
    fs::write(room.path("file"), "").unwrap();
    refused(&["trace", "replay", &calls, "--parquet", &room.text("file")], &["--parquet", "file"]);
}

#[test]
fn a_volume_that_was_too_small_leaves_no_rows() {
    let room = Room::new();
    let (dir, strace) = (room.text("rows"), room.text("many.strace"));
    // Directories take space beyond file contents.
    let mkdir = |n: u64| {
        let (s, us) = (1_700_000_000 + n / 1000, n % 1000 * 1000);
        format!("{s}.{us:06} mkdir(\"/d{n}\", 0777) = 0 <0.000010>\n")
    };
    fs::write(&strace, (0..20_000).map(mkdir).collect::<String>()).unwrap();
    refused(&["trace", "replay", &strace, "--size", "64M", "--parquet", &dir], &["calls failed with ENOSPC", "--size"]);
    assert!(!room.path("rows").exists());
}
