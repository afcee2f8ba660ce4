//! The page of `joulefs inspect --html` shows the data of `--json`, and its controls work, in a browser if there is
//! one.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::browser;
use crate::room::Room;
use crate::typed::{done, joulefs, refused};

const CHECK: &str = include_str!("inspect_page/check.js");

/// The report embedded in a page.
fn carried(page: &str) -> Value {
    let (_, rest) = page.split_once("<script id=\"report\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn json(args: &[&str]) -> Value {
    let ran = joulefs(&[&["--json"], args].concat());
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out))
}

fn looked_at(room: &Room, page: &Path, width: u32) {
    browser::looked_at(room, page, width, CHECK);
}

/// Names that look like markup, or contain line breaks.
const HOSTILE: [&str; 3] = ["<!--<script><img src=x onerror=alert(1)>.db", "new\nline.db", "\u{202e}gpj.db"];

#[test]
fn a_page_of_a_worn_volume_says_what_json_says() {
    let room = Room::new();
    let (image, page) = (room.text("worn.img"), room.path("page.html"));
    done(&["age", &image, "--recipe", "full-fragmented", "--size", "256M", "--seed", "1"]);
    let text = done(&["inspect", &image, "--html", page.to_str().unwrap()]);
    assert_eq!(text, done(&["inspect", &image]));
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(carried(&html), json(&["inspect", &image]));
    assert!(html.matches("data-at=").count() > 100);
    looked_at(&room, &page, 1300);
    looked_at(&room, &page, 400);
}

#[test]
fn names_stay_names() {
    let room = Room::new();
    let (image, page, tree) = (room.text("v.img"), room.text("page.html"), room.path("tree"));
    fs::create_dir(&tree).unwrap();
    HOSTILE.iter().for_each(|name| fs::write(tree.join(name), vec![1; 50_000]).unwrap());
    done(&["mkfs", &image, "--size", "100M"]);
    done(&["cp", "-r", &tree.display().to_string(), &format!("{image}:/t")]);
    done(&["inspect", &image, "--html", &page]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(!html.contains("<img"));
    looked_at(&room, Path::new(&page), 700);
    refused(&["inspect", &image, "--html", &room.text("no/where.html")], &["no/where.html"]);
}

#[test]
fn a_page_of_a_mounted_directory_tells_no_more_than_is_known() {
    // On the file system of the project: temporary files may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for n in 0..5 {
        fs::write(dir.path().join(format!("{n}.db")), vec![n; 100_000]).unwrap();
    }
    durable(dir.path());
    let room = Room::new();
    let (path, page) = (dir.path().display().to_string(), room.path("page.html"));
    let ran = joulefs(&["inspect", &path, "--whole", "--html", page.to_str().unwrap()]);
    if ran.err.contains("does not report where files lie") {
        return testlog::missing(ran.err.trim());
    }
    assert_eq!(ran.code, 0, "{}", ran.err);
    let html = fs::read_to_string(&page).unwrap();
    let report = carried(&html);
    assert_eq!(report["counts"]["files"], 5);
    // Some file systems report free space.
    assert_eq!(html.contains("nothing is known about the other blocks"), report["space"].is_null());
    assert_eq!(html.contains("Temperature"), report["file_system"] == "f2fs");
    looked_at(&room, &page, 1300);
}

/// Syncs, so that all addresses are known.
fn durable(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        fs::File::open(entry.path()).unwrap().sync_all().unwrap();
    }
}

#[test]
fn a_page_of_a_damaged_volume_says_so_first() {
    let room = Room::new();
    let (image, page) = (room.text("v.img"), room.path("page.html"));
    done(&["mkfs", &image, "--size", "100M"]);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4 << 20], 512 * 4096).unwrap();
    assert_eq!(joulefs(&["inspect", &image, "--html", page.to_str().unwrap()]).code, 1);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("no checkpoint can be used") && !html.contains("nothing is to be gained"));
    assert!(!html.contains("Nothing to do"));
    looked_at(&room, &page, 1300);
}

#[test]
fn a_wrong_number_is_found() {
    let Some(_) = browser::browser() else { return testlog::missing(browser::MISSING) };
    let room = Room::new();
    let (image, page) = (room.text("v.img"), room.path("page.html"));
    done(&["mkfs", &image, "--size", "100M"]);
    done(&["inspect", &image, "--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    let dirs = carried(&html)["counts"]["directories"].as_u64().unwrap();
    let shown = |n: u64| format!("data-at=\"/counts/directories\">{n}<");
    assert!(html.contains(&shown(dirs)));
    fs::write(&page, html.replace(&shown(dirs), &shown(dirs + 1))).unwrap();
    let seen = std::panic::catch_unwind(|| looked_at(&room, &page, 1300));
    assert!(seen.is_err(), "the check believes anything");
}

#[test]
fn a_page_of_what_changed_says_what_json_says() {
    let room = Room::new();
    let (before, after, page) = (room.text("before.img"), room.text("after.img"), room.path("page.html"));
    done(&["age", &before, "--recipe", "full-fragmented", "--size", "256M", "--seed", "1"]);
    fs::copy(&before, &after).unwrap();
    let worst = json(&["inspect", &before])["worst"][0]["path"].as_str().unwrap().to_owned();
    done(&["rm", &format!("{after}:{worst}")]);
    let asked = ["inspect", &after, "--diff", &before];
    done(&[&asked[..], &["--html", page.to_str().unwrap()]].concat());
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(carried(&html), json(&asked));
    assert!(html.contains("data-mode=\"changed\""));
    looked_at(&room, &page, 1300);
    looked_at(&room, &page, 400);
}
