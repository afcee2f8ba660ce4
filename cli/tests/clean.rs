//! `joulefs clean` reports the cost and savings of defragmenting, defragments where that pays, in an image and through
//! a mount, and names the files it skips.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// A mount of a new volume, unmounted at the end.
struct Mount {
    room: Room,
}

impl Mount {
    fn new(options: &str) -> Mount {
        let room = Room::new();
        fs::set_permissions(room.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(room.path("mnt")).unwrap();
        done(&["mkfs", &room.text("v.img"), "--size", "256M"]);
        let m = Mount { room };
        m.mount(options);
        m
    }
    fn mount(&self, options: &str) {
        done(&["mount", &self.image(), &self.dir(), "-o", options]);
    }
    fn unmount(&self) {
        done(&["unmount", &self.dir()]);
    }
    fn image(&self) -> String {
        self.room.text("v.img")
    }
    fn dir(&self) -> String {
        self.room.text("mnt")
    }
    /// Appends to files in turn, syncing each time.
    fn tear(&self, names: &[&str], blocks: usize) {
        let place = |name: &str| self.room.path(&format!("mnt/{name}"));
        for name in names {
            fs::create_dir_all(place(name).parent().unwrap()).unwrap();
        }
        let mut files: Vec<File> =
            names.iter().map(|n| OpenOptions::new().create(true).append(true).open(place(n)).unwrap()).collect();
        for n in 0..blocks {
            for (k, file) in files.iter_mut().enumerate() {
                file.write_all(&[(n * 7 + k) as u8; 4096]).unwrap();
                file.sync_all().unwrap();
            }
        }
    }
    fn holds(&self, k: usize, name: &str, blocks: usize) {
        let want: Vec<u8> = (0..blocks).flat_map(|n| [(n * 7 + k) as u8; 4096]).collect();
        assert!(fs::read(self.room.path(&format!("mnt/{name}"))).unwrap() == want, "{name}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = joulefs(&["unmount", &self.dir()]);
    }
}

fn json(args: &[&str]) -> (i32, Value) {
    let ran = joulefs(&[&["--json"], args].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err)))
}

/// Extents and minimum extents of a file, according to `inspect` on the image.
fn pieces(image: &str, path: &str) -> (u64, u64) {
    let (_, seen) = json(&["inspect", image, "--worst", "1000"]);
    let list = seen["worst"].as_array().unwrap();
    let file = list.iter().find(|f| f["path"] == path);
    file.map_or((1, 1), |f| (f["extents"].as_u64().unwrap(), f["min_extents"].as_u64().unwrap()))
}

#[test]
fn the_worst_files_of_an_image_are_brought_together_once_and_it_costs_what_was_said() {
    let m = Mount::new("background_gc=off");
    m.tear(&["a/one.db", "two.db", "b/three.db"], 60);
    fs::write(m.room.path("mnt/whole"), vec![1; 500_000]).unwrap();
    m.unmount();
    let (image, before) = (m.image(), fs::read(m.image()).unwrap());
    let (code, plan) = json(&["clean", &image, "--worst", "2", "--dry-run"]);
    assert_eq!((code, &plan["schema"], &plan["schema_version"]), (0, &"joulefs-clean".into(), &1.into()));
    assert!(fs::read(&image).unwrap() == before, "a dry run wrote");
    assert_eq!(plan["files"].as_array().unwrap().len(), 2);
    for f in plan["files"].as_array().unwrap() {
        let number = |at: &Value| at.as_u64().unwrap_or_else(|| panic!("{f}"));
        assert_eq!(f["outcome"], "planned");
        let p = &f["plan"];
        assert!(number(&p["extents"]) >= 50 && number(&p["extents_then"]) == 1 && number(&p["blocks"]) == 60);
        let saved = number(&p["use"]["pj"]) - number(&p["use_then"]["pj"]);
        assert_eq!(number(&p["saved_per_use"]["pj"]), saved);
        assert_eq!(number(&p["pays_after_uses"]), number(&p["cost"]["pj"]).div_ceil(saved));
    }
    let text = done(&["clean", &image, "--worst", "3"]);
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    for path in ["/a/one.db", "/two.db", "/b/three.db"] {
        assert!(text.contains(path), "{text}");
        assert!(pieces(&image, path).0 <= 2, "{path}");
    }
    assert!(done(&["fsck", &image]).contains("clean"));
    assert!(done(&["clean", &image, "--worst", "3"]).lines().count() <= 5);
    let (_, again) = json(&["clean", &image, "--defrag", "/whole", "two.db"]);
    assert!(again["files"].as_array().unwrap().iter().all(|f| f["outcome"] == "whole"), "{again}");
    m.mount("");
    (0..3).zip(["a/one.db", "two.db", "b/three.db"]).for_each(|(k, name)| m.holds(k, name, 60));
}

