//! Addresses, units of transfer, and tags of requests.

use serde::Serialize;

/// Bytes in a block, the unit of every operation.
pub const BLOCK: usize = 4096;

/// Logical block address: index of a 4 KiB block from the start of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// Purpose of an operation: why, and for which object. Opaque to every device: the file system defines the meaning;
/// meters and recorders sum by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag {
    /// The file system's number of a cause.
    pub cause: u8,
    /// The object (an inode number), or 0 for none.
    pub owner: u64,
}

/// Kinds of remap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remap {
    /// Exchanges the two ranges.
    Exchange,
    /// Moves the data of the first range to the second, replacing its data; the first is discarded.
    Move,
    /// Makes the second range show the data of the first, replacing its own. From then on both behave like copies:
    /// writes and discards of one do not affect the other.
    Share,
}
