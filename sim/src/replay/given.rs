//! Which profile numbers does the user replace, and what else do they assume?

use device::energy::Nanos;
use device::energy::profile::Profile;

use super::error::Error;

/// The source of a number given by the user.
pub const GIVEN: &str = "--assume";

/// A profile number given by the user.
#[derive(Debug, Clone)]
struct Assumed {
    name: String,
    value: f64,
    unit: Option<String>,
    /// The option that gave it.
    option: String,
}

/// The user's assumptions.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Numbers of the profile.
    numbers: Vec<Assumed>,
    /// Interval from the first write after a flush to an assumed flush.
    pub flush_every: Option<Nanos>,
}

/// A number and the unit after it.
fn number(text: &str) -> Option<(f64, Option<String>)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+'))).unwrap_or(text.len());
    let value = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    Some((value, (!unit.is_empty()).then(|| unit.to_owned())))
}

impl Given {
    /// Parses the options.
    pub fn parse(typed: &[String]) -> Result<Self, Error> {
        let mut given = Given::default();
        for text in typed {
            let option = format!("--assume {text}");
            let (name, value) = text.split_once('=').ok_or_else(|| {
                Error::Setting(format!("{option}: write NAME=NUMBER, e.g. device.ready=10mW or flush=5s"))
            })?;
            given.add(&option, name, value)?;
        }
        Ok(given)
    }

    /// Adds an assumed number; errors name `option`.
    pub fn add(&mut self, option: &str, name: &str, value: &str) -> Result<(), Error> {
        let wrong = |why: &str| Error::Setting(format!("{option}: {why}"));
        let (value, unit) = number(value).ok_or_else(|| wrong("not a number with a unit, e.g. 10mW or 5s"))?;
        if name != "flush" {
            let option = option.split('=').next().unwrap_or_default().to_owned();
            self.numbers.push(Assumed { name: name.to_owned(), value, unit, option });
            return Ok(());
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
        self.flush_every = Some(every);
        Ok(())
    }

    /// True if a number of the profile was given.
    pub fn has(&self, name: &str) -> bool {
        self.numbers.iter().any(|assumed| assumed.name == name)
    }

    /// A profile with these numbers applied.
    pub fn applied(&self, profile: Profile) -> Result<Profile, Error> {
        self.numbers.iter().try_fold(profile, |profile, Assumed { name, value, unit, option }| {
            let changed = profile.with(name, *value, unit.as_deref(), GIVEN);
            changed.map_err(|e| Error::Setting(format!("{option}: {e}")))
        })
    }
}
