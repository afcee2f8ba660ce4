//! What can go wrong, sorted by whose fault it is.

use std::fmt;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did not happen. Every variant names one cause a caller can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- the caller asked for something that is not there or not allowed
    /// No such name, inode or parent.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("already exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still holds names.
    #[error("directory not empty")]
    NotEmpty,
    /// A name over 255 bytes, or a symlink target over one block.
    #[error("name too long")]
    NameTooLong,
    /// Arguments that make no sense together; the text says which.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The object forbids this to everybody (immutable, append-only).
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// The directory takes only what belongs to its own project.
    #[error("belongs to a different project than the directory")]
    OtherProject,
    /// The link count would pass the format's limit.
    #[error("too many links")]
    TooManyLinks,
    /// Past the largest file the format can map.
    #[error("file too large")]
    TooBig,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute does not fit beside the inode's others.
    #[error("attribute too large, or too many of them")]
    AttributeTooLarge,
    /// The caller's buffer is too small for the attribute.
    #[error("result does not fit the buffer")]
    Range,
    /// No data (or hole) at or after the offset: `SEEK_DATA` past the end.
    #[error("no such address: past the end of data")]
    PastEnd,
    /// The object is in use in a way that forbids this.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The inode number was reused: the caller's reference is to a file that is gone.
    #[error("stale reference")]
    Stale,

    // ---- this implementation or this volume cannot do it
    /// Not something this file system does; the text names what.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The volume is mounted read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The contents are encrypted and no key is known.
    #[error("required key not available")]
    NoKey,

    // ---- resources
    /// No free blocks or no free inode numbers.
    #[error("no space left on device")]
    NoSpace,

    // ---- somebody else's fault
    /// The image contradicts itself; the text names structure and place.
    #[error("corrupt file system: {0}")]
    Corrupt(String),
    /// The device failed; the text names operation and place.
    #[error("device error: {0}")]
    Device(String),
}

impl Error {
    /// `Corrupt` from anything printable.
    pub fn corrupt(what: impl fmt::Display) -> Self {
        Error::Corrupt(what.to_string())
    }
    /// `Device` from anything printable.
    pub fn device(what: impl fmt::Display) -> Self {
        Error::Device(what.to_string())
    }
}
