//! A build is identified by its sources and by nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sources::{JOULEFS, LAB, counts};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The workspace crates that a crate is linked with, itself included, according to the manifests.
fn linked(room: &str, known: &toml::Table, all: &mut BTreeSet<String>) {
    if !all.insert(room.to_owned()) {
        return;
    }
    let manifest: toml::Table = fs::read_to_string(root().join(room).join("Cargo.toml")).unwrap().parse().unwrap();
    for name in manifest["dependencies"].as_table().into_iter().flat_map(|table| table.keys()) {
        if let Some(path) = known[name].get("path") {
            linked(path.as_str().unwrap(), known, all);
        }
    }
}

#[test]
fn the_rooms_of_a_program_are_the_crates_that_it_is_linked_with() {
    let workspace: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let known = workspace["workspace"]["dependencies"].as_table().unwrap();
    for (room, program) in [("cli", &JOULEFS), ("lab", &LAB)] {
        let mut all = BTreeSet::new();
        linked(room, known, &mut all);
        assert_eq!(all.iter().map(String::as_str).collect::<Vec<_>>(), program.rooms, "{room}");
    }
}

/// Next to each library, Cargo lists its source files. In a workspace build, these are all of them.
#[test]
fn no_file_that_the_compiler_read_is_forgotten() {
    let own = std::env::current_exe().unwrap();
    let programs = [&JOULEFS, &LAB];
    let roots: BTreeSet<PathBuf> =
        programs.iter().flat_map(|p| p.places()).map(|place| root().join(place).join("lib.rs")).collect();
    let mut read = BTreeSet::new();
    for entry in fs::read_dir(own.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "d") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let files = text.lines().filter_map(|line| line.split_once(": ")).flat_map(|(_, files)| files.split(' '));
        let files: Vec<PathBuf> = files.filter_map(|file| root().join(file).canonicalize().ok()).collect();
        if files.iter().any(|file| roots.contains(file)) {
            read.extend(files);
        }
    }
    let known: BTreeSet<PathBuf> =
        programs.iter().flat_map(|p| p.files(&root()).unwrap()).map(|file| root().join(file)).collect();
    let below = |file: &&PathBuf| file.starts_with(root()) && !file.starts_with(root().join("target"));
    let forgotten: Vec<_> =
        read.iter().filter(below).filter(|file| counts(file) && !known.contains(*file) && !is_of_tests(file)).collect();
    assert!(read.len() > 300, "{}", read.len());
    assert!(forgotten.is_empty(), "the build's hash does not know {forgotten:?}");
}

/// Test programs, and crates that the product does not link.
fn is_of_tests(file: &Path) -> bool {
    let below = file.strip_prefix(root()).unwrap_or(file);
    below.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "fixtures")
        || below == Path::new("clippy.toml")
        || below.starts_with("schedules")
        || below.starts_with("conformance")
        || below.starts_with("judges")
        || below.starts_with("trials")
        || below.starts_with("recordings")
        || below.starts_with("scripts/demo-plan")
}

#[test]
fn a_changed_byte_a_new_file_or_another_name_is_another_build_and_words_and_places_are_not() {
    let room = tempfile::tempdir().unwrap();
    let make = |under: &str| {
        let at = room.path().join(under);
        for place in LAB.places() {
            let file = if place.extension().is_some() { at.join(&place) } else { at.join(&place).join("a.rs") };
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "fn one() {}").unwrap();
        }
        at
    };
    let (one, two) = (make("one"), make("a/longer/two"));
    let first = LAB.digest(&one).unwrap();
    assert_eq!(first, LAB.digest(&two).unwrap());
    for words in ["experiments/README.md", "experiments/ours.csv", "experiments/took.csv", "docs.md", "device/tests.rs"]
    {
        fs::write(one.join(words), "words").unwrap();
        assert_eq!(first, LAB.digest(&one).unwrap(), "{words}");
    }
    for file in [
        "device/src/a.rs",
        "victim/src/a.rs",
        "device/profiles/a.rs",
        "Cargo.lock",
        "lab/Cargo.toml",
        "f2fs/src/new/b.rs",
    ] {
        let path = two.join(file);
        let before = fs::read(&path).ok();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "fn two() {}").unwrap();
        assert_ne!(first, LAB.digest(&two).unwrap(), "{file}");
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(first, LAB.digest(&two).unwrap());
    fs::rename(two.join("vfs/src/a.rs"), two.join("vfs/src/b.rs")).unwrap();
    assert_ne!(first, LAB.digest(&two).unwrap());
}
