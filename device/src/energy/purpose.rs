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
