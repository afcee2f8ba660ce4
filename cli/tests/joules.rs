//! The cost of each file is reported by name, for a real mount and for a replayed recording, and every account adds up
//! exactly.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::program::{parsed, run};

fn joulefs(args: &[&str]) -> String {
    let out = run(args);
    assert!(out.status.success(), "joulefs {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Unmounts even if the test fails.
struct Mounted<'d>(&'d str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = run(&["unmount", self.0]);
        }
    }
}

fn sum<'v>(values: impl IntoIterator<Item = &'v Value>, field: Option<&str>) -> u64 {
    values.into_iter().map(|v| field.map_or(v, |f| &v[f]).as_u64().unwrap()).sum()
}

/// The total, which every account must add up to.
#[track_caller]
fn total(ledger: &Value) -> u64 {
    let total = ledger["total_pj"].as_u64().unwrap();
    let fields = |name: &str| ledger[name].as_object().unwrap().values();
    assert_eq!(sum(fields("components_pj"), None), total, "components");
    assert_eq!(sum(fields("parts_pj"), None), total, "parts");
    assert_eq!(sum(fields("causes"), Some("pj")), total, "causes");
    assert_eq!(sum(fields("operations"), Some("pj")), total, "operations");
    let files = ledger["files"].as_array().unwrap();
    assert_eq!(sum(files, Some("pj")), total, "files");
    for component in ["cpu", "dram", "storage", "board"] {
        let of_files = sum(files, Some(&format!("{component}_pj")));
        assert_eq!(of_files, ledger["components_pj"][component].as_u64().unwrap(), "{component}, by file");
    }
    assert!(total > 0);
    total
}

fn of_file(ledger: &Value, name: &str) -> u64 {
    of_file_in(ledger, name, "pj")
}

