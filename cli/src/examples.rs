//! Is every `joulefs ...` that the help and the documents show a command line this program takes?

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::{Cli, Command, commands};

/// The words of each command of a shell's line, without what is said to the shell: pipes, redirections, comments.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    // The next word is a file's name that only the shell sees.
    let mut redirected = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|q| *q != c)),
            '#' if word.is_none() => break,
            ' ' | '|' | '&' | ';' | '>' | '<' => {
                let ended = word.take().filter(|_| !std::mem::take(&mut redirected));
                match c {
                    '>' | '<' => {
                        words.extend(ended.filter(|w| w.parse::<u32>().is_err()));
                        redirected = true;
                        while chars.next_if(|c| " >&".contains(*c)).is_some() {}
                    }
                    ' ' => words.extend(ended),
                    _ => {
                        words.extend(ended);
                        all.push(std::mem::take(&mut words));
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.filter(|_| !redirected));
    all.push(words);
    all
}

/// Command lines of this program in a text of lines that people type, `\` at the end going on in the next.
fn typed(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim().trim_start_matches("$ "));
    let commands = lines.flat_map(commands_of).map(|mut words| {
        if words.first().is_some_and(|w| w == "sudo") {
            words.remove(0);
        }
        words
    });
    commands.filter(|words| words.first().is_some_and(|w| w == "joulefs")).collect()
}

/// What is wrong with a command line: with its words, or with what a command reads from one of them.
fn wrong(words: &[String]) -> Option<String> {
    let said = |e: crate::Failure| e.text().to_owned();
    match Cli::try_parse_from(words) {
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(e) => Some(said(crate::Failure::of_clap(&e))),
        Ok(cli) => match cli.command {
            Command::Mount(args) => commands::mount::parse(&args).err().map(said),
            Command::Mkfs(args) => commands::mkfs::options(&args).err().map(said),
            // A file of one's own is not here, which is no wrong usage.
            Command::Lab(args) => commands::lab::is_there(&args).err().filter(|e| e.code() == 2).map(said),
            Command::Trace(args) => commands::trace::is_there(&args).err().filter(|e| e.code() == 2).map(said),
            _ => None,
        },
    }
}

/// The help that stands below the options of every command.
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
        // What stands for a group is its subcommands' affair.
        let own = examples.iter().any(|words| words.join(" ").starts_with(name.as_str()));
        if !own {
            bad.push(format!("{name}: no example"));
        }
        bad.extend(examples.iter().filter_map(|words| Some(format!("{name}: {}: {}", words.join(" "), wrong(words)?))));
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Every document of the project.
fn documents() -> Vec<PathBuf> {
    fn below(dir: &Path, deep: bool, all: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.as_encoded_bytes().starts_with(b".") || name == "target";
            if entry.file_type().unwrap().is_dir() && !hidden && deep {
                below(&path, true, all);
            } else if path.extension().is_some_and(|e| e == "md") {
                all.push(path);
            }
        }
    }
    let mut all = Vec::new();
    below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), true, &mut all);
    all
}

/// The lines of a document that are set as code: fenced, or indented.
fn code(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            out += line;
            out += "\n";
        }
    }
    out
}

#[test]
fn every_command_line_in_the_documents_is_taken() {
    let (mut seen, mut mentioned, mut bad) = (0, 0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let mut check = |words: &[String], whole: bool| {
            // A command that is only named lacks what it needs; what it is said to take must still be known.
            let short = |words: &[String]| {
                let lacking = [ErrorKind::MissingRequiredArgument, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
                let no_value = ContextValue::String(String::new());
                Cli::try_parse_from(words)
                    .is_err_and(|e| lacking.contains(&e.kind()) || e.get(ContextKind::InvalidValue) == Some(&no_value))
            };
            if let Some(why) = wrong(words).filter(|_| whole || !short(words)) {
                bad.push(format!("{}: {}: {why}", document.display(), words.join(" ")));
            }
        };
        for words in typed(&code(&text)) {
            seen += 1;
            check(&words, true);
        }
        let plain: String = text.split("```").step_by(2).collect();
        let plain: Vec<&str> = plain.lines().filter(|line| !line.starts_with("    ")).collect();
        for quoted in plain.join("\n").split('`').skip(1).step_by(2) {
            // A number that stands for any, and what may follow.
            let quoted = quoted.replace('\n', " ").replace(" ...", "").replace("=N", "=1");
            for words in typed(&quoted) {
                mentioned += 1;
                check(&words, false);
            }
        }
    }
    assert!(seen > 20 && mentioned > 20, "the search for command lines finds only {seen} and {mentioned}");
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_command_line_is_found_among_what_is_said_to_the_shell() {
    let text = "$ cat x | joulefs trace stat - > out 2>&1 && sudo joulefs energy measure -- make   # joulefs no\n\
        joulefs cp \\\n  'a b' v.img:/; ls";
    let found: Vec<String> = typed(text).iter().map(|words| words.join("|")).collect();
    assert_eq!(found, ["joulefs|trace|stat|-", "joulefs|energy|measure|--|make", "joulefs|cp|a b|v.img:/"]);
    let words = |line: &str| typed(line).remove(0);
    assert_eq!(wrong(&words("joulefs ls v.img:/")), None);
    assert!(wrong(&words("joulefs ls --colour v.img:/")).is_some());
    assert!(wrong(&words("joulefs mount v.img /mnt -o warp")).is_some());
    assert!(wrong(&words("joulefs mkfs v.img --features teleport")).is_some());
    assert!(wrong(&words("joulefs lab run nexus-sqlite --set cols=1")).is_some());
    assert!(wrong(&words("joulefs trace replay a.strace --compare gc=magic")).is_some());
}
