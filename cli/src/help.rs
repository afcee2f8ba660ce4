//! How does `joulefs --help` list the commands? Under headings by task.
//!
//! clap has headings for options only, so the list is generated here from the commands' own help.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use crate::{Cli, output};

/// Width of the list.
const COLUMNS: usize = 80;

/// Every command, in the one group where users look for it.
const GROUPS: &[(&str, &[&str])] = &[
    ("Make and mount volumes", &["mkfs", "mount", "unmount", "ctl"]),
    (
        "Read and change images without mounting them",
        &["ls", "tree", "cat", "stat", "du", "df", "info", "cp", "mkdir", "mv", "rm"],
    ),
    ("Measure energy", &["device", "energy", "top", "trace", "replay"]),
    ("Maintain and repair", &["inspect", "clean", "fsck", "rescue", "undo", "settle", "unsettle"]),
    ("Laboratory", &["age", "lab"]),
];

/// The whole command line, with commands grouped in the help.
pub fn command() -> Command {
    let command = Cli::command();
    let list = list(&command);
    let header = command.get_styles().get_header();
    let options = format!("{header}Options:{header:#}\n{{options}}");
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\n{options}{{after-help}}");
    command.help_template(template)
}

fn list(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let width = command.get_subcommands().map(|c| c.get_name().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        // Writing into memory does not fail.
        let _ = writeln!(text, "\n{header}{heading}:{header:#}");
        for name in *names {
            let Some(command) = command.find_subcommand(name) else { continue };
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<&str> = command.get_visible_aliases().collect();
            let also = if aliases.is_empty() { String::new() } else { format!(" [also: {}]", aliases.join(", ")) };
            let about = output::wrapped(&(about + &also), width + 4, COLUMNS);
            let _ = writeln!(text, "  {literal}{name:<width$}{literal:#}  {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_exactly_one_group_with_its_own_words() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let cli = Cli::command();
        let mut there: Vec<&str> = cli.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        there.sort_unstable();
        assert_eq!(grouped, there);
        for help in [command().render_help().to_string(), command().render_long_help().to_string()] {
            for c in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
                let line = format!("{} {}", c.get_name(), c.get_about().unwrap());
                let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
                assert_eq!(words.matches(&line).count(), 1, "{line}\n{help}");
            }
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
            assert!(help.contains("joule") && help.contains("--json") && help.contains("Examples:"), "{help}");
            assert!(GROUPS.iter().all(|(heading, _)| help.contains(&format!("\n{heading}:\n"))), "{help}");
        }
    }
}
