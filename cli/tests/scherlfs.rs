//! The same commands create, fill, mount, measure and check volumes of ScherlFS and F2FS, and a command for F2FS alone
//! refuses ScherlFS.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::program::{done, run, text};
use crate::room::Room;

fn json(args: &[&str]) -> Value {
    let out = run(args);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("joulefs {args:?}: {e}: {}", text(&out)))
}

/// One line that contains all of `words`, and this exit code.
fn refused(code: i32, args: &[&str], words: &[&str]) {
    let out = run(args);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(code), "joulefs {args:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "joulefs {args:?}: one line, not:\n{said}");
    assert!(words.iter().all(|w| said.contains(w)), "joulefs {args:?}: no {words:?} in: {said}");
}

#[test]
fn a_tree_goes_in_and_comes_out_and_the_volume_is_sound() {
    let room = Room::new();
    let (image, from, to) = (room.text("v.img"), room.path("from"), room.text("to"));
    fs::create_dir_all(from.join("a/b")).unwrap();
    for n in 0..300_u32 {
        fs::write(from.join(format!("a/{n}")), vec![n as u8; (n * 137) as usize]).unwrap();
    }
    std::os::unix::fs::symlink("../300", from.join("a/b/link")).unwrap();
    let made = json(&["--json", "mkfs", &image, "--type", "scherlfs", "--size", "64M", "--label", "archive"]);
    assert_eq!((&made["file_system"], &made["bytes"]), (&"ScherlFS".into(), &(64 << 20).into()));
    let place = format!("{image}:/tree");
    done(&["cp", "-r", &from.display().to_string(), &place]);
    done(&["cp", "-r", &place, &to]);
    for n in 0..300_u32 {
        assert_eq!(fs::read(room.path("to").join(format!("a/{n}"))).unwrap(), vec![n as u8; (n * 137) as usize], "{n}");
    }
    assert_eq!(fs::read_link(room.path("to/a/b/link")).unwrap().to_str(), Some("../300"));
    let info = json(&["--json", "info", &image]);
    assert_eq!((&info["label"], &info["clean_unmount"]), (&"archive".into(), &true.into()));
    let checked = json(&["--json", "fsck", &image]);
    // The inode map, the root, three directories, the files and the link.
    assert_eq!((&checked["errors"], &checked["counts"]["directories"]), (&0.into(), &4.into()), "{checked}");
    assert!(done(&["ls", &format!("{image}:/")]).contains("tree"));
}

#[test]
fn what_a_mount_spent_is_told_by_its_own_causes_and_by_file_to_the_picojoule() {
    let room = Room::new();
    let (image, dir, ledger) = (room.text("v.img"), room.text("mnt"), room.text("joules.json"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "-t", "scherlfs", "--size", "64M"]);
    done(&["mount", &image, &dir, "--profile", "laptop-disk-4200", "--ledger", &ledger, "-o", "checkpoint_bytes=1M"]);
    let mnt = room.path("mnt");
    for name in ["stays", "goes", "moves"] {
        fs::write(mnt.join(name), vec![7; 300_000]).unwrap();
        fs::File::open(mnt.join(name)).unwrap().sync_all().unwrap();
    }
    fs::remove_file(mnt.join("goes")).unwrap();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::rename(mnt.join("moves"), mnt.join("dir/moved")).unwrap();
    let report = done(&["ctl", &dir, "stat"]);
    assert!(report.contains("total_pj") && report.contains("free_blocks"), "{report}");
    let account = json(&["--json", "top", &dir, "--once"]);
    done(&["unmount", &dir]);
    let ledger: Value = serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    let total = ledger["total_pj"].as_u64().unwrap();
    let sum = |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["pj"].as_u64().unwrap()).sum::<u64>();
    assert!(total > 0);
    assert_eq!(sum(&ledger["files"]), total);
    let of = |name: &str| {
        let files = ledger["files"].as_array().unwrap().iter();
        files.filter(|f| f["file"] == name).map(|f| f["pj"].as_u64().unwrap()).sum::<u64>()
    };
    for name in ["/stays", "<deleted> /goes", "/dir/moved", "<checkpoint, free list>"] {
        assert!(of(name) > 0, "{name} cost nothing: {ledger:#}");
    }
    let causes = ledger["causes"].to_string();
    assert!(causes.contains("log") && causes.contains("checkpoints"), "{causes}");
    assert!(!causes.contains("cause 1"), "a cause has no name: {causes}");
    assert!(!ledger["files"].to_string().contains("<inode "), "{ledger:#}");
    let told = &account["mounts"][0];
    assert_eq!(sum(&told["files"]), sum(&told["causes"]), "{told}");
    assert!(sum(&told["files"]) > 0 && !told.to_string().contains("<inode "), "{told}");
    assert_eq!(json(&["--json", "fsck", &image])["errors"], 0);
}

