//! The commands of the laboratory: list, show and run experiments, and compare their results with published numbers.
//!
//! All arguments are checked against all plans before the first experiment runs. Left out: the experiments themselves
//! (the library `lab`).

mod keep;
mod papers;
mod rows;
mod show;
mod took;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use device::energy::Range;
use device::energy::profile::Profile;
use lab::error::LabError;
use lab::plan::{Changes, Experiment, SHIPPED};
use lab::result::Outcome;
use serde_json::json;
use sim::replay::judged::Judged;
use terminal::half_made::HalfMade;
use terminal::table::{self, Table};
use terminal::{Failure, judged, meant, output, progress, whole};

use self::took::Watch;
use crate::{generate, unplanned};

/// The commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the experiments.
    #[command(after_help = "Examples:\n  joulefs lab list\n  joulefs lab list --json")]
    List,
    /// Show an experiment's claims, variants, parameters, run time and memory.
    Show(show::ShowArgs),
    /// Run experiments and compare the results with the published numbers.
    Run(RunArgs),
    /// Write an HTML report: all published numbers next to ours, and plots.
    Report(ReportArgs),
    /// Print all published numbers next to ours, with verdict and reason.
    Papers(papers::PapersArgs),
    /// Store result numbers next to the experiments' plans, as `run --keep` does.
    Keep(keep::KeepArgs),
    #[command(hide = true)]
    Generate(generate::Args),
}

/// What `run` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs lab run --quick fagc-fig4\n  \
    joulefs lab run nexus-sqlite --set rows=1000000\n  \
    joulefs lab run fagc-fig12 --variant none --variant fagc --parquet rows\n  \
    joulefs lab run --all --quick --threads 1\n\n\
    `joulefs lab show NAME` lists an experiment's variants, parameters, run time and memory. Its\n\
    plan.toml has the same; the shipped experiments are in experiments/ of the JouleFS sources.")]
