//! An experiment's measurements as rows ([`terminal::rows`]): a run is one phase of one variant with one seed.
//!
//! `runs.parquet` has what a phase depends on (`parameter_...`), its cost, and every measured number (`measured_...`);
//! the units are in `measures.parquet`, which has one row for each of these numbers. If a plan has a control, a phase
//! is compared with the same phase of the variant without background cleaning. `comparison.parquet` has what is said of
//! the variants ([`lab::judged`]).

use std::collections::HashMap;
use std::io;
use std::path::Path;

use device::energy::{Component, Energy};
use lab::control;
use lab::key::Key;
use lab::plan::{Changes, Experiment, Job};
use lab::result::{Outcome, VariantResult};
use serde_json::{Value, json};
use sim::labels::{Cause, Words};
use sim::result::{DELETED, Phase};
use terminal::rows::cells::Cells;
use terminal::rows::{self, Amount, word};
use terminal::{Failure, judged, program};
use trace::replay::blocks::Latency;
use vfs::Reason;

use super::Compared;
use crate::unplanned;

/// The version of the schema.
const SCHEMA: (&str, &str) = ("joulefs.lab", "2");

/// A phase and its key.
struct Run<'a> {
    number: usize,
    key: String,
    name: String,
    control: Option<String>,
    variant: &'a VariantResult,
    phase: &'a Phase,
}

impl rows::Run for Run<'_> {
    fn begin(&self) -> (usize, &str, &str) {
        (self.number, &self.key, &self.name)
    }

    fn energy(&self, tell: &mut dyn FnMut(&Amount<'_>) -> io::Result<()>) -> io::Result<()> {
        let reasons: Vec<Reason> = self.phase.fs.reasons().to_vec();
        let words = Words { reasons, rest: String::new() };
        let mut causes: HashMap<u8, Cause> = HashMap::new();
        for amount in self.phase.amounts() {
            let cause = causes.entry(amount.cause).or_insert_with(|| words.named(amount.cause));
            let owner_name = match self.phase.account.names.get(&amount.owner).map(String::as_str) {
                Some(DELETED) => format!("<inode {}, deleted>", amount.owner),
                Some(path) => path.to_owned(),
                None if amount.owner == 0 => "<no file>".to_owned(),
                None => format!("<inode {}>", amount.owner),
            };
            tell(&Amount {
                owner: amount.owner,
                owner_name: &owner_name,
                number: amount.cause,
                cause,
                component: amount.component,
                energy: amount.energy,
            })?;
        }
        Ok(())
    }

    fn timeline(&self) -> Vec<(u64, [Energy; Component::ALL.len()])> {
        self.phase.timeline.iter().map(|sample| (sample.at.0, sample.spent)).collect()
    }

    fn latencies(&self) -> &[Latency] {
        &self.phase.account.latencies
    }
}

/// The runs of an outcome.
fn runs<'a>(experiment: &Experiment, changes: &Changes, outcome: &'a Outcome) -> Result<Vec<Run<'a>>, Failure> {
    let said = |e: &dyn std::fmt::Display| Failure::from(e.to_string());
    let build = program::build();
    let jobs = experiment.jobs(changes).map_err(unplanned)?;
    let controls = control::of_jobs(&experiment.plan, &jobs);
    let of = |job: &Job| {
        let is_it = |v: &&VariantResult| (&v.name, &v.profile, v.seed) == (&job.variant, &job.profile, job.seed);
        outcome.variants.iter().find(is_it)
    };
    let key = |job: &Job| Key::of(build, experiment.plan.kind, job).map_err(|e| said(&e));
    let keys = jobs.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let mut runs = Vec::new();
    for (n, job) in jobs.iter().enumerate() {
        let Some(variant) = of(job) else { continue };
        let control = controls[n].and_then(|place| Some((place, of(&jobs[place])?)));
        for (at, phase) in variant.phases.iter().enumerate() {
            // The phase with the same name; of several, the one with the same index.
            let nth = variant.phases[..at].iter().filter(|p| p.name == phase.name).count();
            let same = |(place, control): (usize, &VariantResult)| {
                let mut own = control.phases.iter().enumerate().filter(|(_, p)| p.name == phase.name);
                own.nth(nth).map(|(at, p)| keys[place].phase(at, &p.name))
            };
            runs.push(Run {
                number: runs.len(),
                key: keys[n].phase(at, &phase.name),
                name: format!("{} {}", outcome.name_of(variant), phase.name),
                control: control.and_then(same),
                variant,
                phase,
            });
        }
    }
    Ok(runs)
}

