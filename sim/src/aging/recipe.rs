//! What is done to a volume, as data.
//!
//! A recipe is a TOML file: a name, where its numbers come from, the size of volume they are meant for, and
//! steps. On a volume of another size, counts of files and amounts of bytes are in proportion to the size; the
//! size of a single file is as written unless the step says `scale_size`, for the block and the segment are
//! the same on any volume.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::AgeError;
use super::amount::{Amount, Bytes};

/// Recipes that come with the program, by name.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("pristine", include_str!("../../../recipes/pristine.toml")),
    ("full", include_str!("../../../recipes/full.toml")),
    ("full-fragmented", include_str!("../../../recipes/full-fragmented.toml")),
    ("large-and-small", include_str!("../../../recipes/large-and-small.toml")),
    ("phone-year", include_str!("../../../recipes/phone-year.toml")),
    ("three-fifths", include_str!("../../../recipes/three-fifths.toml")),
];

/// A recipe.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What it is called.
    pub name: String,
    /// The state it leads to, in a sentence.
    pub summary: String,
    /// Where its numbers come from, and which of them are assumed.
    pub source: String,
    /// The recipe that is carried out before.
    pub after: Option<String>,
    /// The size of volume its counts and amounts are meant for.
    pub reference: Bytes,
    /// Bytes a second that files are written at, and so how time passes between checkpoints.
    pub rate: Bytes,
    /// What is done, in order. Each step ends in a `sync`.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
}

/// Sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// All the same.
    Fixed(Bytes),
    /// Log-normal.
    Spread(Spread),
}

/// A log-normal distribution, cut off at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Half are smaller.
    pub median: Bytes,
    /// Standard deviation of the natural logarithm.
    pub sigma: f64,
    /// None is smaller.
    pub min: Bytes,
    /// None is larger.
    pub max: Bytes,
}

/// In which order a file's blocks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From the start to the end.
    #[default]
    Sequential,
    /// Every block once, in random order.
    Random,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Step {
    /// Makes files.
    Write(Write),
    /// Deletes files.
    Delete(Delete),
    /// Overwrites parts of files.
    Rewrite(Rewrite),
    /// Days of making, changing and deleting files of several kinds at once.
    Live(Live),
}

/// Makes files until one of the three ends is reached.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The set they belong to: the name of a directory.
    pub set: String,
    /// Suffix of their names: it decides about hot and cold.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// The sizes, too, are in proportion to the volume.
    #[serde(default)]
    pub scale_size: bool,
    /// Order of the blocks in each.
    #[serde(default)]
    pub order: Order,
    /// Each is made durable by an fsync.
    #[serde(default)]
    pub sync: bool,
    /// So many files.
    pub count: Option<u64>,
    /// The count is in proportion to the volume.
    #[serde(default = "yes")]
    pub scale_count: bool,
    /// So many bytes.
    pub total: Option<Amount>,
    /// Until no more than this is free; the last file is cut to fit.
    pub free: Option<Amount>,
    /// After each of them come these.
    pub then: Option<Others>,
}

/// Files of another set made in turn with those of a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Their set.
    pub set: String,
    /// Suffix of their names.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// How many after each of the step's own; in proportion to the volume where the size of those is.
    pub count: u64,
}

/// Deletes files of a set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The set.
    pub set: String,
    /// Every so manieth in the order they were made. Without it as many as `free` asks for, at equal intervals.
    pub every: Option<u64>,
    /// Drawn at random instead of at intervals.
    #[serde(default)]
    pub random: bool,
    /// No more once this is free.
    pub free: Option<Amount>,
}

/// Overwrites parts of a set's files, chosen at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// The set.
    pub set: String,
    /// How much at a time.
    pub piece: Bytes,
    /// How much in all.
    pub total: Amount,
    /// An fsync after each piece.
    #[serde(default)]
    pub sync: bool,
}

/// Days of use.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// How many days.
    pub days: u32,
    /// When more than this is in use, the files that would be deleted next go at once.
    pub fill: Amount,
    /// What is done every day.
    #[serde(rename = "kind")]
    pub kinds: Vec<Kind>,
}

/// Files of one kind and what becomes of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Their set.
    pub set: String,
    /// Suffix of their names.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// New files a day.
    pub per_day: f64,
    /// Half of them live no longer than this, log-normally distributed; without it they stay.
    pub life_days: Option<f64>,
    /// Standard deviation of the natural logarithm of a life.
    #[serde(default = "one")]
    pub life_sigma: f64,
    /// Changes a day to files of the set, each of one `piece`.
    #[serde(default)]
    pub changes_per_day: f64,
    /// Bytes of a change.
    #[serde(default = "block")]
    pub piece: Bytes,
    /// The share of changes that extend a file instead of overwriting a part of it.
    #[serde(default)]
    pub appends: f64,
    /// An fsync after each file and each change.
    #[serde(default)]
    pub sync: bool,
}

