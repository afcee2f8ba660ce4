//! Do the numbers in README.md, in docs/ and in the READMEs of experiments match the stored results?
//!
//! A comment after a paragraph, a list or a table names the sources of its numbers, one tie per line:
//!
//! ```text
//! <!-- numbers
//! saves 11 to = minus gc-day: in all, year old 95 % full, programs: joule against nobody
//! table = scherl-fig6-14-15: camera, {row} in use: {column}
//! -->
//! ```
//!
//! On the left are words of the text with one number in them, on the right is the number's source (`sources`). `table
//! =` ties all cells that have a source, `column NAME =` those of one column, `column NAME#2 =` those of the second
//! column with that name, `column NAME () =` the numbers in brackets; `{row}` and `{column}` stand for the first cell
//! of the row, up to a colon, and for the column's head. The test rounds the source to the digits in the text.
//! `JOULEFS_RENEW=1` rewrites the documents. `quoted` has numbers that no paper has published. Left out: whether the
//! words around a number are right.

mod quoted;
mod shape;
mod sources;
mod ties;

use std::fs;
use std::path::{Path, PathBuf};

use shape::Found;
use sources::{Sources, Value};

/// Minimum number of ties per document, so that none is lost unnoticed.
const LEAST: &[(&str, usize)] = &[
    ("README.md", 16),
    ("docs/archive.md", 98),
    ("docs/cleaning.md", 199),
    ("docs/defragmentation.md", 2),
    ("docs/deltas.md", 28),
    ("docs/images.md", 5),
    ("docs/scherlfs.md", 736),
    ("docs/tutorial.md", 22),
    ("experiments/gc-idle/README.md", 60),
    ("experiments/medfs-fig7-10/README.md", 13),
    ("experiments/medfs-table1-2/README.md", 57),
];

