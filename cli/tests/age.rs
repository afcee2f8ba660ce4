//! `joulefs age`: the same image twice, a report, and no file lost.

use serde_json::Value;

use crate::room::Room;
use crate::typed::{done, misused, refused};

#[track_caller]
fn answer(args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    serde_json::from_str(&done(&args)).unwrap()
}

#[test]
fn an_image_is_aged_reported_and_the_same_the_second_time() {
    let room = Room::new();
    let (a, b) = (room.text("a.img"), room.text("b.img"));
    let report = answer(&["age", &a, "--recipe", "full-fragmented", "--size", "256M", "--seed", "5"]);
    done(&["age", &b, "--recipe", "full-fragmented", "--size", "256M", "--seed", "5"]);
    assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap());
    done(&["fsck", &a]);
    let info = answer(&["info", &a]);
    for key in ["free_fragments", "free_bytes", "user_bytes"] {
        assert_eq!(info[key], report[key], "{key}");
    }
    assert_eq!(report["free_fragments"]["count"].as_array().unwrap().len(), 9);
    assert!(report["free_fragments"]["count"][1].as_u64().unwrap() > 10, "{report}");
}

#[test]
fn an_empty_volume_is_aged_as_it_is_and_one_with_files_is_not_touched() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "128M", "--label", "kept"]);
    let uuid = answer(&["info", &image])["uuid"].clone();
    done(&["age", &image, "--recipe", "pristine"]);
    let info = answer(&["info", &image]);
    assert_eq!((&info["uuid"], info["label"].as_str()), (&uuid, Some("kept")));

    let before = std::fs::read(&image).unwrap();
    refused(&["age", &image, "--recipe", "full"], &["v.img", "holds files", "--force"]);
    assert!(std::fs::read(&image).unwrap() == before);
    done(&["age", &image, "--recipe", "full", "--force"]);
    assert_ne!(answer(&["info", &image])["uuid"], uuid);
    done(&["fsck", &image]);
}

#[test]
fn other_data_is_not_touched() {
    let room = Room::new();
    let file = room.text("letter");
    std::fs::write(&file, vec![b'x'; 64 << 20]).unwrap();
    refused(&["age", &file, "--recipe", "full"], &["letter", "holds data", "--force"]);
    assert!(std::fs::read(&file).unwrap() == vec![b'x'; 64 << 20]);
}

#[test]
fn a_recipe_of_ones_own_is_carried_out_and_a_wrong_one_named() {
    let room = Room::new();
    let mine = room.text("mine.toml");
    let recipe = "name = 'mine'\nsummary = 'x'\nsource = 'x'\nreference = '64M'\nrate = '1M'\n\
                  [[step]]\ndo = 'write'\nset = 'a'\nsize = '8K'\ncount = 100\n\
                  [[step]]\ndo = 'delete'\nset = 'a'\nevery = 2\n";
    std::fs::write(&mine, recipe).unwrap();
    let report = answer(&["age", "--recipe", &mine, "--size", "64M"]);
    assert_eq!((report["files_made"].as_u64(), report["files_deleted"].as_u64()), (Some(100), Some(50)));
    assert_eq!(report["recipe"], "mine");
    std::fs::write(&mine, recipe.replace("every = 2", "evry = 2")).unwrap();
    refused(&["age", "--recipe", &mine, "--size", "64M"], &["mine.toml", "evry"]);
    misused(&["age", "--recipe", "pristin", "--size", "64M"], &["pristin", "full-fragmented"]);
    misused(&["age", "--recipe", "full"], &["--size"]);
    misused(&["age", &room.text("none"), "--recipe", "full"], &["none", "--size"]);
}

#[test]
fn states_stand_beside_the_published_ratios() {
    let report = answer(&["age", "--compare", "--size", "1G"]);
    let ratios = report["ratios"].as_array().unwrap();
    let published: Vec<f64> = ratios.iter().map(|r| r["published"].as_f64().unwrap()).collect();
    assert_eq!(published, [2.01, 87.02, 98.81, 306.82]);
    let count = |state: &str| report["states"][state]["total"].as_f64().unwrap();
    assert_eq!(ratios[1]["ours"].as_f64().unwrap(), count("full-fragmented") / count("full"));
    let text = done(&["age", "--compare", "--size", "1G"]);
    assert!(text.contains("87.02") && text.contains("L9"), "{text}");
    assert!(done(&["age", "--list"]).contains("phone-year"));
}

#[test]
fn a_hollow_image_has_the_same_files_in_the_same_places_and_takes_little_room() {
    use std::os::unix::fs::MetadataExt;
    let room = Room::new();
    let (full, hollow) = (room.text("full.img"), room.text("hollow.img"));
    let options = ["--recipe", "full-fragmented", "--size", "256M", "--seed", "5"];
    let report = answer(&[&["age", &full][..], &options].concat());
    let log = room.text("log");
    let again = answer(&[&["age", &hollow, "--hollow", "--writes", &log][..], &options].concat());
    for key in ["files_made", "free_bytes", "free_fragments"] {
        assert_eq!(again[key], report[key], "{key}");
    }
    done(&["fsck", &hollow]);
    let files = |image: &str| done(&["du", "--all", &format!("{image}:/")]).replace(image, "");
    assert_eq!(files(&hollow), files(&full));
    let taken = |image: &str| std::fs::metadata(image).unwrap().blocks() * 512;
    assert!(taken(&hollow) * 8 < taken(&full), "{} and {}", taken(&hollow), taken(&full));
    misused(&[&["age", &hollow, "--hollow"][..], &options].concat(), &["--hollow", "hollow.img"]);
    // Everything on the device was written after it was created.
    let told = answer(&["trace", "stat", &log]);
    let used = report["user_bytes"].as_u64().unwrap() - report["free_bytes"].as_u64().unwrap();
    let written = told["places"]["written"].as_u64().unwrap();
    assert!((used..256 << 20).contains(&written), "{written} of {used}: {told}");
    assert!(told["operations"].as_array().unwrap().iter().any(|o| o["op"] == "flush"), "{told}");
}
