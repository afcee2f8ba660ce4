//! Stores the measurements of a full run next to the plan, in `ours.csv`.

use std::path::{Path, PathBuf};

use lab::keep;
use lab::plan::{Experiment, KEPT};
use lab::result::Outcome;
use serde_json::json;
use terminal::{Failure, output, whole};

use crate::unplanned;

/// `joulefs lab keep`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs lab keep fagc-fig4\n  joulefs lab keep ./my-experiment --results results\n\n\
    An experiment's name is looked up in experiments/ of the current directory: run this in the JouleFS sources."
)]
pub struct KeepArgs {
    /// Names of experiments, or paths of their directories.
    #[arg(required = true)]
    names: Vec<String>,
    /// Read results from this directory.
    #[arg(long, default_value = "results")]
    results: PathBuf,
}

/// The directory of an experiment's files; fails if the files differ from those this program has.
pub fn directory(name: &str) -> Result<PathBuf, Failure> {
    let dir = if name.contains('/') { PathBuf::from(name) } else { Path::new("experiments").join(name) };
    if !dir.join("plan.toml").exists() {
        let message = format!(
            "{}: has no plan.toml; run this in the JouleFS sources, or give the path of an experiment",
            dir.display()
        );
        return Err(message.into());
    }
    let there = Experiment::find(&format!("./{}", dir.display()).replace(".//", "/")).map_err(unplanned)?;
    let known = Experiment::find(name).map_err(unplanned)?;
    if keep::of_plan(&there).map_err(|e| e.to_string())? != keep::of_plan(&known).map_err(|e| e.to_string())? {
        return Err(
            format!("{}: differs from the plan that joulefs was built with; rebuild joulefs", dir.display()).into()
        );
    }
    Ok(dir)
}

/// Writes an outcome's measurements into an experiment's directory.
pub fn write(experiment: &Experiment, outcome: &Outcome, dir: &Path) -> Result<PathBuf, Failure> {
    let recordings = keep::of_recordings(dir).map_err(|e| e.to_string())?;
    let kept = keep::of(experiment, outcome, recordings).map_err(|e| e.to_string())?;
    let file = dir.join(KEPT);
    whole::write(&file, kept.text(&experiment.name))?;
    Ok(file)
}

/// Stores existing results.
pub fn run(args: &KeepArgs, as_json: bool) -> Result<(), Failure> {
    let outcomes = lab::report::load(&args.results).map_err(|e| e.to_string())?;
    let mut files = Vec::new();
    for name in &args.names {
        let experiment = Experiment::find(name).map_err(unplanned)?;
        let dir = directory(name)?;
        let own = || outcomes.iter().filter(|o| o.experiment == experiment.name);
        let planned = own().find(|o| keep::as_planned(&experiment, o).is_ok()).or_else(|| own().next());
        let outcome = planned.ok_or_else(|| {
            format!("no result of {name} in {}: run `joulefs lab run {name}` first", args.results.display())
        })?;
        files.push(write(&experiment, outcome, &dir)?);
    }
    match as_json {
        true => output::print(&json!(files)),
        false => files.iter().for_each(|file| output::line(&format!("kept: {}", file.display()))),
    }
    Ok(())
}
