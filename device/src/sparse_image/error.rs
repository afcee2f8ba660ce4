//! Errors of sparse images.

use std::io;

/// A violation of the sparse image format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// The magic is wrong.
    #[error("magic number {found:#010x} instead of 0xed26ff3a")]
    Magic {
        /// The value found.
        found: u32,
    },
    /// The major version is not 1.
    #[error("version {major} is not known, only 1")]
    Version {
        /// The value found.
        major: u16,
    },
    /// An impossible value of a header field.
    #[error("header: {field} is {value}: {wanted}")]
    Header {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The valid values.
        wanted: &'static str,
    },
    /// A chunk of unknown type.
    #[error("chunk {chunk} at byte {at}: unknown type {kind:#06x}")]
    ChunkType {
        /// Number of the chunk, from 0.
        chunk: u32,
        /// Its place in the file.
        at: u64,
        /// The type.
        kind: u16,
    },
    /// A chunk length that does not fit its type.
    #[error("chunk {chunk} at byte {at}: says {found} bytes, its type and blocks need {needed}")]
    ChunkSize {
        /// Number of the chunk, from 0.
        chunk: u32,
        /// Its place in the file.
        at: u64,
        /// Its length.
        found: u64,
        /// The required length.
        needed: u64,
    },
    /// The number of blocks in the chunks differs from the header.
    #[error("the chunks up to {chunk} hold {found} blocks, the header says {wanted}")]
    BlockCount {
        /// Number of the chunk where this is detected, from 0.
        chunk: u32,
        /// Blocks in the chunks.
        found: u64,
        /// Blocks according to the header.
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
    /// The checksum does not match.
    #[error("checksum of the first {bytes} bytes is {found:#010x}, recorded is {recorded:#010x}")]
    Checksum {
        /// Bytes of the expanded image it covers.
        bytes: u64,
        /// The computed value.
        found: u32,
        /// The value in the file.
        recorded: u32,
    },
    /// Reading failed.
    #[error("at byte {at}: {source}")]
    Io {
        /// Byte offset.
        at: u64,
        /// The host's error.
        source: io::Error,
    },
}
