//! A keep: cached file contents in a file on another disk.
//!
//! Like an index it records its volume and the superblock for which it is valid ([`Mark`]), and is not part of the
//! volume. Its number of one-block slots is independent of the size of the volume: two heads, alternately like the
//! superblocks; a table with an entry for each slot; the slots. Layout and checks only; the writer chooses the
//! contents.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::archive::{HEADS, Mark, RawMark, head, sealed_block};
use crate::{Addr, BLOCK, BLOCKS_MAX, Block, FormatError, Ino};

const KEEP: &str = "keep";
/// Magic of the head of a keep.
pub const KEEP_MAGIC: [u8; 8] = *b"ScherlKP";
const VERSION: u32 = 1;
/// Most slots of a keep: 8 TiB.
pub const SLOTS_MAX: u64 = 1 << 31;

/// Head of a keep, alternately in blocks 0 and 1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawKeepHead {
    /// "ScherlKP".
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// Over the block, with this field as zero.
    pub crc: U32,
    /// The volume.
    pub uuid: [u8; 16],
    /// Blocks of the volume.
    pub blocks: U64,
    /// Number of slots.
    pub slots: U64,
    /// Current life of the file: entries of other lives are invalid.
    pub life: U64,
    /// The superblock for which it is valid.
    pub mark: RawMark,
    /// All inodes below this number were scanned for small files.
    pub filled: U64,
    /// Zero.
    pub spare: [u8; 3996],
}

/// Entry of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawKeepEntry {
    /// Life of the file in which it was filled; 0: it is empty.
    pub life: U64,
    /// The volume's block in it.
    pub addr: U64,
    /// Over the block's address (8 bytes) and its copy.
    pub crc: U32,
    /// The file: blocks of one file are evicted together.
    pub ino: U32,
    /// Zero.
    pub spare: U64,
}

const _: () = assert!(size_of::<RawKeepHead>() == BLOCK);
/// Entries in a block of a keep's table.
pub const ENTRIES: u64 = (BLOCK / size_of::<RawKeepEntry>()) as u64;
const _: () = assert!(ENTRIES == 128);

/// Layout of a keep with a given number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    slots: u64,
}

impl Layout {
    /// Layout with `slots` slots; `None` for 0 or too many.
    pub fn with_slots(slots: u64) -> Option<Self> {
        (1..=SLOTS_MAX).contains(&slots).then_some(Layout { slots })
    }
    /// The largest layout for a file of `blocks` blocks; `None` if it is too small for a slot.
    pub fn within(blocks: u64) -> Option<Self> {
        let left = blocks.checked_sub(HEADS)?;
        // A table block and its slots are ENTRIES + 1 blocks; in the remainder one block is the table's.
        let (whole, part) = (left / (ENTRIES + 1), left % (ENTRIES + 1));
        Layout::with_slots((whole * ENTRIES + part.saturating_sub(1)).min(SLOTS_MAX))
    }
    /// Number of slots.
    pub fn slots(self) -> u64 {
        self.slots
    }
    /// Number of table blocks.
    pub fn tables(self) -> u64 {
        self.slots.div_ceil(ENTRIES)
    }
    /// Size of the file in blocks.
    pub fn size(self) -> u64 {
        HEADS + self.tables() + self.slots
    }
    /// The file block of a table block.
    pub fn table(self, n: u64) -> u64 {
        HEADS + n
    }
    /// The file block of a slot.
    pub fn slot(self, slot: u64) -> u64 {
        HEADS + self.tables() + slot
    }
}

/// Head of a keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepHead {
    /// The volume.
    pub uuid: [u8; 16],
    /// Its blocks.
    pub blocks: u64,
    /// Number of slots.
    pub slots: u64,
    /// The life of the file.
    pub life: u64,
    /// The superblock for which it is valid.
    pub mark: Mark,
    /// All inodes below this number were scanned for small files.
    pub filled: u64,
}

