//! Copies of written blocks, and which of them a flush in progress covers.
//!
//! Slots in reusable chunks of memory: no allocation and no page fault per block.

use rustc_hash::FxHashMap;

use crate::BLOCK;

/// Blocks per chunk.
const CHUNK: usize = 64;

/// Copies of blocks.
#[derive(Default)]
pub(super) struct Copies {
    /// Slots of blocks written since the last flush began.
    new: FxHashMap<u64, u32>,
    /// Slots of blocks that the flush in progress covers and that were not written since it began.
    flushing: FxHashMap<u64, u32>,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Copies {
    /// Number of copied blocks.
    pub fn len(&self) -> usize {
        self.new.len() + self.flushing.len()
    }

    /// Number of copied blocks not covered by a flush in progress.
    pub fn new_len(&self) -> usize {
        self.new.len()
    }

    /// Copied blocks not covered by a flush in progress, in order.
    pub fn new_blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.new.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    fn slot(&self, slot: u32) -> &[u8] {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK * BLOCK..][..BLOCK]
    }

    fn find(&self, block: u64) -> Option<&[u8]> {
        self.new.get(&block).or_else(|| self.flushing.get(&block)).map(|slot| self.slot(*slot))
    }

    fn free_slot(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(vec![0; CHUNK * BLOCK].into());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        self.free.pop().unwrap_or_default()
    }

    /// Stores a block's bytes, replacing an older copy.
    pub fn insert(&mut self, block: u64, bytes: &[u8]) {
        let slot = match self.new.get(&block) {
            Some(slot) => *slot,
            None => {
                let slot = self.flushing.remove(&block).unwrap_or_else(|| self.free_slot());
                self.new.insert(block, slot);
                slot
            }
        } as usize;
        self.chunks[slot / CHUNK][slot % CHUNK * BLOCK..][..BLOCK].copy_from_slice(bytes);
    }

    /// True if there is a copy of a block in the range.
    pub fn any_in(&self, at: u64, blocks: u64) -> bool {
        let inside = |block: &u64| (at..at + blocks).contains(block);
        match blocks < self.len() as u64 {
            true => (at..at + blocks).any(|block| self.find(block).is_some()),
            false => self.new.keys().chain(self.flushing.keys()).any(inside),
        }
    }

    /// Appends a block's copy to `bytes`, if it exists.
    pub fn append(&self, block: u64, bytes: &mut Vec<u8>) -> bool {
        self.find(block).map(|copy| bytes.extend_from_slice(copy)).is_some()
    }

    /// Fills `buf`, which begins with block `at`, if all of it is copied. Otherwise returns the existing copies
    /// with their blocks.
    pub fn fill(&self, at: u64, buf: &mut [u8]) -> Option<Vec<(u64, Box<[u8]>)>> {
        let blocks = (buf.len() / BLOCK) as u64;
        let found: Vec<(u64, &[u8])> = (at..at + blocks).filter_map(|b| Some((b, self.find(b)?))).collect();
        if (found.len() as u64) < blocks {
            return Some(found.into_iter().map(|(block, copy)| (block, copy.into())).collect());
        }
        for ((_, copy), bytes) in found.into_iter().zip(buf.chunks_exact_mut(BLOCK)) {
            bytes.copy_from_slice(copy);
        }
        None
    }

    /// Drops the copies of a range.
    pub fn drop_range(&mut self, at: u64, blocks: u64) {
        if blocks < self.len() as u64 {
            for block in at..at + blocks {
                self.free.extend(self.new.remove(&block).or_else(|| self.flushing.remove(&block)));
            }
            return;
        }
        for map in [&mut self.new, &mut self.flushing] {
            self.free.extend(map.extract_if(|block, _| (at..at + blocks).contains(block)).map(|(_, slot)| slot));
        }
    }

    /// Begins a flush that covers all copies.
    pub fn begin_flush(&mut self) {
        std::mem::swap(&mut self.new, &mut self.flushing);
    }

    /// The flush succeeded: drops the copies that it covered.
    pub fn flushed(&mut self) {
        self.free.extend(self.flushing.drain().map(|(_, slot)| slot));
    }

    /// The flush failed: the next one covers its blocks too.
    pub fn flush_failed(&mut self) {
        for (block, slot) in self.flushing.drain() {
            // A block written since is not among them: see `insert`.
            self.new.insert(block, slot);
        }
    }
}