fn of_file_in(ledger: &Value, name: &str, what: &str) -> u64 {
    let rows = ledger["files"].as_array().unwrap();
    let row = rows.iter().find(|r| r["file"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {rows:#?}"))[what].as_u64().unwrap()
}

fn has(ledger: &Value, start: &str) -> bool {
    ledger["files"].as_array().unwrap().iter().any(|r| r["file"].as_str().unwrap().starts_with(start))
}

fn write(dir: &Path, name: &str, bytes: usize) {
    let mut file = File::create(dir.join(name)).unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_mount_on_a_metered_device_says_what_each_file_cost() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir, ledger) = (at("v.img"), at("mnt"), at("ledger.json"));
    let mnt = Path::new(&dir);
    fs::create_dir(&dir).unwrap();
    fs::write(at("old"), vec![5; 1 << 20]).unwrap();
    joulefs(&["mkfs", &image, "--size", "128M"]);
    joulefs(&["cp", &at("old"), &format!("{image}:/")]);

    let how = ["--profile", "kirin9000-ufs31", "--ledger", &ledger, "--by-file", "100"];
    joulefs(&[&["mount", &image, &dir], &how[..]].concat());
    let _guard = Mounted(&dir);
    File::open(mnt.join("old")).unwrap().read_to_end(&mut Vec::new()).unwrap();
    fs::create_dir(mnt.join("d")).unwrap();
    write(mnt, "d/large", 3_000_000);
    write(mnt, "d/first", 100_000);
    fs::rename(mnt.join("d/first"), mnt.join("renamed")).unwrap();
    for _ in 0..3 {
        write(mnt, "d/journal", 50_000);
        fs::remove_file(mnt.join("d/journal")).unwrap();
    }
    fs::create_dir(mnt.join("old dir")).unwrap();
    write(mnt, "old dir/gone", 500_000);
    fs::remove_dir_all(mnt.join("old dir")).unwrap();
    write(mnt, "one name", 50_000);
    fs::hard_link(mnt.join("one name"), mnt.join("another")).unwrap();
    fs::remove_file(mnt.join("one name")).unwrap();
    // Inline contents, which reach the device together with the inodes.
    (0..10).for_each(|i| fs::write(mnt.join(format!("small{i}")), b"a line").unwrap());
    File::open(mnt).unwrap().sync_all().unwrap();

    let live = || parsed(&fs::read_to_string(&ledger).unwrap());
    let tries = 300;
    let seen = (0..tries).map(|_| live()).find(|l| {
        std::thread::sleep(Duration::from_millis(100));
        l["files"].as_array().is_some_and(|_| has(l, "/renamed") && has(l, "/d/large"))
    });
    let seen = seen.expect("the file is written while the volume is mounted");
    let early = total(&seen);
    joulefs(&["unmount", &dir]);

    let end = live();
    assert!(total(&end) > early, "unmounting costs");
    // Memory traffic is charged per byte.
    let (large, renamed) = (of_file_in(&end, "/d/large", "dram_pj"), of_file_in(&end, "/renamed", "dram_pj"));
    assert!(large > 20 * renamed, "thirty times the bytes: {large} and {renamed} pJ");
    assert!(of_file(&end, "/another") > 0 && of_file(&end, "/d") > 0 && of_file(&end, "/") > 0);
    assert!(of_file(&end, "<checkpoint, NAT, SIT, SSA>") > 0);
    assert!(has(&end, "<deleted> /d/journal (") && of_file(&end, "<deleted> /old dir/gone") > 0);
    assert!(!has(&end, "/old dir") && !has(&end, "/d/first") && !has(&end, "/one name"));
    let small: Vec<u64> = (0..10).map(|i| of_file(&end, &format!("/small{i}"))).collect();
    let (least, most) = (small.iter().min().unwrap(), small.iter().max().unwrap());
    assert!(most < &(2 * least), "who shares a request shares its cost: {small:?}");
    // The image's existing data is in the device's flash: reading it costs a flash read.
    assert!(of_file(&end, "/old") > 0);
    assert!(end["model"]["blocks_read_from_flash"].as_u64().unwrap() >= 256);
    joulefs(&["fsck", &image]);
}

#[test]
fn a_replayed_recording_says_what_each_file_cost_and_repeats() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir, calls, requests) = (at("v.img"), at("mnt"), at("calls.rec"), at("requests.rec"));
    let mnt = Path::new(&dir);
    fs::create_dir(&dir).unwrap();
    joulefs(&["mkfs", &image, "--size", "128M"]);
    joulefs(&["mount", &image, &dir, "--record", &calls, "--record-device", &requests]);
    {
        let _guard = Mounted(&dir);
        fs::create_dir(mnt.join("d")).unwrap();
        write(mnt, "d/large", 2_000_000);
        write(mnt, "small", 40_000);
        write(mnt, "gone", 300_000);
        fs::remove_file(mnt.join("gone")).unwrap();
        joulefs(&["unmount", &dir]);
    }
    let again = |file: &str, more: &[&str]| {
        joulefs(&[&["replay", file, "--profile", "oneplus8t-ufs31", "--json"], more].concat())
    };
    let text = again(&calls, &[]);
    let ledger = parsed(&text);
    total(&ledger);
    assert!(of_file_in(&ledger, "/d/large", "dram_pj") > 30 * of_file_in(&ledger, "/small", "dram_pj"));
    assert!(of_file(&ledger, "<deleted> /gone") > 0);
    assert_eq!(text, again(&calls, &[]), "virtual time repeats to the last picojoule");

    let few = parsed(&again(&calls, &["--by-file", "1"]));
    assert_eq!(total(&few), total(&ledger));
    assert!(has(&few, "/d/large") && !has(&few, "/small") && has(&few, "<"));

    // Requests have an inode number, not a name.
    let requests = parsed(&again(&requests, &[]));
    total(&requests);
    assert!(has(&requests, "<inode ") && has(&requests, "<no file>"));
}

#[test]
fn a_ledger_nobody_would_see_is_refused() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir) = (at("v.img"), at("mnt"));
    fs::create_dir(&dir).unwrap();
    joulefs(&["mkfs", &image, "--size", "64M"]);
    let refused = |args: &[&str], code: i32, word: &str| {
        let out = run(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    };
    refused(&["mount", &image, &dir, "--profile", "microdrive"], 2, "--ledger");
    refused(&["mount", &image, &dir, "--profile", "nothing", "--ledger", &at("l")], 2, "nothing");
    refused(&["mount", &image, &dir, "--profile", "microdrive", "--ledger", "/no/such/dir/l"], 1, "/no/such/dir/l");
    refused(&["mount", &image, &dir, "--ledger", &at("l")], 2, "--profile");
    joulefs(&["fsck", &image]);
}