impl KeepHead {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let raw = RawKeepHead::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: KEEP })?;
        head(block, raw.magic, KEEP_MAGIC, raw.version.get(), KEEP)?;
        let wrong = |field, value| FormatError::Field { what: KEEP, field, value };
        if raw.life.get() == 0 {
            return Err(wrong("life", 0));
        }
        if raw.blocks.get() > BLOCKS_MAX {
            return Err(wrong("blocks", raw.blocks.get()));
        }
        if Layout::with_slots(raw.slots.get()).is_none() {
            return Err(wrong("slots", raw.slots.get()));
        }
        Ok(KeepHead {
            uuid: raw.uuid,
            blocks: raw.blocks.get(),
            slots: raw.slots.get(),
            life: raw.life.get(),
            mark: Mark::read(&raw.mark),
            filled: raw.filled.get(),
        })
    }

    /// Encodes a block.
    pub fn write(&self) -> Box<Block> {
        let mut raw = RawKeepHead::new_zeroed();
        (raw.magic, raw.version, raw.uuid) = (KEEP_MAGIC, VERSION.into(), self.uuid);
        (raw.blocks, raw.slots, raw.life) = (self.blocks.into(), self.slots.into(), self.life.into());
        (raw.mark, raw.filled) = (self.mark.raw(), self.filled.into());
        sealed_block(raw.as_bytes())
    }

    /// The block of the keep for this head.
    pub fn place(&self) -> u64 {
        self.mark.checkpoint % HEADS
    }
}

/// Contents of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The block of the volume.
    pub addr: Addr,
    /// Over its address and its copy: [`crate::archive::copy_crc`].
    pub crc: u32,
    /// The file.
    pub ino: Ino,
}

/// Entry `n` of a table block (`None` at or past [`ENTRIES`]), if it is of this life.
pub fn entry(table: &Block, n: usize, life: u64) -> Option<Kept> {
    let size = size_of::<RawKeepEntry>();
    let raw = RawKeepEntry::ref_from_bytes(table.get(n * size..(n + 1) * size)?).ok()?;
    let kept = Kept { addr: Addr(raw.addr.get()), crc: raw.crc.get(), ino: Ino(raw.ino.get()) };
    (life != 0 && raw.life.get() == life).then_some(kept)
}

/// Sets an entry; `None` for an empty slot. Does nothing at or past [`ENTRIES`].
pub fn put_entry(table: &mut Block, n: usize, life: u64, kept: Option<Kept>) {
    let size = size_of::<RawKeepEntry>();
    let raw = kept.map_or_else(RawKeepEntry::new_zeroed, |kept| RawKeepEntry {
        life: life.into(),
        addr: kept.addr.0.into(),
        crc: kept.crc.into(),
        ino: kept.ino.0.into(),
        spare: 0.into(),
    });
    if let Some(to) = table.get_mut(n * size..(n + 1) * size) {
        to.copy_from_slice(raw.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seq;
    use crate::time::Time;

    #[test]
    fn a_head_reads_as_it_was_written_and_no_changed_bit_goes_unseen() {
        let mark = Mark { checkpoint: 7, seq: Seq(9), epoch: 3, begun: Time { secs: -1, nanos: 5 }, crc: 4 };
        let keep = KeepHead { uuid: [3; 16], blocks: 1 << 40, slots: 77, life: 5, mark, filled: 8 };
        assert_eq!(KeepHead::read(&keep.write()), Ok(keep.clone()));
        for bit in 0..BLOCK * 8 {
            let mut block = keep.write();
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(KeepHead::read(&block).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_counts_in_its_own_life_alone() {
        let (mut table, kept) = ([0; BLOCK], Kept { addr: Addr(9), crc: 0, ino: Ino(4) });
        assert_eq!(entry(&table, 3, 0), None, "zeroes are no entry");
        put_entry(&mut table, 3, 5, Some(kept));
        assert_eq!((entry(&table, 3, 5), entry(&table, 3, 6), entry(&table, 2, 5)), (Some(kept), None, None));
        put_entry(&mut table, 3, 5, None);
        put_entry(&mut table, ENTRIES as usize, 5, Some(kept));
        assert_eq!((entry(&table, 3, 5), entry(&table, ENTRIES as usize, 5)), (None, None));
    }

    #[test]
    fn a_file_has_as_many_slots_as_fit() {
        assert_eq!((Layout::within(3), Layout::within(0)), (None, None));
        for blocks in 4..2000 {
            let layout = Layout::within(blocks).unwrap();
            assert!(layout.size() <= blocks, "{blocks}");
            assert!(Layout::with_slots(layout.slots() + 1).unwrap().size() > blocks, "{blocks}");
            assert_eq!(layout.slot(layout.slots() - 1) + 1, layout.size());
            assert_eq!(layout.table(layout.tables()), layout.slot(0));
        }
    }
}
