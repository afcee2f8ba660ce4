//! Which numbers does a person put in the place of a profile's, and what else do they assume?

use device::energy::Nanos;
use device::energy::profile::Profile;

use crate::Failure;

/// The source of a number that a person gave.
pub const GIVEN: &str = "--assume";

/// What a person assumes.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Numbers of the profile: name, number, unit.
    numbers: Vec<(String, f64, Option<String>)>,
    /// Flushes that no recording tells of come so long after the first write behind the last one.
    pub flush_every: Option<Nanos>,
}

/// A number and the unit behind it.
fn number(text: &str) -> Option<(f64, Option<String>)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+'))).unwrap_or(text.len());
    let value = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    Some((value, (!unit.is_empty()).then(|| unit.to_owned())))
}

impl Given {
    /// From what was typed.
    pub fn parse(typed: &[String]) -> Result<Self, Failure> {
        let mut given = Given::default();
        for text in typed {
            let wrong = |why: &str| Failure::Usage(format!("--assume {text}: {why}"));
            let (name, value) =
                text.split_once('=').ok_or_else(|| wrong("write NAME=NUMBER, e.g. device.ready=10mW or flush=5s"))?;
            let (value, unit) = number(value).ok_or_else(|| wrong("no number with a unit, e.g. 10mW or 5s"))?;
            if name != "flush" {
                given.numbers.push((name.to_owned(), value, unit));
                continue;
            }
            let factor = match unit.as_deref() {
                Some("ms") => 1e6,
                Some("s") | None => 1e9,
                _ => return Err(wrong("a time in ms or s")),
            };
            let every = Nanos((value * factor) as u64);
            if every < Nanos(1_000_000) {
                return Err(wrong("flushes of which one comes every millisecond at most"));
            }
            given.flush_every = Some(every);
        }
        Ok(given)
    }

    /// A profile with these numbers.
    pub fn applied(&self, profile: Profile) -> Result<Profile, Failure> {
        self.numbers.iter().try_fold(profile, |profile, (name, value, unit)| {
            let changed = profile.with(name, *value, unit.as_deref(), GIVEN);
            changed.map_err(|e| Failure::Usage(format!("--assume {name}: {e}")))
        })
    }
}
