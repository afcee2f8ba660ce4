//! What can go wrong in a simulation?

use device::energy::profile::ProfileError;
use volume::{Kind, MakeError, MountError, OptionError};

use crate::aging::AgeError;

/// Why a simulation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The device's profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The device cannot be simulated.
    #[error(transparent)]
    Model(#[from] device::model::TooLarge),
    /// The parameters do not suit the kind of work.
    #[error("parameters: {0}")]
    Parameters(String),
    /// The volume cannot be created.
    #[error(transparent)]
    Mkfs(#[from] MakeError),
    /// The volume cannot be aged.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// The volume cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The file system returned an error.
    #[error("file system: {0}")]
    Fs(#[from] vfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// A mount option is invalid.
    #[error("options: {0}")]
    Option(#[from] OptionError),
    /// The work needs a function that only F2FS has.
    #[error("a {0} volume: this work needs F2FS")]
    OnlyF2fs(Kind),
    /// There is no volume yet.
    #[error("no volume was made on the device")]
    NoVolume,
    /// A file does not hold what was written.
    #[error("{file}: does not contain what was written, from byte {at} on")]
    Contents {
        /// The file.
        file: String,
        /// Offset of the read.
        at: u64,
    },
    /// The measured work failed for its own reason.
    #[error(transparent)]
    Work(Box<dyn std::error::Error + Send + Sync>),
}

impl SimError {
    /// True if the error is in the parameters or the device, independent of the machine.
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
