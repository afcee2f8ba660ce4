//! Deeply nested directories: the cost of copying them, and that every command handles them.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags};

use crate::program::run;
use crate::room::Room;

/// CPU time of a command, in seconds.
fn cpu(args: &[&str]) -> f64 {
    let script = "TIMEFORMAT='%U %S'; time \"$0\" \"$@\" > /dev/null";
    let out = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_joulefs")]).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{args:?}: {said}");
    said.lines().last().unwrap().split(' ').map(|s| s.parse::<f64>().unwrap()).sum()
}

/// A chain of `levels` nested directories, with a file in each.
fn nested(top: &Path, levels: usize) {
    fs::create_dir(top).unwrap();
    let mut at = rustix::fs::openat(CWD, top, OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..levels {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&at, "file", flags, Mode::RUSR).unwrap());
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
    }
}

#[test]
fn a_copy_takes_as_long_as_there_are_directories_however_deep_they_lie() {
    let room = Room::new();
    let (few, many) = (1000, 4000);
    let mut took = Vec::new();
    for levels in [few, many] {
        let (tree, image) = (room.text(&format!("in{levels}")), room.text(&format!("{levels}.img")));
        nested(Path::new(&tree), levels);
        assert!(run(&["mkfs", &image, "--size", "128M"]).status.success());
        let inward = cpu(&["cp", "-r", &tree, &format!("{image}:/")]);
        let outward = cpu(&["cp", "-r", &format!("{image}:/in{levels}"), &room.text(&format!("out{levels}"))]);
        took.push((inward, outward));
        let compared = Command::new("diff").args(["-r", &tree, &room.text(&format!("out{levels}"))]).output().unwrap();
        assert!(levels > few || compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    }
    // Four times as many levels: with a walk from the root for each it would take sixteen times as long.
    for (few, many) in [(took[0].0, took[1].0), (took[0].1, took[1].1)] {
        assert!(many < 9.0 * few.max(0.05), "{few} s became {many} s");
    }
}

#[test]
fn no_command_breaks_on_thousands_of_levels() {
    let room = Room::new();
    let image = room.text("deep.img");
    assert!(run(&["mkfs", &image, "--size", "256M"]).status.success());
    let levels = 6000;
    {
        let dev = std::sync::Arc::new(device::FileDevice::open(&image, device::Access::ReadWrite).unwrap());
        let options = volume::MountOptions::default();
        let clock = std::sync::Arc::new(device::RealClock::new());
        let mounted = volume::mount(volume::Kind::F2fs, dev, clock, options).unwrap();
        let fs = mounted.volume();
        let caller = vfs::Caller { uid: 0, gid: 0 };
        let mut at = fs.root();
        for _ in 0..levels {
            at = fs.mkdir(caller, at, b"d", 0o755, 0).unwrap().attr.ino;
        }
        fs.unmount().unwrap();
    }
    let root = format!("{image}:/");
    for args in
        [&["ls", "-R", &root][..], &["tree", &root], &["du", "-s", &root], &["fsck", &image], &["inspect", &image]]
    {
        let out = run(args);
        let said = [&out.stderr[..], &out.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(matches!(out.status.code(), Some(0 | 1)), "{args:?}: {:?}", out.status);
        assert!(out.status.success() || said.contains("more than 1000 levels"), "{args:?}");
    }
    let out = run(&["--json", "tree", &root]);
    assert!(out.status.code().is_some(), "{:?}", out.status);
    let out = run(&["rescue", "--list", &image, &room.text("found")]);
    assert!(out.status.code().is_some(), "{:?}", out.status);
    let out = run(&["cp", "-r", &root, &room.text("out")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // No path is that long, so the test removes the tree with rm.
    let removed = Command::new("rm").args(["-rf", &room.text("out")]).status().unwrap();
    assert!(removed.success());
}
