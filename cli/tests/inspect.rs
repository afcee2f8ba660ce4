//! `joulefs inspect` reports the same to people and machines, in 40 lines of 100 columns, with an exit code for the
//! volume's state.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::fits;
use crate::room::Room;
use crate::typed::{Ran, done, joulefs, misused, refused};

/// A volume with files of an application.
fn volume(room: &Room) -> String {
    let (image, tree) = (room.text("v.img"), room.path("tree"));
    let databases = tree.join("data/com.example.chat/databases");
    fs::create_dir_all(&databases).unwrap();
    fs::create_dir_all(tree.join("media/0/DCIM")).unwrap();
    for n in 0..24 {
        fs::write(databases.join(format!("{n}.db")), vec![n; 300_000]).unwrap();
        fs::write(tree.join(format!("media/0/DCIM/{n}.jpg")), vec![n; 40_000]).unwrap();
    }
    fs::write(tree.join("tiny"), "inline").unwrap();
    done(&["mkfs", &image, "--size", "100M"]);
    let from = tree.display().to_string();
    for part in ["data", "media", "tiny"] {
        done(&["cp", "-r", &format!("{from}/{part}"), &format!("{image}:/{part}")]);
    }
    image
}

fn json(args: &[&str]) -> (i32, Value) {
    let ran = joulefs(&[&["--json"], args].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out)))
}

#[test]
fn a_worn_volume_has_a_verdict_and_its_worst_files() {
    let room = Room::new();
    let image = room.text("worn.img");
    done(&["age", &image, "--recipe", "full-fragmented", "--size", "256M", "--seed", "1"]);
    let text = done(&["inspect", &image, "--by", "dir"]);
    fits(&text);
    let (_, all) = json(&["inspect", &image, "--worst", "3", "--extents"]);
    let number = |at: &Value| at.as_u64().unwrap();
    let verdict = &all["verdict"];
    let excess = number(&all["all"]["extents"]) - number(&all["all"]["min_extents"]);
    assert_eq!(number(&verdict["excess_extents_of_all"]), excess);
    assert!(excess > 0 && number(&verdict["excess_extents"]) * 10 >= excess * 9);
    let (cost, saved) = (number(&verdict["treatment"]["pj"]), number(&verdict["saved_per_read_pj"]));
    assert_eq!(number(&verdict["pays_after_reads"]), cost.div_ceil(saved));
    let said = format!("{} of {} files hold", verdict["worst_files"], all["all"]["files"]);
    assert!(text.lines().next().unwrap().contains(&said), "{said}: {text}");
    assert!(text.contains(&format!("the cost is repaid after {} full reads", verdict["pays_after_reads"])));
    let worst = all["worst"].as_array().unwrap();
    assert_eq!(worst.len(), 3);
    for file in worst {
        assert!(number(&file["extents"]) > number(&file["min_extents"]));
        assert!(number(&file["read_pj"]) > number(&file["ideal_read_pj"]));
        let list = file["extent_list"].as_array().unwrap();
        assert_eq!(list.len() as u64, number(&file["extents"]));
        assert_eq!(list.iter().map(|e| number(&e[2])).sum::<u64>(), number(&file["blocks"]));
    }
    let free = &all["space"]["free_pieces"];
    let info: Value = serde_json::from_str(&done(&["--json", "info", &image])).unwrap();
    for n in 0..9 {
        assert_eq!(free[n]["pieces"], info["free_fragments"]["count"][n], "L{}", n + 1);
    }
}

