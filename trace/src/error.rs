//! What can be wrong with a recording, and where?

use std::fmt;
use std::path::PathBuf;

use crate::Format;

/// A place in a recording, after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line; the first is 1.
    Line(u64),
    /// A byte; the first is 0.
    Byte(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Line(n) => write!(f, "line {n}"),
            At::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// Why a recording cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read, or its compressed stream is broken.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The format is not recognised.
    #[error("{}: not a recording in a known format: {why}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// A line or record is invalid. Everything before it was read.
    #[error("{}: {at}: invalid {format}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The format assumed.
        format: Format,
        /// The place.
        at: At,
        /// What is wrong.
        what: String,
    },
    /// The recording ends within a record. Everything before it was read.
    #[error("{}: {at}: ends in the middle of a record ({format})", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The format assumed.
        format: Format,
        /// Start of the unfinished record.
        at: At,
    },
    /// Valid, but not supported.
    #[error("{}: {at}: {what} ({format})", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The format.
        format: Format,
        /// The place.
        at: At,
        /// What is not supported.
        what: String,
    },
}

impl TraceError {
    /// True if everything before is complete, and only the end is missing.
    pub fn is_cut_short(&self) -> bool {
        matches!(self, TraceError::CutShort { .. })
    }
}
