//! Is every `joulefs ...` example in the help and the documents a valid command line? Examples of `joulefs lab ...` are
//! checked by `joulefs-lab`.

use std::collections::BTreeMap;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use judges::documents::{self, Shown, typed};

use crate::{Cli, Command, commands};

/// What is wrong with a command line: its words, or the value of an argument that the command parses.
fn wrong(words: &[String]) -> Option<String> {
    let said = |e: crate::Failure| e.text().to_owned();
    match Cli::try_parse_from(words) {
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(e) => Some(said(crate::Failure::of_clap(&e))),
        Ok(cli) => match cli.command {
            Command::Mount(args) => commands::mount::parse(&args).err().map(said),
            Command::Mkfs(args) => commands::mkfs::options(&args).err().map(said),
            // The user's files do not exist here; that is not a usage error.
            Command::Trace(args) => commands::trace::is_there(&args).err().filter(|e| e.code() == 2).map(said),
            _ => None,
        },
    }
}

/// The help below the options of every command.
fn helps(command: &clap::Command, above: &str, all: &mut BTreeMap<String, String>) {
    let name = format!("{above}{}", command.get_name());
    all.insert(name.clone(), command.get_after_help().map(ToString::to_string).unwrap_or_default());
    for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
        helps(below, &format!("{name} "), all);
    }
}

#[test]
fn every_command_shows_examples_that_it_takes() {
    let mut all = BTreeMap::new();
    helps(&Cli::command(), "", &mut all);
    assert!(all.len() > 25, "{:?}", all.keys());
    let mut bad = Vec::new();
    for (name, help) in &all {
        let examples = typed(help);
        // A group's examples belong to its subcommands.
        let own = examples.iter().any(|words| words.join(" ").starts_with(name.as_str()));
        if !own {
            bad.push(format!("{name}: no example"));
        }
        bad.extend(examples.iter().filter_map(|words| Some(format!("{name}: {}: {}", words.join(" "), wrong(words)?))));
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn every_command_line_in_the_documents_is_taken() {
    // A command that is only mentioned may lack required arguments, but those it has must be valid.
    let short = |words: &[String]| {
        let lacking = [ErrorKind::MissingRequiredArgument, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
        let no_value = ContextValue::String(String::new());
        Cli::try_parse_from(words)
            .is_err_and(|e| lacking.contains(&e.kind()) || e.get(ContextKind::InvalidValue) == Some(&no_value))
    };
    let shown = documents::shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let seen = shown.iter().filter(|s| s.whole).count();
    assert!(seen > 20 && shown.len() > seen + 20, "the search for command lines finds only {seen} of {}", shown.len());
    let wrong = |s: &Shown| wrong(&s.words).filter(|_| s.whole || !short(&s.words));
    let bad =
        shown.iter().filter_map(|s| Some(format!("{}: {}: {}", s.document.display(), s.words.join(" "), wrong(s)?)));
    let bad: Vec<String> = bad.collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_wrong_command_line_is_seen() {
    let words = |line: &str| typed(line).remove(0);
    assert_eq!(wrong(&words("joulefs ls v.img:/")), None);
    assert!(wrong(&words("joulefs ls --colour v.img:/")).is_some());
    assert!(wrong(&words("joulefs mount v.img /mnt -o warp")).is_some());
    assert!(wrong(&words("joulefs mkfs v.img --features teleport")).is_some());
    assert!(wrong(&words("joulefs trace replay a.strace --compare gc=magic")).is_some());
}