/// A valid column name.
fn column(prefix: &str, name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("{prefix}_{}", name.chars().map(letter).collect::<String>())
}

/// Adds a parameter; a table becomes one parameter per entry.
fn parameters(prefix: &str, value: &toml::Value, put: &mut dyn FnMut(String, Value)) {
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| parameters(&column(prefix, name), value, put));
        }
        value => put(prefix.to_owned(), json!(value)),
    }
}

/// The columns of a run's own row.
fn cells(outcome: &Outcome, run: &Run<'_>) -> Result<Cells, Failure> {
    let Run { variant, phase, .. } = run;
    let mut row = Cells::new();
    let mut put = |name: &str, value: Value| row.push((name.to_owned(), value));
    put("run", json!(run.number));
    put("key", json!(run.key));
    put("name", json!(run.name));
    put("control", json!(run.control));
    put("version", json!(outcome.version));
    put("build", json!(program::build()));
    put("experiment", json!(outcome.experiment));
    put("variant", json!(variant.name));
    put("seed", json!(variant.seed));
    put("phase", json!(phase.name));
    put("stage", json!(phase.stage));
    put("quick", json!(outcome.quick));
    put("profile", json!(variant.profile));
    put("fs", json!(phase.fs.type_name()));
    for (name, value) in &variant.parameters {
        parameters(&column("parameter", name), value, &mut |name, value| put(&name, value));
    }
    put("total_pj", json!(phase.total().0));
    put("range_low_pj", json!(phase.range.map(|[low, _]| low.0)));
    put("range_high_pj", json!(phase.range.map(|[_, high]| high.0)));
    for component in Component::ALL {
        put(&format!("{}_pj", word(component)), json!(phase.component(component).0));
    }
    put("time_ns", json!(phase.took.0));
    put("bytes", json!(phase.bytes));
    type Count = fn(&sim::result::Traffic) -> u64;
    let counts: [(&str, Count); 4] = [
        ("requests_read", |t| t.reads),
        ("requests_written", |t| t.writes),
        ("blocks_read", |t| t.blocks_read),
        ("blocks_written", |t| t.blocks_written),
    ];
    for (name, count) in counts {
        put(name, json!(phase.traffic.iter().map(count).sum::<u64>()));
    }
    for (name, measure) in &phase.measures {
        put(&column("measured", name), json!(measure.value));
    }
    for (name, count) in &phase.counters {
        put(&column("model", name), json!(count));
    }
    Ok(row)
}

/// Every measured number, with its unit.
fn measures(run: &Run<'_>) -> impl Iterator<Item = Cells> {
    run.phase.measures.iter().map(|(name, measure)| {
        let row = [
            ("run", json!(run.number)),
            ("key", json!(run.key)),
            ("name", json!(run.name)),
            ("measure", json!(name)),
            ("value", json!(measure.value)),
            ("unit", json!(measure.unit)),
        ];
        row.map(|(name, value)| (name.to_owned(), value)).into()
    })
}

/// Writes the files into a directory, which is created if missing.
pub(super) fn write(
    experiment: &Experiment,
    changes: &Changes,
    outcome: &Outcome,
    compared: &Compared<'_>,
    dir: &Path,
) -> Result<(), Failure> {
    let runs = runs(experiment, changes, outcome)?;
    let cells = runs.iter().map(|run| cells(outcome, run)).collect::<Result<Vec<_>, _>>()?;
    let measures: Vec<Cells> = runs.iter().flat_map(measures).collect();
    let comparison = judged::cells(compared.verdicts, &compared.runs);
    rows::write_with(dir, SCHEMA, &runs, &cells, &[("measures", &measures), ("comparison", &comparison)])
}

/// The variants as compared runs, in the outcome's order; each has number and key of its first row.
pub(super) fn compared(
    experiment: &Experiment,
    changes: &Changes,
    outcome: &Outcome,
) -> Result<Vec<judged::Run>, Failure> {
    let runs = runs(experiment, changes, outcome)?;
    let one = |v: &VariantResult| {
        let first = runs.iter().find(|run| std::ptr::eq(run.variant, v));
        judged::Run {
            seed: v.seed,
            total: v.judged().map(Phase::total).sum(),
            number: first.map_or(0, |run| run.number),
            key: first.map(|run| run.key.clone()),
        }
    };
    Ok(outcome.variants.iter().map(one).collect())
}