#[test]
fn damage_is_told_and_ends_in_4_and_its_repair_in_1() {
    let room = Room::new();
    let image = room.text("v.img");
    let from = room.path("from");
    fs::write(&from, vec![7; 50_000]).unwrap();
    done(&["mkfs", &image, "--type", "scherlfs", "--size", "16M"]);
    done(&["cp", &from.display().to_string(), &format!("{image}:/kept")]);
    assert_eq!(run(&["fsck", "--repair", &image]).status.code(), Some(0), "nothing to repair");
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    // The inode of the inode map, as last written.
    let bytes = fs::read(&image).unwrap();
    let (blocks, _) = bytes.as_chunks::<4096>();
    let of_map = |b: &[u8; 4096]| b.starts_with(b"SINO") && b[24..28] == 1_u32.to_le_bytes();
    let last = blocks.iter().enumerate().filter(|(_, b)| of_map(b)).max_by_key(|(_, b)| b[16]).unwrap().0;
    file.write_all_at(&[0xff; 64], last as u64 * 4096 + 100).unwrap();
    let out = run(&["fsck", &image]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out));
    for at in [0, 4096] {
        file.write_all_at(&[0xff; 8], at + 512).unwrap();
    }
    let out = run(&["fsck", &image]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out));
    assert!(text(&out).contains("superblock"), "{}", text(&out));
    refused(1, &["ls", &format!("{image}:/")], &["ScherlFS", "superblock"]);
    let out = run(&["--json", "fsck", "--repair", &image]);
    let repaired: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &repaired["errors"]), (Some(1), &0.into()), "{}", text(&out));
    assert!(repaired["repaired"][0].as_str().unwrap().contains("superblock"), "{repaired}");
    assert_eq!(run(&["fsck", "--repair", &image]).status.code(), Some(0), "a second repair has nothing to do");
    let out = run(&["cat", &format!("{image}:/kept")]);
    assert!(out.stdout == vec![7; 50_000], "{}", text(&out));
    // Without both copies and without an inode near the beginning, only `--type` identifies the file system.
    file.write_all_at(&vec![0; 16 << 20], 0).unwrap();
    refused(8, &["fsck", "--repair", "--type", "scherlfs", &image], &["cannot repair", "no inode"]);
}

