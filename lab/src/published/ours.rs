//! Our numbers: those of a full run that are stored with the experiments, or those of given results.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Number, Reckoning, numbers_in};
use crate::claim::{Claim, Comparison, How};
use crate::plan::{Experiment, PlanError};
use crate::result::Outcome;

macro_rules! quoted {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../experiments/", $name, "/quoted.csv")))),*]
    };
}

/// Stored numbers that correspond to no published one alone: the documents quote them, and [`Reckoning`] combines them.
pub const QUOTED: &[(&str, &str)] = quoted![
    "gc-idle",
    "medfs-fig12",
    "medfs-fig7-10",
    "scherl-fig6-1-10",
    "scherl-fig6-11",
    "scherl-fig6-12-13",
    "scherl-placement",
    "scherl-sleep",
    "scherl-strategies",
];

/// Our numbers, by experiment and row of `paper.csv` or `quoted.csv`.
#[derive(Debug, Clone, Default)]
pub struct Ours {
    rows: BTreeMap<(String, String), Measured>,
    quoted: BTreeMap<(String, String), f64>,
}

/// Our number, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The published number and ours.
    pub comparison: Comparison,
    /// Why there is no number; otherwise empty.
    pub missing: String,
}

/// The columns of `quoted.csv` that are read here.
#[derive(Deserialize)]
struct Quoted {
    quantity: String,
    ours: Option<f64>,
}

impl Ours {
    /// The numbers stored with the shipped experiments.
    pub fn kept() -> Result<Ours, PlanError> {
        let mut ours = Ours::default();
        for (name, _) in crate::plan::SHIPPED {
            ours.take_kept(&Experiment::find(name)?);
        }
        for (name, text) in QUOTED {
            let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
            for row in reader.deserialize() {
                let malformed = |e: csv::Error| PlanError::Malformed {
                    experiment: (*name).into(),
                    file: "quoted.csv",
                    message: e.to_string(),
                };
                let row: Quoted = row.map_err(malformed)?;
                ours.quoted.extend(row.ours.map(|n| (((*name).to_owned(), row.quantity), n)));
            }
        }
        Ok(ours)
    }

    /// Adds an experiment's stored numbers.
    pub fn take_kept(&mut self, experiment: &Experiment) {
        for claim in &experiment.paper {
            let row = experiment.kept.row(&claim.quantity);
            let missing = match row {
                Some(row) => row.missing.clone(),
                None => format!("{} was not run for it yet", experiment.name),
            };
            let comparison = Comparison { claim: claim.clone(), ours: row.and_then(|r| r.ours) };
            self.add(&experiment.name, Measured { comparison, missing });
        }
    }

    /// Replaces stored numbers by a result's.
    pub fn take(&mut self, outcome: &Outcome) {
        for c in outcome.compared.iter().filter(|c| c.ours.is_some()) {
            self.add(&outcome.experiment, Measured { comparison: c.clone(), missing: String::new() });
        }
    }

    /// Adds or replaces a number.
    pub(super) fn add(&mut self, experiment: &str, measured: Measured) {
        self.rows.insert((experiment.to_owned(), measured.comparison.claim.quantity.clone()), measured);
    }

    /// Our number for a row.
    pub fn of(&self, experiment: &str, quantity: &str) -> Option<&Measured> {
        self.rows.get(&(experiment.to_owned(), quantity.to_owned()))
    }

    /// A number calculated from several rows, next to the published one.
    pub fn reckoned(&self, how: Reckoning, of: &[(String, String)], number: &Number) -> Option<Comparison> {
        let one = |(experiment, quantity): &(String, String)| {
            let quoted = self.quoted.get(&(experiment.clone(), quantity.clone())).copied();
            quoted.or_else(|| self.of(experiment, quantity)?.comparison.ours)
        };
        let all: Vec<f64> = of.iter().map(one).collect::<Option<_>>()?;
        let ours = match (how, all.as_slice()) {
            (Reckoning::Mean, all) => all.iter().sum::<f64>() / all.len() as f64,
            (Reckoning::Increase, [of, over]) => 100.0 * (of / over - 1.0),
            (Reckoning::Increase, _) => return None,
        };
        let sign = if number.value.starts_with('-') { -1.0 } else { 1.0 };
        let claim = Claim {
            quantity: number.quantity.clone(),
            value: numbers_in(&number.value).first().map_or(0.0, |n| sign * n),
            unit: number.unit.clone(),
            place: number.place.clone(),
            how: How::Mean,
            measure: String::new(),
            of: String::new(),
            over: String::new(),
            note: String::new(),
        };
        Some(Comparison { claim, ours: Some(ours) })
    }
}
