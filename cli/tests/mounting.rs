//! Mounting: a background process that ends cleanly, or a one-line error.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::{command, done, text};

fn run(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

/// Exit code 1 and one line that contains all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    ends(1, args, words);
}

/// The same for a usage error.
fn misused(args: &[&str], words: &[&str]) {
    ends(2, args, words);
}

fn ends(code: i32, args: &[&str], words: &[&str]) {
    let out = run(args);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(code), "joulefs {args:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "joulefs {args:?}: one line, not:\n{said}");
    assert!(words.iter().all(|w| said.contains(w)), "joulefs {args:?}: no {words:?} in: {said}");
}

/// Unmounts when a test fails.
struct Mounted<'d>(&'d Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = command().arg("unmount").arg(self.0).output();
        }
    }
}

#[test]
fn a_mount_goes_to_the_background_and_unmount_leaves_a_clean_volume() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir, stats) = (at("v.img"), at("mnt"), at("stats.json"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["mount", &image, &dir, "-o", &format!("noatime,stats={stats}")]);
    let _guard = Mounted(Path::new(&dir));
    fs::write(Path::new(&dir).join("f"), vec![7; 100_000]).unwrap();

    refused(&["mkdir", &format!("{image}:/x")], &["v.img"]);
    refused(&["mkfs", "--force", &image], &["v.img"]);
    refused(&["mount", &image, &dir], &["v.img"]);
    let out = run(&["fsck", "--repair", &image]);
    assert_eq!(out.status.code(), Some(8), "{}", text(&out));

    done(&["unmount", &dir]);
    assert!(done(&["info", &image]).contains("written by an unmount"));
    done(&["fsck", &image]);
    assert!(done(&["ls", "-l", &format!("{image}:/f")]).contains("100000"));
    let stats: serde_json::Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    assert_eq!(stats["user_bytes"], 100_000);
    assert!(stats["write_amplification"].as_f64().unwrap() >= 1.0);
    refused(&["unmount", &dir], &[&dir]);
}

#[test]
fn sigterm_leaves_a_clean_volume() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir) = (at("v.img"), at("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    let mut mount = command().args(["mount", "-f", &image, &dir]).spawn().unwrap();
    let _guard = Mounted(Path::new(&dir));
    let file = Path::new(&dir).join("f");
    let mounted = || fs::read_to_string("/proc/self/mounts").unwrap().contains(&dir);
    for _ in 0..600 {
        if mounted() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    fs::write(&file, b"kept").unwrap();
    assert!(Command::new("sh").args(["-c", &format!("kill {}", mount.id())]).status().unwrap().success());
    mount.wait().unwrap();
    assert!(!mounted());
    assert!(done(&["info", &image]).contains("written by an unmount"));
    assert_eq!(done(&["cat", &format!("{image}:/f")]), "kept");
}

#[test]
fn a_mount_that_cannot_be_says_why_in_one_line() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name).display().to_string();
    let (image, dir) = (at("v.img"), at("mnt"));
    fs::create_dir(&dir).unwrap();
    fs::write(at("junk"), vec![1; 1 << 20]).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    refused(&["mount", &at("junk"), &dir], &["junk", "not an F2FS volume"]);
    refused(&["mount", &at("missing"), &dir], &["missing"]);
    refused(&["mount", &image, &at("nowhere")], &["nowhere"]);
    misused(&["mount", &image, &dir, "-o", "warp"], &["warp"]);
    misused(&["mount", &image, &dir, "-o", "threads=0"], &["threads"]);
    done(&["fsck", &image]);
}

#[test]
fn who_may_not_read_an_image_is_told_so() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to become another user");
    }
    let room = tempfile::tempdir().unwrap();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = room.path().join("v.img");
    done(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    // A copy: the build directory may be inaccessible to other users. Made by another process: a writable descriptor of
    // this one could be inherited by a child of another test, which would prevent execution.
    let program = room.path().join("joulefs");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let out = Command::new(&program).arg("info").arg(&image).uid(65534).gid(65534).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out);
    assert!(said.contains("v.img") && said.to_lowercase().contains("permission"), "{said}");
}
