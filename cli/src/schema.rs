//! Which form does a JSON answer have?
//!
//! Every object that `--json` prints carries the name and the version of its form as `schema` and `schema_version`, so that
//! a program that reads it can tell what it was written for from what it was not. docs/json.md has the rule by which versions change. A list has
//! no place for it: the form of its objects is its command's.

use std::sync::OnceLock;

use clap::ArgMatches;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::hidden::shown_json;

/// Commands whose answer is an object, and the version of its form.
pub const SCHEMAS: &[(&str, u32)] = &[
    ("age", 1),
    ("clean", 1),
    ("cp", 2),
    ("ctl", 1),
    ("device", 1),
    ("energy", 1),
    ("energy diff", 1),
    ("energy fit", 1),
    ("energy measure", 1),
    ("energy nvme", 1),
    ("energy show", 1),
    ("fsck", 1),
    ("info", 1),
    ("inspect", 1),
    ("lab papers", 1),
    ("lab report", 1),
    ("lab show", 1),
    ("mkdir", 1),
    ("mkfs", 1),
    ("mount", 1),
    ("mv", 1),
    ("replay", 2),
    ("rescue", 1),
    ("rm", 1),
    ("settle", 1),
    ("top", 2),
    ("trace convert", 1),
    ("trace replay", 2),
    ("trace stat", 1),
    ("tree", 1),
    ("undo", 1),
    ("unmount", 1),
    ("unsettle", 1),
];

/// The command that was typed, as in [`SCHEMAS`].
static COMMAND: OnceLock<String> = OnceLock::new();

/// Remembers which command answers.
pub fn begin(matches: &ArgMatches) {
    let mut words = Vec::new();
    let mut at = matches;
    while let Some((word, below)) = at.subcommand() {
        words.push(word);
        at = below;
    }
    let _ = COMMAND.set(words.join(" "));
}

/// An answer with its schema. It may be of a million files, and is not copied.
struct Marked<'a> {
    value: &'a Value,
    name: &'a str,
    version: u32,
}

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Value::Object(object) = self.value else { return self.value.serialize(to) };
        let mut map = to.serialize_map(None)?;
        for (key, value) in object {
            map.serialize_entry(key, value)?;
        }
        // A form that is an account of its own, such as that of inspect, says so itself.
        if !object.contains_key("schema") {
            map.serialize_entry("schema", &format!("joulefs-{}", self.name.replace(' ', "-")))?;
            map.serialize_entry("schema_version", &self.version)?;
        }
        map.end()
    }
}

/// The answer of the command that was typed.
fn marked(value: &Value) -> Marked<'_> {
    let name = COMMAND.get().map_or("", String::as_str);
    let version = SCHEMAS.iter().find(|(known, _)| *known == name).map_or(1, |(_, version)| *version);
    Marked { value, name, version }
}

/// The answer as people read JSON.
pub fn text(value: &Value) -> String {
    // Objects of values with keys of text are always JSON.
    shown_json(&serde_json::to_string_pretty(&marked(value)).unwrap_or_default())
}

/// The answer in one line.
pub fn line(value: &Value) -> String {
    shown_json(&serde_json::to_string(&marked(value)).unwrap_or_default())
}

/// What is said in place of an answer.
pub fn error(text: &str) -> String {
    let value = json!({ "error": text });
    shown_json(&serde_json::to_string_pretty(&Marked { value: &value, name: "error", version: 1 }).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory};

    /// Commands whose answer is a list, or that have none.
    const NO_OBJECT: &[&str] = &["cat", "df", "du", "ls", "stat", "energy profiles", "lab keep", "lab list", "lab run"];

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
        let rows: Vec<String> = document.lines().filter(|l| l.starts_with("| `joulefs ")).map(str::to_owned).collect();
        let of = |(name, version): &(&str, u32)| format!("| `joulefs {name}` | {version} |");
        let expected: Vec<String> = SCHEMAS.iter().map(of).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_list_stays_what_it_is() {
        assert_eq!(line(&json!([1])), "[1]");
        let value: Value = serde_json::from_str(&error("x")).unwrap();
        assert_eq!(value, json!({ "error": "x", "schema": "joulefs-error", "schema_version": 1 }));
    }
}
