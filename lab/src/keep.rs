//! Which results may be stored, and when is a stored result stale?
//!
//! A result may be stored if it is the plan's own: no quick run, nothing changed by options. Two fingerprints cover the
//! inputs of a stored number. One covers what the plan runs and the prices, recipes and rows of `paper.csv` that it
//! uses, but no descriptive text. The other covers the recordings next to the plan. Neither covers the program's code:
//! `make deep` runs everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device::energy::profile::{Profile, ProfileError};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::claim::{Claim, How};
use crate::compare::{compare, selects};
use crate::kept::{Kept, Origin, Row};
use crate::plan::{Changes, Experiment, Job, Kind, PlanError};
use crate::result::{Outcome, VariantResult};
use sim::aging::Recipe;

/// Why a result is not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotKept {
    /// The result is not the plan's own.
    #[error("{experiment}: {what}: only full runs of the unchanged plan can be stored")]
    NotThePlan {
        /// The experiment.
        experiment: String,
        /// The difference.
        what: String,
    },
    /// No measurement corresponds to a published number.
    #[error("{experiment}: no result for {quantity:?}: no phase {of:?} measured {measure:?} in its unit")]
    Unanswered {
        /// The experiment.
        experiment: String,
        /// The row of `paper.csv`.
        quantity: String,
        /// The row's phases.
        of: String,
        /// The row's measure.
        measure: String,
    },
    /// The experiment's plan is malformed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan names a profile that does not exist.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A recording cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The cause.
        source: std::io::Error,
    },
}

/// The columns of `paper.csv` that define how our number is calculated.
#[derive(Serialize)]
struct Made<'a> {
    quantity: &'a str,
    value: f64,
    unit: &'a str,
    how: How,
    measure: &'a str,
    of: &'a str,
    over: &'a str,
}

impl<'a> Made<'a> {
    fn of(claim: &'a Claim) -> Self {
        let Claim { quantity, value, unit, how, measure, of, over, .. } = claim;
        Made { quantity, value: *value, unit, how: *how, measure, of, over }
    }
}

/// All inputs of a plan's numbers except recordings and code.
#[derive(Serialize)]
struct Inputs<'a> {
    kind: Kind,
    jobs: Vec<(&'a str, &'a str, u64, &'a Option<String>, String)>,
    prices: Vec<(String, f64, String)>,
    recipes: Vec<String>,
    paper: Vec<Made<'a>>,
}

fn short(digest: Sha256) -> String {
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A table as text, independent of the order of its entries.
pub(crate) fn in_order(table: &toml::Table) -> String {
    fn text(value: &toml::Value) -> String {
        match value {
            toml::Value::Table(table) => in_order(table),
            toml::Value::Array(list) => format!("{:?}", list.iter().map(text).collect::<Vec<_>>()),
            value => value.to_string(),
        }
    }
    format!("{:?}", table.iter().map(|(name, value)| (name, text(value))).collect::<BTreeMap<_, _>>())
}

/// Fingerprint of what an experiment runs.
pub fn of_plan(experiment: &Experiment) -> Result<String, NotKept> {
    let jobs = experiment.jobs(&Changes::default())?;
    let profiles: BTreeSet<&str> = jobs.iter().map(|j| j.profile.as_str()).collect();
    let mut prices = Vec::new();
    for name in profiles {
        let numbers = Profile::find(name)?.numbers();
        prices.extend(numbers.into_iter().map(|n| (format!("{name} {}", n.name), n.value, n.unit)));
    }
    let states: BTreeSet<&str> = jobs.iter().filter_map(|j| j.parameters.get("state")?.as_str()).collect();
    let inputs = Inputs {
        kind: experiment.plan.kind,
        jobs: jobs.iter().map(|j| (&*j.variant, &*j.profile, j.seed, &j.needs, in_order(&j.told()))).collect(),
        prices,
        recipes: states.into_iter().map(|name| format!("{:?}", Recipe::chain(name))).collect(),
        paper: experiment.paper.iter().map(Made::of).collect(),
    };
    // OK to unwrap: the value has only numbers, strings and tables.
    Ok(short(Sha256::new_with_prefix(serde_json::to_vec(&inputs).unwrap())))
}

/// Fingerprint of the recordings in an experiment's directory.
pub fn of_recordings(dir: &Path) -> Result<String, NotKept> {
    let unreadable = |path: &Path| {
        let file = path.display().to_string();
        move |source| NotKept::Unreadable { file, source }
    };
    let entries = std::fs::read_dir(dir).map_err(unreadable(dir))?;
    let mut files = entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable(dir))?;
    files.retain(|f| f.extension().is_some_and(|e| e == "rec" || e == "zst"));
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        let bytes = std::fs::read(file).map_err(unreadable(file))?;
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    }
    Ok(if files.is_empty() { "none".into() } else { short(digest) })
}

