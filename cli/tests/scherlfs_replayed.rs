//! The same commands age ScherlFS and F2FS volumes and replay recorded calls on them; runs side by side and alone give
//! the same results.

use std::fmt::Write as _;
use std::fs;

use crate::program::json;
use crate::room::Room;
use crate::typed::{done, misused, refused};

/// Appends to a log with syncs, scattered changes of a database, a read of a picture, and a file rewritten and renamed.
fn calls() -> String {
    let mut text = String::from("1 0 open /data/chat.db O_RDWR|O_CREAT|O_LARGEFILE 30\n");
    for n in 0..2_000_u64 {
        let block = if n < 500 { n } else { n * 7919 % 500 };
        writeln!(text, "1 {} pwrite 30 {} 4096", 1000 + n * 10_000, block * 4096).unwrap();
        if n % 50 == 0 {
            writeln!(text, "1 {} fsync 30 0", 2000 + n * 10_000).unwrap();
        }
    }
    text + "2 1200000 open \"/data/photos/a.jpg\" O_RDONLY|O_LARGEFILE 31\n2 1200100 read 31 500000\n2 1300000 close 31 0\n"
}

fn recorded(room: &Room) -> String {
    let file = room.text("app.trace");
    fs::write(&file, calls()).unwrap();
    file
}

fn ours(name: &str) -> String {
    format!("{}/../recordings/{name}.rec", env!("CARGO_MANIFEST_DIR"))
}

const DISK: &str = "laptop-disk-4200";

#[test]
fn an_aged_image_is_sound_the_same_the_second_time_and_says_what_it_is() {
    let room = Room::new();
    let (a, b) = (room.text("a.img"), room.text("b.img"));
    let age = |image: &str| {
        json(&["age", image, "--type", "scherlfs", "--recipe", "full-fragmented", "--size", "128M", "--seed", "5"])
    };
    let report = age(&a);
    age(&b);
    assert_eq!(report["file_system"], "ScherlFS");
    assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap());
    done(&["fsck", &a]);
    assert_eq!(json(&["info", &a])["free_bytes"], report["free_bytes"]);
    let pieces: u64 = report["free_fragments"]["count"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert!(pieces > 20, "{report}");
    refused(&["age", &a, "--recipe", "full"], &["holds files"]);
}

#[test]
fn an_empty_volume_is_aged_as_what_it_is_and_never_made_another_unasked() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--type", "scherlfs", "--size", "64M"]);
    refused(&["age", &image, "--type", "f2fs", "--recipe", "pristine"], &["ScherlFS", "--force"]);
    assert_eq!(json(&["age", &image, "--recipe", "pristine"])["file_system"], "ScherlFS");
    let forced = json(&["age", &image, "--type", "f2fs", "--force", "--recipe", "pristine"]);
    assert_eq!(forced["file_system"], "F2FS");
    done(&["fsck", &image]);
    misused(&["age", "--type", "scherlfs", "--recipe", "full", "--size", "4K"], &["--size 4K"]);
}

