//! What does an experiment claim, which parameters can be changed, and how long does it run?

use std::collections::BTreeMap;

use device::energy::Nanos;
use lab::experiments::taken::{self, Parameter};
use lab::plan::{Changes, Experiment, Job};
use lab::took::{Run, Size};
use serde_json::{Map, Value, json};
use terminal::{Failure, joules, output, table};

use crate::unplanned;

/// `joulefs lab show`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs lab show fagc-fig5\n  joulefs lab show ./my-experiment --json\n\n\
    A parameter has the value of the plan; where variants and a quick run differ, their values follow.\n\
    A table is set as one value: --set 'after={ mib = 64, file_kib = 16 }'.")]
pub struct ShowArgs {
    /// The experiment by name, or by the path of its directory.
    name: String,
}

/// A parameter's values in an experiment.
#[derive(Default)]
struct Values {
    /// The plan's value; without one, the first variant's.
    plan: Option<toml::Value>,
    /// Values of a quick run, if they differ from all others.
    quick: Option<toml::Value>,
    /// Values of variants that differ from the first.
    variants: BTreeMap<String, toml::Value>,
}

/// Prints an experiment.
pub fn run(args: &ShowArgs, as_json: bool) -> Result<(), Failure> {
    let e = Experiment::find(&args.name).map_err(unplanned)?;
    let jobs = e.jobs(&Changes::default()).map_err(unplanned)?;
    let quick = e.plan.quick.clone();
    let parameters: Vec<(Parameter, Values)> = taken::parameters(e.plan.kind)
        .into_iter()
        .map(|parameter| {
            let values = values(&parameter.name, &e, &jobs, &quick);
            (parameter, values)
        })
        .collect();
    match as_json {
        true => output::print(&of_machines(&e, &jobs, &parameters)),
        false => of_people(args, &e, &jobs, &parameters),
    }
    Ok(())
}

fn values(name: &str, e: &Experiment, jobs: &[Job], quick: &toml::Table) -> Values {
    let plan = e.plan.parameters.get(name).cloned();
    let mut variants = BTreeMap::new();
    for job in jobs {
        if let Some(value) = job.parameters.get(name).filter(|v| Some(*v) != plan.as_ref()) {
            variants.insert(job.variant.clone(), value.clone());
        }
    }
    let quick = quick.get(name).filter(|v| Some(*v) != plan.as_ref()).cloned();
    Values { plan, quick, variants }
}

