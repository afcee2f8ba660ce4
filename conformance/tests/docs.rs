//! Do the documents name files, links and headings that exist, and does the index list every page?

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The project's directories: crates and others.
fn rooms() -> Vec<String> {
    let all = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
    let dirs = all.filter(|entry| entry.file_type().unwrap().is_dir());
    let names = dirs.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.') && name != "target").collect()
}

/// Every document below a directory.
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

/// Every document of the project.
fn documents() -> Vec<PathBuf> {
    let beside = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = beside.filter(|path| path.extension() == Some(OsStr::new("md"))).collect();
    rooms().iter().for_each(|room| below(&root().join(room), &mut all));
    all
}

/// Paths in a document: the word, and the path it stands for.
fn named(document: &Path, text: &str, rooms: &[String]) -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || "`()[],|\"'<>=#".contains(c)) {
        let word = word.trim_end_matches(['.', ':', ';', '?']);
        let of_room = word.split_once('/').is_some_and(|(first, _)| rooms.iter().any(|room| room == first));
        let pattern = word.contains(['*', '{', '$']);
        if of_room && !pattern {
            all.push((word.to_owned(), root().join(word)));
        }
    }
    // Source files, including those of removed crates.
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

/// Names that a document places in a source file, as in `` `Type::name` in `room/src/file.rs` ``, and that file.
fn placed(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    let places = parts.windows(3).skip(1).step_by(2);
    places.filter(|w| w[1] == " in " && w[2].contains('/') && w[2].ends_with(".rs")).map(|w| (w[0], w[2])).collect()
}

/// True if the last part of a name is a word of a source text.
fn has_word(source: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == last)
}

#[test]
fn every_name_that_a_document_places_in_a_file_is_in_it() {
    let (mut seen, mut wrong) = (0, Vec::new());
    // Decisions keep the names of their time.
    for document in documents().into_iter().filter(|path| !path.to_string_lossy().contains("/decisions/")) {
        let text = fs::read_to_string(&document).unwrap();
        for (name, file) in placed(&text) {
            seen += 1;
            let source = fs::read_to_string(root().join(file)).unwrap_or_default();
            if !has_word(&source, name) {
                wrong.push(format!("{}: `{name}` is not in {file}", document.display()));
            }
        }
    }
    assert!(seen > 20, "only {seen} names are found");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(placed("see `A::b` in `c/d.rs`, `e` of `f/g.rs`"), [("A::b", "c/d.rs")]);
    assert!(has_word("fn b() {}", "A::b") && !has_word("fn bb() {}", "A::b"));
}

/// The lines of a document that are not code.
fn prose(text: &str) -> String {
    let (mut fenced, mut out) = (false, String::new());
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fence && !fenced && !line.starts_with("    ") {
            out += line;
            out += "\n";
        }
    }
    out
}

/// The targets of a document's links, as written.
fn links(text: &str) -> Vec<String> {
    let text: String = prose(text).split('`').step_by(2).collect();
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchor of a heading, as in GitHub and mdBook.
fn anchor(heading: &str) -> String {
    let (mut words, mut rest) = (String::new(), heading);
    // The target of a link does not count.
    while let Some((before, after)) = rest.split_once("](") {
        words += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    words += rest;
    let lower = words.trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a document; a repeated heading gets a number.
fn anchors(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in prose(text).lines() {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let first = anchor(heading);
            let numbered = (1..).map(|n| format!("{first}-{n}"));
            let name = std::iter::once(first.clone()).chain(numbered).find(|name| !all.contains(name));
            all.extend(name);
        }
    }
    all
}

/// The error in a document's link.
fn broken(document: &Path, link: &str) -> Option<String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { document.to_owned() } else { document.with_file_name("").join(path) };
    if !target.exists() {
        return Some(format!("{}: {link}: no such file", document.display()));
    }
    let has = || anchors(&fs::read_to_string(&target).unwrap_or_default()).iter().any(|name| name == heading);
    (!heading.is_empty() && !has()).then(|| format!("{}: {link}: no such heading", document.display()))
}

#[test]
fn every_link_in_the_documents_leads_to_a_file_and_a_heading() {
    let (mut seen, mut to_headings, mut wrong) = (0, 0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            seen += 1;
            to_headings += usize::from(link.contains('#'));
            wrong.extend(broken(&document, link));
        }
    }
    assert!(
        seen > 800 && to_headings > 10,
        "the search for links finds only {seen}, {to_headings} of them to headings"
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# One `two`, three\n\n## Same\n## Same\n\n[a](#one-two-three) [b](x.md#same-1) `[c](d)`\n\n    [e](f)\n\n\
                ```\n# None\n[g](h)\n```\n";
    assert_eq!(anchors(text), ["one-two-three", "same", "same-1"]);
    assert_eq!(links(text), ["#one-two-three", "x.md#same-1"]);
    assert_eq!(anchors("## What [it](x.md) is: 100 %"), ["what-it-is-100-"]);
    let readme = root().join("README.md");
    assert_eq!(broken(&readme, "ARCHITECTURE.md#the-rooms"), None);
    assert!(broken(&readme, "ARCHITECTURE.md#the-roof").is_some());
    assert!(broken(&readme, "nothing.md").is_some());
}

#[test]
fn every_page_of_the_book_is_in_its_summary_once() {
    let docs = root().join("docs");
    let mut pages = Vec::new();
    below(&docs, &mut pages);
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: Vec<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
    let mut wrong = Vec::new();
    for page in &pages {
        let times = listed.iter().filter(|other| *other == page).count();
        if times != usize::from(!page.ends_with("SUMMARY.md")) {
            wrong.push(format!("{}: {times} times", page.display()));
        }
    }
    assert!(pages.len() > 60, "only {} pages are found", pages.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_crate_says_in_its_readme_where_things_are() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let mut rows = 0;
    for room in members.split('"').skip(1).step_by(2) {
        let text = fs::read_to_string(root().join(room).join("README.md")).unwrap_or_else(|e| panic!("{room}: {e}"));
        let (_, table) = text.split_once("## Where is it?").unwrap_or_else(|| panic!("{room}: no table"));
        let of_room = table.lines().filter(|line| line.starts_with("| ") && *line != "| what | where |").count();
        assert!(of_room > 0, "{room}: the table is empty");
        rows += of_room;
    }
    assert!(rows > 230, "the READMEs of the crates have only {rows} rows");
}

#[test]
fn the_front_door_is_short() {
    for (name, most) in [("README.md", 6 << 10), ("ARCHITECTURE.md", 16 << 10)] {
        let bytes = fs::metadata(root().join(name)).unwrap().len();
        assert!(
            bytes <= most,
            "{name} has {bytes} bytes, more than {most}: move details to docs/ or to a crate's README"
        );
    }
}
