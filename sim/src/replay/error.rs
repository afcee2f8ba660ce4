//! Why can a recording not be replayed with these settings?

use std::path::{Path, PathBuf};

use device::energy::profile::ProfileError;
use trace::{Kind, TraceError};
use volume::OptionError;

use crate::aging::AgeError;

/// Why a recording cannot be replayed. The texts name settings by the options of `joulefs trace replay`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong, or does not suit the recording or another setting: the whole text.
    #[error("{0}")]
    Setting(String),
    /// A setting is for recordings of another kind.
    #[error("{}: a recording of {}; {option} is for recordings of {}", recording.display(), names(*kind).0, names(*kind).1)]
    Misplaced {
        /// The recording.
        recording: PathBuf,
        /// Its kind.
        kind: Kind,
        /// The setting.
        option: &'static str,
    },
    /// The profile of a device cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A recipe cannot be used.
    #[error(transparent)]
    Recipe(#[from] AgeError),
    /// A mount option is wrong.
    #[error("{given}: {source}")]
    MountOption {
        /// The setting as typed.
        given: String,
        /// Name of the mount option.
        name: String,
        /// Its value, if one was given.
        value: Option<String>,
        /// What is wrong.
        source: OptionError,
    },
    /// A recording cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A recording, an image or a directory cannot be used, or the work failed: the whole text.
    #[error("{0}")]
    Failed(String),
    /// Another error, with the setting or file that it is about.
    #[error("{what}: {error}")]
    Named {
        /// The setting or file.
        what: String,
        /// The error.
        error: Box<Error>,
    },
}

/// What a recording of this kind is called, and what the other kind is called.
fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Blocks => ("a block device", "calls to a file system"),
        _ => ("calls to a file system", "a block device"),
    }
}

impl Error {
    /// Puts the name of a setting or file before the text.
    pub fn named(self, what: impl ToString) -> Self {
        Error::Named { what: what.to_string(), error: Box::new(self) }
    }

    /// A file or directory cannot be used.
    pub(super) fn of_file(path: &Path, why: impl std::fmt::Display) -> Self {
        Error::Failed(format!("{}: {why}", path.display()))
    }

    /// A recording has the wrong kind. `is` and `wanted` name the kinds.
    pub fn of_kind(path: &Path, is: &str, wanted: &str) -> Self {
        Error::of_file(path, format!("a recording of {is}; one of {wanted} is needed"))
    }

    /// True if the settings are wrong, so that the same settings fail again on any machine.
    pub fn is_of_settings(&self) -> bool {
        match self {
            Error::Setting(_) | Error::Misplaced { .. } | Error::MountOption { .. } => true,
            Error::Profile(e) => matches!(e, ProfileError::Unknown { .. }),
            Error::Recipe(e) => matches!(e, AgeError::Unknown { .. }),
            Error::Named { error, .. } => error.is_of_settings(),
            Error::Trace(_) | Error::Failed(_) => false,
        }
    }
}