fn yes() -> bool {
    true
}
fn one() -> f64 {
    1.0
}
fn block() -> Bytes {
    Bytes(4096)
}

impl Sizes {
    fn check(&self) -> Result<(), String> {
        match self {
            Sizes::Fixed(Bytes(0)) => Err("size 0".into()),
            Sizes::Fixed(_) => Ok(()),
            Sizes::Spread(s) if s.min.0 == 0 || s.min.0 > s.max.0 => {
                Err("size: min must be above 0 and not above max".into())
            }
            Sizes::Spread(s) if !(0.0..=10.0).contains(&s.sigma) => {
                Err(format!("size: sigma {} is not in 0..=10", s.sigma))
            }
            Sizes::Spread(_) => Ok(()),
        }
    }
}

impl Step {
    fn check(&self) -> Result<(), String> {
        let positive = |name: &str, x: f64| match x.is_finite() && x >= 0.0 {
            true => Ok(()),
            false => Err(format!("{name} {x} is not a number of 0 or more")),
        };
        match self {
            Step::Write(w) => {
                let ends =
                    usize::from(w.count.is_some()) + usize::from(w.total.is_some()) + usize::from(w.free.is_some());
                if ends != 1 {
                    return Err("needs one of count, total and free".into());
                }
                w.then.iter().try_for_each(|o| o.size.check())?;
                w.size.check()
            }
            Step::Delete(d) => match (d.every, d.free) {
                (Some(0), _) => Err("every 0".into()),
                (None, None) => Err("needs every, free or both".into()),
                _ => Ok(()),
            },
            Step::Rewrite(r) if r.piece.0 == 0 => Err("piece 0".into()),
            Step::Rewrite(_) => Ok(()),
            Step::Live(l) => l.kinds.iter().try_for_each(|k| {
                positive("per_day", k.per_day)?;
                positive("changes_per_day", k.changes_per_day)?;
                positive("life_days", k.life_days.unwrap_or(0.0))?;
                positive("life_sigma", k.life_sigma)?;
                if !(0.0..=1.0).contains(&k.appends) {
                    return Err(format!("appends {} is not in 0..=1", k.appends));
                }
                if k.piece.0 == 0 {
                    return Err("piece 0".into());
                }
                k.size.check()
            }),
        }
    }

    fn sets(&self) -> Vec<&str> {
        match self {
            Step::Write(w) => w.then.iter().map(|o| &*o.set).chain([&*w.set]).collect(),
            Step::Delete(d) => vec![&d.set],
            Step::Rewrite(r) => vec![&r.set],
            Step::Live(l) => l.kinds.iter().map(|k| &*k.set).collect(),
        }
    }

    /// What it does, for a progress bar.
    pub fn describe(&self) -> String {
        match self {
            Step::Write(w) => format!("writing {}", w.set),
            Step::Delete(d) => format!("deleting {}", d.set),
            Step::Rewrite(r) => format!("rewriting {}", r.set),
            Step::Live(l) => format!("{} days of use", l.days),
        }
    }
}

impl Recipe {
    /// Parses and checks a recipe; `name` is what errors call it.
    pub fn parse(name: &str, text: &str) -> Result<Self, AgeError> {
        let bad = |reason: String| AgeError::Recipe { name: name.to_owned(), reason };
        let recipe: Recipe = toml::from_str(text).map_err(|e| bad(e.to_string()))?;
        if recipe.reference.0 == 0 || recipe.rate.0 == 0 {
            return Err(bad("reference and rate must be above 0".into()));
        }
        for (n, step) in recipe.steps.iter().enumerate() {
            let at = |reason| bad(format!("step {}: {reason}", n + 1));
            step.check().map_err(at)?;
            let plain = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
            if let Some(set) = step.sets().into_iter().find(|s| !plain(s) || s.len() > 100) {
                return Err(at(format!("set {set:?}: letters, digits and dashes only")));
            }
        }
        Ok(recipe)
    }

    /// The recipe with so many days of use and nothing else; `None` if it has none.
    pub fn days_of_use(&self, days: u32) -> Option<Recipe> {
        let live = self.steps.iter().find_map(|s| match s {
            Step::Live(live) => Some(live.clone()),
            _ => None,
        })?;
        Some(Recipe { steps: vec![Step::Live(Live { days, ..live })], after: None, ..self.clone() })
    }

