//! Which schema versions do the JSON answers have? docs/json.md has the rule for changes.

use terminal::schema::Schema;

/// Commands whose answer is an object. `joulefs-lab` has its own.
pub const SCHEMAS: &[Schema] = &[
    ("age", 2),
    ("clean", 1),
    ("cp", 2),
    ("ctl", 2),
    ("device", 2),
    ("energy", 2),
    ("energy diff", 2),
    ("energy fit", 2),
    ("energy measure", 2),
    ("energy nvme", 1),
    ("energy show", 1),
    ("fsck", 1),
    ("info", 1),
    ("inspect", 2),
    ("mkdir", 1),
    ("mkfs", 1),
    ("mount", 1),
    ("mv", 1),
    ("replay", 3),
    ("rescue", 1),
    ("rm", 1),
    ("settle", 1),
    ("top", 4),
    ("trace convert", 1),
    ("trace replay", 3),
    ("trace stat", 2),
    ("tree", 1),
    ("undo", 2),
    ("unmount", 1),
    ("unsettle", 1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory};

    /// Commands whose answer is a list, or that have no answer.
    const NO_OBJECT: &[&str] = &["cat", "df", "du", "lab", "ls", "stat", "energy profiles"];

    fn leaves(command: &Command, above: &str, out: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("{above}{}", below.get_name());
            if !below.has_subcommands() || !below.is_subcommand_required_set() {
                out.push(name.clone());
            }
            leaves(below, &format!("{name} "), out);
        }
    }

    #[test]
    fn every_command_has_a_schema_or_none_to_have() {
        let mut all = Vec::new();
        leaves(&crate::Cli::command(), "", &mut all);
        all.sort();
        let mut said: Vec<String> =
            SCHEMAS.iter().map(|s| s.0).chain(NO_OBJECT.iter().copied()).map(str::to_owned).collect();
        said.sort();
        assert_eq!(said, all);
    }

    #[test]
    fn the_document_lists_them() {
        let document = include_str!("../../docs/json.md");
        let rows: Vec<String> = document
            .lines()
            .filter(|l| l.starts_with("| `joulefs ") && !l.starts_with("| `joulefs lab "))
            .map(str::to_owned)
            .collect();
        let of = |(name, version): &(&str, u32)| format!("| `joulefs {name}` | {version} |");
        let expected: Vec<String> = SCHEMAS.iter().map(of).collect();
        assert_eq!(rows, expected);
    }
}
