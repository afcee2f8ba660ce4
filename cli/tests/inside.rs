//! `stat`, `df`, `du` and `tree` of an image, compared with Linux's own programs on the same volume mounted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// The output of a Linux program, in the C locale.
fn theirs(line: &str, dir: &Path) -> String {
    let out = Command::new("sh").args(["-c", line]).current_dir(dir).env("LC_ALL", "C").output().unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Unmounts when a test fails.
struct Mounted<'r>(&'r Room);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("unmount").arg(self.0.path("m")).output();
        }
    }
}

/// A tree of files that are small, large, sparse, hard-linked, and of every kind an ordinary user can create.
fn grow(at: &Path) {
    fs::create_dir_all(at.join("a/b/c")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("small"), "s").unwrap();
    fs::write(at.join("a/large"), vec![7; 300_000]).unwrap();
    fs::write(at.join("a/b/two names"), vec![1; 9000]).unwrap();
    fs::hard_link(at.join("a/b/two names"), at.join("a/b/c/again")).unwrap();
    fs::File::create(at.join("holes")).unwrap().set_len(50 << 20).unwrap();
    symlink("a/large", at.join("link")).unwrap();
    fs::write(at.join(".hidden"), "h").unwrap();
    fs::set_permissions(at.join("small"), fs::Permissions::from_mode(0o4710)).unwrap();
    assert!(Command::new("mkfifo").arg(at.join("a/pipe")).status().unwrap().success());
}

/// An image of each file system with such a tree, mounted; the closure unmounts it, for commands on the image.
fn both(mut test: impl FnMut(&Room, &str, &Path, &mut dyn FnMut())) {
    if !Path::new("/dev/fuse").exists() {
        return testlog::missing("/dev/fuse");
    }
    for kind in ["f2fs", "scherlfs"] {
        let room = Room::new();
        let (image, dir) = (room.text("v.img"), room.text("m"));
        let _guard = Mounted(&room);
        fs::create_dir(&dir).unwrap();
        done(&["mkfs", &image, "--size", "128M", "--type", kind]);
        done(&["mount", &image, &dir]);
        grow(Path::new(&dir));
        done(&["umount", &dir]);
        done(&["mount", &image, &dir, "-o", "ro,noatime"]);
        let mut unmounted = false;
        let mut unmount = || {
            done(&["umount", &dir]);
            unmounted = true;
        };
        test(&room, &image, Path::new(&dir), &mut unmount);
        assert!(unmounted);
    }
}

#[test]
fn stat_says_what_linux_says() {
    both(|_, image, dir, unmount| {
        let names = ["", "a", "a/large", "a/b/two names", "holes", "link", "small", "a/pipe", "empty"];
        let format = "%F|%a|%u|%g|%h|%s|%b|%.9X|%.9Y|%.9Z";
        let linux = names.map(|name| theirs(&format!("stat -c '{format}' './{name}'"), dir).trim().to_owned());
        unmount();
        for (name, linux) in names.iter().zip(linux) {
            let place = format!("{image}:/{name}");
            let ours = &json(&["stat", &place])[0];
            let text = |key: &str| ours[key].as_str().unwrap_or_default().to_owned();
            let number = |key: &str| ours[key].as_u64().unwrap();
            let mode = u32::from_str_radix(&text("mode"), 8).unwrap();
            let said = format!(
                "{}|{mode:o}|{}|{}|{}|{}|{}|{}|{}|{}",
                text("kind"),
                number("uid"),
                number("gid"),
                number("links"),
                number("size"),
                number("allocated_bytes") / 512,
                text("atime"),
                text("mtime"),
                text("ctime")
            );
            assert_eq!(said, linux, "{place}");
            assert!(done(&["stat", &place]).contains(&format!("File: {place}")));
        }
        assert!(done(&["stat", &format!("{image}:/link")]).contains(":/link -> a/large\n"));
        assert!(done(&["stat", &format!("{image}:/small")]).contains("(4710/-rws--x---)"));
        refused(&["stat", &format!("{image}:/none")], &[":/none", "no such file"]);
        misused(&["stat", "/etc/fstab"], &["/etc/fstab", "IMAGE:/path"]);
    });
}

#[test]
fn df_says_what_linux_says_of_an_image_and_of_a_mount() {
    both(|room, image, dir, unmount| {
        let linux =
            theirs("df -B1 --output=size,used,avail,pcent . | tail -1; df --output=itotal,iused . | tail -1", dir);
        let linux: Vec<&str> = linux.split_whitespace().collect();
        let said = |row: &Value| {
            let keys = ["bytes", "used_bytes", "available_bytes", "inodes", "inodes_used"];
            keys.map(|key| row[key].as_u64().unwrap().to_string())
        };
        let expected = [0, 1, 2, 4, 5].map(|n| linux[n].to_owned());
        let m = dir.to_str().unwrap();
        let mounted = json(&["df", m]);
        assert_eq!(said(&mounted[0]), expected);
        assert_eq!(json(&["df", &format!("{m}/a")])[0]["mounted"], *m);
        let text = done(&["df", m]);
        assert!(text.contains(linux[3]) && text.contains(&format!("v.img on {m}")), "{linux:?}: {text}");
        unmount();
        assert_eq!(said(&json(&["df", image])[0]), expected);
        assert_eq!(done(&["df", image, image]).lines().count(), 3);
        refused(&["df", &room.text("m")], &["m: not a JouleFS mount point", "use df"]);
        refused(&["df", &room.text("none.img")], &["none.img"]);
    });
}

