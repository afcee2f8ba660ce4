//! What a failed or interrupted command leaves behind: nothing that looks complete.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::room::Room;
use crate::typed::{done, misused, refused};

/// Starts a command with default signal handling, even if the test runner ignores some signals.
fn start(args: &[&str]) -> Child {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_joulefs")]);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} did not come");
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends a signal; returns the signal that ended the process.
fn interrupt(child: Child, signal: Signal) -> Option<i32> {
    send(&child, signal);
    child.wait_with_output().unwrap().status.signal()
}

/// Interrupts a command during some phase; false if it finished before the phase was observed.
fn interrupt_amid(mut child: Child, amid: impl Fn() -> bool) -> bool {
    loop {
        // A stopped process does not change, and handles the signal before anything else.
        send(&child, Signal::STOP);
        if amid() {
            break;
        }
        send(&child, Signal::CONT);
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    send(&child, Signal::INT);
    send(&child, Signal::CONT);
    child.wait_with_output().unwrap().status.signal() == Some(2)
}

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// Runs with a file size limit in kilobytes, like on a full disk except for the error text.
fn in_little_room(kilobytes: u32, args: &[&str]) -> (Option<i32>, String) {
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kilobytes * 2);
    let out =
        Command::new("sh").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_joulefs")]).args(args).output().unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn an_interrupted_command_takes_what_it_was_making_with_it() {
    let room = Room::new();
    fs::create_dir(room.path("d")).unwrap();
    let image = room.text("d/v.img");
    let aging = start(&["age", &image, "--size", "8G", "--recipe", "full-fragmented"]);
    wait_for("the image", || room.path("d/v.img").exists());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(interrupt(aging, Signal::INT), Some(2));
    assert_eq!(names(&room.path("d")), [""; 0]);

    // Input from a pipe that never ends.
    let out = room.text("d/t.txt");
    fs::write(&out, "before").unwrap();
    let mut converting = start(&["trace", "convert", "-", "--to", "blkparse", "--output", &out]);
    let line = "128166372003061629,host,0,Write,4096,4096,100\n";
    let mut input = converting.stdin.take().unwrap();
    input.write_all(line.repeat(100_000).as_bytes()).unwrap();
    wait_for("the part", || names(&room.path("d")).iter().any(|name| name.ends_with(".part")));
    assert_eq!(interrupt(converting, Signal::TERM), Some(15));
    assert_eq!(names(&room.path("d")), ["t.txt"]);
    assert_eq!(fs::read(&out).unwrap(), b"before");
}

#[test]
fn what_shall_go_on_in_the_background_is_not_interrupted() {
    let room = Room::new();
    fs::create_dir(room.path("d")).unwrap();
    let (out, joulefs) = (room.text("d/t.txt"), env!("CARGO_BIN_EXE_joulefs"));
    let script = "trap '' HUP; exec \"$@\"";
    let mut converting = Command::new("sh")
        .args(["-c", script, "nohup", joulefs, "trace", "convert", "-", "--to", "blkparse", "--output", &out])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let line = "128166372003061629,host,0,Write,4096,4096,100\n";
    let mut input = converting.stdin.take().unwrap();
    input.write_all(line.repeat(100_000).as_bytes()).unwrap();
    wait_for("the part", || names(&room.path("d")).iter().any(|name| name.ends_with(".part")));
    drop(input);
    assert_eq!(interrupt(converting, Signal::HUP), None);
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 100_000);
}

