//! What can go wrong when something is simulated.

use device::energy::profile::ProfileError;
use volume::{Kind, MakeError, MountError, OptionError};

use crate::aging::AgeError;

/// A simulation that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The device's profile is not what it should be.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The device cannot be simulated.
    #[error(transparent)]
    Model(#[from] device::model::TooLarge),
    /// The parameters are not what the kind of work asks for.
    #[error("parameters: {0}")]
    Parameters(String),
    /// The volume cannot be made.
    #[error(transparent)]
    Mkfs(#[from] MakeError),
    /// The volume cannot be brought into the state asked for.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// The volume cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The file system refused.
    #[error("file system: {0}")]
    Fs(#[from] vfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// An option that a volume is to be mounted with.
    #[error("options: {0}")]
    Option(#[from] OptionError),
    /// Work that asks a volume of something that another file system has not.
    #[error("a volume of {0}: this work asks for what only F2FS has")]
    OnlyF2fs(Kind),
    /// Work on a volume before there is one.
    #[error("no volume was made on the device")]
    NoVolume,
    /// A file does not hold what was written into it.
    #[error("{file}: from byte {at} on it does not hold what was written there")]
    Contents {
        /// The file.
        file: String,
        /// Where what was read begins.
        at: u64,
    },
    /// The work that was measured failed for a reason of its own.
    #[error(transparent)]
    Work(Box<dyn std::error::Error + Send + Sync>),
}

impl SimError {
    /// Parameters or a device that no work can be done with, whatever the machine it is to be done on.
    pub fn is_of_parameters(&self) -> bool {
        match self {
            SimError::Parameters(_) | SimError::Model(_) | SimError::Option(_) | SimError::OnlyF2fs(_) => true,
            SimError::Mount(e) => matches!(e, MountError::Foreign { .. }),
            SimError::Mkfs(e) => e.is_caused_by_options(),
            SimError::Age(e) => matches!(e, AgeError::Unknown { .. }),
            _ => false,
        }
    }
}
