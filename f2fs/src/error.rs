//! Errors inside the core, and how they look from outside.

use device::DeviceError;
use format::FormatError;

use crate::invariant::Violation;

/// Result inside the core.
pub type Result<T> = std::result::Result<T, Error>;

/// What stopped the core.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An answer a caller of the file system understands.
    #[error(transparent)]
    Fs(#[from] vfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure's bytes are unlawful.
    #[error("{place}: {source}")]
    Format {
        /// Which structure, where.
        place: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// What is in memory contradicts itself.
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
    /// Names where the structure lies.
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
            // The host's file system is full. Inside of the core `NoSpace` means the log instead.
            Error::Device(e) if e.is_full() => vfs::Error::NoSpace,
            Error::Device(e) => vfs::Error::device(e),
            Error::Format { .. } | Error::Violated(_) => vfs::Error::corrupt(e),
        }
    }
}
