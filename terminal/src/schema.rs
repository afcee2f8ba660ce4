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

/// A command whose answer is an object, and the version of its form.
pub type Schema = (&'static str, u32);

/// The command that was typed, with its version.
static COMMAND: OnceLock<(String, u32)> = OnceLock::new();

/// Remembers which command of a program answers. `above` are the words under which another program has it.
pub fn begin(above: &[&str], matches: &ArgMatches, schemas: &[Schema]) {
    let mut words = above.to_vec();
    let mut at = matches;
    while let Some((word, below)) = at.subcommand() {
        words.push(word);
        at = below;
    }
    let name = words.join(" ");
    let version = schemas.iter().find(|(known, _)| *known == name).map_or(1, |(_, version)| *version);
    let _ = COMMAND.set((name, version));
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
    let (name, version) = COMMAND.get().map_or(("", 1), |(name, version)| (name.as_str(), *version));
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

    #[test]
    fn a_list_stays_what_it_is() {
        assert_eq!(line(&json!([1])), "[1]");
        let value: Value = serde_json::from_str(&error("x")).unwrap();
        assert_eq!(value, json!({ "error": "x", "schema": "joulefs-error", "schema_version": 1 }));
    }
}
