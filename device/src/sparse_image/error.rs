//! How a sparse image can break its format.

use std::io;

/// Where a sparse image breaks its format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// Not the magic number.
    #[error("magic number {found:#010x} instead of 0xed26ff3a")]
    Magic {
        /// What is there.
        found: u32,
    },
    /// Another major version than 1.
    #[error("version {major} is not known, only 1")]
    Version {
        /// What is there.
        major: u16,
    },
    /// A header field that no writer produces.
    #[error("header: {field} is {value}: {wanted}")]
    Header {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        wanted: &'static str,
    },
    /// A chunk of no known type.
    #[error("chunk {chunk} at byte {at}: unknown type {kind:#06x}")]
    ChunkType {
        /// Number of the chunk, from 0.
        chunk: u32,
        /// Its place in the file.
        at: u64,
        /// The type.
        kind: u16,
    },
    /// A chunk whose length does not fit its type.
    #[error("chunk {chunk} at byte {at}: says {found} bytes, its type and blocks need {needed}")]
    ChunkSize {
        /// Number of the chunk, from 0.
        chunk: u32,
        /// Its place in the file.
        at: u64,
        /// Length it gives.
        found: u64,
        /// Length it must have.
        needed: u64,
    },
    /// The chunks hold more or fewer blocks than the header says.
    #[error("the chunks up to {chunk} hold {found} blocks, the header says {wanted}")]
    BlockCount {
        /// Number of the chunk where it shows, from 0.
        chunk: u32,
        /// Blocks in the chunks.
        found: u64,
        /// Blocks by the header.
        wanted: u32,
    },
    /// The file ends too early.
    #[error("the file ends at byte {end}, inside {what}")]
    Truncated {
        /// "the header", "a chunk".
        what: &'static str,
        /// The file's size.
        end: u64,
    },
    /// A checksum does not match.
    #[error("checksum of the first {bytes} bytes is {found:#010x}, recorded is {recorded:#010x}")]
    Checksum {
        /// Bytes of the expanded image it covers.
        bytes: u64,
        /// Computed.
        found: u32,
        /// In the file.
        recorded: u32,
    },
    /// Reading failed.
    #[error("at byte {at}: {source}")]
    Io {
        /// Where.
        at: u64,
        /// The host's error.
        source: io::Error,
    },
}
