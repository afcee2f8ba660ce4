//! What is in the image when the daemon dies: the rows of docs/durability.md.
//!
//! The daemon gets SIGKILL, so everything in its memory is lost, as after a crash of the machine. Data cached by the
//! kernel is lost too, as the mount has no server any more.
#![allow(clippy::disallowed_methods, reason = "the daemon and the kernel live in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::room::Room;
use crate::typed::{KINDS, contents, done};

/// Extra milliseconds for a machine that is busy with other tests.
const SLACK: [u64; 3] = [500, 4000, 20_000];

/// True if the trial succeeds with one of the slacks.
fn in_time(trial: impl Fn(Duration) -> bool) -> bool {
    SLACK.into_iter().any(|ms| trial(Duration::from_millis(ms)))
}

/// A mounted volume whose daemon will be killed.
struct Mounted {
    room: Room,
    dir: PathBuf,
    image: String,
    pid: String,
}

impl Mounted {
    fn new(kind: &str, options: &str) -> Self {
        let room = Room::new();
        let (image, dir) = (room.text("v.img"), room.path("mnt"));
        fs::create_dir(&dir).unwrap();
        done(&["mkfs", &image, "--size", "64M", "--type", kind]);
        let mounted: serde_json::Value =
            serde_json::from_str(&done(&["--json", "mount", &image, dir.to_str().unwrap(), "-o", options])).unwrap();
        let pid = mounted["process"].to_string();
        Mounted { room, dir, image, pid }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Kills the daemon.
    fn kill(&self) {
        let killed = Command::new("kill").args(["-9", &self.pid]).status().unwrap();
        assert!(killed.success());
        let end = Instant::now() + Duration::from_secs(10);
        while Path::new("/proc").join(&self.pid).exists() && Instant::now() < end {
            sleep(Duration::from_millis(10));
        }
        let gone = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status().unwrap();
        assert!(gone.success());
    }

    /// The contents of a file in the image.
    fn found(&self, name: &str) -> Option<Vec<u8>> {
        contents(&format!("{}:/{name}", self.image))
    }

    fn check(&self) {
        let _ = &self.room;
        done(&["fsck", &self.image]);
    }
}

#[test]
fn what_an_fsync_returned_for_is_there_at_once() {
    for kind in KINDS {
        let m = Mounted::new(kind, "commit=0");
        let mut file = File::create(m.at("synced")).unwrap();
        file.write_all(b"promised").unwrap();
        file.sync_all().unwrap();
        m.kill();
        assert_eq!(m.found("synced").as_deref(), Some(&b"promised"[..]), "{kind}");
        m.check();
    }
}

#[test]
fn a_name_is_there_once_its_directory_was_synced() {
    for kind in KINDS {
        let m = Mounted::new(kind, "commit=0");
        fs::create_dir(m.at("d")).unwrap();
        File::open(&m.dir).unwrap().sync_all().unwrap();
        let file = File::create(m.at("d/f")).unwrap();
        file.sync_all().unwrap();
        fs::rename(m.at("d/f"), m.at("d/g")).unwrap();
        File::open(m.at("d")).unwrap().sync_all().unwrap();
        m.kill();
        assert!(m.found("d/g").is_some() && m.found("d/f").is_none(), "{kind}");
        m.check();
    }
}

#[test]
fn a_second_after_sync_everything_before_it_is_there() {
    for kind in KINDS {
        let there = in_time(|slack| {
            // An interval too long to make it durable.
            let m = Mounted::new(kind, "commit=60");
            fs::write(m.at("closed"), b"closed").unwrap();
            let mut open = File::create(m.at("open")).unwrap();
            open.write_all(b"open").unwrap();
            assert!(Command::new("sync").arg("-f").arg(m.at("closed")).status().unwrap().success());
            sleep(Duration::from_millis(500) + slack);
            m.kill();
            m.check();
            m.found("closed").as_deref() == Some(&b"closed"[..]) && m.found("open").as_deref() == Some(&b"open"[..])
        });
        assert!(there, "{kind}");
    }
}

#[test]
fn what_is_changed_all_the_time_is_there_after_the_time_of_commit() {
    for kind in KINDS {
        let there = in_time(|slack| {
            let m = Mounted::new(kind, "commit=2");
            fs::write(m.at("first"), b"first").unwrap();
            let begun = Instant::now();
            // Never idle.
            let mut rounds = 0;
            while begun.elapsed() < Duration::from_secs(2) + slack {
                fs::write(m.at("other"), format!("{rounds}")).unwrap();
                rounds += 1;
                sleep(Duration::from_millis(50));
            }
            m.kill();
            m.check();
            m.found("first").as_deref() == Some(&b"first"[..])
        });
        assert!(there, "{kind}");
    }
}

#[test]
fn a_file_that_stays_open_is_there_after_the_time_of_commit_where_root_mounts() {
    for kind in KINDS {
        let there = in_time(|slack| {
            let m = Mounted::new(kind, "commit=1");
            let file = OpenOptions::new().create(true).truncate(true).write(true).open(m.at("open")).unwrap();
            file.write_all_at(&[7; 300_000], 0).unwrap();
            // The kernel writes back within one interval, and the data is durable within another.
            sleep(Duration::from_secs(2) + slack);
            m.kill();
            m.check();
            m.found("open") == Some(vec![7; 300_000])
        });
        assert!(there, "{kind}");
    }
}

#[test]
fn without_commit_time_alone_makes_nothing_durable_on_f2fs() {
    let m = Mounted::new("f2fs", "commit=0");
    fs::write(m.at("closed"), b"closed").unwrap();
    sleep(Duration::from_secs(3));
    m.kill();
    assert_eq!(m.found("closed"), None);
    m.check();
}

#[test]
fn a_file_that_is_replaced_by_a_rename_is_the_old_or_the_new_one() {
    for kind in KINDS {
        let m = Mounted::new(kind, "commit=1");
        fs::write(m.at("config"), [b'o'; 50_000]).unwrap();
        assert!(Command::new("sync").arg(m.at("config")).status().unwrap().success());
        for round in 0..40 {
            fs::write(m.at("config.new"), [b'n'; 50_000]).unwrap();
            fs::rename(m.at("config.new"), m.at("config")).unwrap();
            sleep(Duration::from_millis(13 * (round % 7)));
        }
        m.kill();
        let found = m.found("config").unwrap_or_else(|| panic!("{kind}: neither old nor new"));
        assert!(found == [b'o'; 50_000] || found == [b'n'; 50_000], "{kind}: {} bytes of neither", found.len());
        m.check();
    }
}

#[test]
fn after_an_unmount_that_succeeded_everything_is_there() {
    for kind in KINDS {
        let m = Mounted::new(kind, "commit=0");
        fs::write(m.at("closed"), b"closed").unwrap();
        done(&["unmount", m.dir.to_str().unwrap()]);
        assert_eq!(m.found("closed").as_deref(), Some(&b"closed"[..]), "{kind}");
        m.check();
    }
}
