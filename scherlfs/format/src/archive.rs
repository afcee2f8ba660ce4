//! Files of a volume on another disk: the index, a copy of its metadata, and the stage, writes on their way to the
//! volume.
//!
//! Both record their volume and the superblocks for which they are valid ([`Mark`]). Neither is part of the volume,
//! which is complete without them. This file has layout and checks only; the writer decides when to write.
//!
//! An index has two heads, alternately like the superblocks; a table with an entry for each block of the volume;
//! and a copy of each metadata block, at the same offset as in the volume. Other blocks are holes in the file.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::superblock::Superblock;
use crate::time::{RawTime, Time};
use crate::{Addr, BLOCK, BLOCKS_MAX, Block, FormatError, Seq, check_seal, checksum, seal};

const INDEX: &str = "index";
const STAGE: &str = "stage";
const RECORD: &str = "stage record";
/// Magic of the head of an index.
pub const INDEX_MAGIC: [u8; 8] = *b"ScherlIX";
/// Magic of a stage.
pub const STAGE_MAGIC: [u8; 8] = *b"ScherlST";
const RECORD_MAGIC: [u8; 8] = *b"ScherlRE";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
/// Most blocks in a record.
pub const RECORD_MAX: u32 = 1024;

/// Identifies a superblock: no other superblock of the volume agrees in all fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawMark {
    /// Its checkpoint.
    pub checkpoint: U64,
    /// Its transaction.
    pub seq: U64,
    /// Its epoch.
    pub epoch: U32,
    /// Start time of the mount that wrote it.
    pub begun: RawTime,
    /// Its checksum.
    pub crc: U32,
}

/// Head of an index, alternately in blocks 0 and 1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndexHead {
    /// "ScherlIX".
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// Over the block, with this field as zero.
    pub crc: U32,
    /// The volume.
    pub uuid: [u8; 16],
    /// Blocks of the volume.
    pub blocks: U64,
    /// Current life of the file: entries of other lives are invalid.
    pub life: U64,
    /// The superblock for which the index is valid.
    pub mark: RawMark,
    /// All inodes below this number were scanned.
    pub filled: U64,
    /// Zero.
    pub spare: [u8; 4004],
}

/// Entry of the index for a block of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndexEntry {
    /// Life of the file in which it was made; 0: there is no copy.
    pub life: U64,
    /// Over the block's address (8 bytes) and its copy.
    pub crc: U32,
    /// Zero.
    pub spare: U32,
}

/// Head of a stage, block 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawStageHead {
    /// "ScherlST".
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// Over the block, with this field as zero.
    pub crc: U32,
    /// The volume.
    pub uuid: [u8; 16],
    /// Current life of the file: records of other lives are invalid.
    pub life: U64,
    /// The superblock behind which the records belong.
    pub mark: RawMark,
    /// Zero.
    pub spare: [u8; 4020],
}

/// Head of a record of the stage; the blocks follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawStageRecord {
    /// "ScherlRE".
    pub magic: [u8; 8],
    /// Blocks that follow.
    pub blocks: U32,
    /// Over this block, with this field as zero.
    pub crc: U32,
    /// The life of the file.
    pub life: U64,
    /// Number of the record, from 0.
    pub number: U64,
    /// Address of the blocks.
    pub addr: U64,
    /// Checksum of the blocks.
    pub contents: U32,
    /// Zero.
    pub spare: [u8; 4052],
}

const _: () = assert!(size_of::<RawIndexHead>() == BLOCK);
const _: () = assert!(size_of::<RawStageHead>() == BLOCK);
const _: () = assert!(size_of::<RawStageRecord>() == BLOCK);
/// Entries in a block of the index's table.
pub const ENTRIES: u64 = (BLOCK / size_of::<RawIndexEntry>()) as u64;
const _: () = assert!(ENTRIES == 256);
/// Blocks of heads in an index.
pub const HEADS: u64 = 2;

/// Identifies a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its checkpoint.
    pub checkpoint: u64,
    /// Its transaction.
    pub seq: Seq,
    /// Its epoch.
    pub epoch: u32,
    /// Start time of the mount that wrote it.
    pub begun: Time,
    /// Its checksum.
    pub crc: u32,
}

impl Mark {
    /// The mark of a superblock.
    pub fn of_superblock(sb: &Superblock) -> Self {
        let block = sb.write();
        let crc = checksum(&[&block[..]]);
        Mark { checkpoint: sb.checkpoint, seq: sb.seq, epoch: sb.epoch.count, begun: sb.begun, crc }
    }

    pub(crate) fn read(raw: &RawMark) -> Self {
        Mark {
            checkpoint: raw.checkpoint.get(),
            seq: Seq(raw.seq.get()),
            epoch: raw.epoch.get(),
            begun: raw.begun.time(),
            crc: raw.crc.get(),
        }
    }

