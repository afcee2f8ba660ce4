//! What can be wrong with a recording.

use crate::Kind;

/// A recording that cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The host failed.
    #[error("at byte {at}: {source}")]
    Io {
        /// Where in the recording.
        at: u64,
        /// What the host said.
        source: std::io::Error,
    },
    /// Something else.
    #[error("not a recording: it does not begin with \"JouleRec\"")]
    NotARecording,
    /// Made by a later version.
    #[error("version {found} of the format; this program reads versions up to {known}")]
    Version {
        /// The version it has.
        found: u16,
        /// The last version that can be read.
        known: u16,
    },
    /// A recording of something else than asked for.
    #[error("a recording of {found}, but one of {asked} is needed")]
    Kind {
        /// What it is of.
        found: Kind,
        /// What was asked for.
        asked: Kind,
    },
    /// Bytes that no writer wrote.
    #[error("damaged at byte {at}: {what}; the {records} records before it are intact")]
    Damaged {
        /// Where in the recording.
        at: u64,
        /// What is wrong there.
        what: &'static str,
        /// How many records were read before.
        records: u64,
    },
    /// It has no end: whoever wrote it was interrupted.
    #[error("cut short at byte {at}: the end is missing after {records} intact records")]
    CutShort {
        /// Where it stops.
        at: u64,
        /// How many records were read before.
        records: u64,
    },
}
