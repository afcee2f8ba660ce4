//! A metered disk holds other file systems, reports their cost, and its recording can be replayed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;

fn ran(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {said}");
    out
}

fn joulefs(args: &[&str]) -> String {
    let out = ran(Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args));
    String::from_utf8(out.stdout).unwrap()
}

fn ledger(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn sum(of: &Value, field: &str) -> u64 {
    of.as_object().unwrap().values().map(|v| if field.is_empty() { v } else { &v[field] }.as_u64().unwrap()).sum()
}

/// Unmounts even if the test fails.
struct Mounted<'d>(&'d Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-uz"]).arg(self.0).output();
    }
}

#[test]
fn ext4_on_a_metered_disk_is_whole_and_every_joule_is_in_each_account() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let text = |name: &str| at(name).display().to_string();
    fs::create_dir(at("device")).unwrap();
    fs::create_dir(at("mnt")).unwrap();
    let (device, image, recording) = (text("device"), text("image"), text("recording"));
    let how = ["--profile", "kirin9000-ufs31", "--size", "256M", "--image", &image, "--record", &recording];
    joulefs(&[&["device", &device], &how[..]].concat());
    let _device = Mounted(&at("device"));
    let disk = at("device/disk");

    ran(Command::new("mkfs.ext4").arg("-q").arg(&disk));
    // In the foreground: it writes its last blocks and closes the disk after the unmount, and then ends.
    let mut fuse2fs =
        Command::new("fuse2fs").arg("-f").arg(&disk).arg(at("mnt")).args(["-o", "rw,fakeroot"]).spawn().unwrap();
    let device_of = |path: &Path| fs::metadata(path).unwrap().dev();
    while device_of(&at("mnt")) == device_of(room.path()) {
        assert_eq!(fuse2fs.try_wait().unwrap(), None, "fuse2fs ended");
        thread::sleep(Duration::from_millis(10));
    }
    {
        let _ext4 = Mounted(&at("mnt"));
        for i in 0..20u8 {
            fs::write(at("mnt").join(format!("f{i}")), vec![i; 70_000]).unwrap();
        }
        assert_eq!(fs::read(at("mnt/f7")).unwrap(), vec![7; 70_000]);
    }
    assert!(fuse2fs.wait().unwrap().success());
    ran(Command::new("e2fsck").arg("-fn").arg(&disk));

    let l = ledger(&fs::read_to_string(at("device/ledger.json")).unwrap());
    let total = l["total_pj"].as_u64().unwrap();
    assert!(total > 0);
    assert_eq!(sum(&l["components_pj"], ""), total);
    assert_eq!(sum(&l["parts_pj"], ""), total);
    assert_eq!(sum(&l["operations"], "pj"), total);
    assert!(l["operations"]["flush"]["count"].as_u64().unwrap() > 0, "an fsync is a flush");
    assert!(l["operations"]["discard"]["count"].as_u64().unwrap() > 0, "a punched hole is a discard");
    joulefs(&["unmount", &device]);

    ran(Command::new("e2fsck").arg("-fn").arg(&image));
    let again = || joulefs(&["replay", &recording, "--profile", "kirin9000-ufs31", "--json"]);
    let first = again();
    assert_eq!(first, again(), "a replay in virtual time repeats to the last picojoule");
    assert!(sum(&ledger(&first)["causes"], "pj") > 0);
}

#[test]
fn a_disk_that_cannot_be_is_refused_in_one_line() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().display().to_string();
    let refused = |args: &[&str], code: i32, word: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(word), "{args:?}: {said}");
    };
    refused(&["device", &dir, "--profile", "nothing", "--size", "1G"], 2, "nothing");
    refused(&["device", &dir, "--profile", "kirin9000-ufs31", "--size", "much"], 2, "much");
    refused(&["device", "/no/such/dir", "--profile", "kirin9000-ufs31", "--size", "64M"], 1, "/no/such/dir");
    let file = room.path().join("file");
    fs::write(&file, b"no recording at all").unwrap();
    refused(&["replay", &file.display().to_string(), "--profile", "microdrive"], 1, "file");
}