#[test]
fn people_and_machines_are_told_the_same() {
    let room = Room::new();
    let image = volume(&room);
    let text = done(&["inspect", &image]);
    let lines: Vec<&str> = text.lines().collect();
    fits(&text);

    let (code, all) = json(&["inspect", &image]);
    assert_eq!((code, &all["schema"], &all["schema_version"]), (0, &"joulefs-inspect".into(), &2.into()));
    assert_eq!(all["damage"], Value::Array(Vec::new()));
    let databases = lines.iter().find(|l| l.starts_with("databases")).unwrap();
    let group = all["groups"].as_array().unwrap().iter().find(|g| g["name"] == "databases").unwrap();
    assert_eq!(group["files"], 24);
    assert_eq!(group["size_bytes"], 24 * 300_000);
    let words: Vec<&str> = databases.split_whitespace().collect();
    let inside = |name: &str| group[name].to_string();
    assert_eq!(words[1], inside("files"));
    assert!(
        words.contains(&inside("extents").as_str()) && words.contains(&inside("min_extents").as_str()),
        "{words:?}"
    );

    // The checker's counts.
    let checked: Value = serde_json::from_str(&done(&["--json", "fsck", &image])).unwrap();
    for (name, theirs) in [("files", "files"), ("directories", "directories"), ("nodes", "nodes"), ("blocks", "blocks")]
    {
        let theirs = checked.get(theirs).or_else(|| checked["counts"].get(theirs));
        assert_eq!(Some(&all["counts"][name]), theirs, "{name}: {checked:#}");
    }
}

#[test]
fn files_are_summed_up_by_what_they_are_whose_and_where() {
    let room = Room::new();
    let image = volume(&room);
    let sums = |by: &str| -> Vec<(String, u64)> {
        let (_, all) = json(&["inspect", &image, "--by", by]);
        assert_eq!(all["by"], by);
        let groups = all["groups"].as_array().unwrap().clone();
        let of_all = all["all"]["files"].as_u64().unwrap();
        assert_eq!(groups.iter().map(|g| g["files"].as_u64().unwrap()).sum::<u64>(), of_all);
        groups.iter().map(|g| (g["name"].as_str().unwrap().to_owned(), g["files"].as_u64().unwrap())).collect()
    };
    assert!(sums("app").contains(&("com.example.chat".into(), 24)));
    assert!(sums("dir").contains(&("/media/0".into(), 24)));
    assert!(sums("class").contains(&("media".into(), 24)));
}

#[test]
fn another_device_has_other_prices_and_the_same_extents() {
    let room = Room::new();
    let image = volume(&room);
    let of = |profile: &str| json(&["inspect", &image, "--profile", profile]).1["all"].clone();
    let (phone, disk) = (of("kirin9000-ufs31"), of("microdrive"));
    assert_eq!(phone["extents"], disk["extents"]);
    assert!(disk["read_ns"].as_u64() > phone["read_ns"].as_u64());
    misused(&["inspect", &image, "--profile", "nonsense"], &["nonsense", "kirin9000-ufs31"]);
    misused(&["inspect", &image, "--read-ahead", "1"], &["--read-ahead"]);
    misused(&["inspect", &image, "--by", "colour"], &["--by"]);
}

/// A file's data extents from `filefrag -v`, adjacent ones merged; `None` if it cannot report them.
fn filefrag(path: &Path) -> Option<Vec<[u64; 3]>> {
    let ran = Command::new("/usr/sbin/filefrag").args(["-v", "-b4096"]).arg(path).output();
    let ran = ran.expect("filefrag is needed by this test: apt-get install e2fsprogs");
    let text = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() || String::from_utf8_lossy(&ran.stderr).contains("FIBMAP") || text.contains("unsupported")
    {
        return None;
    }
    let mut all: Vec<[u64; 3]> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let is_row = fields[0].parse::<u32>().is_ok() && fields.len() >= 4;
        if !is_row || ["inline", "unwritten", "delalloc"].iter().any(|flag| fields[fields.len() - 1].contains(flag)) {
            continue;
        }
        let first = |range: &str| range.split("..").next().unwrap().trim().parse::<u64>().unwrap();
        let new = [first(fields[1]), first(fields[2]), fields[3].parse().unwrap()];
        match all.last_mut() {
            Some(e) if e[0] + e[2] == new[0] && e[1] + e[2] == new[1] => e[2] += new[2],
            _ => all.push(new),
        }
    }
    Some(all)
}