pub struct RunArgs {
    /// Names of experiments, or paths of directories with README.md, plan.toml and paper.csv.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Run all shipped experiments.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Run a small version: seconds instead of minutes; the numbers may be less exact.
    #[arg(long)]
    quick: bool,
    /// Run on this device instead: a shipped profile's name or a profile file.
    #[arg(long)]
    profile: Option<String>,
    /// Run with this seed instead of the plan's.
    #[arg(long)]
    seed: Option<u64>,
    /// Repeat each variant with this many seeds, beginning with the plan's; default: 5 if something is random, otherwise 1;
    /// with --quick 1. The difference to the control is shown with its interval of 95 %.
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<NonZeroUsize>,
    /// Run only this variant (`lab show` lists them); may be given more than once.
    #[arg(long)]
    variant: Vec<String>,
    /// Change a parameter of the plan (`lab show` lists them); may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Number of variants to run in parallel; default: one per processor.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Write results into this directory.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// Write results as tables for notebooks into this directory: runs.parquet (one row per variant, seed and phase:
    /// parameters, cost, measurements), measures.parquet, energy.parquet (by owner, cause and component, to the
    /// picojoule), timeline.parquet and latency.parquet. With several experiments, each gets a subdirectory.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Also store the numbers next to the plan, in ours.csv of experiments/NAME or of the experiment's path; `report`
    /// and `papers` show these numbers.
    #[arg(long, conflicts_with_all = ["quick", "profile", "seed", "seeds", "variant", "set"])]
    keep: bool,
    /// Store run time and memory in took.csv next to the plan; `lab show` prints them. Experiments then run one by
    /// one; `--threads 1` gives the most exact numbers.
    #[arg(long, conflicts_with_all = ["profile", "seed", "seeds", "variant", "set"])]
    keep_time: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs lab report\n  joulefs lab report --results results --output report.html\n\n\
    Without results, the page has the stored numbers of the experiments, measured by full runs.\n\
    Results of full runs replace them; results of any run add energy by owner, by cause and over time."
)]
pub struct ReportArgs {
    /// Read results from this directory; default: `results`, if it exists.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Write the page to this file; default: `report.html` in the results, or in the current directory if there are
    /// none.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Runs a command.
pub fn run(command: &Command, as_json: bool) -> Result<(), Failure> {
    match command {
        Command::List => list(as_json),
        Command::Show(a) => show::run(a, as_json),
        Command::Run(a) => run_all(a, as_json),
        Command::Report(a) => report(a, as_json),
        Command::Papers(a) => papers::run(a, as_json),
        Command::Keep(a) => keep::run(a, as_json),
        Command::Generate(a) => generate::run(a),
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    let all: Vec<Experiment> =
        SHIPPED.iter().map(|(n, _)| Experiment::find(n).map_err(unplanned)).collect::<Result<_, _>>()?;
    if as_json {
        let rows: Vec<_> = all
            .iter()
            .map(|e| {
                json!({
                    "name": e.name,
                    "title": e.plan.title,
                    "claim": e.claim(),
                    "profile": e.plan.profile,
                    "variants": e.plan.variant.iter().map(|v| &v.name).collect::<Vec<_>>(),
                    "published": e.paper.len(),
                })
            })
            .collect();
        output::print(&json!(rows));
        return Ok(());
    }
    let mut table = Table::new([table::word(""), table::text("")]);
    all.iter().for_each(|e| table.row(&[&e.name, &e.plan.title]));
    output::lines(&table.text());
    Ok(())
}

fn changes(args: &RunArgs) -> Result<Changes, Failure> {
    let mut parameters = toml::Table::new();
    for set in &args.set {
        let (name, value) =
            set.split_once('=').ok_or_else(|| Failure::usage(format!("--set {set}: not NAME=VALUE")))?;
        // TOML parses numbers, booleans and lists; everything else is a string.
        let line = format!("v = {value}");
        let parsed = line.parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
        parameters.insert(name.into(), parsed.unwrap_or_else(|| value.into()));
    }
    if let Some(name) = &args.profile {
        Profile::find(name)?;
    }
    Ok(Changes {
        quick: args.quick,
        profile: args.profile.clone(),
        seed: args.seed,
        seeds: args.seeds,
        parameters,
        variants: args.variant.clone(),
    })
}

/// The changes, with as many seeds as the experiment needs if nothing else is asked for. What is kept has the plan's seeds.
fn repeated(experiment: &Experiment, changes: &Changes, args: &RunArgs) -> Result<Changes, Failure> {
    let is_given = args.seeds.is_some() || args.seed.is_some() || args.quick || args.keep || args.keep_time;
    let seeds = match is_given {
        true => args.seeds,
        false => Some(experiment.repetitions(changes).map_err(unplanned)?),
    };
    Ok(Changes { seeds, ..changes.clone() })
}

/// Refuses changes that do not apply to an experiment's plan. The error names the option responsible.
fn check(experiment: &Experiment, typed_name: &str, changes: &Changes, args: &RunArgs) -> Result<(), Failure> {
    experiment.jobs(changes).map_err(unplanned)?;
    let Err(e) = lab::run::check(experiment, changes) else { return Ok(()) };
    let as_planned = Changes { profile: None, parameters: toml::Table::new(), ..changes.clone() };
    lab::run::check(experiment, &as_planned).map_err(|of_plan| of_plan.to_string())?;
    for (name, value) in &changes.parameters {
        let parameters = std::iter::once((name.clone(), value.clone())).collect();
        if let Err(e) = lab::run::check(experiment, &Changes { parameters, ..as_planned.clone() }) {
            let typed = args.set.iter().rfind(|set| set.split_once('=').is_some_and(|(n, _)| n == name));
            let set = typed.map_or(name.as_str(), String::as_str);
            let why = e.to_string();
            let tip = meant::tip_of_field(&why);
            let place = format!(" (joulefs lab show {typed_name} lists the parameters)");
            return Err(Failure::from(why.trim_end().to_owned() + &tip + &place)
                .named(format_args!("--set {set}"))
                .into_usage());
        }
    }
    Err(said(&e, args))
}

/// Converts an experiment's error. If its parameters are wrong and options changed some, it is a usage error that names
/// these options.
fn said(e: &LabError, args: &RunArgs) -> Failure {
    let changes = args.set.iter().map(|set| format!("--set {set}"));
    let changes: Vec<_> = changes.chain(args.profile.iter().map(|profile| format!("--profile {profile}"))).collect();
    let failure = Failure::from(e.to_string());
    match e.is_of_parameters() && !changes.is_empty() {
        true => failure.named(changes.join(" ")).into_usage(),
        false => failure,
    }
}

/// Fails if a command line names an experiment or a parameter that does not exist. Runs nothing.
#[cfg(test)]
pub fn is_there(command: &Command) -> Result<(), Failure> {
    match command {
        // A path is relative to the user's current directory, which tests do not know.
        Command::Run(run) if !run.names.iter().any(|name| name.contains('/')) => planned(run).map(drop),
        _ => Ok(()),
    }
}

fn named(args: &RunArgs) -> Vec<&str> {
    match args.all {
        true => SHIPPED.iter().map(|(n, _)| *n).collect(),
        false => args.names.iter().map(String::as_str).collect(),
    }
}

/// The experiments to run, and the changes to their plans.
fn planned(args: &RunArgs) -> Result<(Vec<Experiment>, Changes), Failure> {
    let changes = changes(args)?;
    let experiments: Vec<Experiment> =
        named(args).into_iter().map(|name| Experiment::find(name).map_err(unplanned)).collect::<Result<_, _>>()?;
    // An experiment may take an hour: check all before the first begins.
    experiments.iter().zip(named(args)).try_for_each(|(e, name)| check(e, name, &changes, args))?;
    Ok((experiments, changes))
}

fn run_all(args: &RunArgs, as_json: bool) -> Result<(), Failure> {
    let (experiments, changes) = planned(args)?;
    if args.keep || args.keep_time {
        named(args).iter().try_for_each(|name| keep::directory(name).map(drop))?;
    }
    // For the same reason, create the result directories before.
    let dirs: Vec<PathBuf> = experiments.iter().map(|e| args.results.join(&e.name)).collect();
    let new = dirs.iter().chain([&args.results]).chain(&args.parquet).filter(|dir| !dir.exists());
    let new: Vec<HalfMade> = new.map(|dir| HalfMade::watched(dir)).collect();
    let outcomes = dirs
        .iter()
        .try_for_each(|dir| std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()).into()))
        .and_then(|()| {
            let made =
                |dir: &PathBuf| std::fs::create_dir_all(dir).map_err(|e| format!("--parquet {}: {e}", dir.display()));
            Ok(args.parquet.as_ref().map_or(Ok(()), made)?)
        })
        .and_then(|()| run_each(&experiments, &changes, args, as_json));
    if outcomes.is_ok() {
        new.into_iter().for_each(HalfMade::keep);
    }
    if as_json {
        output::print(&json!(outcomes?));
        return Ok(());
    }
    outcomes.map(drop)
}

