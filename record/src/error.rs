//! What can be wrong with a recording?

use crate::Kind;

/// A recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// I/O on the host failed.
    #[error("at byte {at}: {source}")]
    Io {
        /// Offset in the recording.
        at: u64,
        /// The host's error.
        source: std::io::Error,
    },
    /// Another kind of file.
    #[error("not a recording: it does not begin with \"JouleRec\"")]
    NotARecording,
    /// Written by a later version.
    #[error("version {found} of the format; this program reads versions up to {known}")]
    Version {
        /// The version found.
        found: u16,
        /// The last supported version.
        known: u16,
    },
    /// A recording of another kind than expected.
    #[error("a recording of {found}, but one of {asked} is needed")]
    Kind {
        /// The kind found.
        found: Kind,
        /// The kind expected.
        asked: Kind,
    },
    /// Bytes that no writer produces.
    #[error("damaged at byte {at}: {what}; the {records} records before it are intact")]
    Damaged {
        /// Offset in the recording.
        at: u64,
        /// What is wrong.
        what: &'static str,
        /// Records read before it.
        records: u64,
    },
    /// The end is missing: the writer was interrupted.
    #[error("cut short at byte {at}: the end is missing after {records} intact records")]
    CutShort {
        /// Where it ends.
        at: u64,
        /// Records read before it.
        records: u64,
    },
}