#[test]
fn an_interrupted_copy_leaves_whole_files_and_a_clean_volume() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "1G"]);
    fs::create_dir_all(room.path("tree")).unwrap();
    fs::write(room.path("tree/a"), b"small").unwrap();
    fs::write(room.path("tree/b"), vec![0x5A; 400 << 20]).unwrap();
    done(&["cp", "-r", &room.text("tree"), &format!("{image}:/")]);

    // It gets its name when complete.
    let half = || {
        let there = fs::read_dir(room.path("out")).into_iter().flatten().flatten().flat_map(|e| e.metadata());
        there.into_iter().any(|m| (1 << 20..400 << 20).contains(&m.len()))
    };
    let copies = |n: u32| {
        let _ = fs::remove_dir_all(room.path("out"));
        let copying = start(&["cp", "-r", &format!("{image}:/tree"), &room.text("out")]);
        let seen = interrupt_amid(copying, half);
        println!("copy {n}: {}", if seen { "interrupted" } else { "done too soon" });
        seen
    };
    assert!((1..=20).any(copies), "no copy of 400 MiB can be caught on its way");
    assert_eq!(names(&room.path("out")), ["a"]);

    let copying = start(&["cp", "-r", &room.text("tree"), &format!("{image}:/more")]);
    std::thread::sleep(Duration::from_millis(50));
    interrupt(copying, Signal::INT);
    done(&["fsck", &image]);
    let rows = done(&["ls", "-l", "-R", &format!("{image}:/")]);
    let sizes = rows.lines().filter(|l| l.starts_with('-')).map(|l| l.split_whitespace().nth(4).unwrap());
    assert!(sizes.clone().all(|s| ["5", "419430400"].contains(&s)), "{rows}");
}

#[test]
fn a_full_disk_leaves_no_half_of_a_file() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "100M"]);
    fs::write(room.path("big"), vec![7; 1 << 20]).unwrap();
    done(&["cp", &room.text("big"), &format!("{image}:/")]);
    fs::create_dir(room.path("out")).unwrap();
    let fails = |args: &[&str], name: &str| {
        let (code, said) = in_little_room(4, args);
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{args:?}: {said}");
        assert!(said.contains(name), "{args:?}: {said}");
        assert_eq!(names(&room.path("out")), [""; 0], "{args:?}");
    };
    let at = |name: &str| room.text(&format!("out/{name}"));
    fails(&["cp", &format!("{image}:/big"), &at("big")], "big");
    fails(&["mkfs", &at("new.img"), "--size", "100M"], "new.img");
    fails(&["age", &at("new.img"), "--size", "100M", "--recipe", "pristine"], "new.img");
    let rows = concat!(env!("CARGO_MANIFEST_DIR"), "/../device/profiles/calibration/kirin9000.csv");
    fails(&["energy", "fit", rows, "--output", &at("p.toml")], "p.toml");
    let mut requests = String::new();
    for n in 0..2000_u64 {
        requests +=
            &format!("{},host,0,Write,{},4096,100\n", 128_166_372_003_061_629 + n * 1000, n * 7919 % 5000 * 4096);
    }
    fs::write(room.path("t.csv"), requests).unwrap();
    fails(&["trace", "stat", &room.text("t.csv"), "--html", &at("t.html")], "t.html");
    fails(&["trace", "convert", &room.text("t.csv"), "--to", "iolog", "--output", &at("t.log")], "t.log");
    // The error names the image of the volume, which is unchanged.
    let (code, said) = in_little_room(4, &["cp", &room.text("big"), &format!("{image}:/again")]);
    assert!(code == Some(1) && said.contains("v.img"), "{said}");
    done(&["fsck", &image]);
    assert_eq!(done(&["ls", &format!("{image}:/")]), "big\nlost+found\n");
}

#[test]
fn what_a_command_could_not_begin_leaves_no_recording() {
    let room = Room::new();
    fs::create_dir(room.path("out")).unwrap();
    fs::write(room.path("text"), vec![b'x'; 1 << 20]).unwrap();
    let (record, dir) = (room.text("out/r"), room.text("out"));
    refused(&["mount", &room.text("text"), &dir, "-f", "--record-device", &record], &["not an F2FS volume"]);
    refused(&["mount", &room.text("text"), &dir, "-f", "--record", &record], &["not an F2FS volume"]);
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "100M"]);
    refused(&["mount", &image, &dir, "-f", "--record", &record, "-o", "stats=/no/such/s"], &["stats=/no/such/s"]);
    let image = room.text("out/new.img");
    let device = ["device", &dir, "--image", &image, "--size", "10T"];
    misused(&device, &["--size 10T", "too large to simulate"]);
    assert_eq!(names(&room.path("out")), [""; 0]);
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["energy", "profiles"][..], &["age", "--list"]] {
        let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains("standard output"), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // 1 would mean that something was repaired.
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M"]);
    let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(["fsck", &image]).stdout(full()).output().unwrap();
    assert_eq!(out.status.code(), Some(8), "{}", String::from_utf8_lossy(&out.stderr));
}