fn run_each(
    experiments: &[Experiment],
    changes: &Changes,
    args: &RunArgs,
    as_json: bool,
) -> Result<Vec<serde_json::Value>, Failure> {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut outcomes = Vec::new();
    for (experiment, name) in experiments.iter().zip(named(args)) {
        let bar = progress::steps(1000, &experiment.name);
        let tell = |share: f64| {
            bar.set_position((share * 1000.0) as u64);
            progress::show_if_slow(&bar);
        };
        let watch = args.keep_time.then(Watch::begin);
        let changes = &repeated(experiment, changes, args)?;
        let outcome = lab::run::run(experiment, changes, threads, &tell).map_err(|e| said(&e, args))?;
        let took = watch.map(|watch| watch.end(args.quick, threads)).transpose()?;
        bar.finish_and_clear();
        let jobs = experiment.jobs(changes).map_err(unplanned)?;
        let verdicts = lab::judged::all(experiment, &jobs, &outcome);
        let compared = Compared { verdicts: &verdicts, runs: rows::compared(experiment, changes, &outcome)? };
        let result = Stored { outcome: &outcome, comparison: judged::json(&verdicts, &compared.runs) };
        let file = store(&result, &args.results)?;
        if !as_json {
            print_outcome(&outcome, &compared, &file);
        }
        if let Some(dir) = &args.parquet {
            let dir = if experiments.len() > 1 { dir.join(&experiment.name) } else { dir.clone() };
            rows::write(experiment, changes, &outcome, &compared, &dir)?;
            if !as_json {
                output::lines(&format!("rows: {}\n", output::plain(&dir.display().to_string())));
            }
        }
        if args.keep {
            let kept = keep::write(experiment, &outcome, &keep::directory(name)?)?;
            if !as_json {
                output::lines(&format!("kept: {}\n", output::plain(&kept.display().to_string())));
            }
        }
        if let Some(took) = took {
            // A run with skipped variants says nothing about the cost of a whole run.
            let said = match outcome.skipped.is_empty() {
                true => format!("kept: {}\n", took::write(experiment, took, &keep::directory(name)?)?.display()),
                false => "not stored: the run time, because variants were skipped\n".to_owned(),
            };
            if !as_json {
                output::lines(&said);
            }
        }
        outcomes.push(json!({ "file": file, "outcome": result }));
    }
    Ok(outcomes)
}

