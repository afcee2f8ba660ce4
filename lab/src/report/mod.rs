//! One page of all published numbers next to ours, stored or from results: which component spent the energy, for what,
//! and when.

mod bars;
mod experiment;
mod flames;
mod numbers;
mod page;

use std::path::{Path, PathBuf};

use sim::plots::PlotError;

use crate::keep;
use crate::plan::{Experiment, PlanError};
use crate::published::Paper;
use crate::published::judge::Ours;
use crate::result::Outcome;

/// A report that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A directory or file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not a result.
    #[error("{}: not a result of this version: {source}", path.display())]
    Malformed {
        /// The path.
        path: PathBuf,
        /// The error and its place.
        source: serde_json::Error,
    },
    /// A shipped experiment is malformed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The list of published numbers is malformed.
    #[error("{0}")]
    Published(String),
    /// A plot could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Every result in a directory tree, ordered by experiment and file.
pub fn load(results: &Path) -> Result<Vec<Outcome>, ReportError> {
    let mut files = Vec::new();
    for dir in entries(results)? {
        if dir.is_dir() {
            files.extend(entries(&dir)?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "json")));
        }
    }
    files
        .into_iter()
        .map(|path| {
            let unreadable = |source| ReportError::Unreadable { path: path.clone(), source };
            let text = std::fs::read_to_string(&path).map_err(unreadable)?;
            serde_json::from_str(&text).map_err(|source| ReportError::Malformed { path: path.clone(), source })
        })
        .collect()
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let unreadable = |source| ReportError::Unreadable { path: dir.into(), source };
    let read = std::fs::read_dir(dir).map_err(unreadable)?;
    let mut paths = read.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.sort();
    Ok(paths)
}

/// Our numbers: from results that are the plan's own, otherwise the stored ones.
pub fn ours(outcomes: &[Outcome]) -> Result<Ours, ReportError> {
    let mut ours = Ours::kept()?;
    for o in outcomes {
        let is_planned = Experiment::find(&o.experiment).is_ok_and(|e| keep::as_planned(&e, o).is_ok());
        if is_planned {
            ours.take(o);
        }
    }
    Ok(ours)
}

/// The page: from these results, otherwise from stored numbers.
pub fn html(outcomes: &[Outcome]) -> Result<String, ReportError> {
    page::page(&papers()?, &ours(outcomes)?, outcomes)
}

/// All papers with their numbers.
pub fn papers() -> Result<Vec<Paper>, ReportError> {
    crate::published::papers().map_err(ReportError::Published)
}