#[test]
fn du_says_what_linux_says() {
    both(|_, image, dir, unmount| {
        for (linux, ours) in
            [("", &[][..]), ("-a", &["-a"]), ("-s", &["-s"]), ("-d1", &["--max-depth", "1"]), ("-ad1", &["-a", "-d1"])]
        {
            let mut expected: Vec<(u64, String)> = theirs(&format!("du -B1 {linux} ."), dir)
                .lines()
                .map(|line| line.split_once('\t').unwrap())
                .map(|(bytes, name)| {
                    (bytes.parse().unwrap(), name.trim_start_matches('.').trim_start_matches('/').to_owned())
                })
                .collect();
            let place = format!("{}:/", image);
            // The image is in use; a read-only mount allows other readers.
            let rows = json(&[&["du"], ours, &[&place]].concat());
            let mut said: Vec<(u64, String)> = rows
                .as_array()
                .unwrap()
                .iter()
                .map(|row| (row["allocated_bytes"].as_u64().unwrap(), row["path"].as_str().unwrap()))
                .map(|(bytes, path)| (bytes, path.strip_prefix(&place).unwrap().to_owned()))
                .collect();
            // Of two names of one file, Linux's program counts the one that it meets first.
            let second = |list: &mut Vec<(u64, String)>| {
                list.retain(|(_, n)| !n.ends_with("again") && !n.ends_with("two names"))
            };
            if ours.contains(&"-a") {
                second(&mut expected);
                second(&mut said);
            }
            let below = |list: &mut Vec<(u64, String)>| list.retain(|(_, name)| name != "a/b/c");
            below(&mut expected);
            below(&mut said);
            expected.sort();
            said.sort();
            assert!(!said.is_empty());
            assert_eq!(said, expected, "du {linux}");
        }
        unmount();
        let text = done(&["du", "-s", &format!("{image}:/holes"), &format!("{image}:/a/large")]);
        assert!(text.contains(":/holes") && text.contains("KiB") && !text.contains("MiB"), "{text}");
        assert_eq!(done(&["du", "-b", "-s", &format!("{image}:/a/large")]).split_whitespace().next(), Some("303104"));
    });
}

#[test]
fn tree_draws_what_is_there() {
    both(|_, image, dir, unmount| {
        let all: Vec<String> =
            theirs("find . -mindepth 1 -printf '%P %y\\n' | sort", dir).lines().map(str::to_owned).collect();
        unmount();
        fn walk(value: &Value, above: &str, out: &mut Vec<String>) {
            for child in value["children"].as_array().unwrap() {
                let path = format!("{above}{}", child["name"].as_str().unwrap());
                let kind = match child["kind"].as_str().unwrap() {
                    "regular file" => 'f',
                    "directory" => 'd',
                    "symbolic link" => 'l',
                    "fifo" => 'p',
                    other => panic!("{other}"),
                };
                out.push(format!("{path} {kind}"));
                if kind == 'd' {
                    walk(child, &format!("{path}/"), out);
                }
            }
        }
        let place = format!("{image}:/");
        let value = json(&["tree", "-a", &place]);
        let mut ours = Vec::new();
        walk(&value, "", &mut ours);
        ours.sort();
        let mut expected = all;
        expected.sort();
        assert_eq!(ours, expected);
        let dirs = expected.iter().filter(|line| line.ends_with(" d")).count() as u64;
        assert_eq!(
            (value["directories"].as_u64(), value["files"].as_u64()),
            (Some(dirs), Some(expected.len() as u64 - dirs))
        );
        let text = done(&["tree", &format!("{image}:/a")]);
        let drawn = format!(
            "{image}:/a\n├── b/\n│   ├── c/\n│   │   └── again  (8.79 KiB)\n│   └── two names  (8.79 KiB)\n\
             ├── large  (292.97 KiB)\n└── pipe  (fifo)\n\n2 directories, 4 files\n"
        );
        assert_eq!(text, drawn);
        assert_eq!(
            done(&["tree", "-d", "-L", "1", &format!("{image}:/a")]),
            format!("{image}:/a\n└── b/\n\n1 directories\n")
        );
        assert!(!done(&["tree", &place]).contains(".hidden") && done(&["tree", "-a", &place]).contains(".hidden"));
        refused(&["tree", &format!("{image}:/small")], &[":/small", "not a directory"]);
        assert_eq!(joulefs(&["tree", image]).code, 2);
    });
}