/// Files that grow in turns, synced at each step; a hole, a second name, a symlink, an empty file.
fn tree(at: &Path) -> Vec<PathBuf> {
    let named = |name: &str| at.join("deep").join(name);
    fs::create_dir_all(at.join("deep/er")).unwrap();
    let [a, b] = ["a.db", "b.jpg"].map(|name| fs::File::create(named(name)).unwrap());
    for n in 0..300 {
        for (file, blocks) in [(&a, 1), (&b, 3)] {
            file.write_all_at(&vec![n as u8; blocks * 4096], n * blocks as u64 * 4096).unwrap();
            file.sync_all().unwrap();
        }
    }
    let holes = fs::File::create(named("er/holes")).unwrap();
    for at in [0, 50, 1000] {
        holes.write_all_at(&[1; 8192], at * 4096).unwrap();
    }
    holes.sync_all().unwrap();
    fs::hard_link(named("a.db"), at.join("second.db")).unwrap();
    std::os::unix::fs::symlink("a.db", named("link")).unwrap();
    fs::write(named("empty"), "").unwrap();
    ["a.db", "b.jpg", "er/holes", "empty"].map(named).into()
}

#[test]
fn a_mounted_directory_is_told_as_filefrag_tells_it() {
    // On the file system of the project: temporary files may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = tree(dir.path());
    let path = dir.path().display().to_string();
    let Some(theirs) = files.iter().map(|f| filefrag(f)).collect::<Option<Vec<_>>>() else {
        return refused(&["inspect", &path], &["does not report where files lie"]);
    };
    let text = done(&["inspect", &path, "--whole"]);
    fits(&text);
    let (code, all) = json(&["inspect", &path, "--whole", "--worst", "100", "--extents"]);
    assert_eq!((code, &all["counts"]["files"], &all["counts"]["directories"]), (0, &4.into(), &3.into()), "{all:#}");
    assert_eq!(all["sample"]["is_whole"], true);
    let extents: usize = theirs.iter().map(Vec::len).sum();
    assert_eq!(all["all"]["extents"], extents);
    let blocks: u64 = theirs.iter().flatten().map(|e| e[2]).sum();
    assert_eq!(all["all"]["blocks"], blocks);
    let mut compared = 0;
    for file in all["worst"].as_array().unwrap() {
        let at = Path::new(file["path"].as_str().unwrap()).canonicalize().unwrap();
        let second = at.ends_with("second.db");
        let which = files.iter().position(|f| f.canonicalize().unwrap() == at || second && f.ends_with("a.db"));
        assert_eq!(file["extent_list"], serde_json::json!(theirs[which.unwrap()]), "{file:#}");
        compared += 1;
    }
    let torn = theirs.iter().filter(|e| e.len() > 3).count();
    assert!(compared >= torn, "{compared} of {torn} in too many extents are listed");
    misused(&["inspect", "v.img", "--whole"], &["--whole", "is for a directory"]);
}

#[test]
fn a_damaged_volume_is_told_as_far_as_it_is_known() {
    let room = Room::new();
    let image = volume(&room);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let Ran { code, out, .. } = joulefs(&["inspect", &image]);
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("damaged: superblock copy 0") && out.contains("databases"), "{out}");
    let (code, all) = json(&["inspect", &image]);
    assert_eq!((code, all["damage"].as_array().unwrap().len()), (1, 1));
    // Both packs erased: the superblock still has the volume's size.
    file.write_all_at(&[0; 4 << 20], 512 * 4096).unwrap();
    let Ran { code, out, .. } = joulefs(&["inspect", &image]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("no checkpoint can be used") && out.contains("volume of 100.00 MiB"), "{out}");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    refused(&["inspect", &image], &["not an F2FS volume"]);
    refused(&["inspect", &room.text("nothing")], &["nothing"]);
}
