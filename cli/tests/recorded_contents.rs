//! A recording with contents, replayed, leaves the same files as the recorded programs.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{command, done, text};

/// Exit code and one line that contains all of `words`.
fn ends(code: i32, args: &[&str], words: &[&str]) {
    let out = command().args(args).output().unwrap();
    let said = text(&out);
    assert_eq!(out.status.code(), Some(code), "joulefs {args:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "joulefs {args:?}: one line, not:\n{said}");
    assert!(words.iter().all(|w| said.contains(w)), "joulefs {args:?}: no {words:?} in: {said}");
}

/// A test directory with a mount in it that is unmounted if the test fails.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        let room = Room(tempfile::tempdir().unwrap());
        fs::create_dir(room.0.path().join("mnt")).unwrap();
        room
    }
    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
    fn mnt(&self) -> PathBuf {
        self.0.path().join("mnt")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = command().arg("unmount").arg(self.mnt()).output();
        }
    }
}

/// Every file below, by path, with its contents: empty for directories, the target for symlinks.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut all, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let (entry, path) = (entry.as_ref().unwrap(), entry.as_ref().unwrap().path());
            let kind = entry.file_type().unwrap();
            let held = match () {
                () if kind.is_dir() => Vec::new(),
                () if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                () => fs::read(&path).unwrap(),
            };
            if kind.is_dir() {
                todo.push(path.clone());
            }
            all.push((path.strip_prefix(dir).unwrap().to_owned(), held));
        }
    }
    all.sort();
    all
}

