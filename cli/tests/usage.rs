//! Options that do not exist or would have no effect: one line that names the option, and exit code 2, before anything
//! is done.

use std::fs;

use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// Calls in MobiBench's format.
const CALLS: &str = "1 0 open /data/a.db O_RDWR|O_CREAT|O_LARGEFILE 30\n1 10 pwrite 30 0 4096\n1 20 fsync 30 0\n";
/// Requests in the format of SNIA's Microsoft Research traces.
const REQUESTS: &str = "128166372003061629,host,0,Write,4096,4096,100\n128166372003061729,host,0,Read,8192,4096,100\n";

#[test]
fn a_volume_is_not_made_by_options_that_cannot_be() {
    let room = Room::new();
    let image = room.text("v.img");
    let mkfs = |option: &str, value: &str| {
        let given = format!("{option}={value}");
        let size = ["--size", "100M"];
        let args = [&["mkfs", &image, &given][..], if option == "--size" { &[] } else { &size }].concat();
        misused(&args, &[option]);
        assert!(!room.path("v.img").exists(), "{given}: something was made");
    };
    mkfs("--segs-per-sec", "0");
    mkfs("--segs-per-sec", "5000000");
    mkfs("--overprovision", "200");
    mkfs("--overprovision", "-5");
    mkfs("--size", "1K");
    mkfs("--size", "17T");
    mkfs("--size", "0");
    mkfs("--features", "packed_ssa");
    mkfs("--features", "compression");
    mkfs("--features", "none,quota");
    mkfs("--label", &"x".repeat(600));
    mkfs("--uuid", "+1230000000000000000000000000000");
    let words = ["--size 1K", "52.00 MiB"];
    misused(&["mkfs", &image, "--size", "1K"], &words);
    misused(&["mkfs", &image, "--size", "100M", "--overprovision", "-5"], &["--overprovision -5", "below 100"]);
    misused(&["age", &image, "--size", "1K", "--recipe", "full"], &words);
    misused(&["age", "--size", "1K", "--recipe", "full"], &words);
    misused(&["age", "--size", "900T", "--recipe", "full"], &["--size 900T", "larger than the maximum of F2FS"]);
    misused(&["age", "--size", "1K", "--compare"], &words);
    // A wrong option is reported before the state of the image.
    done(&["mkfs", &image, "--size", "100M"]);
    misused(&["mkfs", &image, "--overprovision", "200"], &["--overprovision 200"]);
}

