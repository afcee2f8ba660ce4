//! Where on a device, how much at once, and for whom.

use serde::Serialize;

/// Bytes in a block, the unit of every operation.
pub const BLOCK: usize = 4096;

/// Logical block address: index of a 4 KiB block from the start of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// Why an operation is done, and for which object. Opaque to every device: the file system gives
/// it its meaning; meters and recorders add up by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag {
    /// A small number the file system assigns to a cause.
    pub cause: u8,
    /// The object the operation is for (an inode number), 0 if for none.
    pub owner: u64,
}

/// What a remap does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remap {
    /// The two ranges change places.
    Exchange,
    /// The data at the first is afterwards at the second, whose own is gone; the first is discarded.
    Move,
    /// The data at the first is afterwards at the second too, whose own is gone. Both go on as if the data had been
    /// copied: what is written or discarded at one is not seen at the other.
    Share,
}
