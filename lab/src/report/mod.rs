//! One page of all results: the papers' numbers and ours, who spent it, for what, and when; and one of what is in a
//! recording of others ([`recording`]).
//!
//! A page stands alone: plots are SVG inside it, nothing is fetched.

mod page;
mod plots;
pub mod recording;
pub mod words;

use std::path::{Path, PathBuf};

use crate::result::Outcome;

/// A report that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A directory or file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no result.
    #[error("{}: not a result of this version: {source}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What and where.
        source: serde_json::Error,
    },
    /// A plot could not be drawn.
    #[error("plot of {what}: {message}")]
    Plot {
        /// Of what.
        what: String,
        /// Why not.
        message: String,
    },
}

/// Every result below a directory, in order of experiment and file.
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

/// The page.
pub fn html(outcomes: &[Outcome]) -> Result<String, ReportError> {
    page::page(outcomes)
}