/// An outcome's measurements, to be stored; `recordings` is the fingerprint of the recordings.
pub fn of(experiment: &Experiment, outcome: &Outcome, recordings: String) -> Result<Kept, NotKept> {
    as_planned(experiment, outcome)?;
    let seeds = &experiment.plan.seeds;
    let rows = compare(&experiment.paper, outcome, seeds).into_iter().map(|c| {
        let claim = &c.claim;
        let missing = if c.ours.is_some() { String::new() } else { skipped(experiment, outcome, claim)? };
        let own = outcome.variants.iter().filter(|v| seeds.contains(&v.seed));
        let measured: Vec<_> = own.filter(|v| is_of(claim, v)).collect();
        Ok(Row {
            quantity: claim.quantity.clone(),
            ours: c.ours,
            unit: claim.unit.clone(),
            profile: list(measured.iter().map(|v| v.profile.clone())),
            seed: list(measured.iter().map(|v| v.seed.to_string())),
            version: outcome.version.clone(),
            missing,
        })
    });
    let rows = rows.collect::<Result<_, NotKept>>()?;
    Ok(Kept { of: Some(Origin { plan: of_plan(experiment)?, recordings }), rows })
}

/// Checks that an outcome is exactly the whole plan, apart from further seeds.
pub fn as_planned(experiment: &Experiment, outcome: &Outcome) -> Result<(), NotKept> {
    let differs = |what: String| NotKept::NotThePlan { experiment: experiment.name.clone(), what };
    if outcome.quick {
        return Err(differs("a quick run".into()));
    }
    let is_it = |j: &Job, v: &VariantResult| {
        (&v.name, &v.profile, v.seed, &v.parameters) == (&j.variant, &j.profile, j.seed, &j.told())
    };
    let jobs = experiment.jobs(&Changes::default())?;
    for j in &jobs {
        let ran = outcome.variants.iter().any(|v| is_it(j, v));
        if !ran && !outcome.skipped.iter().any(|s| s.variant == j.variant) {
            return Err(differs(format!(
                "variant {}, seed {}, did not run with the plan's parameters",
                j.variant, j.seed
            )));
        }
    }
    let mut own = outcome.variants.iter().filter(|v| experiment.plan.seeds.contains(&v.seed));
    match own.find(|v| !jobs.iter().any(|j| is_it(j, v))) {
        Some(v) => Err(differs(format!("variant {}, seed {}, ran differently", v.name, v.seed))),
        None => Ok(()),
    }
}

fn is_of(claim: &Claim, v: &VariantResult) -> bool {
    [&claim.of, &claim.over].into_iter().any(|select| v.phases.iter().any(|p| selects(select, &v.name, &p.name)))
}

/// Why a number is missing.
fn skipped(experiment: &Experiment, outcome: &Outcome, claim: &Claim) -> Result<String, NotKept> {
    let selects = [&claim.of, &claim.over].into_iter().flat_map(|s| s.split('+'));
    let named = |variant: &str| selects.clone().any(|s| s.trim().split('/').next() == Some(variant));
    let whys: Vec<String> = outcome.skipped.iter().filter(|s| named(&s.variant)).map(|s| s.why.clone()).collect();
    if whys.is_empty() {
        return Err(NotKept::Unanswered {
            experiment: experiment.name.clone(),
            quantity: claim.quantity.clone(),
            of: claim.of.clone(),
            measure: claim.measure.clone(),
        });
    }
    Ok(list(whys.into_iter()))
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str =
        "title = \"t\"\nkind = \"disk-modes\"\nprofile = \"microdrive\"\n[parameters]\nrandom_reads = 5\n";
    const PAPER: &str =
        "quantity,value,unit,place,how,measure,of,over,note\nseek,7.64,mJ,T1,mean,seek,*/random-read,,\n";

    fn fingerprint(readme: &str, plan: &str, paper: &str) -> String {
        of_plan(&Experiment::parse("x", readme, plan, paper).unwrap()).unwrap()
    }

    #[test]
    fn words_for_people_change_no_fingerprint_and_what_is_run_does() {
        let before = fingerprint("", PLAN, PAPER);
        let words =
            fingerprint("Another claim.", &PLAN.replace("\"t\"", "\"u\" # why"), &PAPER.replace("T1", "Table 1"));
        assert_eq!(before, words);
        let small = fingerprint("", &format!("{PLAN}[quick]\nrandom_reads = 1\n"), PAPER);
        assert_eq!(before, small, "a quick run is not kept");
        for (plan, paper) in [
            (PLAN.replace('5', "6"), PAPER.to_owned()),
            (PLAN.replace("microdrive", "laptop-disk-4200"), PAPER.to_owned()),
            (format!("seeds = [2]\n{PLAN}"), PAPER.to_owned()),
            (PLAN.to_owned(), PAPER.replace("mean", "at-most")),
            (PLAN.to_owned(), PAPER.replace("7.64", "7.65")),
        ] {
            assert_ne!(before, fingerprint("", &plan, &paper), "{plan}{paper}");
        }
    }

    #[test]
    fn recordings_count_by_name_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let of = || of_recordings(dir.path()).unwrap();
        std::fs::write(dir.path().join("README.md"), "a").unwrap();
        assert_eq!(of(), "none");
        std::fs::write(dir.path().join("a.rec"), "1").unwrap();
        let one = of();
        std::fs::write(dir.path().join("a.rec"), "2").unwrap();
        let two = of();
        std::fs::rename(dir.path().join("a.rec"), dir.path().join("b.rec")).unwrap();
        assert!(one != two && two != of() && one != of());
    }
}
