//! Recorded requests on a device used by other requests before.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;
use crate::typed::refused;

/// An iolog of 256 KiB writes to these places, with a flush at the end.
fn writes(places: impl Iterator<Item = u64>) -> String {
    let head = "fio version 2 iolog\n/dev/x add\n/dev/x open\n".to_owned();
    places.fold(head, |text, at| text + &format!("/dev/x write {} 262144\n", at << 18)) + "/dev/x sync 0 0\n"
}

#[test]
fn a_device_that_was_used_before_copies_inside_and_only_what_comes_then_is_paid() {
    let room = Room::new();
    let [fill, mix, file] = ["fill", "mix", "file"].map(|name| room.text(name));
    // All of 512 MiB, then random places; finally some of its blocks.
    fs::write(&fill, writes(0..2_048)).unwrap();
    fs::write(&mix, writes((0..4_096).map(|n| n * 97 % 2_048))).unwrap();
    let mut text = String::from("fio version 2 iolog\n/dev/y add\n/dev/y open\n");
    for n in 0..20_000_u64 {
        writeln!(text, "/dev/y write {} 4096", (n * 7919 % 131_072) * 4096).unwrap();
    }
    fs::write(&file, text + "/dev/y read 0 65536\n/dev/y sync 0 0\n").unwrap();
    let of =
        |more: &[&str]| json(&[&["trace", "replay", &file, "--size", "512M", "--back-to-back"][..], more].concat());
    let (new, used) = (of(&[]), of(&["--after", &fill, "--after", &mix]));
    let count = |v: &Value, name: &str| v["model"][name].as_u64().unwrap_or_else(|| panic!("{name} in {v}"));
    for name in ["blocks_written", "flushes"] {
        assert_eq!(count(&new, name), count(&used, name), "{name}");
    }
    assert_eq!(
        (&new["replay"]["requests"], &new["replay"]["read"]),
        (&used["replay"]["requests"], &used["replay"]["read"])
    );
    assert_eq!(count(&new, "blocks_copied"), 0);
    assert!(count(&used, "blocks_copied") > 10_000, "{used}");
    let pj = |v: &Value| v["total_pj"].as_u64().unwrap();
    assert!(pj(&used) > pj(&new), "{} and {}", pj(&used), pj(&new));
    assert_eq!(used, of(&["--after", &fill, "--after", &mix]), "the same again, to the last picojoule");
    // Together with the preceding recording, the cost is about that of both as one recording.
    let alone = |file: &str| json(&["trace", "replay", file, "--size", "512M", "--back-to-back"]);
    let twice = room.text("twice");
    fs::write(&twice, writes((0..2_048).chain((0..4_096).map(|n| n * 97 % 2_048)))).unwrap();
    let behind = json(&["trace", "replay", &mix, "--size", "512M", "--back-to-back", "--after", &fill]);
    assert!(pj(&behind) < pj(&alone(&twice)) && pj(&behind) + pj(&alone(&fill)) > pj(&alone(&twice)) * 9 / 10);
    refused(&["trace", "replay", &file, "--after", "/no/such"], &["--after", "/no/such"]);
}
