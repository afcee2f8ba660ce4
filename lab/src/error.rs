//! What can go wrong with an experiment.

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
    /// The experiment is not what it should be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device or the volume, or what was simulated on them.
    #[error(transparent)]
    Sim(SimError),
    /// A database refused.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// SQLite does not take our file system for a disk.
    #[error("SQLite on JouleFS: {0}")]
    Register(String),
    /// A database that SQLite finds damaged.
    #[error("{file}: SQLite finds it damaged: {what}")]
    Damaged {
        /// The database.
        file: String,
        /// What SQLite says.
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
        /// Why.
        source: Box<LabError>,
    },
}

impl LabError {
    /// Parameters that are not what the kind of work asks for.
    pub fn parameters(message: impl Into<String>) -> Self {
        SimError::Parameters(message.into()).into()
    }

    /// Parameters or a device that no work can be done with, whatever the machine it is to be done on.
    pub fn is_of_parameters(&self) -> bool {
        match self {
            LabError::Variant { source, .. } => source.is_of_parameters(),
            LabError::Sim(e) => e.is_of_parameters(),
            _ => false,
        }
    }
}

/// An experiment's own error comes back as it went into the work that was measured.
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

/// What may fail in a simulation may fail in an experiment.
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