#[test]
fn a_file_for_which_it_never_pays_stays_unless_it_is_forced() {
    let m = Mount::new("background_gc=off");
    m.tear(&["f", "g"], 20);
    m.unmount();
    let image = m.image();
    // A reader of single blocks gains nothing from adjacent blocks on flash, which has no seeks: only the mapping
    // lookup matters, and both places share a map page.
    let args = ["clean", &image, "--read-ahead", "4K", "--defrag", "/f"];
    let (code, out) = json(&args);
    assert_eq!(
        (code, &out["files"][0]["outcome"], &out["moved_blocks"]),
        (0, &"never-pays".into(), &0.into()),
        "{out}"
    );
    assert!(done(&args).contains("the cost is never repaid (--force moves it)"));
    assert!(pieces(&image, "/f").0 > 15);
    let (_, out) = json(&[&args[..], &["--force"]].concat());
    assert_eq!((&out["files"][0]["outcome"], &out["moved_blocks"]), (&"moved".into(), &20.into()), "{out}");
    assert_eq!(pieces(&image, "/f"), (1, 1));
}

#[test]
fn a_mounted_volume_is_treated_while_its_files_are_in_use_and_by_nobody_else() {
    let root = rustix::process::getuid().is_root();
    let m = Mount::new(if root { "background_gc=off,allow_other" } else { "background_gc=off" });
    m.tear(&["d/one.db", "two.db"], 300);
    fs::write(m.room.path("mnt/tiny"), "inline").unwrap();
    std::os::unix::fs::symlink("d/one.db", m.room.path("mnt/link")).unwrap();
    let dir = m.dir();
    let mut open = OpenOptions::new().append(true).open(m.room.path("mnt/d/one.db")).unwrap();
    let mtime = |name: &str| fs::metadata(m.room.path(&format!("mnt/{name}"))).unwrap().mtime_nsec();
    let before = mtime("two.db");
    let (code, out) = json(&["clean", &dir, "--worst", "5"]);
    assert_eq!(code, 0, "{out}");
    let files = out["files"].as_array().unwrap();
    assert_eq!(files.iter().map(|f| f["path"].as_str().unwrap()).collect::<Vec<_>>().len(), 2, "{out}");
    for f in files {
        assert_eq!((&f["outcome"], &f["moved_blocks"]), (&"moved".into(), &300.into()), "{f}");
        assert!(f["extents_after"].as_u64().unwrap() <= 2, "{f}");
    }
    assert_eq!(mtime("two.db"), before);
    open.write_all(&[9; 10]).unwrap();
    drop(open);
    for (path, why) in [
        ("/tiny", "in its inode"),
        ("/link", "not a regular file"),
        ("/d", "not a regular file"),
        ("/", "not a regular file"),
    ] {
        let (code, out) = json(&["clean", &dir, "--defrag", path]);
        let f = &out["files"][0];
        assert!(f["outcome"] == "skipped" && f["why"].as_str().unwrap().contains(why), "{f}");
        assert_eq!((code, &f["path"]), (1, &path.into()), "a file that was named stays as it is");
    }
    let counted = done(&["ctl", &dir, "stat"]);
    assert!(counted.lines().any(|l| l.starts_with("defragmented_blocks") && l.ends_with(" 600")), "{counted}");
    if root {
        // Another user, who may read the file and even owns it.
        let place = m.room.path("mnt/two.db");
        std::os::unix::fs::chown(&place, Some(65534), Some(65534)).unwrap();
        // A copy made by another process: the build directory may be inaccessible to other users.
        let program = m.room.path("joulefs");
        assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status().unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let ran =
            Command::new(&program).args(["clean", &dir, "--defrag", "two.db"]).uid(65534).gid(65534).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(1) && said.contains("only root and the user who mounted"), "{said}");
    }
    m.unmount();
    assert!(pieces(&m.image(), "/two.db").0 <= 2);
    assert!(done(&["fsck", &m.image()]).contains("clean"));
    m.mount("");
    m.holds(1, "two.db", 300);
}

