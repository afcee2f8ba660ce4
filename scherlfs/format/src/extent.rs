//! Extents: the places of a file's blocks in consecutive entries of 12 bytes. Positions in the file are implicit,
//! as in Scherl 2004, section 5.4.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::{Addr, BLOCKS_MAX, FIRST, FormatError};

/// On-disk form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawExtent {
    /// The first block, 48 bits; for a hole the upper bits of its length.
    pub start: [u8; 6],
    /// Number of blocks; for a hole its lower 32 bits.
    pub blocks: U32,
    /// 0 stored, 1 hole, 2 reserved.
    pub kind: U16,
}

/// Bytes of an extent.
pub const EXTENT_BYTES: usize = size_of::<RawExtent>();
const _: () = assert!(EXTENT_BYTES == 12);

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Blocks at consecutive addresses.
    Stored {
        /// The first.
        start: Addr,
        /// Their number.
        blocks: u32,
    },
    /// A hole, which reads as zeroes.
    Hole {
        /// Its length, below 2^52.
        blocks: u64,
    },
    /// Room reserved for the file, which reads as zeroes. It has no address: a log assigns one only when it writes.
    Reserved {
        /// Its length.
        blocks: u32,
    },
}

/// The longest hole: all of a file of 2^63 bytes.
pub const HOLE_MAX: u64 = 1 << 51;

impl Extent {
    /// Number of file blocks in it.
    pub fn blocks(self) -> u64 {
        match self {
            Extent::Stored { blocks, .. } | Extent::Reserved { blocks } => blocks.into(),
            Extent::Hole { blocks } => blocks,
        }
    }

    /// Encodes the on-disk form.
    #[inline]
    pub fn raw(self) -> RawExtent {
        let (start, blocks, kind) = match self {
            Extent::Stored { start, blocks } => (start.0, blocks, 0),
            // Truncation keeps the lower half; the upper half is stored separately.
            Extent::Hole { blocks } => (blocks >> 32, blocks as u32, 1),
            Extent::Reserved { blocks } => (0, blocks, 2),
        };
        let [a, b, c, d, e, f, ..] = start.to_le_bytes();
        let [g, h, i, j] = blocks.to_le_bytes();
        let bytes: [u8; EXTENT_BYTES] = [a, b, c, d, e, f, g, h, i, j, kind, 0];
        transmute!(bytes)
    }
}

/// Decodes 48 bits.
pub(crate) fn u48(bytes: &[u8; 6]) -> u64 {
    let mut all = [0; 8];
    all[..6].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

impl TryFrom<&RawExtent> for Extent {
    type Error = FormatError;
    fn try_from(raw: &RawExtent) -> Result<Self, FormatError> {
        let wrong = |field, value| FormatError::Field { what: "extent", field, value };
        let (start, blocks) = (u48(&raw.start), raw.blocks.get());
        match raw.kind.get() {
            0 if blocks == 0 => Err(wrong("length", 0)),
            0 if start < FIRST || start + u64::from(blocks) > BLOCKS_MAX => Err(wrong("start", start)),
            0 => Ok(Extent::Stored { start: Addr(start), blocks }),
            // Longer ones would overflow the shift below.
            1 if start > HOLE_MAX >> 32 => Err(wrong("length of a hole", start)),
            1 => match (start << 32) | u64::from(blocks) {
                long @ 1..=HOLE_MAX => Ok(Extent::Hole { blocks: long }),
                long => Err(wrong("length of a hole", long)),
            },
            2 if blocks == 0 || start != 0 => Err(wrong("reserved", start)),
            2 => Ok(Extent::Reserved { blocks }),
            k => Err(wrong("kind", k.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_reads_as_it_was_written() {
        let all = [
            Extent::Stored { start: Addr(2), blocks: 1 },
            Extent::Stored { start: Addr(BLOCKS_MAX - 7), blocks: 7 },
            Extent::Hole { blocks: 1 },
            Extent::Hole { blocks: HOLE_MAX },
            Extent::Reserved { blocks: u32::MAX },
        ];
        for extent in all {
            assert_eq!(Extent::try_from(&extent.raw()), Ok(extent));
        }
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        let raw = |start: u64, blocks: u32, kind: u16| {
            let mut raw = Extent::Stored { start: Addr(start), blocks }.raw();
            raw.kind = kind.into();
            Extent::try_from(&raw)
        };
        assert!(raw(1, 1, 0).is_err() && raw(9, 0, 0).is_err() && raw(BLOCKS_MAX - 1, 2, 0).is_err());
        assert!(raw(0, 0, 1).is_err() && raw(1 << 20, 1, 1).is_err());
        assert!(raw(7, 1, 2).is_err() && raw(0, 0, 2).is_err() && raw(9, 1, 3).is_err());
        assert!(raw(9, 1, 0).is_ok());
    }
}
