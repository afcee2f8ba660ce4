//! A disk whose host waits before each request.
//!
//! A slow host delays each of a call's dependent requests: it reads an inode, thinks, and reads the block that the
//! inode names, while the platter turns.

use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Lba, Result, Tag, VirtualClock};

/// A disk and its slow host.
pub struct Paused<D> {
    disk: D,
    clock: Arc<VirtualClock>,
    gap: Duration,
}

impl<D: BlockDevice> Paused<D> {
    /// Waits for `gap` before each request; zero changes nothing.
    pub fn new(disk: D, clock: Arc<VirtualClock>, gap: Duration) -> Self {
        Paused { disk, clock, gap }
    }

    fn wait(&self) -> &D {
        if !self.gap.is_zero() {
            self.clock.advance(self.gap);
        }
        &self.disk
    }
}

impl<D: BlockDevice> BlockDevice for Paused<D> {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.wait().read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.wait().write(at, data, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.wait().write_for(at, data, owners, cause)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.wait().flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.disk.discard(at, blocks, tag)
    }
}

#[cfg(test)]
mod tests {
    use device::{BLOCK, Clock, Memory};

    use super::*;

    #[test]
    fn each_request_comes_later_and_a_flush_is_one() {
        let clock = Arc::new(VirtualClock::default());
        let disk = Paused::new(Memory::new(8), clock.clone(), Duration::from_micros(300));
        disk.write(Lba(1), &[1; BLOCK], Tag::default()).unwrap();
        disk.read(Lba(1), &mut [0; BLOCK], Tag::default()).unwrap();
        disk.write_for(Lba(2), &[1; BLOCK], &[3], 0).unwrap();
        disk.flush(Tag::default()).unwrap();
        disk.discard(Lba(1), 1, Tag::default()).unwrap();
        assert_eq!(clock.monotonic(), Duration::from_micros(1200));
    }
}
