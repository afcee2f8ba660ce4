//! Which of all runs are done here?
//!
//! A part of the runs is every N-th run that is not a control, with its controls. So each part can be read alone, and a
//! control computed in several parts has the same key in all.

use std::collections::BTreeSet;

use super::error::Error;
use super::keys::Known;
use super::variant::Variant;

/// A run and its identity.
pub struct Point {
    /// Its index among all runs of the settings.
    pub number: usize,
    /// Its configuration.
    pub variant: Variant,
    /// Its key; `None` if keys are not needed.
    pub known: Option<Known>,
}

impl Point {
    /// The name of its configuration: without the seed; the device's if nothing else is compared.
    pub fn name_but_seed(&self) -> String {
        let name = self.variant.name_but_seed();
        if name.is_empty() { self.variant.profile.name.clone() } else { name }
    }

    /// Its distinguishing name; the device's for a single run.
    pub fn name(&self) -> &str {
        if self.variant.name.is_empty() { &self.variant.profile.name } else { &self.variant.name }
    }
}

/// The runs to select.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Part `index` of `parts`, counted from 0, with the controls of its runs.
    Part {
        /// The part.
        index: usize,
        /// Number of parts.
        parts: usize,
    },
    /// Those with these keys.
    Keys(Vec<String>),
}

impl Which {
    /// The selected runs of `all`.
    ///
    /// # Errors
    /// There is no run with one of the keys.
    pub(super) fn select(&self, all: Vec<Variant>, known: Vec<Option<Known>>) -> Result<Vec<Point>, Error> {
        let wanted: BTreeSet<usize> = match self {
            Which::All => (0..all.len()).collect(),
            Which::Part { index, parts } => shard(&all, *index, *parts),
            Which::Keys(keys) => keys.iter().map(|key| place(key, &known)).collect::<Result<_, _>>()?,
        };
        let all = all.into_iter().zip(known).enumerate().filter(|(number, _)| wanted.contains(number));
        Ok(all.map(|(number, (variant, known))| Point { number, variant, known }).collect())
    }
}

/// The index of the run with a key.
fn place(key: &str, known: &[Option<Known>]) -> Result<usize, Error> {
    let is = |known: &Option<Known>| known.as_ref().is_some_and(|k| k.key == key);
    known.iter().position(is).ok_or_else(|| {
        Error::Setting(format!("--only {key}: none of the {} runs has this key; --list shows the keys", known.len()))
    })
}

/// Every `n`-th run that is not a control, from the `i`-th, with its control and that control's control.
fn shard(all: &[Variant], i: usize, n: usize) -> BTreeSet<usize> {
    let controls: BTreeSet<usize> = all.iter().filter_map(|v| v.control).collect();
    let mut wanted = BTreeSet::new();
    for own in (0..all.len()).filter(|place| !controls.contains(place)).skip(i).step_by(n.max(1)) {
        let mut next = Some(own);
        while let Some(place) = next.filter(|place| wanted.insert(*place)) {
            next = all[place].control;
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Settings;

    fn all(compared: &[&str]) -> Vec<Variant> {
        let compare = compared.iter().map(|c| c.to_string()).collect();
        Settings { compare, ..Settings::default() }.variants(None).unwrap()
    }

    fn names(all: &[Variant], of: &BTreeSet<usize>) -> Vec<String> {
        of.iter().map(|n| all[*n].name.clone()).collect()
    }

    #[test]
    fn parts_are_the_whole_and_each_has_the_controls_of_its_runs() {
        let comparisons: [&[&str]; 5] = [
            &["gc=atgc,fagc,joule", "seed=1,2,3", "delta=on"],
            &["delta=on", "seed=1,2"],
            &["seed=1,2,3,4,5,6,7"],
            &["power=battery,powered", "fs=f2fs,scherlfs"],
            &[],
        ];
        for words in comparisons {
            let all = all(words);
            for n in 1..=8 {
                let parts: Vec<_> = (0..n).map(|i| shard(&all, i, n)).collect();
                let whole: BTreeSet<usize> = parts.iter().flatten().copied().collect();
                assert_eq!(whole, (0..all.len()).collect(), "{words:?}: {n} parts");
                for part in &parts {
                    let controls = part.iter().filter_map(|place| all[*place].control);
                    assert!(controls.into_iter().all(|control| part.contains(&control)), "{words:?}: {part:?}");
                }
                // Only controls appear in several parts.
                let controls: BTreeSet<usize> = all.iter().filter_map(|v| v.control).collect();
                let own = |part: &BTreeSet<usize>| part.iter().filter(|p| !controls.contains(p)).count();
                assert_eq!(parts.iter().map(own).sum::<usize>(), all.len() - controls.len(), "{words:?}: {n} parts");
            }
        }
    }

    #[test]
    fn a_run_is_compared_with_the_one_in_which_nobody_cleans_and_else_all_is_the_same() {
        let all = all(&["gc=atgc,fagc", "seed=1,2"]);
        let with = |n: usize| all[n].control.map(|c| all[c].name.clone());
        let told: Vec<(String, Option<String>)> = (0..all.len()).map(|n| (all[n].name.clone(), with(n))).collect();
        let of = |name: &str, control: Option<&str>| (name.to_owned(), control.map(str::to_owned));
        assert_eq!(
            told,
            [
                of("none seed=1", None),
                of("none seed=2", None),
                of("atgc seed=1", Some("none seed=1")),
                of("atgc seed=2", Some("none seed=2")),
                of("fagc seed=1", Some("none seed=1")),
                of("fagc seed=2", Some("none seed=2")),
            ]
        );
        assert_eq!(names(&all, &shard(&all, 0, 4)), ["none seed=1", "atgc seed=1"]);
    }

    #[test]
    fn a_run_with_deltas_is_compared_with_the_same_without_them() {
        let all = all(&["seed=1,2", "delta=on"]);
        let controls: Vec<Option<&str>> = all.iter().map(|v| v.control.map(|c| all[c].name.as_str())).collect();
        assert_eq!(controls, [None, Some("seed=1 delta=off"), None, Some("seed=2 delta=off")]);
    }
}
