//! What if the host of a sparse image runs out of space? Blocks that were written can be written again, others cannot.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::{BLOCK, BlockDevice, DeviceError, Lba, Memory, Result, Tag};
use parking_lot::Mutex;

/// The host's error, `ENOSPC`.
const NO_SPACE: i32 = 28;

/// A sparse image on a host with limited space.
pub struct SparseHost {
    inner: Memory,
    held: Mutex<BTreeSet<u64>>,
    room: AtomicU64,
}

impl SparseHost {
    /// The nonzero blocks of `inner` have space on the host; until [`SparseHost::leave`], all others have, too.
    pub fn new(inner: Memory) -> Self {
        let mut held = BTreeSet::new();
        inner.each_piece(|at, bytes| {
            let used = bytes.chunks_exact(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0));
            held.extend(used.map(|(i, _)| at.0 + i as u64));
        });
        SparseHost { inner, held: Mutex::new(held), room: AtomicU64::new(u64::MAX) }
    }

    /// Limits the host to `blocks` more.
    pub fn leave(&self, blocks: u64) {
        self.room.store(blocks, Relaxed);
    }

    /// The current image.
    pub fn image(&self) -> Memory {
        self.inner.fork()
    }

    /// Allocates space for blocks that have none; returns how many of the blocks, from the start, have space then.
    fn take(&self, at: Lba, blocks: u64) -> u64 {
        let mut held = self.held.lock();
        let mut room = self.room.load(Relaxed);
        for block in at.0..at.0 + blocks {
            if !held.contains(&block) {
                if room == 0 {
                    self.room.store(0, Relaxed);
                    return block - at.0;
                }
                room = if room == u64::MAX { room } else { room - 1 };
                held.insert(block);
            }
        }
        self.room.store(room, Relaxed);
        blocks
    }
}

impl BlockDevice for SparseHost {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        let blocks = (data.len() / BLOCK) as u64;
        if at.0.checked_add(blocks).is_none_or(|end| end > self.blocks()) {
            return self.inner.write(at, data, tag);
        }
        let some = self.take(at, blocks);
        self.inner.write(at, &data[..some as usize * BLOCK], tag)?;
        if some < blocks {
            let source = std::io::Error::from_raw_os_error(NO_SPACE);
            return Err(DeviceError::Io { op: "write", at: Lba(at.0 + some), source });
        }
        Ok(())
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)
    }
    /// Frees space, like a punched hole.
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)?;
        let mut held = self.held.lock();
        let freed = (at.0..at.0 + blocks).filter(|block| held.remove(block)).count() as u64;
        let room = self.room.load(Relaxed);
        self.room.store(room.saturating_add(freed), Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_room_can_be_written_again_and_what_has_none_cannot() {
        let dev = SparseHost::new(Memory::new(16));
        let write = |at, n: usize| dev.write(Lba(at), &vec![1; n * BLOCK], Tag::default());
        write(0, 2).unwrap();
        dev.leave(1);
        write(0, 2).unwrap();
        // Half of it has space.
        assert!(matches!(write(1, 3), Err(DeviceError::Io { at: Lba(3), .. })));
        let mut block = [0; BLOCK];
        dev.read(Lba(2), &mut block, Tag::default()).unwrap();
        assert_eq!(block[0], 1);
        dev.discard(Lba(0), 1, Tag::default()).unwrap();
        write(9, 1).unwrap();
        assert!(write(10, 1).is_err());
    }
}