    /// Fills a volume with files of documents' sizes that nobody changes, until a part of what it has for files, from 0 to 1,
    /// is in use.
    pub fn until_full(full: f64) -> Recipe {
        Recipe {
            name: "fill".into(),
            summary: format!("{:.0} % in use, filled up with files that do not change", full * 100.0),
            source: "Assumed: only the share in use".into(),
            after: None,
            reference: Bytes(256 << 30),
            rate: Bytes(400 << 20),
            steps: vec![Step::Write(Write {
                set: "filled-up".into(),
                suffix: None,
                size: Sizes::Spread(Spread {
                    median: Bytes(256 << 10),
                    sigma: 1.5,
                    min: Bytes(1 << 10),
                    max: Bytes(64 << 20),
                }),
                scale_size: false,
                order: Order::Sequential,
                sync: false,
                count: None,
                scale_count: true,
                total: None,
                free: Some(Amount::Percent((1.0 - full) * 100.0)),
                then: None,
            })],
        }
    }

    /// Deletes files that these recipes made, drawn at random, until a part of what the volume has for files, from 0 to 1, is
    /// free.
    pub fn making_room(chain: &[Recipe], free: f64) -> Recipe {
        let made = |step: &Step| -> Vec<String> {
            match step {
                Step::Write(w) => w.then.iter().map(|t| &t.set).chain([&w.set]).cloned().collect(),
                Step::Live(l) => l.kinds.iter().map(|k| k.set.clone()).collect(),
                Step::Delete(_) | Step::Rewrite(_) => Vec::new(),
            }
        };
        let sets: BTreeSet<String> = chain.iter().flat_map(|r| r.steps.iter().flat_map(made)).collect();
        let free = Some(Amount::Percent(free * 100.0));
        let delete = |set| Step::Delete(Delete { set, every: None, random: true, free });
        Recipe {
            name: "room".into(),
            summary: "files deleted at random until there is room".into(),
            source: "Assumed: a user who needs room deletes old files".into(),
            after: None,
            reference: Bytes(256 << 30),
            rate: Bytes(400 << 20),
            steps: sets.into_iter().map(delete).collect(),
        }
    }

    /// The recipe of this name, or of this file if it is a path to one (anything with a dot or a slash), with
    /// those that come before it first.
    pub fn chain(name: &str) -> Result<Vec<Self>, AgeError> {
        let mut chain: Vec<Recipe> = Vec::new();
        let mut next = Some(name.to_owned());
        while let Some(name) = next {
            let recipe = match BUILT_IN.iter().find(|(n, _)| *n == name) {
                Some((_, text)) => Self::parse(&name, text)?,
                None if name.contains(['.', '/']) => {
                    let text = std::fs::read_to_string(Path::new(&name));
                    Self::parse(&name, &text.map_err(|source| AgeError::Read { name: name.clone(), source })?)?
                }
                None => {
                    let known = BUILT_IN.map(|(n, _)| n).join(", ");
                    return Err(AgeError::Unknown { name, known });
                }
            };
            if chain.len() > 16 {
                return Err(AgeError::Recipe { name, reason: "comes after itself".into() });
            }
            next = recipe.after.clone();
            chain.push(recipe);
        }
        chain.reverse();
        Ok(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_parses_and_has_its_name() {
        for (name, _) in BUILT_IN {
            let chain = Recipe::chain(name).unwrap();
            assert_eq!(chain.last().unwrap().name, name);
        }
        let names: Vec<_> = Recipe::chain("full-fragmented").unwrap().into_iter().map(|r| r.name).collect();
        assert_eq!(names, ["pristine", "full-fragmented"]);
    }

    #[test]
    fn a_bad_recipe_is_refused_by_the_step_that_is_wrong() {
        let head = "name='x'\nsummary='x'\nsource='x'\nreference='1G'\nrate='1M'\n";
        let refused = |steps: &str, word: &str| {
            let e = Recipe::parse("x.toml", &format!("{head}{steps}")).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains("x.toml"), "{e}");
        };
        refused("[[step]]\ndo='write'\nset='a'\nsize='4K'", "step 1: needs one of");
        refused("[[step]]\ndo='write'\nset='a/b'\nsize='4K'\ncount=1", "letters");
        refused("[[step]]\ndo='delete'\nset='a'\nevery=0", "every 0");
        refused("[[step]]\ndo='dance'", "dance");
        refused("[[step]]\ndo='rewrite'\nset='a'\npiece='4K'\ntotal='lots'", "lots");
        assert!(Recipe::chain("pristin").unwrap_err().to_string().contains("full-fragmented"));
        assert!(Recipe::chain("./none.toml").unwrap_err().to_string().contains("none.toml"));
    }
}
