//! Does a user who removes or replaces the image of a mounted volume learn that its data will be lost at unmount?
#![allow(clippy::disallowed_methods, reason = "the daemon and the kernel live in real time")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::room::Room;
use crate::typed::{KINDS, contents, done, joulefs, refused};

/// A mount that contains `before`, durable, and whose image loses its name.
struct Mount {
    room: Room,
}

impl Mount {
    fn new(kind: &str) -> Mount {
        let m = Mount { room: Room::new() };
        fs::create_dir(m.room.path("mnt")).unwrap();
        done(&["mkfs", &m.image(), "--size", "64M", "--type", kind]);
        done(&["mount", &m.image(), &m.dir(), "-o", &format!("log={},retry=1", m.room.text("log"))]);
        fs::write(m.path("before"), vec![1; 200_000]).unwrap();
        done(&["ctl", &m.dir(), "retry"]);
        m
    }

    fn image(&self) -> String {
        self.room.text("v.img")
    }

    fn dir(&self) -> String {
        self.room.text("mnt")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.room.path("mnt").join(name)
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&self.dir())
    }

    fn until_logged(&self, text: &str) {
        let begun = Instant::now();
        let log = || fs::read_to_string(self.room.path("log")).unwrap_or_default();
        while !log().contains(text) {
            assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {text:?} in {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted() {
            joulefs(&["unmount", "--give-up-unwritten", &self.dir()]);
        }
    }
}

/// `rm`, and `mv` of another image over it.
const WAYS: [fn(&Mount); 2] = [
    |m| fs::remove_file(m.image()).unwrap(),
    |m| {
        File::create(m.room.path("other")).unwrap().set_len(64 << 20).unwrap();
        fs::rename(m.room.path("other"), m.image()).unwrap();
    },
];

/// False, with a message, if mounting is not possible.
fn can() -> bool {
    let can = rustix::process::geteuid().is_root() && fs::exists("/dev/fuse").unwrap();
    if !can {
        testlog::missing("root and /dev/fuse");
    }
    can
}

#[test]
fn an_unmount_after_the_image_was_removed_or_replaced_leaves_the_mount_and_says_what_helps() {
    if !can() {
        return;
    }
    for (kind, way) in KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let m = Mount::new(kind);
        way(&m);
        // Noticed while mounted.
        fs::write(m.path("after"), vec![2; 300_000]).unwrap();
        m.until_logged("removed or replaced while it was mounted");
        let words = ["not unmounted", "removed or replaced", "ctl", "save", "--give-up-unwritten"];
        refused(&["unmount", &m.dir()], &words);
        refused(&["ctl", &m.dir(), "retry"], &["removed or replaced", "save"]);
        assert!(m.is_mounted());
        // Everything is copied, including durable data.
        let saved: Value =
            serde_json::from_str(&done(&["--json", "ctl", &m.dir(), "save", &m.room.text("saved")])).unwrap();
        assert_eq!(saved["saved"]["failed"], serde_json::json!([]), "{saved}");
        assert_eq!(fs::read(m.room.path("saved/before")).unwrap(), vec![1; 200_000], "{kind}");
        assert_eq!(fs::read(m.room.path("saved/after")).unwrap(), vec![2; 300_000], "{kind}");
        let words = ["unmounted, but the whole volume is lost", "removed or replaced"];
        refused(&["unmount", "--give-up-unwritten", &m.dir()], &words);
        assert!(!m.is_mounted());
    }
}

#[test]
fn a_mount_that_ends_without_its_images_name_says_so_in_the_log() {
    if !can() {
        return;
    }
    for (kind, way) in KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let m = Mount::new(kind);
        way(&m);
        assert!(Command::new("umount").arg(m.dir()).status().unwrap().success());
        m.until_logged("the whole volume is lost");
    }
}

#[test]
fn an_image_that_was_given_another_name_is_none_that_is_lost() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind);
        fs::rename(m.image(), m.room.path("moved.img")).unwrap();
        fs::write(m.path("after"), vec![2; 300_000]).unwrap();
        done(&["unmount", &m.dir()]);
        assert_eq!(contents(&format!("{}:/after", m.room.text("moved.img"))), Some(vec![2; 300_000]), "{kind}");
    }
}
