//! Sets of blocks and of nodes that use memory only for used segments.

use format::SegNo;
use format::bits;
use format::sit::MAP_BYTES;
use rustc_hash::FxHashMap;

/// Bits of one segment's blocks, most significant first as in the SIT.
pub type SegBits = [u8; MAP_BYTES];

/// A set of main blocks.
#[derive(Debug, Clone, Default)]
pub struct BlockSet {
    segs: FxHashMap<u32, SegBits>,
}

impl BlockSet {
    /// Adds a block; true if it was already in the set.
    pub fn add(&mut self, seg: SegNo, off: u16) -> bool {
        let map = self.segs.entry(seg.0).or_insert([0; MAP_BYTES]);
        bits::msb_put(map, usize::from(off), true)
    }
    /// True if the block is in the set.
    pub fn has(&self, seg: SegNo, off: u16) -> bool {
        self.segs.get(&seg.0).is_some_and(|m| bits::msb_test(m, usize::from(off)))
    }
    /// The bits of one segment.
    pub fn segment(&self, seg: SegNo) -> SegBits {
        self.segs.get(&seg.0).copied().unwrap_or([0; MAP_BYTES])
    }
}

const CHUNK_WORDS: usize = 64;
const CHUNK_BITS: u32 = CHUNK_WORDS as u32 * 64;

/// A set of small numbers (node numbers).
#[derive(Debug, Clone, Default)]
pub struct NumberSet {
    chunks: FxHashMap<u32, Box<[u64; CHUNK_WORDS]>>,
    len: u64,
}

impl NumberSet {
    /// Adds a number; true if it was already in the set.
    pub fn add(&mut self, n: u32) -> bool {
        let chunk = self.chunks.entry(n / CHUNK_BITS).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
        let (word, bit) = ((n % CHUNK_BITS / 64) as usize, 1u64 << (n % 64));
        let was = chunk[word] & bit != 0;
        chunk[word] |= bit;
        self.len += u64::from(!was);
        was
    }
    /// True if the number is in the set.
    pub fn has(&self, n: u32) -> bool {
        self.chunks.get(&(n / CHUNK_BITS)).is_some_and(|c| c[(n % CHUNK_BITS / 64) as usize] & (1 << (n % 64)) != 0)
    }
}
