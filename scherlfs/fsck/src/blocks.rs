//! The set of claimed blocks: a bit for each block of the volume, in chunks that exist only where a block is
//! claimed.

use std::collections::BTreeMap;

/// Bits per chunk.
const CHUNK: u64 = 1 << 15;

/// A set of blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed {
    chunks: BTreeMap<u64, Box<[u64; (CHUNK / 64) as usize]>>,
    count: u64,
}

impl Claimed {
    /// Claims a block; false if it was already claimed.
    pub fn claim(&mut self, at: u64) -> bool {
        let chunk = self.chunks.entry(at / CHUNK).or_insert_with(|| Box::new([0; (CHUNK / 64) as usize]));
        let word = &mut chunk[(at % CHUNK / 64) as usize];
        let fresh = *word & (1 << (at % 64)) == 0;
        *word |= 1 << (at % 64);
        self.count += u64::from(fresh);
        fresh
    }
    /// True if a block is claimed.
    pub fn has(&self, at: u64) -> bool {
        self.chunks.get(&(at / CHUNK)).is_some_and(|c| c[(at % CHUNK / 64) as usize] & (1 << (at % 64)) != 0)
    }
    /// Number of claimed blocks.
    pub fn count(&self) -> u64 {
        self.count
    }
}
