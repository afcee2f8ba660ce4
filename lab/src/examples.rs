//! Does this program accept every `joulefs lab ...` command line in the help and the documents?

use std::path::Path;

use clap::{CommandFactory, Parser};
use judges::documents::{shown, typed};

use crate::{Cli, commands};

/// What is wrong with the words after `joulefs lab`, or with a value that a command parses from one of them.
fn wrong(words: &[String]) -> Option<String> {
    match Cli::try_parse_from(&words[1..]) {
        Err(e) if !e.use_stderr() => None,
        Err(e) => Some(e.to_string()),
        Ok(cli) => commands::is_there(&cli.command).err().filter(|e| e.code() == 2).map(|e| e.text().to_owned()),
    }
}

#[test]
fn every_command_line_in_the_documents_is_taken() {
    let shown = shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let of_lab: Vec<_> = shown.iter().filter(|s| s.words.get(1).is_some_and(|w| w == "lab")).collect();
    assert!(of_lab.len() > 20, "the search finds only {}", of_lab.len());
    // A command mentioned only by name lacks its arguments.
    let whole = of_lab.iter().filter(|s| s.whole || s.words.len() > 3);
    let bad = whole.filter_map(|s| Some(format!("{}: {:?}: {}", s.document.display(), s.words, wrong(&s.words)?)));
    let bad: Vec<String> = bad.collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(wrong(&typed("joulefs lab run nexus-sqlite --set cols=1").remove(0)).is_some());
}

#[test]
fn every_command_shows_examples_that_it_takes() {
    let command = Cli::command();
    let below = command.get_subcommands().filter(|c| !["help", "generate"].contains(&c.get_name()));
    for command in std::iter::once(&command).chain(below) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<_> =
            typed(&help).into_iter().filter(|words| words.get(1).is_some_and(|w| w == "lab")).collect();
        let bad: Vec<_> = examples.iter().filter_map(|words| wrong(words)).collect();
        assert!(!examples.is_empty() || command.get_name() == "report", "{}: no example", command.get_name());
        assert!(bad.is_empty(), "{}: {bad:#?}", command.get_name());
    }
}
