//! How much energy does each component use, if a meter measures only their sum?
//!
//! Differential analysis (Mohan HotStorage'17) measures the same work in runs with different components: a phone with
//! its screen on; the same writes to memory; writes over the network; writes to flash. The difference between two runs
//! is the component's share. Here every run is an equation: its energy is the sum over its components. Least squares
//! solves all equations together. With as many runs as components, the results are the differences themselves; more
//! runs check each other ([`RunFit`]).
//!
//! A component's energy is proportional to the time, the operations or the bytes of a run, or constant ([`Per`]). Error
//! bars come from repeats of a run.
//!
//! [`plan`] reads the measurements from a file and from meter recordings ([`recording`]); [`mod@solve`] depends on
//! neither.

pub mod plan;
pub mod recording;
mod rows;
mod solve;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use plan::Plan;
pub use rows::{FitColumn, FitError, Workload};
pub use solve::{Answer, Number, Part, RunFit, Undetermined, solve};

use recording::RecordingError;
use trace::TraceError;

/// What a component's energy is proportional to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// Duration: the price is a power.
    #[default]
    Second,
    /// Number of operations.
    Operation,
    /// Number of bytes.
    Byte,
    /// Nothing: the same in every run.
    Run,
}

impl Per {
    /// The unit of a price.
    pub fn unit(self) -> &'static str {
        match self {
            Per::Second => "W",
            Per::Operation => "J/operation",
            Per::Byte => "J/byte",
            Per::Run => "J/run",
        }
    }
}

/// A consumer of energy.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// What its energy is proportional to.
    pub per: Per,
}

/// One measurement of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Repeat {
    /// Total energy in joules.
    pub joules: f64,
    /// Duration.
    pub seconds: f64,
    /// Number of operations.
    pub operations: f64,
    /// Bytes moved.
    pub bytes: f64,
}

impl Repeat {
    /// The quantity that a component's energy is proportional to.
    pub fn quantity(&self, per: Per) -> f64 {
        match per {
            Per::Second => self.seconds,
            Per::Operation => self.operations,
            Per::Byte => self.bytes,
            Per::Run => 1.0,
        }
    }
}

/// A run with its measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// The active components, by index.
    pub active: Vec<usize>,
    /// One or more measurements.
    pub repeats: Vec<Repeat>,
    /// Standard error of a measurement in joules, if known; it replaces the spread of the repeats.
    pub error: Option<f64>,
}

/// Why a plan cannot be read or solved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a valid plan.
    #[error("{from}: {message}")]
    Malformed {
        /// The file.
        from: String,
        /// The error and its place.
        message: String,
    },
    /// A recording cannot be read.
    #[error("run {run:?}: {source}")]
    Trace {
        /// The run.
        run: String,
        /// The reason.
        source: TraceError,
    },
    /// A recording does not have what the plan needs.
    #[error("run {run:?}: {}: {source}", file.display())]
    Recording {
        /// The run.
        run: String,
        /// The recording.
        file: PathBuf,
        /// The reason.
        source: RecordingError,
    },
}
