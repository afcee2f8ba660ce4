//! Byte-granular access to a device of blocks.

use std::sync::Arc;

use parking_lot::RwLock;

use super::report::cause;
use crate::energy::Operation;
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

const BLOCK64: u64 = BLOCK as u64;

/// Zeroes per write.
const PIECE: u64 = 1 << 20;

/// The blocks of a device as one byte range.
///
/// Partial blocks are read, modified and written, as a host would do; both requests reach the device and cost
/// energy.
pub struct Disk {
    io: Arc<dyn BlockDevice>,
    contents: Arc<dyn BlockDevice>,
    discards_read_zero: bool,
    /// Held exclusively while a partial block is replaced, so that no other thread writes the rest meanwhile, and
    /// while all requests must wait.
    gate: RwLock<()>,
}

/// The cause is the kind of operation, so that the ledger's causes are a table of operations.
fn tag(operation: Operation) -> Tag {
    Tag { cause: cause(operation), owner: 0 }
}

fn whole(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(BLOCK64) && len.is_multiple_of(BLOCK)
}

impl Disk {
    pub(super) fn new(io: Arc<dyn BlockDevice>, contents: Arc<dyn BlockDevice>, discards_read_zero: bool) -> Self {
        Disk { io, contents, discards_read_zero, gate: RwLock::new(()) }
    }

    /// The size.
    pub fn bytes(&self) -> u64 {
        self.io.blocks().saturating_mul(BLOCK64)
    }

    /// Calls `f` while no request is under way.
    pub(super) fn still<T>(&self, f: impl FnOnce() -> T) -> T {
        let _alone = self.gate.write();
        f()
    }

    /// True if writes, discards and flushes fail.
    pub fn read_only(&self) -> bool {
        self.io.read_only()
    }

    /// True if a range is inside the device.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes())
    }

    /// Reads; returns fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = self.bytes().saturating_sub(offset);
        let n = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        if n == 0 {
            return Ok(0);
        }
        let _shared = self.gate.read();
        let (at, buf) = (Lba(offset / BLOCK64), &mut buf[..n]);
        if whole(offset, n) {
            self.io.read(at, buf, tag(Operation::Read))?;
        } else {
            let skip = (offset % BLOCK64) as usize;
            let mut blocks = vec![0; (skip + n).next_multiple_of(BLOCK)];
            self.io.read(at, &mut blocks, tag(Operation::Read))?;
            buf.copy_from_slice(&blocks[skip..skip + n]);
        }
        Ok(n)
    }

    /// Writes; returns fewer bytes only at the end, and none behind it.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let left = self.bytes().saturating_sub(offset);
        let n = usize::try_from(left).map_or(data.len(), |left| left.min(data.len()));
        if n == 0 {
            return Ok(0);
        }
        let (at, data) = (Lba(offset / BLOCK64), &data[..n]);
        if whole(offset, n) {
            let _shared = self.gate.read();
            self.io.write(at, data, tag(Operation::Write))?;
            return Ok(n);
        }
        let _alone = self.gate.write();
        let skip = (offset % BLOCK64) as usize;
        let mut blocks = vec![0; (skip + n).next_multiple_of(BLOCK)];
        let last = blocks.len() - BLOCK;
        if skip > 0 || n < BLOCK {
            self.io.read(at, &mut blocks[..BLOCK], tag(Operation::Read))?;
        }
        if last > 0 && !(skip + n).is_multiple_of(BLOCK) {
            let end = Lba(at.0 + (last / BLOCK) as u64);
            self.io.read(end, &mut blocks[last..], tag(Operation::Read))?;
        }
        blocks[skip..skip + n].copy_from_slice(data);
        self.io.write(at, &blocks, tag(Operation::Write))?;
        Ok(n)
    }

    /// Makes all writes durable.
    pub fn flush(&self) -> Result<()> {
        let _shared = self.gate.read();
        self.io.flush(tag(Operation::Flush))
    }

    /// Makes the contents durable without a flush of the simulated device.
    pub fn keep(&self) -> Result<()> {
        if self.contents.read_only() {
            return Ok(());
        }
        self.contents.flush(Tag::default())
    }

    /// Discards the whole blocks of a range and writes zeroes over the rest; the range then reads as zeroes. Bytes
    /// past the end are ignored, as for a hole in a file.
    pub fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.bytes());
        if offset >= end {
            return Ok(());
        }
        let (first, past) = (offset.div_ceil(BLOCK64), end / BLOCK64);
        if first >= past {
            return self.zero(offset, end - offset);
        }
        let (from, to) = (first * BLOCK64, past * BLOCK64);
        self.zero(offset, from - offset)?;
        self.zero(to, end - to)?;
        let _alone = self.gate.write();
        self.io.discard(Lba(first), past - first, tag(Operation::Discard))?;
        if !self.discards_read_zero {
            for_pieces(from, to - from, |at, zeroes| self.contents.write(Lba(at / BLOCK64), zeroes, Tag::default()))?;
        }
        Ok(())
    }

    /// Writes zeroes; fails with [`DeviceError::OutOfRange`] and no effect if they exceed the device.
    pub fn zero(&self, offset: u64, len: u64) -> Result<()> {
        if !self.holds(offset, len) {
            let (op, at) = ("write of zeroes", Lba(offset / BLOCK64));
            return Err(DeviceError::OutOfRange { op, at, blocks: len.div_ceil(BLOCK64), size: self.io.blocks() });
        }
        // Pieces end at multiples of their size, so that all but the first and the last are whole blocks.
        let (mut at, end) = (offset, offset + len);
        let zeroes = vec![0; PIECE.min(len) as usize];
        while at < end {
            let next = (at / PIECE * PIECE + PIECE).min(end);
            self.write(at, &zeroes[..(next - at) as usize])?;
            at = next;
        }
        Ok(())
    }
}