#[test]
fn the_same_calls_stand_side_by_side_and_each_run_says_which_file_system_it_was() {
    let room = Room::new();
    let file = recorded(&room);
    let both = json(&["trace", "replay", &file, "--profile", DISK, "--compare", "fs=f2fs,scherlfs"]);
    let runs = both["variants"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, (fs, segments)) in runs.iter().zip([("f2fs", true), ("scherlfs", false)]) {
        let replay = &run["replay"];
        assert_eq!((&run["variant"], &replay["file_system"]), (&fs.into(), &fs.into()));
        assert_eq!(replay["began"]["free_segments"].is_u64(), segments, "{replay}");
        assert_eq!((&replay["failed"], &replay["no_space"]), (&0.into(), &0.into()), "{replay}");
        assert_eq!(replay["written"], runs[0]["replay"]["written"]);
        // The control: the idle device over the same time.
        let (all, idle) = (run["total_pj"].as_u64().unwrap(), run["idle_pj"].as_u64().unwrap());
        assert!(idle > 0 && idle < all, "{idle} of {all}");
    }
    // Alone it gives the same result as side by side, to the picojoule.
    let alone = json(&["trace", "replay", &file, "--profile", DISK, "--fs", "scherlfs"]);
    assert_eq!(alone["total_pj"], runs[1]["total_pj"]);
    let text = done(&["trace", "replay", &file, "--profile", DISK, "--compare", "fs=f2fs,scherlfs"]);
    for words in ["\nf2fs ", "\nscherlfs ", "log", "nodes for fsync", "an idle device spends"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

#[test]
fn a_volume_in_use_is_brought_into_its_state_first_and_an_image_stays_as_it_is() {
    let room = Room::new();
    let (file, image) = (recorded(&room), room.text("used.img"));
    let used = json(&[
        "trace",
        "replay",
        &file,
        "--fs",
        "scherlfs",
        "--profile",
        DISK,
        "--age",
        "three-fifths",
        "--fill",
        "85%",
        "--after",
        &file,
        "--size",
        "512M",
    ]);
    let began = &used["replay"]["began"];
    assert!((0.84..0.87).contains(&began["full"].as_f64().unwrap()), "{began}");
    assert!(began["free_pieces"].as_u64().unwrap() > 0, "{began}");
    done(&["age", &image, "--type", "scherlfs", "--recipe", "three-fifths", "--size", "256M"]);
    let before = fs::read(&image).unwrap();
    // The image determines the file system.
    let on_image = json(&["trace", "replay", &file, "--profile", DISK, "--image", &image, "-o", "sync=call"]);
    assert_eq!((&on_image["replay"]["file_system"], &on_image["replay"]["failed"]), (&"scherlfs".into(), &0.into()));
    assert!(fs::read(&image).unwrap() == before, "the image was changed");
    done(&["fsck", &image]);
}

#[test]
fn what_a_replay_saves_holds_what_it_holds_on_f2fs() {
    let room = Room::new();
    let tree = |fs: &str| {
        let image = room.text(&format!("{fs}.img"));
        let replay = json(&["replay", &ours("settings"), "--fs", fs, "--profile", DISK, "--save", &image]);
        assert_eq!((&replay["replay"]["file_system"], &replay["replay"]["left_out"]), (&fs.into(), &0.into()));
        let out = room.path(fs);
        done(&["cp", "-r", &format!("{image}:/"), &out.display().to_string()]);
        done(&["fsck", &image]);
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        let mut todo = vec![out.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
                match entry.is_dir() {
                    true => todo.push(entry),
                    false => {
                        let name = entry.strip_prefix(&out).unwrap().display().to_string();
                        files.push((name, fs::read(&entry).unwrap()));
                    }
                }
            }
        }
        files.retain(|(name, _)| name != ".ifile");
        files.sort();
        files
    };
    let (f2fs, scherlfs) = (tree("f2fs"), tree("scherlfs"));
    assert!(f2fs.len() > 2, "{}", f2fs.len());
    assert!(f2fs == scherlfs, "not the same files");
}

#[test]
fn what_the_other_file_system_has_is_refused_by_name() {
    let room = Room::new();
    let (file, image) = (recorded(&room), room.text("s.img"));
    done(&["mkfs", &image, "--type", "scherlfs", "--size", "64M"]);
    let replay = |more: &[&str], words: &[&str]| misused(&[&["trace", "replay", &file], more].concat(), words);
    replay(&["--fs", "scherlfs", "--hurry"], &["ScherlFS", "--hurry"]);
    replay(&["--fs", "scherlfs", "-o", "delta=on"], &["delta=on", "ScherlFS"]);
    replay(&["--fs", "scherlfs", "--compare", "gc=greedy,fagc"], &["gc=fagc", "ScherlFS"]);
    replay(&["-o", "sync=call"], &["sync=call", "F2FS"]);
    replay(&["--compare", "fs=f2fs,ext4"], &["ext4", "scherlfs"]);
    replay(&["--fs", "f2fs", "--image", &image], &["ScherlFS", "--fs f2fs"]);
    replay(&["--compare", "fs=f2fs,scherlfs", "--image", &image], &["ScherlFS", "--compare fs"]);
    replay(&["--fs", "scherlfs", "--compare", "fs=f2fs,scherlfs"], &["fs is given twice"]);
    misused(&["replay", &ours("settings"), "--fs", "f2fs", "--image", &image], &["ScherlFS", "--fs f2fs"]);
    refused(&["rescue", &image, &room.text("out")], &["ScherlFS", "rescue is for F2FS"]);
    refused(&["settle", &image], &["ScherlFS", "settle is for F2FS"]);
    refused(&["inspect", &image], &["ScherlFS", "inspect is for F2FS"]);
    refused(&["clean", &image, "--defrag", "/x"], &["ScherlFS", "clean is for F2FS"]);
}
