//! What passed, and when? And: the same once more, somewhere else.
//!
//! [`blocks`] records the requests a block device got, [`calls`] those a file system got; each has a
//! decorator that writes, a reader, and a replay onto any other device or file system. The file format
//! (`docs/record-format.md`) is one for both: [`Writer`] and [`Reader`] know its chunks and checksums.
//!
//! Contents are not recorded: of what is written, length and a fingerprint; a replay writes generated
//! bytes, the same ones for the same fingerprint. Names, targets of symlinks and access lists are recorded
//! as they are. Formats of other people are not this crate's business.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod calls;
mod error;
mod field;
mod reader;
mod tempo;
mod writer;

pub use error::RecordError;
pub use reader::Reader;
pub use tempo::{Started, Tempo};
pub use writer::Writer;

/// What a recording is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Requests to a block device.
    Blocks,
    /// Calls to a file system.
    Calls,
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Kind::Blocks => 1,
            Kind::Calls => 2,
        }
    }
    fn from_number(n: u16) -> Option<Self> {
        [Kind::Blocks, Kind::Calls].into_iter().find(|k| k.number() == n)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Blocks => "requests to a block device",
            Kind::Calls => "calls to a file system",
        })
    }
}

/// The first bytes of every recording.
const MAGIC: [u8; 8] = *b"JouleRec";
/// The version written, the only one read.
const VERSION: u16 = 1;
/// Bytes of a chunk's head: length, records, number of the first, checksum.
const CHUNK_HEAD: usize = 20;
/// The longest payload a reader takes.
const MAX_CHUNK: u32 = 1 << 20;
/// The longest description of a recording's subject.
const MAX_SUBJECT: u32 = 1 << 16;
