//! `mkfs --for` and `-o profile=`: what pays on a class of devices, in one word.

use std::fs;

use serde_json::Value;

use crate::program::{done, run, text};
use crate::room::Room;

fn refused(args: &[&str], words: &[&str]) {
    let out = run(args);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(2), "joulefs {args:?}: {said}");
    assert!(words.iter().all(|w| said.contains(w)), "joulefs {args:?}: no {words:?} in: {said}");
}

#[test]
fn a_class_of_devices_chooses_file_system_and_features() {
    let room = Room::new();
    for (class, kind, deltas) in
        [("phone", "F2FS", true), ("card", "F2FS", true), ("laptop", "F2FS", false), ("disk", "ScherlFS", false)]
    {
        let image = room.text(class);
        done(&["mkfs", &image, "--for", class, "--size", "64M"]);
        let info: Value = serde_json::from_slice(&run(&["--json", "info", &image]).stdout).unwrap();
        assert_eq!((&info["file_system"], info["deltas"].is_object()), (&kind.into(), deltas), "{class}: {info}");
    }
    let image = room.text("new");
    refused(&["mkfs", &image, "--for", "phone", "--features", "modern", "--size", "64M"], &["--for", "--features"]);
    refused(&["mkfs", &image, "--for", "tablet", "--size", "64M"], &["phone", "laptop", "card", "disk"]);
    refused(
        &["mkfs", &image, "--for", "disk", "--zoned", "2M", "--size", "64M"],
        &["--zoned is for F2FS", "--for disk"],
    );
    assert!(!fs::exists(&image).unwrap());
}

#[test]
fn a_mount_counts_at_the_prices_of_its_class_and_says_what_it_cannot_use() {
    let room = Room::new();
    let (image, dir) = (room.text("v.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    let spent = |class: &str| {
        done(&["mkfs", &image, "--for", "phone", "--size", "64M", "--force"]);
        done(&["mount", &image, &dir, "-o", &format!("profile={class},writeback=off")]);
        for n in 0..20 {
            let file = fs::File::create(format!("{dir}/{n}")).unwrap();
            file.sync_all().unwrap();
        }
        let stat = text(&run(&["ctl", &dir, "stat"]));
        done(&["unmount", &dir]);
        let line = stat.lines().find(|line| line.starts_with("gc_in_use_pj")).unwrap_or_else(|| panic!("{stat}"));
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
    };
    let (phone, card) = (spent("phone"), spent("card"));
    assert!(card > 2.0 * phone, "{card} and {phone} pJ");
    refused(&["mount", &image, &dir, "-o", "profile=phne"], &["phone, laptop, card or disk", "did you mean phone?"]);
    let both = ["mount", &image, &dir, "-f", "--profile", "micron-2550", "-o", "profile=phone"];
    refused(&both, &["profile=phone", "--profile gives the prices"]);
    done(&["mkfs", &image, "--size", "64M", "--force"]);
    let out = run(&["mount", &image, &dir, "-o", "profile=card,mode=lfs,in_place=3"]);
    let notes = ["deltas would pay here", "in_place=3 has no effect"];
    assert!(out.status.success() && notes.iter().all(|note| text(&out).contains(note)), "{}", text(&out));
    done(&["unmount", &dir]);
}

#[test]
fn info_shows_what_a_class_has_switched_on_in_a_mount_and_what_a_user_has_chosen_instead() {
    let room = Room::new();
    let (image, dir) = (room.text("v.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--for", "phone", "--size", "64M"]);
    let options = |given: &str| {
        done(&["mount", &image, &dir, "-o", given]);
        let info: Value = serde_json::from_slice(&run(&["--json", "info", &dir]).stdout).unwrap();
        let lines = text(&run(&["info", &dir]));
        assert!(lines.contains("in_place") && lines.contains("free"), "{lines}");
        done(&["unmount", &dir]);
        assert!(info["free_bytes"].as_u64() < info["user_bytes"].as_u64(), "{info}");
        ["fsync_mode", "discard_unit", "in_place", "wear", "delta", "gc"]
            .map(|name| info["options"][name].as_str().unwrap().to_owned())
    };
    assert_eq!(options("profile=phone"), ["strict", "price", "price", "20", "on", "joule"]);
    assert_eq!(options("profile=laptop"), ["strict", "segment", "8", "0", "on", "joule"]);
    let own = "profile=phone,in_place=3,wear=0,discard_unit=block,fsync_mode=posix,gc=atgc";
    assert_eq!(options(own), ["posix", "block", "3", "0", "on", "atgc"]);
    assert_eq!(options("nodiscard,in_place=price,delta=off"), ["strict", "off", "price", "0", "off", "joule"]);
    refused(&["mount", &image, &dir, "-o", "in_place=always"], &["in_place", "a number of blocks, or price"]);
    assert!(text(&run(&["info", &dir])).contains("this directory is not a JouleFS mount point"));
    done(&["mount", &image, &dir, "-o", "mode=lfs"]);
    done(&["unmount", &dir]);
    let out = run(&["mount", &image, &dir, "-o", "mode=lfs,in_place=price"]);
    assert!(out.status.success() && text(&out).contains("in_place=price has no effect"), "{}", text(&out));
    done(&["unmount", &dir]);
}
