//! Which test files does cargo run?
//!
//! In a crate with one test program, each file is a module of it; a file outside of every program would never run,
//! without a message. Left out on purpose: whether a test can fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::imports::Sources;

/// The test programs of a crate, by their root files.
fn programs(room: &Path, manifest: &toml::Table) -> Vec<PathBuf> {
    let tests = room.join("tests");
    let of_name = |name: &str| {
        let both = [tests.join(format!("{name}.rs")), tests.join(name).join("main.rs")];
        both.into_iter().find(|path| path.exists())
    };
    let declared = manifest.get("test").and_then(|all| all.as_array()).into_iter().flatten();
    let runs = |test: &&toml::Value| ["test", "harness"].iter().all(|key| test.get(key) != Some(&false.into()));
    let mut all: Vec<PathBuf> = declared
        .filter(runs)
        .filter_map(|test| match test.get("path") {
            Some(path) => Some(room.join(path.as_str()?)),
            None => of_name(test["name"].as_str()?),
        })
        .collect();
    if manifest["package"].get("autotests") != Some(&false.into()) {
        let names = fs::read_dir(&tests).into_iter().flatten().map(|entry| entry.unwrap().path());
        all.extend(names.filter_map(|path| of_name(path.file_stem()?.to_str()?)));
    }
    all
}

/// Every Rust file below a directory.
fn below(dir: &Path, all: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap()) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            below(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.insert(path.canonicalize().unwrap());
        }
    }
}

/// The number of test files in a crate, and those in no program.
pub fn forgotten(room: &Path) -> (usize, Vec<PathBuf>) {
    let manifest = fs::read_to_string(room.join("Cargo.toml")).unwrap().parse().unwrap();
    let mut files = BTreeSet::new();
    below(&room.join("tests"), &mut files);
    let run: BTreeSet<PathBuf> =
        programs(room, &manifest).iter().flat_map(|root| Sources::read(root).paths().to_owned()).collect();
    (files.len(), files.difference(&run).cloned().collect())
}

/// The libraries and programs of a crate whose files contain tests that cargo does not run.
pub fn untested(room: &Path) -> Vec<String> {
    let manifest: toml::Table = fs::read_to_string(room.join("Cargo.toml")).unwrap().parse().unwrap();
    let tables = |key: &str| -> Vec<toml::Value> {
        match manifest.get(key) {
            Some(toml::Value::Array(all)) => all.clone(),
            one => one.into_iter().cloned().collect(),
        }
    };
    let mut wrong = Vec::new();
    for (kind, target) in ["lib", "bin"].into_iter().flat_map(|kind| tables(kind).into_iter().map(move |t| (kind, t))) {
        let name = target.get("name").and_then(|name| name.as_str()).unwrap_or(kind);
        let path = target.get("path").and_then(|path| path.as_str());
        let path = path.map_or_else(|| default_root(kind, name), str::to_owned);
        let sources = Sources::read(&room.join(path));
        let has_tests = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            // The second may be in a separate file.
            ["#[test]", "cfg(test)"].iter().any(|mark| text.contains(mark))
        };
        if target.get("test") == Some(&false.into()) && sources.paths().iter().any(has_tests) {
            wrong.push(format!("{}: tests of {name}", room.display()));
        }
    }
    wrong
}

fn default_root(kind: &str, name: &str) -> String {
    if kind == "lib" { "src/lib.rs".to_owned() } else { format!("src/bin/{name}.rs") }
}

#[test]
fn a_file_of_tests_that_no_program_has_is_found() {
    let room = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = room.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let found = || -> Vec<String> {
        let (_, paths) = forgotten(room.path());
        let tests = room.path().join("tests").canonicalize().unwrap();
        paths.iter().map(|path| path.strip_prefix(&tests).unwrap().display().to_string()).collect()
    };
    write("tests/a.rs", "mod shared; #[path = \"d/main.rs\"] mod d;");
    write("tests/b.rs", "");
    write("tests/d/main.rs", "mod part;");
    write("tests/d/part.rs", "");
    write("tests/shared/mod.rs", "");
    write("tests/e/main.rs", "");
    write("tests/e/lost.rs", "");
    write("Cargo.toml", "[package]\nname = 'x'\n");
    assert_eq!(found(), ["e/lost.rs"]);
    write("Cargo.toml", "[package]\nname = 'x'\nautotests = false\n");
    assert_eq!(found().len(), 7);
    write("Cargo.toml", "[package]\nname = 'x'\nautotests = false\n[[test]]\nname = 'a'\n");
    assert_eq!(found(), ["b.rs", "e/lost.rs", "e/main.rs"]);
    write(
        "Cargo.toml",
        "[package]\nname = 'x'\nautotests = false\n[[test]]\nname = 'a'\n[[test]]\nname = 'e'\n[[test]]\nname = 'y'\npath = 'tests/b.rs'\n",
    );
    assert_eq!(found(), ["e/lost.rs"]);
    write("Cargo.toml", "[package]\nname = 'x'\nautotests = false\n[[test]]\nname = 'a'\nharness = false\n");
    assert_eq!(found().len(), 7);
}

#[test]
fn a_test_that_does_not_run_says_so_through_testlog() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = BTreeSet::new();
    for room in crate::rooms().keys() {
        below(&root.join(room).join("tests"), &mut files);
    }
    let printed = ["println!(\"skip", "println!(\"not asked"];
    let own = Path::new(file!()).file_name().unwrap();
    let prints = |path: &&PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        path.file_name() != Some(own) && printed.iter().any(|print| text.contains(print))
    };
    let wrong: Vec<&PathBuf> = files.iter().filter(prints).collect();
    assert!(wrong.is_empty(), "call testlog::missing, not_shipped or only_in: {wrong:#?}");
}

#[test]
fn tests_that_cargo_is_told_not_to_run_are_found() {
    let room = tempfile::tempdir().unwrap();
    fs::create_dir_all(room.path().join("src/bin")).unwrap();
    let found = |manifest: &str, text: &str| {
        fs::write(room.path().join("Cargo.toml"), format!("[package]\nname = 'x'\n{manifest}")).unwrap();
        for name in ["src/lib.rs", "src/bin/b.rs"] {
            fs::write(room.path().join(name), text).unwrap();
        }
        untested(room.path()).len()
    };
    let (lib, bin) = ("[lib]\ntest = false\n", "[[bin]]\nname = 'b'\ntest = false\n");
    assert_eq!([lib, bin, "[lib]\n"].map(|manifest| found(manifest, "#[test] fn t() {}")), [1, 1, 0]);
    assert_eq!(found(lib, "#[cfg(test)] mod tests;"), 1);
    assert_eq!([lib, bin].map(|manifest| found(manifest, "fn t() {}")), [0, 0]);
}
