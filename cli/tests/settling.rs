//! `joulefs settle`, `joulefs unsettle`, and how `info` reports deltas.

use std::path::Path;
use std::process::{Command, Output};

use crate::program::run_in;

fn said(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn fsck_f2fs(dir: &Path) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let out = Command::new("fsck.f2fs").args(["--dry-run", "v.img"]).current_dir(dir).env("PATH", path).output();
    out.expect("fsck.f2fs of f2fs-tools").status.success()
}

#[test]
fn a_volume_is_made_for_deltas_or_comes_to_hold_them_and_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    said(&run(&["mkfs", "v.img", "--size", "64M", "--features", "modern,delta"]));
    assert!(said(&run(&["info", "v.img"])).contains("deltas             0 in 0 files"));
    assert!(!fsck_f2fs(dir.path()));
    assert!(said(&run(&["settle", "v.img"])).contains("now plain F2FS; 0 deltas of 0 files"));
    assert!(fsck_f2fs(dir.path()));
    assert!(!said(&run(&["info", "v.img"])).contains("deltas"));
    assert!(said(&run(&["settle", "v.img"])).contains("is plain F2FS already"));
    assert!(said(&run(&["unsettle", "v.img"])).contains("may hold deltas now"));
    assert!(said(&run(&["unsettle", "v.img"])).contains("may hold deltas already"));
    let told: serde_json::Value = serde_json::from_str(&said(&run(&["--json", "info", "v.img"]))).unwrap();
    assert_eq!(told["deltas"]["count"], 0);
    assert!(told["features"].as_array().unwrap().iter().any(|f| f == "delta"));
}

#[test]
fn a_volume_that_cannot_hold_deltas_is_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    let out = run(&["mkfs", "v.img", "--size", "64M", "--features", "extra_attr,delta"]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && error.contains("delta needs inode_checksum"), "{error}");
    assert!(!dir.path().join("v.img").exists());
    said(&run(&["mkfs", "v.img", "--size", "64M", "--features", "none"]));
    for args in [&["unsettle", "v.img"][..], &["unsettle", "v.img", "--upgrade"]] {
        let out = run(args);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && error.contains("made without extra_attr"), "{error}");
        assert!(error.lines().count() == 1, "{error}");
    }
    assert!(fsck_f2fs(dir.path()));
}

#[test]
fn a_volume_of_mkfs_f2fs_for_android_is_upgraded_and_settled() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    std::fs::File::create(dir.path().join("v.img")).unwrap().set_len(100 << 20).unwrap();
    let made = Command::new("mkfs.f2fs").args(["-g", "android", "v.img"]).current_dir(&dir).env("PATH", path).output();
    assert!(made.expect("mkfs.f2fs of f2fs-tools").status.success());
    let out = run(&["unsettle", "v.img"]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && error.contains("lacks inode_checksum, which --upgrade adds"), "{error}");
    // The root and the quota files of users, groups and projects, whose inodes mkfs.f2fs made without room for one.
    assert!(said(&run(&["unsettle", "v.img", "--upgrade"])).contains("4 inodes got a checksum; may hold deltas now"));
    std::fs::write(dir.path().join("new"), "text").unwrap();
    said(&run(&["cp", "new", "v.img:/new"]));
    assert!(said(&run(&["unsettle", "v.img", "--upgrade"])).contains("may hold deltas already"));
    assert!(!fsck_f2fs(dir.path()));
    said(&run(&["settle", "v.img"]));
    assert!(fsck_f2fs(dir.path()));
    assert!(said(&run(&["info", "v.img"])).contains("inode_checksum"));
}
