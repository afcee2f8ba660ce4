//! Other outputs of `joulefs inspect`: rows, differences, commands; and images of other file systems.

use std::fs;
use std::process::Command;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use serde_json::Value;

use crate::program::fits;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

fn json(args: &[&str]) -> Value {
    let ran = joulefs(&[&["--json"], args].concat());
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err))
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("no number: {v}"))
}

/// A small aged volume.
fn worn(room: &Room) -> String {
    let image = room.text("worn.img");
    done(&["age", &image, "--recipe", "full-fragmented", "--size", "256M", "--seed", "1"]);
    image
}

fn rows(path: &std::path::Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn cell<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no column {name}")).1
}

fn whole(row: &Row, name: &str) -> u64 {
    match cell(row, name) {
        Field::ULong(n) => *n,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn rows_are_what_the_report_says() {
    let room = Room::new();
    let (image, dir) = (worn(&room), room.path("rows"));
    let report = json(&["inspect", &image, "--worst", "1000", "--extents", "--parquet", dir.to_str().unwrap()]);
    let files = rows(&dir.join("files.parquet"));
    let counts = &report["counts"];
    assert_eq!(files.len() as u64, number(&counts["files"]) + number(&counts["directories"]));
    let regular = || files.iter().filter(|r| *cell(r, "kind") == Field::Str("file".into()));
    for name in ["size_bytes", "blocks", "extents", "min_extents", "read_pj", "ideal_read_pj", "treatment_pj"] {
        assert_eq!(regular().map(|r| whole(r, name)).sum::<u64>(), number(&report["all"][name]), "{name}");
    }
    let worst = report["worst"].as_array().unwrap();
    assert!(worst.len() > 5);
    let extents = rows(&dir.join("extents.parquet"));
    for file in worst {
        let row = files.iter().find(|r| whole(r, "ino") == number(&file["ino"])).unwrap();
        for name in ["first_addr", "span_bytes", "segments", "holes", "read_ns", "pays_after_reads"] {
            assert_eq!(whole(row, name), number(&file[name]), "{name}");
        }
        assert_eq!(*cell(row, "path"), Field::Str(file["path"].as_str().unwrap().into()));
        let own = extents.iter().filter(|r| whole(r, "ino") == number(&file["ino"]));
        let own: Vec<Value> =
            own.map(|r| serde_json::json!(["from_block", "addr", "blocks"].map(|name| whole(r, name)))).collect();
        assert_eq!(Value::Array(own), file["extent_list"]);
    }
    let segments = rows(&dir.join("segments.parquet"));
    let space = &report["space"];
    assert_eq!(segments.len() as u64, number(&space["segments"]));
    assert_eq!(segments.iter().map(|r| whole(r, "valid")).sum::<u64>(), number(&space["valid_blocks"]));
    for row in &segments {
        let Field::Bytes(bitmap) = cell(row, "bitmap") else { panic!() };
        let ones: u32 = bitmap.data().iter().map(|b| b.count_ones()).sum();
        assert_eq!(u64::from(ones), whole(row, "valid"));
        // One bit per block: recounts free runs.
        let free = |k: usize| k < 512 && bitmap.data()[k / 8] & (128 >> (k % 8)) == 0;
        let begins: Vec<usize> = (0..512).filter(|&k| free(k) && (k == 0 || !free(k - 1))).collect();
        let lengths: Vec<u64> = begins.iter().map(|&b| (b..513).take_while(|&k| free(k)).count() as u64).collect();
        assert_eq!(whole(row, "runs"), lengths.len() as u64);
        assert_eq!(whole(row, "longest_run"), lengths.iter().copied().max().unwrap_or(0));
        assert_eq!(whole(row, "loose"), lengths.iter().filter(|n| **n < 32).sum::<u64>());
    }
    assert!(fs::read_dir(&dir).unwrap().flatten().all(|e| !e.file_name().to_string_lossy().ends_with(".part")));
    fs::write(room.path("file"), "").unwrap();
    refused(&["inspect", &image, "--parquet", &room.text("file")], &["file"]);
}

#[test]
fn a_difference_is_what_was_done_between() {
    let room = Room::new();
    let (before, after) = (worn(&room), room.text("after.img"));
    fs::copy(&before, &after).unwrap();
    let told = room.path("before.json");
    let report = json(&["inspect", &before, "--worst", "1000"]);
    fs::write(&told, report.to_string()).unwrap();
    let same = json(&["inspect", &after, "--diff", &before]);
    let segments = &same["diff"]["segments"];
    assert_eq!((number(&segments["changed"]), number(&same["diff"]["files_changed"])), (0, 0), "{same:#}");
    assert_eq!(segments["blocks_same"], report["space"]["valid_blocks"]);

    let worst = report["worst"][0]["path"].as_str().unwrap().to_owned();
    done(&["rm", &format!("{after}:{worst}")]);
    fs::write(room.path("new.db"), vec![7; 200_000]).unwrap();
    done(&["cp", &room.text("new.db"), &format!("{after}:/new.db")]);
    let now = json(&["inspect", &after, "--diff", &before]);
    let diff = &now["diff"];
    let paths: Vec<&str> = diff["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!((number(&diff["files_changed"]), paths), (2, vec![worst.as_str(), "/new.db"]));
    assert_eq!(diff["files"][0]["now"], Value::Null);
    assert_eq!(diff["files"][1]["now"]["size_bytes"], 200_000);
    let segments = &diff["segments"];
    let valid = |when: &str| number(&diff["space"]["valid_blocks"][when]);
    assert_eq!(valid("before") + number(&segments["blocks_new"]), valid("now") + number(&segments["blocks_gone"]));
    assert!(number(&segments["blocks_new"]) >= 49, "{segments}");
    let databases = diff["groups"].as_array().unwrap().iter().find(|g| g["name"] == "databases").unwrap();
    assert_eq!(number(&databases["files"]["now"]), number(&databases["files"]["before"]) + 1);
    let text = done(&["inspect", &after, "--diff", &before]);
    fits(&text);
    assert!(text.contains("2 of all files changed") && text.contains(&worst), "{text}");

    // The same with JSON input, where possible.
    let told = told.to_str().unwrap();
    let by_json = json(&["inspect", &after, "--diff", told]);
    assert_eq!((&by_json["diff"]["groups"], &by_json["diff"]["all"]), (&diff["groups"], &diff["all"]));
    assert_eq!(by_json["diff"]["segments"], Value::Null);
    assert_eq!(by_json["diff"]["files_are_all"], false);
    fs::write(room.path("after.json"), json(&["inspect", &after, "--worst", "1000"]).to_string()).unwrap();
    let both = json(&["inspect", &room.text("after.json"), "--diff", told]);
    assert_eq!((&both["schema"], &both["diff"]["all"]), (&"joulefs-inspect".into(), &diff["all"]));
    fits(&done(&["inspect", &room.text("after.json"), "--diff", told]));
    misused(&["inspect", told], &["--diff"]);
    refused(&["inspect", &after, "--by", "app", "--diff", told], &["--by"]);
    fs::write(room.path("other.json"), "{\"schema\": \"something\"}").unwrap();
    refused(&["inspect", &after, "--diff", &room.text("other.json")], &["other.json", "joulefs-inspect"]);
}

#[test]
fn a_script_names_the_worst_files_with_their_prices() {
    let room = Room::new();
    let image = worn(&room);
    let report = json(&["inspect", &image]);
    let script = done(&["inspect", &image, "--script", "--worst", "3"]);
    for file in &report["worst"].as_array().unwrap()[..3] {
        let (path, size) = (file["path"].as_str().unwrap(), number(&file["size_bytes"]).next_multiple_of(4096));
        assert!(script.contains(&format!("\nf2fs_io defrag_file 0 {size} \"$MNT\"'{path}'\n")), "{script}");
        assert!(script.contains(&format!("repaid after {} reads", file["pays_after_reads"])), "{script}");
    }
    assert_eq!(script.matches("\nf2fs_io").count(), 3);
    // Without a mount point, the script runs no command.
    let ran = Command::new("/bin/bash").arg("-c").arg(&script).env("PATH", "/nowhere").output();
    assert!(!ran.unwrap().status.success());
    let ran = joulefs(&["--json", "inspect", &image, "--script"]);
    assert!(ran.code == 2 && ran.out.contains("--script prints a shell script"), "{}", ran.out);
}

#[test]
fn an_image_of_ext4_is_told_like_a_directory_and_a_damaged_one_says_so() {
    let room = Room::new();
    let (image, tree) = (room.text("e.img"), room.path("tree"));
    fs::create_dir_all(tree.join("data/com.example.chat/databases")).unwrap();
    for n in 0..20 {
        fs::write(tree.join(format!("data/com.example.chat/databases/{n}.db")), vec![n; 100_000]).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut made = Command::new("/usr/sbin/mke2fs");
    made.args(["-q", "-t", "ext4", "-b", "4096", "-d"]).arg(&tree).arg(&image);
    assert!(made.status().expect("mke2fs is needed: apt-get install e2fsprogs").success());
    fits(&done(&["inspect", &image]));
    let report = json(&["inspect", &image, "--by", "app"]);
    assert_eq!((&report["file_system"], &report["damage"]), (&"ext4".into(), &Value::Array(Vec::new())));
    assert_eq!(report["groups"][0]["name"], "com.example.chat");
    assert_eq!(number(&report["groups"][0]["size_bytes"]), 2_000_000);
    assert_eq!(number(&report["counts"]["files"]), 20);
    // The root directory's inode, in the first group's table.
    let mut bytes = fs::read(&image).unwrap();
    let table = u32::from_le_bytes(bytes[4096 + 8..4096 + 12].try_into().unwrap()) as usize * 4096;
    bytes[table + 256..table + 512].fill(0xff);
    fs::write(&image, bytes).unwrap();
    let ran = joulefs(&["inspect", &image]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.starts_with("damaged: 1 inodes cannot be read, the first is 2"), "{}", ran.out);
}
