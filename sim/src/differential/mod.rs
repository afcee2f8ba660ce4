//! Which component spent how much, if a meter sees only all of them together?
//!
//! In differential analysis (Mohan HotStorage'17) somebody measures the same work in runs that differ in the
//! components that take part: a phone with its screen on; the same writing to memory; writing over the network;
//! writing to flash. What one run costs more than another is the component's share. Here every run is an equation: its
//! joules are the sum of what its components spend. Least squares solves all equations at once. With as many runs as
//! components the answers are the differences themselves; more runs check each other ([`RunFit`]).
//!
//! A component spends in proportion to the time, the operations or the bytes of a run, or the same in each ([`Per`]).
//! Bars come from the spread of a run's repeats.
//!
//! [`plan`] reads what was measured from a file and from recordings of meters ([`recording`]); [`mod@solve`] knows
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

/// What a component's energy is in proportion to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// The run's time: a power.
    #[default]
    Second,
    /// Its operations.
    Operation,
    /// Its bytes.
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

/// Something that spends.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// What its energy is in proportion to.
    pub per: Per,
}

/// One measurement of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Repeat {
    /// Joules of everything.
    pub joules: f64,
    /// How long it took.
    pub seconds: f64,
    /// Operations in it.
    pub operations: f64,
    /// Bytes moved in it.
    pub bytes: f64,
}

impl Repeat {
    /// How much of what a component's energy is in proportion to.
    pub fn quantity(&self, per: Per) -> f64 {
        match per {
            Per::Second => self.seconds,
            Per::Operation => self.operations,
            Per::Byte => self.bytes,
            Per::Run => 1.0,
        }
    }
}

/// A run and how it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// The components that take part, by their places.
    pub active: Vec<usize>,
    /// Its measurements, one or more.
    pub repeats: Vec<Repeat>,
    /// The standard error of a measurement in joules, where it is known and the repeats' spread does not count.
    pub error: Option<f64>,
}

/// A plan that cannot be read or answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no plan.
    #[error("{from}: {message}")]
    Malformed {
        /// The file.
        from: String,
        /// What and where.
        message: String,
    },
    /// A recording of it cannot be read.
    #[error("run {run:?}: {source}")]
    Trace {
        /// The run.
        run: String,
        /// Why.
        source: TraceError,
    },
    /// A recording of it is not of what the plan asks for.
    #[error("run {run:?}: {}: {source}", file.display())]
    Recording {
        /// The run.
        run: String,
        /// The recording.
        file: PathBuf,
        /// Why.
        source: RecordingError,
    },
}
