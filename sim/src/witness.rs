//! Which requests for file contents reach the device, for which file and where?
//!
//! A decorator records them while it is switched on. Left out: requests for anything but file contents.

use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;

use crate::contents::Contents;

/// A request for contents of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// True if it wrote.
    pub write: bool,
    /// The first block.
    pub at: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The file's inode number.
    pub owner: u64,
}

/// A device whose requests can be recorded.
pub struct Witness<D> {
    inner: D,
    contents: Contents,
    seen: Mutex<Option<Vec<Seen>>>,
}

impl<D: BlockDevice> Witness<D> {
    /// Recording is off.
    pub fn new(inner: D, contents: Contents) -> Self {
        Witness { inner, contents, seen: Mutex::new(None) }
    }

    /// The device underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Starts recording.
    pub fn begin(&self) {
        *self.seen.lock() = Some(Vec::new());
    }

    /// Stops recording and returns the requests, in order.
    pub fn end(&self) -> Vec<Seen> {
        self.seen.lock().take().unwrap_or_default()
    }

    fn see(&self, write: bool, at: u64, bytes: usize, owner: u64, cause: u8) {
        if self.contents.has(cause)
            && let Some(seen) = &mut *self.seen.lock()
        {
            seen.push(Seen { write, at, blocks: (bytes / BLOCK) as u64, owner });
        }
    }
}

impl<D: BlockDevice> BlockDevice for Witness<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.see(false, at.0, buf.len(), tag.owner, tag.cause);
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.see(true, at.0, data.len(), tag.owner, tag.cause);
        self.inner.write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.see(true, at.0, parts.iter().map(|p| p.len()).sum(), tag.owner, tag.cause);
        self.inner.write_gather(at, parts, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        if self.contents.has(cause) {
            let mut first = at.0;
            for run in owners.chunk_by(|a, b| a == b) {
                self.see(true, first, run.len() * BLOCK, run[0], cause);
                first += run.len() as u64;
            }
        }
        self.inner.write_for(at, data, owners, cause)
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
}

#[cfg(test)]
mod tests {
    use device::Memory;
    use f2fs::cause::Cause;

    use super::*;

    #[test]
    fn contents_are_taken_down_by_file_and_nothing_else_is() {
        let device = Witness::new(Memory::new(64), Contents::from_reasons(&Cause::reasons()));
        let (data, contents) = (vec![0; 4 * BLOCK], Cause::UserData);
        device.write(Lba(1), &data, Tag { owner: 9, ..contents.tag() }).unwrap();
        device.begin();
        device.write_for(Lba(4), &data, &[7, 7, 8, 7], contents as u8).unwrap();
        device.write_gather(Lba(20), &[&data, &data], Tag { owner: 3, ..contents.tag() }).unwrap();
        device.write(Lba(30), &data, Cause::Node.tag()).unwrap();
        device.read(Lba(5), &mut vec![0; BLOCK], Tag { owner: 8, ..contents.tag() }).unwrap();
        let seen: Vec<_> = device.end().iter().map(|s| (s.write, s.at, s.blocks, s.owner)).collect();
        assert_eq!(seen, [(true, 4, 2, 7), (true, 6, 1, 8), (true, 7, 1, 7), (true, 20, 8, 3), (false, 5, 1, 8)]);
        device.write(Lba(1), &data, contents.tag()).unwrap();
        assert_eq!(device.end(), []);
    }
}
