//! Errors of experiments.

use device::DeviceError;
use device::energy::profile::ProfileError;
use device::model::TooLarge;
use sim::aging::AgeError;
use sim::error::SimError;
use volume::{MakeError, MountError, OptionError};

use crate::plan::PlanError;

/// An experiment that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The experiment is malformed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device, the volume or the simulation failed.
    #[error(transparent)]
    Sim(SimError),
    /// A database refused.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// SQLite did not register our file system as a VFS.
    #[error("SQLite on JouleFS: {0}")]
    Register(String),
    /// SQLite found a database damaged.
    #[error("{file}: SQLite finds it damaged: {what}")]
    Damaged {
        /// The database.
        file: String,
        /// SQLite's message.
        what: String,
    },
    /// A variant failed.
    #[error("{experiment}, variant {variant}, seed {seed}: {source}")]
    Variant {
        /// The experiment.
        experiment: String,
        /// The variant.
        variant: String,
        /// Its seed.
        seed: u64,
        /// The cause.
        source: Box<LabError>,
    },
}

impl LabError {
    /// Parameters that do not fit the kind of work.
    pub fn parameters(message: impl Into<String>) -> Self {
        SimError::Parameters(message.into()).into()
    }

    /// Whether parameters or the device are at fault, independent of the machine that runs the experiment.
    pub fn is_of_parameters(&self) -> bool {
        match self {
            LabError::Variant { source, .. } => source.is_of_parameters(),
            LabError::Sim(e) => e.is_of_parameters(),
            _ => false,
        }
    }
}

/// Returns an experiment's own error unchanged after it passed through the simulation.
impl From<SimError> for LabError {
    fn from(e: SimError) -> Self {
        match e {
            SimError::Work(e) => e.downcast().map_or_else(|e| LabError::Sim(SimError::Work(e)), |e| *e),
            e => LabError::Sim(e),
        }
    }
}

impl From<LabError> for SimError {
    fn from(e: LabError) -> Self {
        match e {
            LabError::Sim(e) => e,
            e => SimError::Work(Box::new(e)),
        }
    }
}

/// Converts errors of the simulation.
macro_rules! as_in_a_simulation {
    ($($error:ty),*) => {
        $(impl From<$error> for LabError {
            fn from(e: $error) -> Self {
                SimError::from(e).into()
            }
        })*
    };
}

as_in_a_simulation!(ProfileError, TooLarge, MakeError, AgeError, MountError, vfs::Error, DeviceError, OptionError);