fn kind(e: &Experiment) -> String {
    // A kind always serializes to a string.
    serde_json::to_value(e.plan.kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn of_machines(e: &Experiment, jobs: &[Job], parameters: &[(Parameter, Values)]) -> Value {
    let parameter = |(p, v): &(Parameter, Values)| {
        let mut row = json!(p);
        row["value"] = json!(v.plan);
        row["quick"] = json!(v.quick);
        row["variants"] = json!(v.variants);
        row
    };
    let variant = |name: &str| {
        let mut of = jobs.iter().filter(|j| j.variant == name);
        let first = of.next();
        json!({
            "name": name,
            "control": e.plan.control.iter().any(|c| c == name),
            "profile": first.map(|j| &j.profile),
            "needs": first.and_then(|j| j.needs.as_ref()),
            "assume": first.map(|j| &j.assume),
        })
    };
    let took: Map<String, Value> = [("full", Size::Full), ("quick", Size::Quick)]
        .map(|(n, size)| (n.to_owned(), e.took.of(size).map_or(Value::Null, measured)))
        .into_iter()
        .collect();
    json!({
        "name": e.name,
        "title": e.plan.title,
        "claim": e.claim(),
        "kind": kind(e),
        "profile": e.plan.profile,
        "seeds": e.plan.seeds,
        "repetitions": repetitions(e),
        "published": e.paper.len(),
        "variants": names(jobs).into_iter().map(variant).collect::<Vec<_>>(),
        "parameters": parameters.iter().map(parameter).collect::<Vec<_>>(),
        "took": took,
        "not_shipped": needs(jobs),
    })
}

/// A measured run; times in nanoseconds, as in every answer.
fn measured(run: &Run) -> Value {
    let mut row = json!(run);
    if let Value::Object(row) = &mut row {
        for (name, seconds) in [("seconds", run.seconds), ("cpu_seconds", run.cpu_seconds)] {
            row.remove(name);
            row.insert(name.replace("seconds", "time_ns"), json!(Nanos::from_seconds(seconds)));
        }
    }
    row
}

/// The variants' names, in the plan's order.
fn names(jobs: &[Job]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for job in jobs {
        if !names.contains(&job.variant.as_str()) {
            names.push(&job.variant);
        }
    }
    names
}

fn of_people(args: &ShowArgs, e: &Experiment, jobs: &[Job], parameters: &[(Parameter, Values)]) {
    let columns = table::columns().unwrap_or(100);
    let text =
        |indent: usize, text: &str| output::lines(&format!("{:indent$}{}", "", output::wrapped(text, indent, columns)));
    text(0, &format!("{}: {}", e.name, e.plan.title));
    text(0, &e.claim());
    output::line("");
    let fact = |what: &str, said: &str| output::lines(&format!("{what:<11}{}", output::wrapped(said, 11, columns)));
    fact("kind", &kind(e));
    fact("profile", &e.plan.profile);
    let seeds = e.plan.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let more = repetitions(e).filter(|many| *many > e.plan.seeds.len());
    fact("seeds", &(seeds + &more.map_or(String::new(), |many| format!(" (`lab run` repeats it with {many})"))));
    fact("variants", &names(jobs).into_iter().map(|n| variant(e, jobs, n)).collect::<Vec<_>>().join(", "));
    fact("published", &format!("{} numbers are compared", e.paper.len()));
    let needs = needs(jobs);
    fact("full run", &took(e.took.of(Size::Full), &needs));
    fact("--quick", &took(e.took.of(Size::Quick), &needs));
    output::lines(&format!("\nparameters (joulefs lab run {} --set NAME=VALUE):", args.name));
    for (p, values) in parameters {
        text(2, &said(p, values));
        let words = if p.words.is_empty() { String::new() } else { format!(": {}", p.words.join(", ")) };
        text(6, &format!("{} [{}{words}; {}]", p.meaning, p.form, p.read_in));
        for field in &p.fields {
            let words = if field.words.is_empty() { String::new() } else { format!(": {}", field.words.join(", ")) };
            let may = if field.required { "" } else { ", optional" };
            text(6, &format!("{}: {} [{}{words}{may}]", field.name, field.meaning, field.form));
        }
    }
}

/// The number of seeds without --seeds.
fn repetitions(e: &Experiment) -> Option<usize> {
    e.repetitions(&Changes::default()).ok().map(std::num::NonZeroUsize::get)
}

/// A variant's name and its differences other than parameters.
fn variant(e: &Experiment, jobs: &[Job], name: &str) -> String {
    let mut also = Vec::new();
    if e.plan.control.iter().any(|c| c == name) {
        also.push("control".to_owned());
    }
    if let Some(job) = jobs.iter().find(|j| j.variant == name) {
        also.extend((job.profile != e.plan.profile).then(|| job.profile.clone()));
        also.extend(job.needs.as_ref().map(|file| format!("needs {file}")));
        also.extend(job.assume.iter().map(|(number, value)| format!("{number} = {value}")));
    }
    if also.is_empty() { name.to_owned() } else { format!("{name} ({})", also.join(", ")) }
}

/// A parameter's name and values, as text.
fn said(p: &Parameter, values: &Values) -> String {
    let value = match (&values.plan, &p.default) {
        (Some(value), _) => format!("{} = {value}", p.name),
        (None, _) if !values.variants.is_empty() => format!("{}: set by the variants", p.name),
        (None, Some(default)) => format!("{} = {default} (default; not in the plan)", p.name),
        (None, None) => format!("{}: not in the plan", p.name),
    };
    let others = values.variants.iter().map(|(name, value)| format!("; {name}: {value}"));
    let quick = values.quick.iter().map(|value| format!("; --quick: {value}"));
    std::iter::once(value).chain(others).chain(quick).collect()
}

/// External files that variants need.
fn needs(jobs: &[Job]) -> Vec<&str> {
    let mut files: Vec<&str> = jobs.iter().filter_map(|j| j.needs.as_deref()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Run time and memory as text. If not measured, gives the known reason: a run that skips variants says nothing about a
/// whole one.
fn took(run: Option<&Run>, needs: &[&str]) -> String {
    let Some(run) = run else {
        return match needs {
            [] => "not measured".into(),
            [one] => format!("not measured: variants need {one}, which is not shipped"),
            several => format!("not measured: variants need {}, which are not shipped", several.join(" and ")),
        };
    };
    let time = joules::time((run.cpu_seconds * 1e9) as u64);
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    format!(
        "{time} of CPU time, {} of memory ({threads}, {}, {} build)",
        output::bytes(run.peak_bytes),
        run.processor,
        run.build
    )
}
