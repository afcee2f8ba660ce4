//! Compact storage of 64 blocks.
//!
//! Bitmaps record the kind of each block. Consecutive generated blocks share one origin of 12 bytes. Of other
//! blocks, only nonzero lines of 64 bytes are stored.

use std::sync::Arc;

use super::Origin;
use crate::BLOCK;

/// Blocks in a chunk: the bits of a word.
pub(super) const CHUNK_BLOCKS: usize = 64;

/// Bytes in a line.
pub(super) const LINE: usize = 64;

/// A block that is neither zero nor generated: a bit for each line, then the nonzero lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines(pub(super) Arc<[u8]>);

impl Lines {
    fn from_block(block: &[u8; BLOCK]) -> Self {
        let mut bits = 0u64;
        let mut bytes = [0; 8 + BLOCK];
        let mut end = 8;
        for (n, line) in block.as_chunks::<LINE>().0.iter().enumerate() {
            if line != &[0; LINE] {
                bits |= 1 << n;
                bytes[end..end + LINE].copy_from_slice(line);
                end += LINE;
            }
        }
        bytes[..8].copy_from_slice(&bits.to_le_bytes());
        Lines(Arc::from(&bytes[..end]))
    }

    fn write_to(&self, block: &mut [u8; BLOCK]) {
        let Some((bits, lines)) = self.0.split_first_chunk::<8>() else { return };
        let mut bits = u64::from_le_bytes(*bits);
        block.fill(0);
        let out = &mut block.as_chunks_mut::<LINE>().0;
        for line in lines.as_chunks::<LINE>().0 {
            out[bits.trailing_zeros() as usize] = *line;
            bits &= bits - 1;
        }
    }
}

/// Description of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// All zero.
    Zero,
    /// Generated from this origin.
    Generated(Origin),
    /// Anything else.
    Other(Lines),
}

impl Entry {
    pub(super) fn from_block(block: &[u8; BLOCK]) -> Self {
        if let Some(origin) = Origin::of_block(block) {
            return Entry::Generated(origin);
        }
        // Most nonzero blocks show it in the first line.
        if block[..LINE] == [0; LINE] && *block == [0; BLOCK] {
            return Entry::Zero;
        }
        Entry::Other(Lines::from_block(block))
    }
}

/// An origin in 12 bytes: the seed's halves, low first, and the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(pub(super) [u32; 3]);

impl From<Origin> for Packed {
    fn from(o: Origin) -> Self {
        Packed([o.seed as u32, (o.seed >> 32) as u32, o.index])
    }
}

impl From<Packed> for Origin {
    fn from(Packed([low, high, index]): Packed) -> Self {
        Origin { seed: u64::from(low) | u64::from(high) << 32, index }
    }
}

/// 64 blocks. Equal contents have equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Blocks that are generated.
    pub(super) generated: u64,
    /// Those that do not continue the previous block.
    pub(super) heads: u64,
    /// Blocks that are neither generated nor zero.
    pub(super) other: u64,
    /// One for each head.
    pub(super) origins: Box<[Packed]>,
    /// One for each other block.
    pub(super) others: Box<[Lines]>,
}

/// Number of set bits in `bits` below bit `n`.
fn rank(bits: u64, n: usize) -> usize {
    (bits & ((1 << n) - 1)).count_ones() as usize
}

impl Chunk {
    /// True if every block is zero.
    pub(super) fn is_empty(&self) -> bool {
        self.generated | self.other == 0
    }

    /// Number of generated blocks, number of other blocks, and their bytes on the heap.
    pub(super) fn weight(&self) -> (u64, u64, u64) {
        let lines: usize = self.others.iter().map(|l| l.0.len() + size_of::<Lines>() + 16).sum();
        let bytes = size_of::<Self>() + 16 + size_of_val(&*self.origins) + lines;
        (self.generated.count_ones().into(), self.other.count_ones().into(), bytes as u64)
    }

    fn origin(&self, n: usize) -> Origin {
        // A generated block has a head at or before it.
        let upto = self.heads & (u64::MAX >> (63 - n));
        let head = 63 - upto.leading_zeros();
        Origin::from(self.origins[upto.count_ones() as usize - 1]).later(n as u32 - head)
    }

    /// Description of block `n`.
    pub(super) fn entry(&self, n: usize) -> Entry {
        if self.generated >> n & 1 != 0 {
            Entry::Generated(self.origin(n))
        } else if self.other >> n & 1 != 0 {
            Entry::Other(self.others[rank(self.other, n)].clone())
        } else {
            Entry::Zero
        }
    }

    /// Reads block `n`.
    pub(super) fn read(&self, n: usize, block: &mut [u8; BLOCK]) {
        if self.generated >> n & 1 != 0 {
            self.origin(n).fill(block);
        } else if self.other >> n & 1 != 0 {
            self.others[rank(self.other, n)].write_to(block);
        } else {
            block.fill(0);
        }
    }

    /// Replaces entries from block `from` on.
    pub(super) fn replace(&mut self, from: usize, entries: &mut Vec<Entry>) {
        if let [Entry::Other(lines)] = &entries[..]
            && self.other >> from & 1 != 0
        {
            self.others[rank(self.other, from)] = lines.clone();
            entries.clear();
            return;
        }
        let to = from + entries.len();
        let mut next = Chunk::default();
        let mut origins = Vec::with_capacity(self.origins.len() + entries.len());
        let mut others = Vec::with_capacity(self.others.len() + entries.len());
        let before = (0..from).map(|n| self.entry(n));
        let after = (to..CHUNK_BLOCKS).map(|n| self.entry(n));
        let mut expected = None;
        for (n, entry) in before.chain(entries.drain(..)).chain(after).enumerate() {
            let mut following = None;
            match entry {
                Entry::Zero => {}
                Entry::Generated(origin) => {
                    next.generated |= 1 << n;
                    if expected != Some(origin) {
                        next.heads |= 1 << n;
                        origins.push(Packed::from(origin));
                    }
                    following = Some(origin.later(1));
                }
                Entry::Other(lines) => {
                    next.other |= 1 << n;
                    others.push(lines);
                }
            }
            expected = following;
        }
        next.origins = origins.into();
        next.others = others.into();
        *self = next;
    }
}