    pub(crate) fn raw(&self) -> RawMark {
        RawMark {
            checkpoint: self.checkpoint.into(),
            seq: self.seq.0.into(),
            epoch: self.epoch.into(),
            begun: self.begun.raw(),
            crc: self.crc.into(),
        }
    }
}

/// Layout of an index for a volume of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    blocks: u64,
}

impl Layout {
    /// Layout for a volume of `blocks` blocks; `None` if no volume has this size.
    pub fn for_volume(blocks: u64) -> Option<Self> {
        (blocks <= BLOCKS_MAX).then_some(Layout { blocks })
    }
    /// Blocks of the volume.
    pub fn volume(self) -> u64 {
        self.blocks
    }
    fn copies(self) -> u64 {
        HEADS + self.blocks.div_ceil(ENTRIES)
    }
    /// Blocks of the index, nearly all of them holes.
    pub fn size(self) -> u64 {
        self.copies() + self.blocks
    }
    /// The table block and the index in it of a block's entry.
    pub fn entry(self, at: Addr) -> (u64, usize) {
        (HEADS + at.0 / ENTRIES, (at.0 % ENTRIES) as usize)
    }
    /// Place of the copy of a block.
    pub fn copy(self, at: Addr) -> u64 {
        self.copies() + at.0
    }
}

/// Head of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexHead {
    /// The volume.
    pub uuid: [u8; 16],
    /// Its blocks.
    pub blocks: u64,
    /// The life of the file.
    pub life: u64,
    /// The superblock for which the index is valid.
    pub mark: Mark,
    /// All inodes below this number were scanned.
    pub filled: u64,
}

impl IndexHead {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let raw = RawIndexHead::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: INDEX })?;
        head(block, raw.magic, INDEX_MAGIC, raw.version.get(), INDEX)?;
        let wrong = |field, value| FormatError::Field { what: INDEX, field, value };
        if raw.life.get() == 0 {
            return Err(wrong("life", 0));
        }
        if raw.blocks.get() > BLOCKS_MAX {
            return Err(wrong("blocks", raw.blocks.get()));
        }
        Ok(IndexHead {
            uuid: raw.uuid,
            blocks: raw.blocks.get(),
            life: raw.life.get(),
            mark: Mark::read(&raw.mark),
            filled: raw.filled.get(),
        })
    }

    /// Encodes a block.
    pub fn write(&self) -> Box<Block> {
        let mut raw = RawIndexHead::new_zeroed();
        (raw.magic, raw.version, raw.uuid) = (INDEX_MAGIC, VERSION.into(), self.uuid);
        (raw.blocks, raw.life, raw.filled) = (self.blocks.into(), self.life.into(), self.filled.into());
        raw.mark = self.mark.raw();
        sealed_block(raw.as_bytes())
    }

    /// The block of the index for this head.
    pub fn place(&self) -> u64 {
        self.mark.checkpoint % HEADS
    }
}

pub(crate) fn head(
    block: &Block,
    magic: [u8; 8],
    wanted: [u8; 8],
    version: u32,
    what: &'static str,
) -> Result<(), FormatError> {
    if magic != wanted {
        return Err(FormatError::Magic { what });
    }
    if version != VERSION {
        return Err(FormatError::Field { what, field: "version", value: version.into() });
    }
    check_seal(block, CRC_AT, what)
}

pub(crate) fn sealed_block(bytes: &[u8]) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    block.copy_from_slice(bytes);
    seal(&mut block, CRC_AT);
    block
}

/// Checksum of a copy.
pub fn copy_crc(at: Addr, copy: &[u8]) -> u32 {
    checksum(&[&at.0.to_le_bytes(), copy])
}

/// Entry `n` of a table block (`None` at or past [`ENTRIES`]): the checksum of the copy, if there is one of this
/// life.
pub fn entry(table: &Block, n: usize, life: u64) -> Option<u32> {
    let size = size_of::<RawIndexEntry>();
    let raw = RawIndexEntry::ref_from_bytes(table.get(n * size..(n + 1) * size)?).ok()?;
    (life != 0 && raw.life.get() == life).then(|| raw.crc.get())
}

/// Sets an entry; `None` for no copy. Does nothing at or past [`ENTRIES`].
pub fn put_entry(table: &mut Block, n: usize, life: u64, crc: Option<u32>) {
    let size = size_of::<RawIndexEntry>();
    let raw = match crc {
        Some(crc) => RawIndexEntry { life: life.into(), crc: crc.into(), spare: 0.into() },
        None => RawIndexEntry::new_zeroed(),
    };
    if let Some(to) = table.get_mut(n * size..(n + 1) * size) {
        to.copy_from_slice(raw.as_bytes());
    }
}