fn sqlite(db: &Path, sql: &str) -> String {
    let out = Command::new("sqlite3").arg(db).arg(sql).output().unwrap();
    assert!(out.status.success(), "{sql}: {}", text(&out));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// A database with a thousand messages.
fn fill(dir: &Path) {
    sqlite(
        &dir.join("chat.db"),
        "CREATE TABLE m(id INTEGER PRIMARY KEY, peer INT, body TEXT); CREATE INDEX p ON m(peer);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO m SELECT i, i % 17, 'message ' || i || ' of a long conversation' FROM n;",
    );
    fs::write(dir.join("settings.json"), "{\"theme\": \"dark\"}".repeat(400)).unwrap();
}

/// Small changes of existing files, and new files.
fn work(dir: &Path) {
    let db = dir.join("chat.db");
    for n in 0..40 {
        let mode = ["DELETE", "PERSIST", "TRUNCATE", "WAL"][n / 10];
        sqlite(&db, &format!("PRAGMA journal_mode={mode}; UPDATE m SET body = 'read' WHERE id = {};", n * 23 + 1));
    }
    let mut settings = fs::File::options().read(true).write(true).open(dir.join("settings.json")).unwrap();
    for n in 0..50_u64 {
        settings.seek(SeekFrom::Start(n * 97)).unwrap();
        settings.write_all(b"light").unwrap();
        settings.sync_all().unwrap();
    }
    // Saving like an editor.
    for n in 0..20 {
        let (part, file) = (dir.join(".notes.part"), dir.join("notes.txt"));
        let mut new = fs::File::create(&part).unwrap();
        new.write_all("a line of notes\n".repeat(n * 50).as_bytes()).unwrap();
        new.sync_all().unwrap();
        fs::rename(part, file).unwrap();
    }
    std::os::unix::fs::symlink("notes.txt", dir.join("latest")).unwrap();
    // Through mmap, as some programs write.
    let python = "import mmap, sys
f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0)
for n in range(30): m[n * 131:n * 131 + 4] = b'mmap'; m.flush()";
    let out = Command::new("python3").args(["-c", python]).arg(dir.join("settings.json")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    fs::write(
        dir.join("noise"),
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
}

/// Records `work` on a volume with these features; the files before the recording come from `fill`. Returns the final
/// files.
fn record(room: &Room, features: &str, contents: bool) -> Vec<(PathBuf, Vec<u8>)> {
    let (image, mnt, rec) = (room.at("v.img"), room.at("mnt"), room.at("work.rec"));
    done(&["mkfs", &image, "--size", "256M", "--features", features]);
    done(&["mount", &image, &mnt]);
    fill(&room.mnt());
    done(&["unmount", &mnt]);
    let mut args = vec!["mount", &image, &mnt, "--record", &rec];
    args.extend(contents.then_some("--contents"));
    done(&args);
    work(&room.mnt());
    let left = tree(&room.mnt());
    done(&["unmount", &mnt]);
    left
}

fn differing(a: &[(PathBuf, Vec<u8>)], b: &[(PathBuf, Vec<u8>)]) -> Vec<String> {
    let names = |t: &[(PathBuf, Vec<u8>)]| t.iter().map(|(p, _)| p.clone()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    a.iter().zip(b).filter(|(a, b)| a != b).map(|((path, _), _)| path.display().to_string()).collect()
}

#[test]
fn every_file_is_the_same_byte_for_byte_after_a_replay_and_the_volume_settles() {
    let room = Room::new();
    let (rec, mnt) = (room.at("work.rec"), room.at("mnt"));
    let original = record(&room, "modern,delta", true);
    assert_eq!(fs::metadata(&rec).unwrap().permissions().mode() & 0o777, 0o600);

    // On a new volume without deltas.
    let plain = room.at("plain.img");
    let said = done(&["replay", &rec, "--back-to-back", "--size", "256M", "--save", &plain]);
    assert!(said.contains("contents: as recorded") && !said.contains("ended otherwise"), "{said}");
    done(&["mount", &plain, &mnt]);
    let again = tree(&room.mnt());
    done(&["unmount", &mnt]);
    assert_eq!(differing(&original, &again), [""; 0]);

    // On a new volume with deltas.
    let (empty, deltas) = (room.at("empty.img"), room.at("deltas.img"));
    done(&["mkfs", &empty, "--size", "256M", "--features", "modern,delta"]);
    done(&["replay", &rec, "--image", &empty, "--save", &deltas]);
    assert!(done(&["info", &deltas]).contains("delta"));
    assert!(done(&["fsck", &deltas]).contains("clean"));
    done(&["mount", &deltas, &mnt]);
    let again = tree(&room.mnt());
    assert_eq!(sqlite(&room.mnt().join("chat.db"), "PRAGMA integrity_check"), "ok");
    done(&["unmount", &mnt]);
    assert_eq!(differing(&original, &again), [""; 0]);

    done(&["settle", &deltas]);
    let out = Command::new("fsck.f2fs").args(["--dry-run", &deltas]).output().unwrap();
    assert!(out.status.success() && !text(&out).contains("[FAIL]"), "{}", text(&out));
    done(&["mount", &deltas, &mnt]);
    let settled = tree(&room.mnt());
    done(&["unmount", &mnt]);
    assert_eq!(differing(&original, &settled), [""; 0]);

    // A saved image is private too, and never replaces another file.
    assert_eq!(fs::metadata(&plain).unwrap().permissions().mode() & 0o777, 0o600);
    ends(1, &["replay", &rec, "--save", &plain], &["plain.img", "already exists"]);
}

#[test]
fn without_contents_the_replay_says_that_bytes_are_generated() {
    let room = Room::new();
    let rec = room.at("work.rec");
    let original = record(&room, "modern", false);
    // With existing files: a recording without contents has none of their data.
    let (before, after, mnt) = (room.at("before.img"), room.at("after.img"), room.at("mnt"));
    done(&["mkfs", &before, "--size", "256M"]);
    done(&["mount", &before, &mnt]);
    fill(&room.mnt());
    done(&["unmount", &mnt]);
    let said = done(&["replay", &rec, "--image", &before, "--save", &after]);
    assert!(said.contains("contents: generated") && said.contains("mean nothing"), "{said}");
    done(&["mount", &after, &mnt]);
    let again = tree(&room.mnt());
    done(&["unmount", &mnt]);
    let differing = differing(&original, &again);
    assert!(differing.iter().any(|f| f == "notes.txt") && differing.len() >= 3, "{differing:?}");
}

#[test]
fn a_recording_with_contents_is_nobody_elses_whatever_had_its_name() {
    let room = Room::new();
    let (image, mnt, rec) = (room.at("v.img"), room.at("mnt"), room.at("work.rec"));
    done(&["mkfs", &image, "--size", "64M"]);
    // A world-readable file that another process holds open.
    fs::write(&rec, "older").unwrap();
    fs::set_permissions(&rec, fs::Permissions::from_mode(0o666)).unwrap();
    let held = fs::File::open(&rec).unwrap();
    done(&["mount", &image, &mnt, "--record", &rec, "--contents", "-o", "allow_other"]);
    // Another user writes, too.
    fs::set_permissions(room.mnt(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(room.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c"];
    let write = format!("echo a letter of another user > {mnt}/letter");
    let out = Command::new("setpriv").args(nobody).arg(&write).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    let out = Command::new("setpriv").args(nobody).arg(format!("cat {rec}")).output().unwrap();
    assert!(!out.status.success(), "another user reads the recording");
    done(&["unmount", &mnt]);
    let mut seen = [0; 16];
    assert_eq!(held.read_at(&mut seen, 0).unwrap(), 5, "whoever had the old file open reads the new one");
    assert_eq!(fs::metadata(&rec).unwrap().permissions().mode() & 0o777, 0o600);
    let after = room.at("after.img");
    done(&["replay", &rec, "--save", &after]);
    assert_eq!(done(&["cat", &format!("{after}:/letter")]), "a letter of another user\n");

    // A symlink could lead to a place where others can read.
    fs::remove_file(&rec).unwrap();
    std::os::unix::fs::symlink("elsewhere", &rec).unwrap();
    ends(1, &["mount", &image, &mnt, "--record", &rec, "--contents"], &["work.rec", "symbolic link"]);
    assert!(!Path::new(&room.at("elsewhere")).exists());
    ends(2, &["mount", &image, &mnt, "--contents"], &["--record"]);
}

#[test]
fn a_recording_with_contents_that_is_cut_short_is_replayed_up_to_there_and_one_of_a_later_version_refused() {
    let room = Room::new();
    let rec = room.at("work.rec");
    record(&room, "modern", true);
    let whole = fs::read(&rec).unwrap();
    let cut = room.at("cut.rec");
    fs::write(&cut, &whole[..whole.len() * 2 / 3]).unwrap();
    let out = command().args(["replay", &cut]).output().unwrap();
    let said = text(&out);
    assert!(said.contains("cut short at byte") && said.contains("calls"), "{said}");
    assert_eq!(out.status.code(), Some(1), "what was not read may cost more");
    let out = command().args(["--json", "replay", &cut]).output().unwrap();
    let one: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(out.status.code() == Some(1) && one["damage"].as_str().unwrap().contains("cut short"), "{one}");
    let mut bad = whole.clone();
    bad[whole.len() / 2] ^= 4;
    // The trace commands report the damage with the results before it, and keep these on request.
    let out = command().args(["trace", "replay", &cut, "--back-to-back"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("ends in the middle of a record") && text(&out).contains("calls:"), "{}", text(&out));
    let shared = room.at("shared.rec");
    ends(1, &["trace", "convert", &cut, "--to", "calls", "--output", &shared], &["cut.rec", "in the middle"]);
    assert!(!Path::new(&shared).exists());
    let out =
        command().args(["trace", "convert", &cut, "--to", "calls", "--output", &shared, "--until-damage"]).output();
    assert_eq!(out.unwrap().status.code(), Some(1));
    assert!(done(&["trace", "stat", &shared]).contains("calls in"));
    fs::write(&cut, &bad).unwrap();
    let out = command().args(["replay", &cut]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("damaged at byte"), "{}", text(&out));
    bad = whole;
    bad[8] = 3;
    fs::write(&cut, &bad).unwrap();
    ends(1, &["replay", &cut], &["cut.rec", "version 3", "up to 2"]);
}

#[test]
fn such_recordings_are_counted_converted_and_compared_by_the_commands_for_traces() {
    let room = Room::new();
    let rec = room.at("work.rec");
    record(&room, "modern", true);
    let stat = done(&["trace", "stat", &rec]);
    assert!(stat.contains("chat.db") && stat.contains("fdatasync"), "{stat}");

    // Both runs on the same volume, the control first; each reports what reached the device.
    let compared = done(&["trace", "replay", &rec, "--compare", "delta=on", "--json"]);
    let compared: serde_json::Value = serde_json::from_str(&compared).unwrap();
    let of = |n: usize, what: &str| compared["variants"][n]["replay"][what].as_u64().unwrap();
    assert_eq!([0, 1].map(|n| compared["variants"][n]["variant"].as_str().unwrap()), ["delta=off", "delta=on"]);
    assert!(of(0, "deltas") == 0 && of(1, "deltas") > 20, "{} {}", of(0, "deltas"), of(1, "deltas"));
    assert!(of(1, "blocks_written") < of(0, "blocks_written") && of(1, "flushes") > 0);
    assert_eq!((of(0, "failed"), of(0, "generated"), of(1, "failed"), of(1, "left_out")), (0, 0, 0, 0));
    let text = done(&["trace", "replay", &rec, "--compare", "delta=off,on"]);
    assert_eq!(text.matches("contents: as recorded").count(), 1, "{text}");
    assert!(["delta=off", "delta=on", "blocks", "flushes"].iter().all(|w| text.contains(w)), "{text}");
    // Deltas cannot be compared on an image that must not hold them.
    ends(
        2,
        &["trace", "replay", &rec, "--image", &room.at("v.img"), "--compare", "delta=off,on"],
        &["v.img", "unsettle"],
    );
    ends(2, &["trace", "replay", &rec, "--into", &room.at("mnt")], &["work.rec", "--into"]);
    // With a page cache, no base is read from the device.
    let kept = done(&["trace", "replay", &rec, "--compare", "delta=on", "--page-cache", "64M", "--json"]);
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let bases = |of: &serde_json::Value| of["variants"][1]["causes"]["bases_of_deltas"]["pj"].as_u64().unwrap_or(0);
    assert!(bases(&kept) * 10 < bases(&compared), "{} {}", bases(&kept), bases(&compared));

    // The converted recording has no contents, and the command reports that.
    let (parquet, shared) = (room.at("work.parquet"), room.at("shared.rec"));
    for (to, file) in [("parquet", &parquet), ("calls", &shared)] {
        let said = done(&["trace", "convert", &rec, "--to", to, "--output", file]);
        assert!(said.contains("file contents are removed"), "{said}");
        let held = fs::read(file).unwrap();
        assert!(held.len() > 1000 && !held.windows(15).any(|w| w == b"a line of notes"));
    }
    let said = done(&["trace", "replay", &shared, "--compare", "delta=off,on"]);
    assert!(said.contains("contents: generated") && said.contains("mean nothing"), "{said}");
    ends(2, &["trace", "convert", &rec, "--to", "calls"], &["--output"]);
    ends(2, &["trace", "convert", &rec, "--to", "iolog"], &["parquet"]);
    ends(
        2,
        &["trace", "convert", &parquet, "--to", "calls", "--output", &shared],
        &["work.parquet", "not a JouleFS recording of calls"],
    );
}