#[test]
fn options_that_would_make_no_difference_are_refused() {
    let room = Room::new();
    let (calls, requests, image) = (room.text("calls"), room.text("requests.csv"), room.text("v.img"));
    fs::write(&calls, CALLS).unwrap();
    fs::write(&requests, REQUESTS).unwrap();
    fs::create_dir(room.path("dir")).unwrap();
    let dir = room.text("dir");
    done(&["mkfs", &image, "--size", "100M"]);

    let of_calls: [&[&str]; 7] = [
        &["--page-cache", "256M"],
        &["--seed", "7"],
        &["--fs", "f2fs"],
        &["--age", "full"],
        &["--image", &image],
        &["-o", "gc=fagc"],
        &["--into", &dir],
    ];
    for option in of_calls {
        misused(&[&["trace", "replay", &requests], option].concat(), &[option[0], "is for recordings of calls"]);
    }
    misused(
        &["trace", "replay", &requests, "--compare", "gc=fagc"],
        &["--compare", "for a recording of a block device only"],
    );
    let of_blocks: [&[&str]; 2] = [&["--full"], &["--of", "8,0"]];
    for option in of_blocks {
        misused(&[&["trace", "replay", &calls], option].concat(), &[option[0], "recordings of a block device"]);
    }
    for option in [["--profile", "microdrive"], ["--seed", "1"], ["--by-file", "3"], ["--fs", "f2fs"]] {
        misused(&[&["trace", "replay", &calls, "--into", &dir][..], &option].concat(), &["--into", option[0]]);
    }
    misused(&["trace", "replay", &calls, "--image", &image, "--seed", "3"], &["--image", "--seed"]);
    let twice = ["trace", "replay", &calls, "--compare", "profile=microdrive", "--profile", "kirin9000-ufs31"];
    misused(&twice, &["--compare", "profile is given twice"]);
    misused(&["trace", "replay", &calls, "--compare", "gc=fagc", "-o", "gc=atgc"], &["gc is given twice"]);
    misused(&["trace", "replay", &calls, "--compare", "gc=fagc", "--compare", "gc=atgc"], &["gc is given twice"]);
    misused(&["trace", "replay", &calls, "--compare", "gc=fagc", "--by-file", "3"], &["--by-file", "--json"]);
    misused(&["trace", "replay", &calls, "--age", "full", "--paced"], &["--age", "--paced"]);

    for option in [&["--recipe", "full"][..], &["--size", "1G"], &["--seed", "1"], &["--force"], &["--compare"]] {
        misused(&[&["age", "--list"], option].concat(), &["--list", option[0]]);
    }
    misused(&["age", "--recipe", "full", "--size", "100M", "--force"], &["--force"]);
    misused(&["energy", "fit", "rows.csv", "--anchor", "5us"], &["--output"]);
    misused(&["energy", "fit", "rows.csv", "--profile", "microdrive"], &["--output"]);
    misused(&["cp", "--stats", &format!("{image}:/x"), &dir], &["--stats", "image"]);
    for option in ["ro=1", "noatime=off", "nodiscard=off", "rw=yes"] {
        misused(&["mount", &image, &dir, "-o", option], &[option, "takes no value"]);
    }
}

#[test]
fn values_that_a_recording_or_an_experiment_has_no_use_for_are_named() {
    let room = Room::new();
    let (calls, requests) = (room.text("calls"), room.text("requests.csv"));
    fs::write(&calls, CALLS).unwrap();
    fs::write(&requests, REQUESTS).unwrap();
    misused(&["trace", "replay", &calls, "--age", "nope"], &["--age", "nope", "three-fifths"]);
    misused(&["trace", "replay", &calls, "--size", "30M"], &["--size 30M", "52.00 MiB"]);
    misused(&["trace", "replay", &requests, "--size", "200T"], &["--size 200T", "too large"]);
    misused(&["trace", "replay", &calls, "--compare", "nope"], &["--compare nope", "NAME=A,B"]);
    misused(&["trace", "replay", &calls, "--compare", "profile=nope"], &["--compare profile=nope", "microdrive"]);
    refused(&["mkfs", &room.text("none/v.img"), "--size", "100M"], &["none: no such directory"]);
    refused(&["replay", &room.text(".")], &["is a directory"]);
    refused(&["replay", &requests], &["not a recording", "joulefs trace replay"]);
    misused(&["energy", &requests, "--of", "9,9"], &["--of 9,9", "1,0"]);
}

#[test]
fn what_clap_refuses_is_one_line_too() {
    misused(&["mkdir", "--mode", "9", "a.img:/x"], &["'9'", "--mode", "octal"]);
    misused(&["age", "v.img"], &["--recipe", "usage: joulefs age"]);
    misused(&["energy", "measure", "--interval", "0", "--", "true"], &["--interval", "1..=10000"]);
    misused(&["unmount", "d", "--wait", "soon"], &["'soon'", "--wait", "not a whole number"]);
    misused(&["mkfs", "v.img", "--overprovision", "much"], &["--overprovision", "not a number"]);
    misused(&["lis", "v.img:/"], &["'lis'"]);
    let ran = joulefs(&["--json", "ls", "--colour", "v.img:/"]);
    let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(ran.code == 2 && value["error"].as_str().unwrap().contains("--colour"), "{}", ran.out);
    // fsck(8) has a different code for it, since 2 requests a reboot.
    assert_eq!(joulefs(&["fsck", "--colour", "v.img"]).code, 16);
}

