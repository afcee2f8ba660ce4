//! Every object printed for machines has its schema.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::room::Room;
use crate::typed::joulefs;
use crate::{diff, measure};

/// Commands and versions listed in the document.
fn documented() -> Vec<(String, u64)> {
    let rows = include_str!("../../docs/json.md").lines().filter_map(|line| line.strip_prefix("| `joulefs "));
    let row = |row: &str| {
        let (name, version) = row.split_once("` | ").unwrap();
        (name.to_owned(), version.trim_end_matches(" |").parse().unwrap())
    };
    rows.map(row).collect()
}

/// Runs commands for machines and records which of them returned an object with the documented schema.
struct Walk {
    documented: Vec<(String, u64)>,
    seen: BTreeSet<String>,
}

impl Walk {
    #[track_caller]
    fn asks(&mut self, command: &str, args: &[&str]) -> Value {
        let words: Vec<&str> = command.split(' ').collect();
        let ran = joulefs(&[&["--json"], &words[..], args].concat());
        // A command after `--` has its own exit code.
        assert_eq!(ran.code, 0, "{command} {args:?}: {}{}", ran.out, ran.err);
        let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{command}: {e}: {}", ran.out));
        let version = self.documented.iter().find(|(name, _)| name == command);
        let version = version.unwrap_or_else(|| panic!("{command} is not documented")).1;
        assert_eq!(value["schema"], format!("joulefs-{}", command.replace(' ', "-")), "{command} {args:?}");
        assert_eq!(value["schema_version"].as_u64(), Some(version), "{command} {args:?}");
        assert_eq!(ran.out.matches("\"schema\":").count(), 1, "{command} {args:?}");
        // Settings of a mount are in the units in which they are set.
        if command != "ctl" {
            assert_eq!(other_units(&value), [""; 0], "{command} {args:?}");
        }
        self.seen.insert(command.to_owned());
        value
    }
}

/// Keys of numbers that are energies not in picojoules, powers not in microwatts, or times not in nanoseconds.
fn other_units(value: &Value) -> Vec<String> {
    const OTHERS: [&str; 20] = [
        "j", "joule", "joules", "mj", "uj", "nj", "energy", "w", "watt", "watts", "mw", "nw", "power", "s", "secs",
        "seconds", "ms", "us", "time", "took",
    ];
    let is_number = |v: &Value| v.is_number() || v.as_array().is_some_and(|list| list.iter().any(Value::is_number));
    match value {
        Value::Object(map) => map
            .iter()
            // Notes are counts, named by what is counted.
            .filter(|(key, _)| *key != "notes")
            .flat_map(|(key, v)| {
                let words: Vec<&str> = key.rsplit('_').collect();
                let is_rate = words.get(1) == Some(&"per");
                let own = (is_number(v) && !is_rate && OTHERS.contains(&words[0])).then(|| key.clone());
                own.into_iter().chain(other_units(v))
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(other_units).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_object_that_is_printed_has_the_schema_that_is_documented() {
    let room = Room::new();
    let here = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).display().to_string();
    let (image, log, recording) = (room.text("v.img"), room.text("log.img"), here("recordings/chat-wal.rec"));
    let place = |path: &str| format!("{image}:{path}");
    let calls = room.text("calls");
    let text = "1 0 open /data/a.db O_RDWR|O_CREAT|O_LARGEFILE 30\n1 10 pwrite 30 0 4096\n1 20 fsync 30 0\n";
    fs::write(&calls, text).unwrap();
    let mut walk = Walk { documented: documented(), seen: BTreeSet::new() };

    walk.asks("mkfs", &[&image, "--size", "64M"]);
    walk.asks("mkfs", &[&log, "--size", "64M", "--type", "scherlfs"]);
    walk.asks("mkdir", &[&place("/d")]);
    walk.asks("cp", &[&calls, &place("/d/f")]);
    walk.asks("mv", &[&place("/d/f"), &place("/f")]);
    walk.asks("tree", &[&place("/")]);
    walk.asks("rm", &[&place("/d"), "-r"]);
    walk.asks("info", &[&image]);
    walk.asks("info", &[&log]);
    walk.asks("fsck", &[&image]);
    walk.asks("fsck", &[&log]);
    walk.asks("inspect", &[&image]);
    walk.asks("clean", &[&image, "--worst", "1"]);
    walk.asks("unsettle", &[&image]);
    walk.asks("settle", &[&image]);
    walk.asks("undo", &[&log, "--list"]);
    walk.asks("rescue", &[&image, &room.text("rescued")]);
    walk.asks("age", &["--recipe", "pristine", "--size", "64M", &room.text("aged.img")]);

    walk.asks("replay", &[&recording, "--profile", "microdrive"]);
    walk.asks("trace stat", &[&recording]);
    walk.asks(
        "trace convert",
        &[&here("trace/fixtures/blktrace/vdb.blktrace.zst"), "--to", "iolog", "-o", &room.text("converted")],
    );
    walk.asks("trace replay", &[&calls, "--profile", "microdrive"]);
    walk.asks("top", &["--from", &here("trace/fixtures/ftrace/pipe.txt.zst"), "--once"]);
    walk.asks("energy", &[&here("trace/fixtures/blktrace/vdb.blktrace.zst")]);
    walk.asks("energy show", &["microdrive"]);
    walk.asks("energy fit", &[&here("device/profiles/calibration/kirin9000.csv")]);
    walk.asks("energy nvme", &[&here("device/tests/nvme/970.bin")]);
    walk.asks("energy diff", &[&diff::measured(&room.path("."))]);
    let machine = measure::machine();
    walk.asks("energy measure", &["--powercap", machine.path().to_str().unwrap(), "--", "true"]);

    if Path::new("/dev/fuse").exists() {
        let dir = room.text("m");
        fs::create_dir(&dir).unwrap();
        walk.asks("mount", &[&image, &dir]);
        walk.asks("ctl", &[&dir]);
        walk.asks("unmount", &[&dir]);
        walk.asks("device", &[&dir, "--size", "64M"]);
        walk.asks("unmount", &[&dir]);
    } else {
        testlog::missing("/dev/fuse, for mount, ctl, unmount and device");
        walk.seen.extend(["mount", "ctl", "unmount", "device"].map(str::to_owned));
    }
    // The laboratory's commands are tested in lab/tests/program.
    let own = walk.documented.iter().filter(|(name, _)| !name.starts_with("lab "));
    let documented: BTreeSet<String> = own.map(|(name, _)| name.clone()).collect();
    assert_eq!(walk.seen, documented, "a command is documented and not asked");

    let failed = joulefs(&["--json", "info", "/nowhere"]);
    let value: Value = serde_json::from_str(&failed.out).unwrap();
    assert_eq!((value["schema"].as_str(), value["schema_version"].as_u64()), (Some("joulefs-error"), Some(1)));
    assert!(value["error"].as_str().unwrap().contains("/nowhere"));
}
