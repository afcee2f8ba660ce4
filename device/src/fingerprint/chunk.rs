//! How are 64 blocks kept in as few bytes as describe them?
//!
//! A bit for each block says of which kind it is. Generated blocks that continue one another share one origin of 12
//! bytes. Of any other contents, those of the 64 lines of 64 bytes are kept that are not zero.

use std::sync::Arc;

use super::Origin;
use crate::BLOCK;

/// Blocks in a chunk: the bits of a word.
pub(super) const CHUNK_BLOCKS: usize = 64;

/// Bytes in a line.
const LINE: usize = 64;

/// A block that is neither zero nor generated: a bit for each line, then the lines that are not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines(Arc<[u8]>);

impl Lines {
    fn of(block: &[u8; BLOCK]) -> Self {
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

    fn put(&self, block: &mut [u8; BLOCK]) {
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

/// What is known of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// All zero.
    Zero,
    /// Made from this.
    Generated(Origin),
    /// Anything else.
    Other(Lines),
}

impl Entry {
    pub(super) fn of(block: &[u8; BLOCK]) -> Self {
        if let Some(origin) = Origin::of(block) {
            return Entry::Generated(origin);
        }
        // Most blocks that are not zero show it at once.
        if block[..LINE] == [0; LINE] && *block == [0; BLOCK] {
            return Entry::Zero;
        }
        Entry::Other(Lines::of(block))
    }
}

/// An origin in 12 bytes: the seed's halves, low first, and the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed([u32; 3]);

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
    generated: u64,
    /// Those of them that do not continue the block before.
    heads: u64,
    /// Blocks that are neither generated nor zero.
    other: u64,
    /// One for each head.
    origins: Box<[Packed]>,
    /// One for each other block.
    others: Box<[Lines]>,
}

/// How many bits of `bits` are set below bit `n`.
fn rank(bits: u64, n: usize) -> usize {
    (bits & ((1 << n) - 1)).count_ones() as usize
}

impl Chunk {
    /// True if every block is zero.
    pub(super) fn is_empty(&self) -> bool {
        self.generated | self.other == 0
    }

    /// Generated blocks, other blocks, bytes they take on the heap.
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

    /// What block `n` is.
    pub(super) fn entry(&self, n: usize) -> Entry {
        if self.generated >> n & 1 != 0 {
            Entry::Generated(self.origin(n))
        } else if self.other >> n & 1 != 0 {
            Entry::Other(self.others[rank(self.other, n)].clone())
        } else {
            Entry::Zero
        }
    }

    /// Writes block `n` out.
    pub(super) fn read(&self, n: usize, block: &mut [u8; BLOCK]) {
        if self.generated >> n & 1 != 0 {
            self.origin(n).fill(block);
        } else if self.other >> n & 1 != 0 {
            self.others[rank(self.other, n)].put(block);
        } else {
            block.fill(0);
        }
    }

    /// Puts entries in from block `from` on.
    pub(super) fn put(&mut self, from: usize, entries: &mut Vec<Entry>) {
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
