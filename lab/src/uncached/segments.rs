//! A disk that caches the blocks it read last.
//!
//! The simulated disk has one buffer, for the blocks after the last read. Real disks divide theirs into segments, so
//! that a block that is read repeatedly, of a directory or an inode table, stays cached when something else is read in
//! between. Data sheets seldom give the number of segments and the handling of writes: here the last `most` blocks read
//! are cached, and a write removes its blocks. Cached blocks are returned without moving the arm.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, Lba, Result, Tag, VirtualClock};
use parking_lot::Mutex;

#[derive(Default)]
struct Kept {
    /// When each block was last read, and the inverse map.
    when: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    reads: u64,
}

impl Kept {
    fn take_out(&mut self, block: u64) {
        if let Some(when) = self.when.remove(&block) {
            self.order.remove(&when);
        }
    }

    fn put(&mut self, block: u64, most: usize) {
        self.take_out(block);
        self.reads += 1;
        self.when.insert(block, self.reads);
        self.order.insert(self.reads, block);
        if self.when.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.when.remove(&oldest);
        }
    }
}

/// A disk with segments.
pub struct Segments<D> {
    disk: D,
    /// The disk's contents, read without moving the arm.
    contents: Arc<dyn BlockDevice>,
    /// Maximum number of cached blocks; 0: no cache.
    most: usize,
    clock: Arc<VirtualClock>,
    /// Latency of a cached read.
    answer: Duration,
    kept: Mutex<Kept>,
}

impl<D: BlockDevice> Segments<D> {
    /// A disk that caches `most` blocks and returns them after `answer`, during which the disk is idle.
    pub fn new(
        disk: D,
        contents: Arc<dyn BlockDevice>,
        most: usize,
        clock: Arc<VirtualClock>,
        answer: Duration,
    ) -> Self {
        Segments { disk, contents, most, clock, answer, kept: Mutex::default() }
    }

    fn written(&self, at: Lba, blocks: u64) {
        let mut kept = self.kept.lock();
        if !kept.when.is_empty() {
            (at.0..at.0.saturating_add(blocks)).for_each(|block| kept.take_out(block));
        }
    }
}

fn blocks(bytes: &[u8]) -> u64 {
    (bytes.len() / BLOCK) as u64
}

impl<D: BlockDevice> BlockDevice for Segments<D> {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        if self.most == 0 {
            return self.disk.read(at, buf, tag);
        }
        let asked = at.0..at.0.saturating_add(blocks(buf));
        let has = {
            let kept = self.kept.lock();
            asked.clone().all(|block| kept.when.contains_key(&block))
        };
        match has {
            true => {
                self.contents.read(at, buf, tag)?;
                self.clock.advance(self.answer);
            }
            false => self.disk.read(at, buf, tag)?,
        }
        let mut kept = self.kept.lock();
        asked.for_each(|block| kept.put(block, self.most));
        Ok(())
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.written(at, blocks(data));
        self.disk.write(at, data, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.written(at, blocks(data));
        self.disk.write_for(at, data, owners, cause)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.disk.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.written(at, blocks);
        self.disk.discard(at, blocks, tag)
    }
}

#[cfg(test)]
mod tests {
    use device::{Counting, Memory};

    use super::*;

    #[test]
    fn what_was_read_last_is_given_without_the_disk_until_it_is_written() {
        let (contents, clock) = (Arc::new(Memory::new(64)), Arc::new(VirtualClock::default()));
        let answer = Duration::from_micros(200);
        let disk = Segments::new(Counting::new(contents.clone()), contents, 3, clock.clone(), answer);
        let reads = || disk.disk.snapshot().total().reads;
        let read = |at: u64| {
            let mut block = [0; BLOCK];
            disk.read(Lba(at), &mut block, Tag::default()).unwrap();
            (block[0], reads())
        };
        disk.write(Lba(1), &[7; BLOCK], Tag::default()).unwrap();
        // Writes are not cached.
        assert_eq!([read(1), read(1), read(2), read(3), read(1)], [(7, 1), (7, 1), (0, 2), (0, 3), (7, 3)]);
        // Block 2 was read longest ago.
        assert_eq!([read(4), read(1), read(2)], [(0, 4), (7, 4), (0, 5)]);
        disk.write(Lba(1), &[8; BLOCK], Tag::default()).unwrap();
        assert_eq!(read(1), (8, 6));
        use device::clock::Clock;
        assert_eq!(clock.monotonic(), 3 * answer);
    }
}