/// What the variants' comparison says, and the runs it is about.
struct Compared<'a> {
    verdicts: &'a [Judged],
    runs: Vec<judged::Run>,
}

/// A result as it is written.
#[derive(serde::Serialize)]
struct Stored<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    comparison: serde_json::Value,
}

fn store(result: &Stored<'_>, results: &Path) -> Result<PathBuf, Failure> {
    let outcome = result.outcome;
    let file = results.join(&outcome.experiment).join(outcome.file_name());
    let text = serde_json::to_string_pretty(result).map_err(|e| format!("{}: {e}", file.display()))?;
    whole::write(&file, text)?;
    Ok(file)
}

fn print_outcome(outcome: &Outcome, Compared { verdicts, runs }: &Compared<'_>, file: &Path) {
    output::line(&format!("{}: {}", outcome.experiment, outcome.title));
    let numbers = ["paper", "here", "difference"].map(table::number);
    let mut compared = Table::new([table::text("")].into_iter().chain(numbers).chain([table::text("where")]));
    for c in &outcome.compared {
        let place = &c.claim.place;
        compared.row(&[&c.claim.quantity, &c.paper_text(), &c.ours_text(), &c.difference_text(), place]);
    }
    output::lines(&compared.text());
    if verdicts.len() > 1 || runs.len() > 1 {
        output::lines(&format!("\n{}", judged::text(verdicts, runs)));
    }
    let numbers = ["energy", "its range", "CPU", "DRAM", "storage", "board", "time"].map(table::number);
    let mut spent = Table::new(["variant", "phase"].map(table::text).into_iter().chain(numbers));
    // The other seeds are in the comparison.
    for (v, p) in outcome.first_of_each().flat_map(|v| v.phases.iter().map(move |p| (v, p))) {
        let parts = device::energy::Component::ALL.map(|c| p.component(c).to_string());
        let time = format!("{:.3} s", p.took.0 as f64 / 1e9);
        let range = p.range.map_or(String::new(), |[low, high]| Range { low, high }.to_string());
        let energies = [v.name.clone(), p.name.clone(), p.total().to_string(), range];
        spent.cells(energies.into_iter().chain(parts).chain([time]));
    }
    output::lines(&format!("\n{}", spent.text()));
    let costs = lab::cost::rows(outcome);
    if !costs.is_empty() {
        let [variant, numbers @ ..] = lab::cost::HEADS;
        let mut table = Table::new([table::text(variant)].into_iter().chain(numbers.map(table::number)));
        costs.into_iter().for_each(|row| table.cells(row));
        output::lines(&format!("\nwhat cleaning cost, and the work after it:\n{}", table.text()));
    }
    for s in &outcome.skipped {
        output::line(&format!("skipped: {}: {}", s.variant, s.why));
    }
    output::lines(&format!("\nresults: {}\n", output::plain(&file.display().to_string())));
}

fn report(args: &ReportArgs, as_json: bool) -> Result<(), Failure> {
    let default = Path::new("results");
    let results = args.results.as_deref().or_else(|| default.is_dir().then_some(default));
    let outcomes = match results {
        Some(dir) => lab::report::load(dir).map_err(|e| e.to_string())?,
        None => Vec::new(),
    };
    if let (true, Some(dir)) = (outcomes.is_empty(), &args.results) {
        return Err(
            format!("no results in {}: run `joulefs lab run` first, or leave out --results", dir.display()).into()
        );
    }
    let place = || results.filter(|_| !outcomes.is_empty()).unwrap_or(Path::new("")).join("report.html");
    let page = args.output.clone().unwrap_or_else(place);
    let text = lab::report::html(&outcomes).map_err(|e| e.to_string())?;
    whole::write(&page, text)?;
    match as_json {
        true => output::print(&json!({ "report": page, "experiments": outcomes.len() })),
        false => output::line(&format!("report: {}", page.display())),
    }
    Ok(())
}