/// Calls `each` for every piece of a range of whole blocks.
fn for_pieces(from: u64, len: u64, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let zeroes = vec![0; PIECE.min(len) as usize];
    let end = from + len;
    let mut at = from;
    while at < end {
        let n = PIECE.min(end - at);
        each(at, &zeroes[..n as usize])?;
        at += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::{Counting, Memory};

    const BYTES: u64 = 64 * BLOCK64;

    fn disk() -> (Disk, Arc<Counting<Memory>>) {
        let io = Arc::new(Counting::new(Memory::new(BYTES / BLOCK64)));
        (Disk::new(io.clone(), io.clone(), true), io)
    }

    #[test]
    fn any_reads_writes_holes_and_zeroes_act_as_on_a_vector() {
        let (disk, _) = disk();
        let mut model = vec![0u8; BYTES as usize];
        let mut rng = Rng::new(1);
        for step in 0..4000u32 {
            let at = rng.below(BYTES);
            let len = rng.below((BYTES - at).min(5 * BLOCK64)) + 1;
            let len = len.min(BYTES - at);
            let range = at as usize..(at + len) as usize;
            match rng.below(4) {
                0 => {
                    let data = vec![step as u8; len as usize];
                    assert_eq!(disk.write(at, &data).unwrap(), data.len());
                    model[range].fill(step as u8);
                }
                1 => {
                    disk.discard(at, len).unwrap();
                    model[range].fill(0);
                }
                2 => {
                    disk.zero(at, len).unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let mut buf = vec![1; len as usize];
                    assert_eq!(disk.read(at, &mut buf).unwrap(), buf.len());
                    assert_eq!(buf, model[range], "step {step}");
                }
            }
        }
    }

    #[test]
    fn whole_blocks_are_one_request_and_parts_are_read_first() {
        let (disk, io) = disk();
        let requests = |f: &dyn Fn()| {
            let before = io.snapshot().total();
            f();
            let c = io.snapshot().total() - before;
            (c.reads, c.blocks_read, c.writes, c.blocks_written)
        };
        assert_eq!(requests(&|| drop(disk.write(BLOCK64, &[1; 8 * BLOCK]))), (0, 0, 1, 8));
        assert_eq!(requests(&|| drop(disk.write(100, &[1; 10]))), (1, 1, 1, 1));
        assert_eq!(requests(&|| drop(disk.write(100, &[1; 2 * BLOCK]))), (2, 2, 1, 3));
        assert_eq!(requests(&|| drop(disk.write(0, &[1; BLOCK + 1]))), (1, 1, 1, 2));
        assert_eq!(requests(&|| drop(disk.write(BLOCK64 - 1, &[1; BLOCK + 1]))), (1, 1, 1, 2));
        assert_eq!(requests(&|| drop(disk.read(5, &mut [0; BLOCK]))), (1, 2, 0, 0));
    }

    #[test]
    fn the_end_is_the_end() {
        let (disk, _) = disk();
        assert_eq!(disk.write(BYTES - 1, b"abc").unwrap(), 1);
        assert_eq!(disk.write(BYTES, b"a").unwrap(), 0);
        assert_eq!(disk.write(u64::MAX, b"a").unwrap(), 0);
        assert_eq!(disk.read(BYTES, &mut [0]).unwrap(), 0);
        assert_eq!(disk.read(u64::MAX, &mut [0]).unwrap(), 0);
        let mut buf = [0; 4];
        assert_eq!((disk.read(BYTES - 1, &mut buf).unwrap(), buf[0]), (1, b'a'));
        assert!(matches!(disk.zero(BYTES - 1, 2), Err(DeviceError::OutOfRange { .. })));
        disk.discard(BYTES - 1, u64::MAX).unwrap();
        disk.discard(u64::MAX, u64::MAX).unwrap();
        assert_eq!((disk.read(BYTES - 1, &mut buf).unwrap(), buf[0]), (1, 0));
    }

    #[test]
    fn a_hole_reads_as_zeroes_though_the_contents_keep_what_is_discarded() {
        /// A backing on a host that cannot punch holes.
        struct Keeps(Memory);
        impl BlockDevice for Keeps {
            fn blocks(&self) -> u64 {
                self.0.blocks()
            }
            fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
                self.0.read(at, buf, tag)
            }
            fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
                self.0.write(at, data, tag)
            }
            fn flush(&self, _: Tag) -> Result<()> {
                Ok(())
            }
            fn discard(&self, _: Lba, _: u64, _: Tag) -> Result<()> {
                Ok(())
            }
        }
        let io = Arc::new(Keeps(Memory::new(BYTES / BLOCK64)));
        let disk = Disk::new(io.clone(), io, false);
        disk.write(0, &[7; 4 * BLOCK]).unwrap();
        disk.discard(10, 2 * BLOCK64).unwrap();
        let mut buf = [0; 4 * BLOCK];
        disk.read(0, &mut buf).unwrap();
        assert!(buf[..10].iter().all(|b| *b == 7));
        assert!(buf[10..10 + 2 * BLOCK].iter().all(|b| *b == 0));
        assert!(buf[10 + 2 * BLOCK..].iter().all(|b| *b == 7));
    }
}
