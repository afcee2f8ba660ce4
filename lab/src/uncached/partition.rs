//! The first blocks of a disk, as a separate device.
//!
//! A volume's extent on a disk limits how far the arm moves: a volume on the whole simulated disk uses the full stroke,
//! one on a partition only part of it.

use device::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

/// A disk's first blocks.
pub struct Partition<D> {
    disk: D,
    blocks: u64,
    /// Whether flushes reach the disk.
    flushes: bool,
}

impl<D: BlockDevice> Partition<D> {
    /// A partition of `blocks` blocks. Without `flushes`, the host never flushes the disk's cache, like Linux in 2004:
    /// the disk writes its cache in any order.
    pub fn new(disk: D, blocks: u64, flushes: bool) -> Self {
        let blocks = blocks.min(disk.blocks());
        Partition { disk, blocks, flushes }
    }

    fn within(&self, op: &'static str, at: Lba, blocks: u64) -> Result<()> {
        match at.0.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok(()),
            _ => Err(DeviceError::OutOfRange { op, at, blocks, size: self.blocks }),
        }
    }
}

fn blocks(bytes: &[u8]) -> u64 {
    (bytes.len() / BLOCK) as u64
}

impl<D: BlockDevice> BlockDevice for Partition<D> {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.within("read", at, blocks(buf))?;
        self.disk.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.within("write", at, blocks(data))?;
        self.disk.write(at, data, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.within("write", at, blocks(data))?;
        self.disk.write_for(at, data, owners, cause)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        if self.flushes { self.disk.flush(tag) } else { Ok(()) }
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.within("discard", at, blocks)?;
        self.disk.discard(at, blocks, tag)
    }
}

#[cfg(test)]
mod tests {
    use device::{Counting, Memory};

    use super::*;

    #[test]
    fn what_is_behind_its_end_is_refused_and_flushes_stop_if_they_should() {
        for (flushes, reached) in [(true, 1), (false, 0)] {
            let part = Partition::new(Counting::new(Memory::new(64)), 16, flushes);
            let block = [7; BLOCK];
            part.write(Lba(15), &block, Tag::default()).unwrap();
            part.flush(Tag::default()).unwrap();
            assert!(part.write(Lba(16), &block, Tag::default()).is_err());
            assert!(part.read(Lba(15), &mut [0; 2 * BLOCK], Tag::default()).is_err());
            assert!(part.write_for(Lba(15), &[7; 2 * BLOCK], &[1, 1], 0).is_err());
            assert!(part.discard(Lba(u64::MAX), 2, Tag::default()).is_err());
            let total = part.disk.snapshot().total();
            assert_eq!((part.blocks(), total.blocks_written, total.flushes), (16, 1, reached));
        }
    }
}
