//! The segment information table: the valid blocks of each segment.

use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, FormatError, bits};

/// Entries in one SIT block.
pub const SIT_ENTRIES: u32 = 55;
/// Bytes of a segment's valid map.
pub const MAP_BYTES: usize = 64;

/// One entry on disk (`f2fs_sit_entry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitEntry {
    /// Type in the upper 6 bits, valid blocks in the lower 10.
    pub vblocks: U16,
    /// One bit per block, most significant first.
    pub valid_map: [u8; MAP_BYTES],
    /// Age of the segment, in seconds of mounted time.
    pub mtime: U64,
}
const _: () = assert!(size_of::<RawSitEntry>() == 74);

/// Contents of a log, and so of the segments that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum LogType {
    /// Hot data.
    #[default]
    HotData = 0,
    /// Warm data.
    WarmData = 1,
    /// Cold data.
    ColdData = 2,
    /// Direct nodes and inodes of directories.
    HotNode = 3,
    /// Direct nodes and inodes of other files: the log that fsync replays.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl LogType {
    /// All six, in on-disk order.
    pub const ALL: [LogType; 6] = [
        LogType::HotData,
        LogType::WarmData,
        LogType::ColdData,
        LogType::HotNode,
        LogType::WarmNode,
        LogType::ColdNode,
    ];
    /// Decodes the on-disk number.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }
    /// True for the three node logs.
    pub fn is_node(self) -> bool {
        self >= LogType::HotNode
    }
    /// Its on-disk number, as an index.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One checked entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SitEntry {
    /// The log that wrote the segment.
    pub log: LogType,
    /// Valid blocks, 0..=512, equal to the number of bits set in the map.
    pub valid: u16,
    /// One bit per block, most significant first.
    pub map: [u8; MAP_BYTES],
    /// Seconds of mounted time.
    pub mtime: u64,
}

impl SitEntry {
    /// Checks type and count, and that the count matches the map.
    pub fn check(raw: &RawSitEntry) -> Result<Self, FormatError> {
        let v = raw.vblocks.get();
        let valid = v & 0x3FF;
        let log =
            LogType::from_number((v >> 10) as u8).ok_or(FormatError::field("SIT entry", "type", v >> 10, "0..=5"))?;
        if valid > 512 {
            return Err(FormatError::field("SIT entry", "vblocks", valid, "at most 512"));
        }
        if bits::count(&raw.valid_map) != u32::from(valid) {
            let must = "the number of bits set in valid_map";
            return Err(FormatError::field("SIT entry", "vblocks", valid, must));
        }
        Ok(SitEntry { log, valid, map: raw.valid_map, mtime: raw.mtime.get() })
    }
    /// Encodes the on-disk form.
    pub fn to_raw(&self) -> RawSitEntry {
        RawSitEntry {
            vblocks: ((self.log as u16) << 10 | self.valid).into(),
            valid_map: self.map,
            mtime: self.mtime.into(),
        }
    }
}

/// Entry `i` of a SIT block, unchecked; past the end all zero.
pub fn get(block: &Block, i: usize) -> RawSitEntry {
    let at = i.min(SIT_ENTRIES as usize) * 74;
    block
        .get(at..at + 74)
        .filter(|_| i < SIT_ENTRIES as usize)
        .and_then(|b| RawSitEntry::read_from_bytes(b).ok())
        .unwrap_or(RawSitEntry { vblocks: 0.into(), valid_map: [0; 64], mtime: 0.into() })
}

/// Writes entry `i` of a SIT block; does nothing past the end.
pub fn put(block: &mut Block, i: usize, entry: &RawSitEntry) {
    if i < SIT_ENTRIES as usize {
        block[i * 74..i * 74 + 74].copy_from_slice(entry.as_bytes());
    }
}