/// Documents in which every number followed by one of [`shape::MEASURED`] must be tied.
const WHOLE: &[&str] = &["README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The documents that may have ties: README.md, the pages of docs/, and the READMEs of experiments.
fn documents() -> Vec<String> {
    let names = |dir: &str| {
        let entries = fs::read_dir(root().join(dir)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let pages = names("docs").filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let experiments = names("experiments").map(|name| format!("experiments/{name}/README.md"));
    let mut all: Vec<String> = pages.chain(experiments).filter(|path| root().join(path).is_file()).collect();
    all.push("README.md".into());
    all.sort();
    all
}

/// A number of a document that differs from its source.
#[derive(Debug, Clone, PartialEq)]
struct Stale {
    at: std::ops::Range<usize>,
    now: String,
    says: String,
}

/// Errors in a document's ties, the number of ties, and the stale numbers.
fn check(text: &str, sources: &Sources) -> (Vec<String>, usize, Vec<Stale>) {
    let (ties, mut wrong) = ties::of(text, sources);
    let (mut stale, mut tied) = (Vec::new(), 0);
    for tie in &ties {
        let of = format!("{:?} = {}", tie.words, tie.source);
        tied += 1;
        let value = match sources.one(&tie.source) {
            Ok(None) => continue,
            Ok(Some(value)) => value,
            Err(e) => {
                wrong.push(format!("{of}: {e}"));
                continue;
            }
        };
        match expected(&tie.number, &value) {
            Err(e) => wrong.push(format!("{of}: {e}")),
            Ok(now) => {
                let other = tie.places.iter().filter(|(_, text)| *text != now);
                stale.extend(other.map(|(at, text)| {
                    let says = format!("{of}: {text} stands there, it should be {now}");
                    Stale { at: at.clone(), now: now.clone(), says }
                }));
            }
        }
    }
    (wrong, tied, stale)
}

/// The correct text for a number.
fn expected(number: &Found, value: &Value) -> Result<String, String> {
    let factor = shape::factor(&value.unit, &number.unit)
        .ok_or_else(|| format!("the source is in {:?}, the text in {:?}", value.unit, number.unit))?;
    Ok(number.like(value.number * factor))
}

/// The text with every stale number replaced.
fn renewed(text: &str, stale: &[Stale]) -> String {
    let mut all = stale.to_vec();
    all.sort_by_key(|s| std::cmp::Reverse(s.at.start));
    let mut text = text.to_owned();
    all.iter().for_each(|s| text.replace_range(s.at.clone(), &s.now));
    text
}

#[test]
fn every_tied_number_in_the_documents_is_its_sources() {
    let (sources, mut failures) = (Sources::kept(), Vec::new());
    for name in documents() {
        let path = root().join(&name);
        let text = fs::read_to_string(&path).unwrap();
        let (wrong, tied, stale) = check(&text, &sources);
        failures.extend(wrong.iter().map(|w| format!("{name}: {w}")));
        if std::env::var_os("JOULEFS_RENEW").is_some() {
            fs::write(&path, renewed(&text, &stale)).unwrap();
        } else {
            let mut says: Vec<_> = stale.iter().map(|s| format!("{name}: {}", s.says)).collect();
            says.dedup();
            failures.extend(says);
        }
        let least = LEAST.iter().find(|(of, _)| *of == name).map_or(0, |(_, least)| *least);
        if tied < least {
            failures.push(format!("{name}: {tied} numbers are tied, fewer than `LEAST` says: {least}"));
        }
        if WHOLE.contains(&name.as_str()) {
            failures.extend(ties::untied(&text, &sources).iter().map(|u| format!("{name}: no source for {u}")));
        }
    }
    assert!(
        failures.is_empty(),
        "{}\nJOULEFS_RENEW=1 cargo test -p joulefs-lab --test together numbers:: writes numbers anew",
        failures.join("\n")
    );
}

#[test]
fn ties_are_not_visible_on_a_page() {
    for name in documents() {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let mut page = String::new();
        let options = pulldown_cmark::Options::ENABLE_TABLES;
        pulldown_cmark::html::push_html(&mut page, pulldown_cmark::Parser::new_ext(&text, options));
        let comments = |text: &str| text.matches(ties::OPEN).count();
        assert_eq!(comments(&page), comments(&text), "{name}: a comment is shown as text");
    }
}

#[test]
fn a_wrong_number_is_found_and_renewed() {
    let sources = Sources::kept();
    let text = "It takes 7.64 mJ, or **0.0077\nJ** a seek,\nand 5.0 mJ to turn; 1,000 more.\n\n<!-- numbers\n\
                takes 7.64 mJ = microdrive-table31: seek: energy of an average one\n\
                0.0077 J a seek = microdrive-table31: seek: energy of an average one\n\
                5.0 mJ = microdrive-table31: rotation: energy of an average delay\n-->\n";
    let (wrong, tied, stale) = check(text, &sources);
    assert_eq!((wrong, tied), (Vec::new(), 3));
    assert_eq!(stale.len(), 4, "two numbers are wrong, in the text and in the comment: {stale:#?}");
    assert!(stale[0].says.contains("7.64 stands there, it should be 7.65"), "{}", stale[0].says);
    let new = renewed(text, &stale);
    assert!(new.contains("takes 7.65 mJ, or **0.0076\nJ**") && new.contains("\ntakes 7.65 mJ = micro"), "{new}");
    assert_eq!(check(&new, &sources), (Vec::new(), 3, Vec::new()));
}

#[test]
fn a_number_that_only_the_text_or_only_the_comment_has_is_found() {
    let sources = Sources::kept();
    let text = |says: &str, tied: &str| {
        let tie = "microdrive-table31: seek: energy of an average one";
        format!("One of 9 takes {says} mJ.\n\n<!-- numbers\ntakes {tied} mJ = {tie}\n-->\n")
    };
    let right = text("7.65", "7.65");
    for wrong in [text("7.61", "7.65"), text("7.65", "7.61"), text("7.51", "7.61")] {
        let (refused, tied, stale) = check(&wrong, &sources);
        assert_eq!((refused, tied), (Vec::new(), 1), "{wrong}");
        assert_eq!(renewed(&wrong, &stale), right);
    }
    assert_eq!(check(&right, &sources), (Vec::new(), 1, Vec::new()));
}

#[test]
fn a_sign_that_is_wrong_is_found() {
    let text = "| in use | FAT32 | other |\n|---|---:|---:|\n| 20 % | -32 % | x |\n| 40 % | **+45 %** (1 to 2) | |\n\n<!-- numbers\n\
                table = scherl-fig6-14-15: camera, {row} in use: {column}\n-->\n";
    let (wrong, tied, stale) = check(text, &Sources::kept());
    assert_eq!((wrong, tied, stale.len()), (Vec::new(), 2, 1));
    assert_eq!(stale[0].now, "32");
    let brackets = text.replace("table =", "column FAT32 () =");
    assert_eq!(check(&brackets, &Sources::kept()).2[0].now, "45");
    let saves =
        "It saves 50.6 %.\n<!-- numbers\n50.6 % = scherl-fig6-12-13: camera: scherlfs-once against reiserfs\n-->\n";
    assert_eq!(check(saves, &Sources::kept()).2[0].now, "-50.6");
    let minus = saves.replace("= scherl", "= minus scherl");
    assert_eq!(check(&minus, &Sources::kept()), (Vec::new(), 1, Vec::new()));
}

#[test]
fn a_tie_without_words_or_source_is_refused() {
    let of = |line: &str| check(&format!("It takes 7.65 mJ.\n\n<!-- numbers\n{line}\n-->\n"), &Sources::kept()).0;
    assert!(of("7.65 mJ = microdrive-table31: seek: energy of an average one").is_empty());
    for (line, says) in [
        ("needs 7.65 mJ = microdrive-table31: seek: energy of an average one", "not in the text"),
        ("takes mJ = microdrive-table31: seek: energy of an average one", "one number"),
        ("7.65 mJ = microdrive-table31: seek", "has no"),
        ("7.65 mJ = nothing: seek", "no experiment"),
        ("7.65 mJ", "no source"),
        ("7.65 mJ = microdrive-table31: power when idle", "is in \"mW\""),
        ("table = microdrive-table31: {row}", "no table"),
    ] {
        let wrong = of(line);
        assert!(wrong.len() == 1 && wrong[0].contains(says), "{line}: {wrong:?}");
    }
}

#[test]
fn a_measured_number_without_a_tie_is_found() {
    let text =
        "Costs 5 mJ and 12 %, not 7 blocks.\n\n    code: 9 mJ\n\n```\n8 mJ\n```\n<!-- numbers\n12 % = condition\n-->\n";
    assert_eq!(ties::untied(text, &Sources::kept()), ["5 mJ: \"Costs 5 mJ and 12 %, not 7 blocks.\""]);
}