#[test]
fn an_option_that_would_do_nothing_is_refused() {
    let room = Room::new();
    let (plain, deltas, dir) = (room.text("plain.img"), room.text("deltas.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &plain, "--size", "64M"]);
    done(&["mkfs", &deltas, "--size", "64M"]);
    done(&["unsettle", &deltas]);
    for option in ["delta=on", "delta=nodes", "delta_layout=medfs", "delta_reads=all", "delta_return=on", "delta"] {
        let expected = [option, "has no effect", "feature delta", "joulefs unsettle"];
        refused(1, &["mount", &plain, &dir, "-o", option], &expected);
        done(&["mount", &deltas, &dir, "-o", option]);
        done(&["unmount", &dir]);
    }
    for option in ["compress_algorithm=lz4", "compress_chksum", "nocompress_extension=txt", "compress_mode=fs"] {
        let expected = [option, "has no effect", "feature compression", "mkfs -O"];
        refused(1, &["mount", &plain, &dir, "-o", option], &expected);
    }
    refused(2, &["mount", &plain, &dir, "-o", "streams=logs"], &["streams", "has no effect", "--profile"]);
    refused(2, &["mount", &plain, &dir, "-o", "prealloc=db,mode=lfs"], &["prealloc", "has no effect", "mode=lfs"]);
    refused(2, &["mount", &plain, &dir, "-o", "discard_unit=block,nodiscard"], &["discard_unit", "has no effect"]);
    // An option set to off is not refused.
    done(&["mount", &plain, &dir, "-o", "delta=on,delta=off,delta_return=off,streams=one"]);
    done(&["unmount", &dir]);
    let out = run(&["mount", &plain, &dir, "-o", "power=powered,gc=cost-benefit"]);
    assert!(
        out.status.success() && text(&out).contains("has no effect on cleaning with gc=cost-benefit"),
        "{}",
        text(&out)
    );
    done(&["unmount", &dir]);
    let out = run(&["mount", &plain, &dir, "-o", "ro,commit=3,gc=joule"]);
    let says = "commit=3,gc=joule has no effect on a read-only mount";
    assert!(out.status.success() && text(&out).contains(says), "{}", text(&out));
    done(&["unmount", &dir]);
}

#[test]
fn what_is_for_one_file_system_is_refused_for_the_other() {
    let room = Room::new();
    let (scherlfs, f2fs, dir) = (room.text("s.img"), room.text("f.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &scherlfs, "--type", "scherlfs", "--size", "64M"]);
    done(&["mkfs", &f2fs, "--size", "64M"]);
    for command in ["inspect", "settle", "unsettle"] {
        refused(1, &[command, &scherlfs], &["a ScherlFS volume", command, "is for F2FS"]);
    }
    refused(1, &["clean", &scherlfs, "--worst", "3"], &["a ScherlFS volume", "is for F2FS"]);
    refused(1, &["mount", &scherlfs, &dir, "-o", "delta=on"], &["ScherlFS has no option delta=on"]);
    refused(1, &["mount", &f2fs, &dir, "-o", "sync=call"], &["F2FS has no option sync=call"]);
    refused(1, &["cat", "--norecovery", &format!("{scherlfs}:/x")], &["ScherlFS", "norecovery"]);
    refused(2, &["mount", &scherlfs, &dir, "-o", "sync=never"], &["sync=never", "call, fsync or burst"]);
    for option in ["--features=modern", "--overprovision=5", "--segs-per-sec=2"] {
        let name = option.split('=').next().unwrap();
        refused(2, &["mkfs", &dir, "-t", "scherlfs", "--size", "1G", option], &[name, "is for F2FS"]);
    }
    refused(2, &["mkfs", &room.text("n.img"), "-t", "scherlfs", "--size", "16K"], &["--size 16K", "256.00 KiB"]);
    assert!(!room.path("n.img").exists());
}

#[test]
fn one_file_system_is_made_over_the_other_only_by_force_and_is_then_the_one() {
    let room = Room::new();
    let image = room.text("v.img");
    for (kind, name) in [("f2fs", "F2FS"), ("scherlfs", "ScherlFS"), ("f2fs", "F2FS")] {
        if room.path("v.img").exists() {
            refused(1, &["mkfs", &image, "--type", kind], &["holds data", "--force"]);
            done(&["mkfs", &image, "--type", kind, "--force"]);
        } else {
            done(&["mkfs", &image, "--type", kind, "--size", "64M"]);
        }
        assert_eq!(json(&["--json", "info", &image])["file_system"], name);
        assert_eq!(json(&["--json", "fsck", &image])["errors"], 0);
    }
}

#[test]
fn what_was_changed_last_is_listed_and_undone_for_a_file_and_for_the_volume() {
    let room = Room::new();
    let (image, dir) = (room.text("v.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "-t", "scherlfs", "--size", "64M"]);
    assert!(done(&["undo", &image, "--list"]).contains("mount it with -o undo=SIZE"));
    done(&["mount", &image, &dir, "-o", "undo=16M"]);
    let letter = room.path("mnt/letter");
    for text in ["first", "second, longer"] {
        fs::write(&letter, text).unwrap();
        fs::File::open(&letter).unwrap().sync_all().unwrap();
    }
    fs::write(room.path("mnt/other"), vec![5; 100_000]).unwrap();
    fs::File::open(room.path("mnt/other")).unwrap().sync_all().unwrap();
    fs::remove_file(&letter).unwrap();
    refused(1, &["undo", &image, "--list"], &["v.img"]);
    done(&["unmount", &dir]);
    let listed = done(&["undo", &image, "--list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].trim_start().starts_with("1 ") && lines[0].ends_with("removed  /letter"), "{listed}");
    assert!(listed.contains("made     /other"), "{listed}");
    let place = format!("{image}:/letter");
    done(&["undo", &place]);
    assert_eq!(done(&["cat", &place]), "second, longer");
    done(&["undo", &place]);
    assert_eq!(done(&["cat", &place]), "first");
    refused(1, &["undo", &format!("{image}:/nothing")], &["/nothing", "has no change that can be undone"]);
    let count = json(&["--json", "undo", &image, "--list"])["changes"].as_array().unwrap().len();
    refused(1, &["undo", &image, "--last", "999"], &[&format!("{count} changes can be undone, not 999")]);
    refused(2, &["undo", &image], &["--list", "--last"]);
    refused(2, &["undo", &place, "--last", "1"], &["cannot be combined"]);
    done(&["undo", &image, "--last", "2"]);
    refused(1, &["cat", &place], &["letter"]);
    assert!(done(&["ls", &format!("{image}:/")]).contains("other"));
    done(&["fsck", &image]);
    let plain = room.text("plain.img");
    done(&["mkfs", &plain, "--size", "64M"]);
    refused(1, &["undo", &plain, "--list"], &["an F2FS volume", "undo is for ScherlFS"]);
    refused(1, &["clean", &plain, "--all"], &["an F2FS volume", "--defrag"]);
}

#[test]
fn what_the_charger_would_do_is_done_at_once_and_set_on_a_mount() {
    let room = Room::new();
    let (image, dir) = (room.text("v.img"), room.text("mnt"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "-t", "scherlfs", "--size", "64M"]);
    done(&["mount", &image, &dir, "-o", "sync=call,clean=threading"]);
    let files = [room.path("mnt/one"), room.path("mnt/two")].map(|p| fs::File::create(p).unwrap());
    for n in 0..200_u64 {
        for (file, byte) in files.iter().zip([1, 2]) {
            file.write_all_at(&vec![byte; 8192], n * 40_960 % 1_638_400).unwrap();
        }
    }
    drop(files);
    let stat = done(&["ctl", &dir, "stat"]);
    assert!(stat.contains("strategy") && stat.contains("threading"), "{stat}");
    done(&["ctl", &dir, "clean=combined"]);
    done(&["ctl", &dir, "checkpoint_seconds=30"]);
    done(&["ctl", &dir, "power=powered"]);
    let stat = done(&["ctl", &dir, "stat"]);
    assert!(["combined", "powered", "30"].iter().all(|w| stat.contains(w)), "{stat}");
    refused(2, &["ctl", &dir, "clean=sweeping"], &["clean is auto, threading"]);
    refused(2, &["ctl", &dir, "gc=fagc"], &["gc is not a setting of ScherlFS"]);
    refused(1, &["clean", &dir, "--all"], &["power=powered"]);
    done(&["ctl", &dir, "power=battery"]);
    done(&["unmount", &dir]);
    let tidied = json(&["--json", "clean", &image, "--all"]);
    let (before, after) = (&tidied["free_runs"]["before"], &tidied["free_runs"]["after"]);
    assert!(after.as_u64() <= before.as_u64() && tidied["image"] == image.as_str(), "{tidied}");
    assert!(done(&["clean", &image, "--all"]).contains("defragmented"));
    done(&["fsck", &image]);
}