/// Head of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageHead {
    /// The volume.
    pub uuid: [u8; 16],
    /// The life of the file.
    pub life: u64,
    /// The superblock behind which the records belong.
    pub mark: Mark,
}

impl StageHead {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let raw = RawStageHead::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: STAGE })?;
        head(block, raw.magic, STAGE_MAGIC, raw.version.get(), STAGE)?;
        Ok(StageHead { uuid: raw.uuid, life: raw.life.get(), mark: Mark::read(&raw.mark) })
    }

    /// Encodes a block.
    pub fn write(&self) -> Box<Block> {
        let mut raw = RawStageHead::new_zeroed();
        (raw.magic, raw.version, raw.uuid) = (STAGE_MAGIC, VERSION.into(), self.uuid);
        (raw.life, raw.mark) = (self.life.into(), self.mark.raw());
        sealed_block(raw.as_bytes())
    }
}

/// Head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageRecord {
    /// The life of the file.
    pub life: u64,
    /// Its number.
    pub number: u64,
    /// Address of the blocks.
    pub addr: Addr,
    /// Number of following blocks, 1 to [`RECORD_MAX`].
    pub blocks: u32,
    /// Their checksum.
    pub contents: u32,
}

impl StageRecord {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let raw = RawStageRecord::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: RECORD })?;
        head(block, raw.magic, RECORD_MAGIC, VERSION, RECORD)?;
        let blocks = raw.blocks.get();
        if !(1..=RECORD_MAX).contains(&blocks) {
            return Err(FormatError::Field { what: RECORD, field: "blocks", value: blocks.into() });
        }
        let addr = raw.addr.get();
        if addr >= BLOCKS_MAX {
            return Err(FormatError::Field { what: RECORD, field: "addr", value: addr });
        }
        Ok(StageRecord {
            life: raw.life.get(),
            number: raw.number.get(),
            addr: Addr(addr),
            blocks,
            contents: raw.contents.get(),
        })
    }

    /// Encodes a block.
    pub fn write(&self) -> Box<Block> {
        let mut raw = RawStageRecord::new_zeroed();
        (raw.magic, raw.blocks, raw.life) = (RECORD_MAGIC, self.blocks.into(), self.life.into());
        (raw.number, raw.addr, raw.contents) = (self.number.into(), self.addr.0.into(), self.contents.into());
        sealed_block(raw.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark { checkpoint: 7, seq: Seq(9), epoch: 3, begun: Time { secs: -1, nanos: 5 }, crc: 0xABCD }
    }

    #[test]
    fn heads_and_records_read_as_they_were_written_and_no_changed_bit_goes_unseen() {
        let index = IndexHead { uuid: [3; 16], blocks: 1 << 40, life: 5, mark: mark(), filled: 77 };
        let stage = StageHead { uuid: [3; 16], life: 5, mark: mark() };
        let record = StageRecord { life: 5, number: 6, addr: Addr(99), blocks: RECORD_MAX, contents: 4 };
        assert_eq!(IndexHead::read(&index.write()), Ok(index.clone()));
        assert_eq!(StageHead::read(&stage.write()), Ok(stage.clone()));
        assert_eq!(StageRecord::read(&record.write()), Ok(record));
        for bit in 0..BLOCK * 8 {
            let flip = |mut block: Box<Block>| {
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert!(IndexHead::read(&flip(index.write())).is_err(), "bit {bit}");
            assert!(StageHead::read(&flip(stage.write())).is_err(), "bit {bit}");
            assert!(StageRecord::read(&flip(record.write())).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_counts_in_its_own_life_alone() {
        let mut table = [0; BLOCK];
        assert_eq!(entry(&table, 3, 0), None, "zeroes are no entry");
        put_entry(&mut table, 3, 5, Some(0));
        assert_eq!((entry(&table, 3, 5), entry(&table, 3, 6), entry(&table, 2, 5)), (Some(0), None, None));
        put_entry(&mut table, 3, 5, None);
        put_entry(&mut table, 256, 5, Some(1));
        assert_eq!((entry(&table, 3, 5), entry(&table, 256, 5)), (None, None));
    }

    #[test]
    fn everything_has_its_own_place() {
        let layout = Layout::for_volume(1000).unwrap();
        assert_eq!(layout.entry(Addr(0)), (2, 0));
        assert_eq!(layout.entry(Addr(999)), (5, 231));
        assert_eq!((layout.copy(Addr(0)), layout.copy(Addr(999)), layout.size()), (6, 1005, 1006));
        assert_eq!(Layout::for_volume(BLOCKS_MAX + 1), None);
    }
}
