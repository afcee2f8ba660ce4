//! The purposes of energy.

use serde::{Deserialize, Serialize};

/// Kinds of operations with costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A remap.
    Remap,
    /// Time without requests.
    Idle,
    /// Computation.
    Work,
}

impl Operation {
    /// All kinds, in order.
    pub const ALL: [Operation; 7] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Discard,
        Operation::Remap,
        Operation::Idle,
        Operation::Work,
    ];
}

/// Kinds of computation. The profile has a time for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Encodes a delta.
    DeltaEncode,
    /// Decodes a delta.
    DeltaDecode,
    /// Compresses with LZO or LZ4.
    Compress,
    /// Decompresses with LZO or LZ4.
    Decompress,
    /// Compresses with Zstandard.
    ZstdCompress,
    /// Decompresses with Zstandard.
    ZstdDecompress,
    /// A program computes, for a time that is given.
    Program,
}

impl Work {
    /// All kinds, in order.
    pub const ALL: [Work; 7] = [
        Work::DeltaEncode,
        Work::DeltaDecode,
        Work::Compress,
        Work::Decompress,
        Work::ZstdCompress,
        Work::ZstdDecompress,
        Work::Program,
    ];

    /// The number of the profile that says how long it takes.
    pub fn number(self) -> Option<&'static str> {
        match self {
            Work::DeltaEncode => Some("host.delta_encode"),
            Work::DeltaDecode => Some("host.delta_decode"),
            Work::Compress => Some("host.compress"),
            Work::Decompress => Some("host.decompress"),
            Work::ZstdCompress => Some("host.zstd_compress"),
            Work::ZstdDecompress => Some("host.zstd_decompress"),
            Work::Program => None,
        }
    }
}

/// Purpose of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose {
    /// The owner.
    pub owner: u64,
    /// The cause.
    pub cause: u8,
    /// The kind of operation.
    pub operation: Operation,
}
