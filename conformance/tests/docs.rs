//! The documents speak of files that exist.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The directories of the project: rooms, and what lies beside them.
fn rooms() -> Vec<String> {
    let all = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
    let dirs = all.filter(|entry| entry.file_type().unwrap().is_dir());
    let names = dirs.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.') && name != "target").collect()
}

/// Every document below a directory, or beside the rooms.
fn documents() -> Vec<PathBuf> {
    fn below(dir: &Path, all: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                below(&path, all);
            } else if kind.is_file() && path.extension() == Some(OsStr::new("md")) {
                all.push(path);
            }
        }
    }
    let mut all: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)).into();
    rooms().iter().for_each(|room| below(&root().join(room), &mut all));
    all
}

/// What a document says of paths: the word, and the path it stands for.
fn named(document: &Path, text: &str, rooms: &[String]) -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || "`()[],|\"'<>=".contains(c)) {
        let word = word.trim_end_matches(['.', ':', ';', '?']);
        let of_room = word.split_once('/').is_some_and(|(first, _)| rooms.iter().any(|room| room == first));
        let pattern = word.contains(['*', '{', '$']);
        if of_room && !pattern {
            all.push((word.to_owned(), root().join(word)));
        }
    }
    // Source files, even of rooms that are gone.
    for (n, quoted) in text.split('`').enumerate() {
        if n % 2 == 1 && quoted.contains('/') && quoted.ends_with(".rs") && !quoted.contains(['*', ' ', '{']) {
            all.push((quoted.to_owned(), root().join(quoted)));
        }
    }
    for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        if !link.is_empty() && !link.contains("://") {
            all.push((link.to_owned(), document.with_file_name("").join(link)));
        }
    }
    all
}

#[test]
fn every_path_named_in_the_documents_exists() {
    let rooms = rooms();
    let mut missing = Vec::new();
    let (mut of_readmes, mut seen) = (0, 0);
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let named = named(&document, &text, &rooms);
        seen += named.len();
        of_readmes += usize::from(document.ends_with("README.md") && !named.is_empty());
        let gone = named.into_iter().filter(|(_, path)| !path.exists());
        missing.extend(gone.map(|(word, _)| format!("{}: {word}", document.display())));
    }
    assert!(seen > 200 && of_readmes > 5, "the search for paths finds only {seen}, of {of_readmes} READMEs");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn what_is_not_there_is_found() {
    let text =
        "See `cli/src/nothing.rs`, (docs/nothing.md) and [it](nothing.md); `old/room.rs`, `vfs/src/*.rs`, https://a/b";
    let found = named(&root().join("README.md"), text, &rooms());
    let missing: Vec<_> = found.iter().filter(|(_, path)| !path.exists()).map(|(word, _)| word.as_str()).collect();
    assert_eq!(missing, ["cli/src/nothing.rs", "docs/nothing.md", "cli/src/nothing.rs", "old/room.rs", "nothing.md"]);
}
