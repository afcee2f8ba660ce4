//! Which errors does the core have, and what do callers see?

use device::DeviceError;
use format::FormatError;

use crate::invariant::Violation;

/// Result inside the core.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the core.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error for the caller of the file system.
    #[error(transparent)]
    Fs(#[from] vfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure is invalid.
    #[error("{place}: {source}")]
    Format {
        /// Which structure, and where.
        place: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The state in memory contradicts itself.
    #[error("the volume accepts no more changes until it is mounted again, and its last checkpoint is unchanged: {0}")]
    Violated(#[from] Violation),
}

impl Error {
    /// A contradiction between structures.
    pub fn corrupt(what: impl std::fmt::Display) -> Self {
        Error::Fs(vfs::Error::corrupt(what))
    }
    /// No space.
    pub fn no_space() -> Self {
        Error::Fs(vfs::Error::NoSpace)
    }
}

/// Attaches a place to a format error.
pub(crate) trait At<T> {
    /// Adds the place of the structure.
    fn at(self, place: impl FnOnce() -> String) -> Result<T>;
}

impl<T> At<T> for std::result::Result<T, FormatError> {
    fn at(self, place: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Format { place: place(), source })
    }
}

impl From<Error> for vfs::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Fs(e) => e,
            Error::Device(DeviceError::ReadOnly { .. }) => vfs::Error::ReadOnly,
            // The host's file system is full. In the core, `NoSpace` means the log instead.
            Error::Device(e) if e.is_full() => vfs::Error::NoSpace,
            Error::Device(e) => vfs::Error::device(e),
            Error::Format { .. } | Error::Violated(_) => vfs::Error::corrupt(e),
        }
    }
}