#[test]
fn a_file_of_another_kind_is_named_for_what_it_is() {
    let room = Room::new();
    let small = room.text("letter");
    fs::write(&small, vec![b'x'; 5000]).unwrap();
    refused(&["info", &small], &["letter", "not an F2FS volume"]);
    let profile = room.text("p.toml");
    fs::write(&profile, "a = 1\nb c d\n").unwrap();
    refused(&["energy", "show", &profile], &["p.toml", "line 2"]);
    let calls = room.text("calls");
    fs::write(&calls, CALLS).unwrap();
    refused(&["trace", "replay", &calls, "--image", &small], &["letter", "not an F2FS volume"]);
    // An image is not a place inside it.
    let image = room.text("w.img");
    done(&["mkfs", &image, "--size", "100M"]);
    let place = format!("{image}:/");
    misused(&["info", &place], &["w.img:/", "give the image itself"]);
    misused(&["mount", &place, &room.text(".")], &["w.img:/", "give the image itself"]);
    // A copy replaces files, but not a pipe.
    assert!(std::process::Command::new("mkfifo").arg(room.path("pipe")).status().unwrap().success());
    done(&["cp", &small, &place]);
    refused(&["cp", &format!("{image}:/letter"), &room.text("pipe")], &["pipe", "joulefs cat"]);
    assert!(!fs::metadata(room.path("pipe")).unwrap().is_file(), "the pipe was replaced");
    // An image is the same under any path.
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "100M"]);
    done(&["mkdir", &format!("{image}:/a")]);
    let other = room.text("./v.img");
    done(&["mv", &format!("{image}:/a"), &format!("{other}:/b")]);
    assert_eq!(done(&["ls", &format!("{image}:/")]), "b\nlost+found\n");
    refused(&["mkdir", &format!("{image}:/")], &["exists"]);
    done(&["mkdir", "-p", &format!("{image}:/")]);
}

#[test]
fn what_was_mistyped_is_answered_with_what_was_meant() {
    let room = Room::new();
    let (image, calls) = (room.text("v.img"), room.text("calls"));
    fs::write(&calls, CALLS).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    let dir = room.text(".");
    let meant = |args: &[&str], word: &str| misused(args, &[&format!("did you mean {word}?")]);
    meant(&["mount", &image, &dir, "-o", "notime"], "noatime");
    meant(&["mount", &image, &dir, "-o", "gc=gredy"], "greedy");
    meant(&["mount", &image, &dir, "--profile", "microdrve", "--ledger", "l"], "microdrive");
    meant(&["mkfs", &room.text("w.img"), "--size", "64M", "-O", "kompression"], "compression");
    meant(&["age", "--size", "1G", "--recipe", "prestine"], "pristine");
    meant(&["trace", "replay", &calls, "-o", "gc=gredy"], "greedy");
    meant(&["cp", "-o", "prealoc=off", &calls, &format!("{image}:/")], "prealloc");
    misused(&["mkfs", "--labl", "x", &image], &["a similar argument exists: '--label'"]);
    misused(&["umont", &dir], &["'umount'"]);
}

#[test]
fn sizes_are_those_of_coreutils() {
    let room = Room::new();
    let bytes = |size: &str| {
        let image = room.text("v.img");
        done(&["mkfs", &image, "--force", "--size", size]);
        fs::metadata(&image).unwrap().len()
    };
    // Whole blocks of 4096 bytes.
    let sizes =
        [("64M", 64 << 20), ("64MiB", 64 << 20), ("64MB", 64_000_000), ("0.25G", 1 << 28), ("1.5GB", 1_499_996_160)];
    for (size, expected) in sizes {
        assert_eq!(bytes(size), expected, "{size}");
    }
    misused(&["mkfs", &room.text("w.img"), "--size", "64iB"], &["--size 64iB", "not a size"]);
    misused(&["mkfs", &room.text("w.img"), "--size", "1,5G"], &["--size 1,5G", "1.5G"]);
}
