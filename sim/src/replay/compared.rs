//! What does `--compare NAME=A,B` change from run to run?

use std::num::NonZeroUsize;

use device::energy::profile::Profile;
use trace::Kind;

use super::error::Error;
use super::settings::Settings;
use super::sizes;
use super::variant::Variant;
use crate::NOBODY;
use crate::aging::Recipe;

/// The value of `age` for a new volume without a recipe.
const NEW: &str = "none";

/// A compared name, and its values in the order given.
pub struct Compared<'a> {
    pub name: &'a str,
    pub values: Vec<&'a str>,
    /// As typed.
    pub given: String,
}

impl<'a> Compared<'a> {
    pub fn parse(typed: &'a str) -> Result<Self, Error> {
        let given = format!("--compare {typed}");
        let (name, values) =
            typed.split_once('=').ok_or_else(|| Error::Setting(format!("{given}: write NAME=A,B,...")))?;
        let mut values: Vec<&str> = values.split(',').collect();
        if matches!(name, "gc" | "clean") {
            // The control comes first anyway.
            values.retain(|value| *value != NOBODY);
        }
        if name == "delta" {
            // The control of deltas is the same volume without them.
            values.retain(|value| *value != "off");
            values.insert(0, "off");
        }
        Ok(Compared { name, values, given })
    }

    /// True if the name selects a cleaning policy.
    pub fn is_of_cleaning(name: &str) -> bool {
        matches!(name, "gc" | "power" | "clean")
    }

    /// True if its values are cleaning policies.
    pub fn of_cleaning(&self) -> bool {
        Self::is_of_cleaning(self.name)
    }

    /// True for a number of the device's profile: only their names have dots.
    fn is_number(&self) -> bool {
        self.name.contains('.') || self.name == "flush"
    }

    /// True if another option sets the same for every run.
    pub fn is_given_besides(&self, settings: &Settings) -> bool {
        let named = |options: &[String]| options.iter().any(|o| o.split('=').next() == Some(self.name));
        named(&settings.options)
            || named(&settings.assume)
            || match self.name {
                "profile" => settings.profile.is_some(),
                "fs" => settings.fs.is_some(),
                "size" => settings.size.is_some(),
                "age" => settings.age.is_some(),
                "seed" => settings.seed.is_some(),
                "fill" => settings.fill.is_some(),
                "full" => settings.full,
                "queue" => settings.queue.is_some(),
                _ => false,
            }
    }

    /// Why it has no effect on recordings of this kind.
    pub fn out_of_place(&self, kind: Kind) -> Option<&'static str> {
        let of_both = matches!(self.name, "profile" | "size") || self.name.contains('.');
        let of_blocks = matches!(self.name, "full" | "queue" | "flush");
        match kind {
            Kind::Blocks if !of_both && !of_blocks => Some(
                "for a recording of a block device only profile=, size=, full=, queue=, flush= and numbers of the \
                 profile can be compared: the recording has the blocks that one file system wrote, and another one \
                 would have written different blocks",
            ),
            Kind::Calls if of_blocks => Some("this is for recordings of a block device"),
            _ => None,
        }
    }

    /// Applies one of the values to a run.
    pub fn apply(&self, variant: &mut Variant, value: &str) -> Result<(), Error> {
        let (name, given) = (self.name, &self.given);
        let wrong = |why: &str| Error::Setting(format!("{given}: {value:?}: {why}"));
        match name {
            "profile" => {
                Profile::find(value).map_err(|e| Error::from(e).named(given))?;
                value.clone_into(&mut variant.chosen);
            }
            "fs" => variant.fs = value.parse().map_err(|why| Error::Setting(format!("{given}: {why}")))?,
            "seed" => variant.seed = value.parse().map_err(|_| wrong("not a whole number"))?,
            "age" if value == NEW => variant.age = None,
            "age" => {
                recipe(given, value)?;
                variant.age = Some(value.to_owned());
            }
            "size" => {
                sizes::of(given, value)?;
                variant.size = Some(value.to_owned());
            }
            "fill" => variant.fill = Some(percent(given, value)?),
            "full" => variant.full = truth(value).ok_or_else(|| wrong("write on or off"))?,
            "queue" => {
                let queue = value.parse::<NonZeroUsize>().map_err(|_| wrong("not a number from 1"))?;
                variant.queue = Some(queue);
            }
            _ if self.is_number() => variant.given.add(given, name, value)?,
            _ => variant.set(&format!("{name}={value}"), given)?,
        }
        // A bare value needs its name.
        let is_bare = matches!(name, "delta" | "seed" | "age" | "size" | "fill" | "full" | "queue") || self.is_number();
        let told = if is_bare { format!("{name}={value}") } else { value.to_owned() };
        variant.name = if variant.name.is_empty() { told } else { format!("{} {told}", variant.name) };
        variant.picks.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

fn truth(value: &str) -> Option<bool> {
    match value {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// A percentage of a volume, such as 90%.
pub fn percent(option: &str, text: &str) -> Result<f64, Error> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    match percent.filter(|p| (1.0..=99.0).contains(p)) {
        Some(p) => Ok(p / 100.0),
        None => Err(Error::Setting(format!("{option} {text}: give a number from 1% to 99%"))),
    }
}

/// Fails if there is no such recipe.
pub fn recipe(option: &str, name: &str) -> Result<(), Error> {
    Recipe::chain(name).map(drop).map_err(|e| Error::from(e).named(option))
}
