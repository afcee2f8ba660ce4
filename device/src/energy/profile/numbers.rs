//! Which numbers does a profile contain, and how is one replaced?
//!
//! Numbers are named as in the file: `device.nand.read_energy`, an element of a list by its `name` or its place
//! (`device.idle.hibernate.power`, `device.nand.program.0`).

use serde::Serialize;
use toml::{Table, Value};

use super::quantity::{Confidence, Written};
use super::{Nanos, Profile, ProfileError};

/// A number of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Its name.
    pub name: String,
    /// The number in its unit.
    pub value: f64,
    /// The unit; empty for a plain number.
    pub unit: String,
    /// Its confidence.
    pub confidence: Confidence,
    /// Its own range, in its unit; see [`limits`](Self::limits).
    pub range: Option<(f64, f64)>,
    /// Its source.
    pub source: String,
}

impl Number {
    /// The limits between which the true one lies in nine of ten cases, in its unit: its own, or its confidence's
    /// ([`Confidence::factors`]). A 0 without a range of its own is taken to be one.
    pub fn limits(&self) -> (f64, f64) {
        let (low, high) = self.confidence.factors();
        self.range.unwrap_or((low * self.value, high * self.value))
    }
}

/// The elements of a table or list, by name.
fn inside(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Table(table) => table.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(n, value)| (called(n, value), value)).collect(),
        _ => Vec::new(),
    }
}

/// Name of a list element.
fn called(place: usize, element: &Value) -> String {
    element.get("name").and_then(Value::as_str).map_or_else(|| place.to_string(), str::to_owned)
}

fn collect(name: &str, value: &Value, out: &mut Vec<Number>) {
    if let Ok(Written { value, unit, confidence, range, source }) = value.clone().try_into() {
        out.push(Number { name: name.to_owned(), value, unit, confidence, range, source });
        return;
    }
    for (part, value) in inside(value) {
        collect(&if name.is_empty() { part } else { format!("{name}.{part}") }, value, out);
    }
}

impl Profile {
    fn as_toml(&self) -> Value {
        // OK to unwrap: every profile was parsed from such a file, and has only tables, lists, texts and numbers.
        Value::try_from(self).unwrap()
    }

    /// All numbers.
    pub fn numbers(&self) -> Vec<Number> {
        let mut out = Vec::new();
        collect("", &self.as_toml(), &mut out);
        out
    }

    /// The same profile with another value for the number `name`, which may be absent. Without a unit the value has
    /// the unit of the old one. `source` names who assumes it. A new anchor also changes every time and power, like
    /// [`anchored`](Self::anchored).
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] if there is no such number, or if it cannot have this value.
    pub fn with(&self, name: &str, value: f64, unit: Option<&str>, source: &str) -> Result<Profile, ProfileError> {
        let malformed = |message: String| ProfileError::Malformed { from: self.name.clone(), message };
        let before = self.numbers().into_iter().find(|n| n.name == name);
        let unit = unit.or(before.as_ref().map(|n| n.unit.as_str())).unwrap_or_default();
        let (confidence, source) = (Confidence::Assumed, source.into());
        // A number that the user assumes is exact: the question is what follows from it.
        let written = Written { value, unit: unit.to_owned(), confidence, range: Some((value, value)), source };
        let mut whole = self.as_toml();
        let mut at = &mut whole;
        let parts: Vec<&str> = name.split('.').collect();
        let known = || malformed(format!("no number {name:?}; joulefs energy show {} lists them", self.name));
        for (n, part) in parts.iter().enumerate() {
            let last = n + 1 == parts.len();
            at = match at {
                Value::Table(table) => {
                    if last && !table.contains_key(*part) {
                        table.insert((*part).to_owned(), Value::Table(Table::new()));
                    }
                    table.get_mut(*part).ok_or_else(&known)?
                }
                Value::Array(list) => {
                    let place = list.iter().enumerate().position(|(n, value)| called(n, value) == *part);
                    place.and_then(|n| list.get_mut(n)).ok_or_else(&known)?
                }
                _ => return Err(known()),
            };
        }
        if before.is_none() && at.as_table().is_none_or(|table| !table.is_empty()) {
            return Err(known());
        }
        *at = Value::try_from(written).map_err(|e| malformed(e.to_string()))?;
        let text = toml::to_string(&whole).map_err(|e| malformed(e.to_string()))?;
        let changed = Profile::parse(&text, name).map_err(|e| match e {
            // A line number in generated text is meaningless.
            ProfileError::Malformed { message, .. } => {
                let why = message.lines().rfind(|l| !l.trim().is_empty()).unwrap_or_default().trim().to_owned();
                malformed(format!("{name} = {value}{unit}: {why}"))
            }
            other => other,
        })?;
        match changed.anchor.as_ref().filter(|_| name == "anchor.time") {
            Some(anchor) => Ok(self.clone().anchored(Nanos(anchor.time.value.0))),
            None => Ok(changed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceSpec, SHIPPED};
    use super::*;

    fn profile(name: &str) -> Profile {
        Profile::find(name).unwrap()
    }

    #[test]
    fn every_number_of_every_shipped_profile_can_be_put_where_it_is() {
        for (name, text) in SHIPPED {
            let profile = profile(name);
            let numbers = profile.numbers();
            assert!(numbers.len() >= text.matches("confidence").count(), "{name}: {} numbers", numbers.len());
            for n in &numbers {
                let again = profile.with(&n.name, n.value, None, &n.source).unwrap();
                let same = again.numbers().into_iter().zip(&numbers);
                for (a, b) in same {
                    assert_eq!((&a.name, a.value, &a.unit), (&b.name, b.value, &b.unit), "{name}: {}", n.name);
                }
            }
        }
    }

    #[test]
    fn another_number_takes_the_place_of_one_or_of_none() {
        let before = profile("kirin9000-ufs31");
        let after = before.with("device.idle.hibernate.power", 2.5, Some("mW"), "tried").unwrap();
        let DeviceSpec::Flash(flash) = &after.device else { panic!("flash") };
        assert_eq!((flash.idle[0].power.value.0, flash.idle[0].power.source.as_str()), (2_500, "tried"));
        let after = before.with("device.drain", 1.0, Some("s"), "tried").unwrap();
        let DeviceSpec::Flash(flash) = &after.device else { panic!("flash") };
        assert_eq!(flash.drain.as_ref().map(|q| q.value), Some(Nanos(1_000_000_000)));
        let slower = before.with("anchor.time", 500.0, None, "tried").unwrap();
        assert_eq!(slower.host.board.value.0, (before.host.board.value.0 as f64 / 2.0).round() as u64);
    }

    #[test]
    fn what_is_no_number_is_refused_by_its_name() {
        let profile = profile("kirin9000-ufs31");
        for (name, value, unit) in [
            ("device.colour", 1.0, None),
            ("device", 1.0, None),
            ("device.nand", 1.0, None),
            ("title", 1.0, None),
            ("device.ready", 1.0, Some("s")),
            ("device.ready", -1.0, None),
            ("device.nand.channels", 0.0, None),
            ("device.idle.deep.power", 1.0, None),
        ] {
            let e = profile.with(name, value, unit, "tried").unwrap_err().to_string();
            assert!(e.contains(name) && e.lines().count() == 1, "{e}");
        }
    }
}
