//! Which schema does a JSON answer have?
//!
//! Every object printed by `--json` has the name and the version of its schema as `schema` and `schema_version`, so
//! that a program can detect output it was not written for. docs/json.md has the rule for version changes. A list has
//! no such fields: its objects follow the schema of the command.

use std::sync::OnceLock;

use clap::ArgMatches;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::hidden::shown_json;

/// A command whose answer is an object, and its schema version.
pub type Schema = (&'static str, u32);

/// The running command, with its schema version.
static COMMAND: OnceLock<(String, u32)> = OnceLock::new();

/// Records which command is running. `above` are the words that precede it in another program's command line.
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

/// An answer with its schema. It may cover a million files, so it is not copied.
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
        // An answer with its own schema, such as that of `inspect`, already has the field.
        if !object.contains_key("schema") {
            map.serialize_entry("schema", &format!("joulefs-{}", self.name.replace(' ', "-")))?;
            map.serialize_entry("schema_version", &self.version)?;
        }
        map.end()
    }
}

/// The answer of the running command.
fn marked(value: &Value) -> Marked<'_> {
    let (name, version) = COMMAND.get().map_or(("", 1), |(name, version)| (name.as_str(), *version));
    Marked { value, name, version }
}

/// The answer as indented JSON.
pub fn text(value: &Value) -> String {
    // Objects with string keys always serialize.
    shown_json(&serde_json::to_string_pretty(&marked(value)).unwrap_or_default())
}

/// The answer as JSON on one line.
pub fn line(value: &Value) -> String {
    shown_json(&serde_json::to_string(&marked(value)).unwrap_or_default())
}

/// The error object printed in place of an answer.
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
