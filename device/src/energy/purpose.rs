//! What is energy spent for?

use serde::{Deserialize, Serialize};

/// The kinds of things that cost.
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
    /// All, in order.
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

/// What an amount was spent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose {
    /// For whom.
    pub owner: u64,
    /// Why.
    pub cause: u8,
    /// In which kind of operation.
    pub operation: Operation,
}