#[test]
fn only_what_a_recording_reads_together_is_moved() {
    let m = Mount::new("background_gc=off");
    m.tear(&["data/a.db", "b.db"], 200);
    m.unmount();
    let rec = m.room.path("calls.strace");
    let mut text = String::new();
    let call = |n: usize, what: &str| format!("100 {}.{:06} {what}\n", 1_700_000_000, n);
    text += &call(1, "openat(AT_FDCWD, \"/mnt/data/a.db\", O_RDONLY) = 3");
    for n in 0..40 {
        text += &call(2 + n, "pread64(3, \"\"..., 65536, 131072) = 65536");
    }
    text += &call(60, "pread64(3, \"\"..., 4096, 700416) = 4096");
    text += &call(61, "close(3) = 0");
    fs::write(&rec, text).unwrap();
    let (image, rec) = (m.image(), rec.display().to_string());
    let (code, out) = json(&["clean", &image, "--worst", "2", "--parts", &rec]);
    assert_eq!(code, 0, "{out}");
    let of = |path: &str| out["files"].as_array().unwrap().iter().find(|f| f["path"] == path).unwrap().clone();
    let (a, b) = (of("/data/a.db"), of("/b.db"));
    assert_eq!(
        (&a["outcome"], &a["moved_blocks"], &b["outcome"]),
        (&"moved".into(), &16.into(), &"whole".into()),
        "{out}"
    );
    assert_eq!(a["plan"]["ranges"], serde_json::json!([[32, 48]]));
    assert_eq!(a["whole_file"]["blocks"], 200);
    assert_eq!(a["whole_file"]["saved_per_use"]["pj"], a["plan"]["saved_per_use"]["pj"], "{a}");
    assert!(a["plan"]["pays_after_uses"].as_u64() <= Some(3), "{a}");
    let (pieces, _) = pieces(&image, "/data/a.db");
    assert!((180..=187).contains(&pieces), "{pieces}");
    assert!(done(&["fsck", &image]).contains("clean"));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M"]);
    misused(&["clean", &image], &["--defrag"]);
    misused(&["clean", &image, "--worst", "1", "--defrag", "/f"], &["--worst", "--defrag"]);
    misused(&["clean", &image, "--worst", "1", "--read-ahead", "1"], &["--read-ahead"]);
    misused(&["clean", &image, "--defrag", "a/../b"], &["a/../b", ".."]);
    refused(&["clean", &image, "--defrag", "/missing"], &["v.img", "/missing", "no such file"]);
    refused(&["clean", &room.text("nothing"), "--worst", "1"], &["nothing"]);
    refused(&["clean", "/proc", "--worst", "1"], &["/proc", "not a JouleFS mount point"]);
    misused(&["clean", &image, "--worst", "1", "--profile", "abacus"], &["abacus"]);
    refused(&["clean", &image, "--worst", "1", "--parts", &image], &["v.img"]);
    assert!(done(&["clean", &image, "--worst", "1"]).contains("no file has excess extents"));
}
