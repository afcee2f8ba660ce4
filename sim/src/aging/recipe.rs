//! Which steps age a volume, as data?
//!
//! A recipe is a TOML file: a name, the source of its numbers, a reference volume size, and steps. On a volume of
//! another size, file counts and amounts of bytes are scaled. The size of a single file is not scaled unless the step
//! has `scale_size`, because blocks and segments have the same size on any volume.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::AgeError;
use super::amount::{Amount, Bytes};

/// Built-in recipes, by name.
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
    /// Name.
    pub name: String,
    /// The resulting state, in a sentence.
    pub summary: String,
    /// Source of the numbers, and which of them are assumptions.
    pub source: String,
    /// The recipe to run first.
    pub after: Option<String>,
    /// Reference size for counts and amounts.
    pub reference: Bytes,
    /// Write rate in bytes per second; it determines the time between checkpoints.
    pub rate: Bytes,
    /// The steps, in order. Each ends with a `sync`.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
}

/// Sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// All files have this size.
    Fixed(Bytes),
    /// Log-normal.
    Spread(Spread),
}

/// A log-normal distribution, cut off at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Median.
    pub median: Bytes,
    /// Standard deviation of the natural logarithm.
    pub sigma: f64,
    /// Minimum.
    pub min: Bytes,
    /// Maximum.
    pub max: Bytes,
}

/// Order in which a file's blocks are written.
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
    /// Creates files.
    Write(Write),
    /// Deletes files.
    Delete(Delete),
    /// Overwrites parts of files.
    Rewrite(Rewrite),
    /// Days of creating, changing and deleting files of several kinds at once.
    Live(Live),
}

/// Creates files until one of the three limits is reached.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// Their set: the name of a directory.
    pub set: String,
    /// File name suffix: it determines hot or cold.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// Whether sizes are scaled, too.
    #[serde(default)]
    pub scale_size: bool,
    /// Order of the blocks in each file.
    #[serde(default)]
    pub order: Order,
    /// Whether each file is fsynced.
    #[serde(default)]
    pub sync: bool,
    /// Limit: number of files.
    pub count: Option<u64>,
    /// Whether the count is scaled.
    #[serde(default = "yes")]
    pub scale_count: bool,
    /// Limit: bytes written.
    pub total: Option<Amount>,
    /// Limit: remaining free space; the last file is cut to fit.
    pub free: Option<Amount>,
    /// Files written after each of these.
    pub then: Option<Others>,
}

/// Files of another set, interleaved with those of a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Their set.
    pub set: String,
    /// Suffix of their names.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// Number after each of the step's own files; scaled if the size of those is.
    pub count: u64,
}

/// Deletes files of a set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The set.
    pub set: String,
    /// Delete every n-th file in creation order. Without it, as many as `free` needs, at equal intervals.
    pub every: Option<u64>,
    /// Whether files are drawn at random instead of at intervals.
    #[serde(default)]
    pub random: bool,
    /// Stop when this is free.
    pub free: Option<Amount>,
}

/// Overwrites parts of a set's files, chosen at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// The set.
    pub set: String,
    /// Bytes per piece.
    pub piece: Bytes,
    /// Bytes in total.
    pub total: Amount,
    /// Whether each piece is fsynced.
    #[serde(default)]
    pub sync: bool,
}

/// Days of use.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Number of days.
    pub days: u32,
    /// Above this use, the files due next are deleted early.
    pub fill: Amount,
    /// The kinds of files in use.
    #[serde(rename = "kind")]
    pub kinds: Vec<Kind>,
}

/// A kind of file and its life.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Their set.
    pub set: String,
    /// Suffix of their names.
    pub suffix: Option<String>,
    /// Their sizes.
    pub size: Sizes,
    /// New files per day.
    pub per_day: f64,
    /// Median lifetime, log-normally distributed; without it files stay.
    pub life_days: Option<f64>,
    /// Standard deviation of the natural logarithm of the lifetime.
    #[serde(default = "default_sigma")]
    pub life_sigma: f64,
    /// Changes per day to files of the set, each of one `piece`.
    #[serde(default)]
    pub changes_per_day: f64,
    /// Bytes per change.
    #[serde(default = "block")]
    pub piece: Bytes,
    /// Share of changes that append instead of overwriting.
    #[serde(default)]
    pub appends: f64,
    /// Whether each new file and each change is fsynced.
    #[serde(default)]
    pub sync: bool,
}

fn yes() -> bool {
    true
}
fn default_sigma() -> f64 {
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

    /// Text for a progress bar.
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
    /// Parses and checks a recipe; errors refer to it as `name`.
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

    /// A recipe with only this many days of use; `None` if the recipe has no such step.
    pub fn days_of_use(&self, days: u32) -> Option<Recipe> {
        let live = self.steps.iter().find_map(|s| match s {
            Step::Live(live) => Some(live.clone()),
            _ => None,
        })?;
        Some(Recipe { steps: vec![Step::Live(Live { days, ..live })], after: None, ..self.clone() })
    }

    /// Fills a volume with files of typical document sizes that never change, until this part of the space for files (0
    /// to 1) is in use.
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

    /// Deletes random files created by these recipes until this part of the space for files (0 to 1) is free.
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

    /// The recipe with this name or, if the name has a dot or a slash, in this file, preceded by its predecessors.
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
