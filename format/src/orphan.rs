//! Orphan blocks: inodes without a name that were still open at the checkpoint.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, FormatError, Ino};

/// Inode numbers in one orphan block.
pub const ORPHANS_PER_BLOCK: usize = 1020;

/// One block on disk (`f2fs_orphan_block`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawOrphanBlock {
    /// Inode numbers.
    pub ino: [U32; ORPHANS_PER_BLOCK],
    /// Zero.
    pub reserved: U32,
    /// Index of this block among the orphan blocks, from 1.
    pub blk_addr: U16,
    /// Number of orphan blocks.
    pub blk_count: U16,
    /// Entries in this block.
    pub entry_count: U32,
    /// Never written nor verified by Linux.
    pub check_sum: U32,
}
const _: () = assert!(size_of::<RawOrphanBlock>() == 4096);

/// The inode numbers an orphan block lists.
pub fn parse(block: &Block) -> Result<Vec<Ino>, FormatError> {
    // OK to unwrap: a block is exactly the structure's size and any bytes are valid for it.
    let raw = RawOrphanBlock::ref_from_bytes(block).unwrap();
    let n = raw.entry_count.get();
    let inos = raw.ino.get(..n as usize).ok_or(FormatError::field("orphan block", "entry_count", n, "at most 1020"))?;
    Ok(inos.iter().map(|i| Ino(i.get())).collect())
}

/// Packs inode numbers into blocks.
pub fn encode(inos: &[Ino]) -> Vec<Block> {
    let chunks = inos.chunks(ORPHANS_PER_BLOCK);
    let count = chunks.len() as u16;
    chunks
        .enumerate()
        .map(|(i, chunk)| {
            let mut block = [0u8; 4096];
            for (slot, ino) in block.chunks_exact_mut(4).zip(chunk) {
                slot.copy_from_slice(&ino.0.to_le_bytes());
            }
            block[4084..4086].copy_from_slice(&(i as u16 + 1).to_le_bytes());
            block[4086..4088].copy_from_slice(&count.to_le_bytes());
            block[4088..4092].copy_from_slice(&(chunk.len() as u32).to_le_bytes());
            block
        })
        .collect()
}
