//! Which measurements do the documents quote that no paper has published?
//!
//! `quoted.csv` is next to `paper.csv`, with the same columns `unit`, `how`, `measure`, `of` and `over`, and the number
//! of a full run, `ours`. A new row has no number yet. `JOULEFS_QUOTE=NAME` runs the experiment in full and writes the
//! numbers; `JOULEFS_DEEP=1` runs all and compares to the last digit.

use std::fs;
use std::num::NonZeroUsize;

use lab::claim::{Claim, How};
use lab::keep;
use lab::plan::{Changes, Experiment, SHIPPED};
use serde::{Deserialize, Serialize};

use super::root;

/// A row of a `quoted.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name.
    pub quantity: String,
    /// The number.
    pub ours: Option<f64>,
    /// Its unit.
    pub unit: String,
    how: How,
    measure: String,
    of: String,
    over: String,
}

fn path(experiment: &str) -> std::path::PathBuf {
    root().join("experiments").join(experiment).join("quoted.csv")
}

/// The rows of an experiment; most have none.
pub fn rows(experiment: &str) -> Vec<Row> {
    let Ok(text) = fs::read_to_string(path(experiment)) else { return Vec::new() };
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader
        .deserialize()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|e| panic!("experiments/{experiment}/quoted.csv: {e}"))
}

/// The first line of a file: the plan and recordings of its numbers.
fn origin(experiment: &Experiment) -> String {
    let recordings = keep::of_recordings(&root().join("experiments").join(&experiment.name)).unwrap();
    let name = &experiment.name;
    format!(
        "# Made by `JOULEFS_QUOTE={name} cargo test -p joulefs-lab --test together quoted::`.\n\
         # of plan {}, recordings {recordings}\n",
        keep::of_plan(experiment).unwrap()
    )
}

#[test]
fn quoted_numbers_are_there_and_of_the_plan() {
    let asked = std::env::var("JOULEFS_QUOTE").unwrap_or_default();
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let mut wrong = Vec::new();
    for (name, _) in SHIPPED {
        let mut rows = rows(name);
        if rows.is_empty() {
            continue;
        }
        let experiment = Experiment::find(name).unwrap();
        if asked.split(',').any(|asked| asked == *name) {
            rows = measured(&experiment, rows);
            write(&experiment, &rows);
        } else if deep {
            let now = measured(&experiment, rows.clone());
            let other =
                rows.iter().zip(&now).filter(|(kept, now)| kept.ours.map(f64::to_bits) != now.ours.map(f64::to_bits));
            wrong.extend(other.map(|(kept, now)| {
                format!("{name}: {}: {:?} is kept, {:?} comes out", kept.quantity, kept.ours, now.ours)
            }));
        }
        let text = fs::read_to_string(path(name)).unwrap();
        if !text.starts_with(&origin(&experiment)) || rows.iter().any(|row| row.ours.is_none()) {
            wrong.push(format!("JOULEFS_QUOTE={name} cargo test -p joulefs-lab --test together quoted::"));
        }
        let known: Vec<_> = experiment.paper.iter().map(|c| &c.quantity).collect();
        wrong.extend(
            rows.iter().filter(|r| known.contains(&&r.quantity)).map(|r| format!("{name}: {} is kept", r.quantity)),
        );
    }
    assert!(wrong.is_empty(), "stale, or without a number; run\n{}", wrong.join("\n"));
}

/// The rows with the measurements of a full run.
fn measured(experiment: &Experiment, mut rows: Vec<Row>) -> Vec<Row> {
    let claim = |row: &Row| {
        let Row { quantity, unit, how, measure, of, over, .. } = row.clone();
        Claim { quantity, value: 0.0, unit, place: "quoted".into(), how, measure, of, over, note: String::new() }
    };
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcome = lab::run::run(experiment, &Changes::default(), threads, &|_| ()).unwrap();
    let claims: Vec<_> = rows.iter().map(claim).collect();
    for (row, measured) in rows.iter_mut().zip(lab::compare::compare(&claims, &outcome, &experiment.plan.seeds)) {
        row.ours = measured.ours;
        let Row { quantity, measure, of, unit, .. } = row;
        assert!(measured.ours.is_some(), "{quantity}: no phase {of:?} measured {measure:?} in {unit}");
    }
    rows
}

fn write(experiment: &Experiment, rows: &[Row]) {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().for_each(|row| writer.serialize(row).unwrap());
    let rows = String::from_utf8(writer.into_inner().unwrap()).unwrap();
    fs::write(path(&experiment.name), origin(experiment) + &rows).unwrap();
}
