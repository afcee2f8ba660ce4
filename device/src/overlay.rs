//! A writable layer over an unmodified device.
//!
//! Writes stay in memory on top of a device that is only read: to replay a log on a read-only image, or to try a
//! repair.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::bounds::{check, check_blocks, check_parts};
use crate::{BLOCK, BlockDevice, Lba, Result, Tag};

const SHARDS: u64 = 64;

type Shard = RwLock<FxHashMap<u64, Box<[u8]>>>;

/// A writable device over one that receives neither writes nor flushes.
///
/// Memory grows by one block per distinct written block. A discarded block is dropped and reads as on the device
/// below.
pub struct Overlay<D> {
    below: D,
    shards: Box<[Shard]>,
    held: AtomicU64,
}

impl<D: BlockDevice> Overlay<D> {
    /// An empty overlay.
    pub fn new(below: D) -> Self {
        Self { below, shards: (0..SHARDS).map(|_| RwLock::default()).collect(), held: AtomicU64::new(0) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.below
    }

    /// Returns the device below and drops the written blocks.
    pub fn into_inner(self) -> D {
        self.below
    }

    /// Number of blocks written here and not discarded since.
    pub fn held_blocks(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// The blocks written here, in order.
    pub fn held(&self) -> Vec<Lba> {
        let mut all: Vec<Lba> =
            self.shards.iter().flat_map(|s| s.read().keys().map(|k| Lba(*k)).collect::<Vec<_>>()).collect();
        all.sort_unstable();
        all
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[(block % SHARDS) as usize]
    }

    fn store(&self, at: Lba, data: &[u8]) {
        for (block, bytes) in (at.0..).zip(data.chunks_exact(BLOCK)) {
            match self.shard(block).write().entry(block) {
                Entry::Occupied(mut old) => old.get_mut().copy_from_slice(bytes),
                Entry::Vacant(new) => {
                    new.insert(bytes.into());
                    self.held.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.below.read(at, buf, tag)?;
        if self.held_blocks() == 0 {
            return Ok(());
        }
        for (block, bytes) in (at.0..).zip(buf.chunks_exact_mut(BLOCK)) {
            if let Some(held) = self.shard(block).read().get(&block) {
                bytes.copy_from_slice(held);
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], _: Tag) -> Result<()> {
        check("write", at, data.len(), self.blocks())?;
        self.store(at, data);
        Ok(())
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], _: Tag) -> Result<()> {
        check_parts("write", at, parts, self.blocks())?;
        let mut at = at;
        for part in parts {
            self.store(at, part);
            at.0 += (part.len() / BLOCK) as u64;
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Ok(())
    }

    fn discard(&self, at: Lba, blocks: u64, _: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks())?;
        let end = at.0 + blocks;
        // Walks the range or the held blocks, whichever is shorter.
        if blocks <= self.held_blocks() {
            for block in at.0..end {
                if self.shard(block).write().remove(&block).is_some() {
                    self.held.fetch_sub(1, Relaxed);
                }
            }
        } else {
            for shard in &self.shards {
                shard.write().retain(|block, _| {
                    let keep = *block < at.0 || *block >= end;
                    if !keep {
                        self.held.fetch_sub(1, Relaxed);
                    }
                    keep
                });
            }
        }
        Ok(())
    }
}
