//! nat_bits record for each block of the node address table whether all, none or some of its entries are in use.
//! With them a mount after a clean unmount need not read the table.
//!
//! They lie in the last blocks of the pack's segment: a tag (checkpoint version, and its checksum in
//! the upper half), the map of full blocks, the map of empty blocks, least significant bit first.
//! They are optional: bits with another checkpoint's tag are ignored, and a checkpoint without
//! `CpFlags::NAT_BITS` has none.

use crate::nat::NAT_ENTRIES;
use crate::superblock::SuperBlock;
use crate::{BLOCK, BLOCKS_PER_SEG, Block, FormatError, bits};

const S: &str = "nat_bits";
const TAG: usize = 8;

/// Usage of one NAT block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Usage {
    /// No entry is in use.
    Empty,
    /// Some entries are in use.
    #[default]
    Some,
    /// No entry is free.
    Full,
}

impl Usage {
    /// The usage of NAT block `n` with `used` entries that have an address. Number 0, which no node may have,
    /// counts as in use although its entry is empty (kernel `__update_nat_bits`).
    pub fn classify(n: u32, used: u32) -> Usage {
        match used.saturating_add(u32::from(n == 0)) {
            0 => Usage::Empty,
            NAT_ENTRIES.. => Usage::Full,
            _ => Usage::Some,
        }
    }
}

/// The tag that binds bits to a checkpoint: its version, and its checksum in the upper half.
pub fn tag(version: u64, crc: u32) -> u64 {
    version | u64::from(crc) << 32
}

/// Number of blocks of nat_bits for a table of `nat_blocks` blocks (one copy).
pub fn blocks(nat_blocks: u32) -> u32 {
    (TAG + 2 * bytes(nat_blocks)).div_ceil(BLOCK) as u32
}

/// Start of nat_bits, in blocks from the pack's start; `None` if the table is so large that they do not fit the
/// segment.
pub fn offset(nat_blocks: u32) -> Option<u32> {
    BLOCKS_PER_SEG.checked_sub(blocks(nat_blocks)).filter(|&at| at > 0)
}

fn bytes(nat_blocks: u32) -> usize {
    nat_blocks as usize / 8
}

/// The two maps of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatBits {
    nat_blocks: u32,
    full: Vec<u8>,
    empty: Vec<u8>,
}

impl NatBits {
    /// Maps in which every block has `usage`.
    pub fn new(sb: &SuperBlock, usage: Usage) -> Self {
        let map = |on| vec![if on { 0xFF } else { 0 }; sb.nat_bitmap_bytes()];
        NatBits { nat_blocks: sb.nat_blocks(), full: map(usage == Usage::Full), empty: map(usage == Usage::Empty) }
    }

    /// Checks bits read from the device ([`blocks`] blocks): long enough, with this checkpoint's [`tag`], no block
    /// both full and empty.
    pub fn check(sb: &SuperBlock, tag: u64, stored: &[u8]) -> Result<Self, FormatError> {
        let len = sb.nat_bitmap_bytes();
        let short = FormatError::Short { structure: S, have: stored.len(), need: TAG + 2 * len };
        let (head, maps) = stored.split_first_chunk::<TAG>().ok_or(short.clone())?;
        let (full, rest) = maps.split_at_checked(len).ok_or(short.clone())?;
        let empty = rest.get(..len).ok_or(short)?;
        let have = u64::from_le_bytes(*head);
        if have != tag {
            return Err(FormatError::field(S, "tag", have, "the checkpoint's version and checksum"));
        }
        if let Some(i) = full.iter().zip(empty).position(|(f, e)| f & e != 0) {
            return Err(FormatError::field(S, "empty", i as u64, "without a block that is full too"));
        }
        Ok(NatBits { nat_blocks: sb.nat_blocks(), full: full.to_vec(), empty: empty.to_vec() })
    }

    /// Recorded usage of block `n`; [`Usage::Some`] past the table.
    pub fn usage(&self, n: u32) -> Usage {
        match (bits::lsb_test(&self.full, n as usize), bits::lsb_test(&self.empty, n as usize)) {
            (true, _) => Usage::Full,
            (_, true) => Usage::Empty,
            _ => Usage::Some,
        }
    }

    /// Records the usage of block `n`; does nothing past the table.
    pub fn set(&mut self, n: u32, usage: Usage) {
        bits::lsb_put(&mut self.full, n as usize, usage == Usage::Full);
        bits::lsb_put(&mut self.empty, n as usize, usage == Usage::Empty);
    }

    /// The blocks to write, for the checkpoint with this [`tag`].
    pub fn encode(&self, tag: u64) -> Vec<Block> {
        let mut out = vec![[0; BLOCK]; blocks(self.nat_blocks) as usize];
        let parts = [&tag.to_le_bytes()[..], &self.full, &self.empty];
        for (to, from) in out.as_flattened_mut().iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_0_counts_as_used_in_the_first_block() {
        assert_eq!(Usage::classify(0, 454), Usage::Full);
        assert_eq!(Usage::classify(0, 0), Usage::Some);
        assert_eq!(Usage::classify(1, 0), Usage::Empty);
        assert_eq!(Usage::classify(1, 454), Usage::Some);
        assert_eq!(Usage::classify(1, 455), Usage::Full);
    }

    #[test]
    fn a_table_too_large_for_the_pack_has_no_place_for_bits() {
        assert_eq!((blocks(512), offset(512)), (1, Some(511)));
        // 8 + 2 * 2044 bytes end exactly at a block boundary.
        assert_eq!((blocks(2044 * 8), blocks(2045 * 8)), (1, 2));
        assert_eq!(offset(512 * 2048 * 8), None);
    }
}
