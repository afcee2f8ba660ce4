//! Errors, grouped by responsibility.

use std::fmt;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Every variant is one cause on which a caller can act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- the request is invalid or not permitted
    /// No such name, inode or parent.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("already exists")]
    Exists,
    /// Not a directory, although one is required.
    #[error("not a directory")]
    NotDirectory,
    /// A directory, although another kind is required.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still holds names.
    #[error("directory not empty")]
    NotEmpty,
    /// A name over 255 bytes, or a symlink target over one block.
    #[error("name too long")]
    NameTooLong,
    /// Inconsistent arguments; the text names them.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// Forbidden for every user (immutable, append-only).
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// The directory accepts only files of its own project.
    #[error("belongs to a different project than the directory")]
    OtherProject,
    /// The link count would exceed the format's limit.
    #[error("too many links")]
    TooManyLinks,
    /// The file would exceed the largest size of the format.
    #[error("file too large")]
    TooBig,
    /// No extended attribute with that name.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute does not fit next to the inode's others.
    #[error("attribute too large, or too many of them")]
    AttributeTooLarge,
    /// The caller's buffer is too small for the attribute.
    #[error("result does not fit the buffer")]
    Range,
    /// No data (or hole) at or after the offset: `SEEK_DATA` past the end.
    #[error("no such address: past the end of data")]
    PastEnd,
    /// The object is in use, which forbids this.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The inode number was reused: the caller refers to a deleted file.
    #[error("stale reference")]
    Stale,

    // ---- not possible in this implementation or on this volume
    /// Not supported by this file system; the text names the feature.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The volume is mounted read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The contents are encrypted, and the key is unknown.
    #[error("required key not available")]
    NoKey,

    // ---- resources
    /// No free blocks or no free inode numbers.
    #[error("no space left on device")]
    NoSpace,

    // ---- external faults
    /// The image is inconsistent; the text names structure and place.
    #[error("corrupt file system: {0}")]
    Corrupt(String),
    /// The device failed; the text names operation and place.
    #[error("device error: {0}")]
    Device(String),
}

impl Error {
    /// `Corrupt` from any printable value.
    pub fn corrupt(what: impl fmt::Display) -> Self {
        Error::Corrupt(what.to_string())
    }
    /// `Device` from any printable value.
    pub fn device(what: impl fmt::Display) -> Self {
        Error::Device(what.to_string())
    }
}
