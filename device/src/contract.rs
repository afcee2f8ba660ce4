//! The contract of a block device.

use crate::address::{BLOCK, Lba, Remap, Tag};
use crate::error::{DeviceError, Result};

/// Zones of a zoned device (ZBC, ZAC, ZNS). All zones have the same size; the last may be shorter. Blocks at a
/// zone's write pointer and behind it read as zeroes.
pub trait Zones {
    /// Blocks per zone.
    fn zone_blocks(&self) -> u64;
    /// Number of conventional zones at the start, which accept writes anywhere.
    fn conventional(&self) -> u64;
    /// Where the next write to a zone must begin; `None` for a conventional zone, and beyond the last.
    fn pointer(&self, zone: u64) -> Option<Lba>;
    /// Resets a zone's pointer to its start. The zone's data is lost.
    fn reset(&self, zone: u64, tag: Tag) -> Result<()>;
}

/// A block device.
///
/// # What a power cut may leave
/// * Every write that returned before a completed [`flush`](Self::flush) began is kept whole.
/// * Writes since the last completed flush may be lost, kept, reordered among each other, or torn at 512-byte
///   sectors, each independently.
/// * Blocks not written since the last flush never change.
/// * A discarded block may afterwards read as any earlier contents, or as zeroes.
///
/// Buffers are whole blocks: a length that is not a multiple of [`BLOCK`] is [`DeviceError::Misaligned`], a range
/// past the end [`DeviceError::OutOfRange`]; neither accesses the medium. Overlapping operations from different
/// threads have no defined order; each block is read or written atomically with respect to other threads.
pub trait BlockDevice: Send + Sync + 'static {
    /// Size in blocks; constant.
    fn blocks(&self) -> u64;
    /// True if writes, discards and flushes fail with [`DeviceError::ReadOnly`].
    fn read_only(&self) -> bool {
        false
    }
    /// Reads into `buf` from `at`.
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()>;
    /// Writes `data` at `at`; volatile until the next flush.
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()>;
    /// Writes consecutive parts (each whole blocks) from `at` on, as one request if the backing can.
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let mut at = at;
        for part in parts {
            self.write(at, part, tag)?;
            at.0 += (part.len() / BLOCK) as u64;
        }
        Ok(())
    }
    /// Writes consecutive blocks of several objects as one [`write`](Self::write); `owners` has the object of each
    /// block, in order. A meter divides the request's energy among them; for any other device it is a write for the
    /// last of them.
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.write(at, data, Tag { cause, owner: owners.last().copied().unwrap_or_default() })
    }
    /// Like [`write_for`](Self::write_for), for parts (each whole blocks) at different places in memory. A device
    /// that needs contiguous data copies the parts into `room`.
    fn write_parts_for(
        &self,
        at: Lba,
        parts: &[&[u8]],
        (owners, cause): (&[u64], u8),
        room: &mut Vec<u8>,
    ) -> Result<()> {
        room.clear();
        parts.iter().for_each(|part| room.extend_from_slice(part));
        self.write_for(at, room, owners, cause)
    }
    /// A hint that data written to these blocks from now on will die together with other data of this handle. A
    /// device that supports it places the data in the same reclaim unit (NVMe's flexible data placement, TP4146,
    /// where each write command has a handle). Data without a hint has handle 0; an unknown handle means 0. No data
    /// depends on the hint, and any device or layer may ignore it.
    fn place(&self, _at: Lba, _blocks: u64, _handle: u8) {}
    /// Returns when all earlier writes are durable.
    fn flush(&self, tag: Tag) -> Result<()>;
    /// Marks `blocks` blocks from `at` as unused.
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()>;
    /// Changes the device's map from addresses to data (Ji HotStorage'16, section 6); volatile until the next flush
    /// like a write, and atomic. The two ranges must not overlap. Most devices lack this command:
    /// [`DeviceError::Unsupported`].
    fn remap(&self, _from: Lba, _to: Lba, _blocks: u64, _how: Remap, _tag: Tag) -> Result<()> {
        Err(DeviceError::Unsupported { op: "remap" })
    }
    /// Its zones, if writes must follow zone pointers.
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for std::sync::Arc<D> {
    fn blocks(&self) -> u64 {
        (**self).blocks()
    }
    fn read_only(&self) -> bool {
        (**self).read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        (**self).read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        (**self).write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        (**self).write_gather(at, parts, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        (**self).write_for(at, data, owners, cause)
    }
    fn write_parts_for(
        &self,
        at: Lba,
        parts: &[&[u8]],
        (owners, cause): (&[u64], u8),
        room: &mut Vec<u8>,
    ) -> Result<()> {
        (**self).write_parts_for(at, parts, (owners, cause), room)
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        (**self).place(at, blocks, handle)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        (**self).flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        (**self).discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        (**self).remap(from, to, blocks, how, tag)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        (**self).zones()
    }
}
