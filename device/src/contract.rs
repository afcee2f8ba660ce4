//! What may a file system expect of a block device?

use crate::address::{BLOCK, Lba, Remap, Tag};
use crate::error::{DeviceError, Result};

/// What a device of zones (ZBC, ZAC, ZNS) tells beside its blocks. All zones have the same size; the last may be shorter.
/// Blocks at a zone's write pointer and behind it read as zeroes.
pub trait Zones {
    /// Blocks of a zone.
    fn zone_blocks(&self) -> u64;
    /// How many of the first zones are conventional: written anywhere, like any device.
    fn conventional(&self) -> u64;
    /// Where a zone's next write has to begin; `None` of a conventional zone, and beyond the last.
    fn pointer(&self, zone: u64) -> Option<Lba>;
    /// Puts a zone's pointer back to its begin. What the zone held is gone.
    fn reset(&self, zone: u64, tag: Tag) -> Result<()>;
}

/// A block device.
///
/// # What a power cut may leave
/// * Every write whose call returned before a [`flush`](Self::flush) that itself returned is kept whole.
/// * Writes since the last returned flush may be lost, kept, reordered among each other, or torn at
///   512-byte sectors, each independently.
/// * Blocks not written since the last flush are never touched.
/// * A discarded block may afterwards read as anything it ever held, or zeroes.
///
/// Buffers are whole blocks: a length that is not a multiple of [`BLOCK`] is
/// [`DeviceError::Misaligned`], a range past the end
/// [`DeviceError::OutOfRange`]; neither touches the medium.
/// Overlapping operations from different threads have no promised order; each block is read or
/// written whole with respect to other threads.
pub trait BlockDevice: Send + Sync + 'static {
    /// Size in blocks; constant.
    fn blocks(&self) -> u64;
    /// True if writes, discards and flushes fail with [`DeviceError::ReadOnly`].
    fn read_only(&self) -> bool {
        false
    }
    /// Fills `buf` from `at`.
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()>;
    /// Stores `data` at `at`; volatile until the next flush.
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()>;
    /// Stores consecutive parts (each whole blocks) from `at` on, as one request where the backing can.
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let mut at = at;
        for part in parts {
            self.write(at, part, tag)?;
            at.0 += (part.len() / BLOCK) as u64;
        }
        Ok(())
    }
    /// Stores blocks of several objects that lie one after the other, as one [`write`](Self::write) does:
    /// `owners` names the object of each block, in order. A meter divides the request's energy among them; for
    /// any other device it is a write for the last of them.
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.write(at, data, Tag { cause, owner: owners.last().copied().unwrap_or_default() })
    }
    /// [`write_for`](Self::write_for) of parts (each whole blocks) that stand in different places of memory. Who needs them in
    /// one piece puts them together in `room`.
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
    /// What is written to these blocks from now on is expected to die with what else has this handle: a device that can
    /// puts it into the same reclaim unit (NVMe's flexible data placement, TP4146, where each write command names its
    /// handle). Handle 0 is that of whatever nobody placed; a handle that the device has not means 0. A hint: no data
    /// depends on it, and a device, or one that lies over it, may ignore it.
    fn place(&self, _at: Lba, _blocks: u64, _handle: u8) {}
    /// Returns when everything written before the call is durable.
    fn flush(&self, tag: Tag) -> Result<()>;
    /// Says that `blocks` blocks from `at` hold nothing of use.
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()>;
    /// Changes which data lies where by changing the device's map (Ji HotStorage'16, section 6); volatile
    /// until the next flush like a write, and whole or not at all. The two ranges must not overlap. Most
    /// devices have no such command: [`DeviceError::Unsupported`].
    fn remap(&self, _from: Lba, _to: Lba, _blocks: u64, _how: Remap, _tag: Tag) -> Result<()> {
        Err(DeviceError::Unsupported { op: "remap" })
    }
    /// Its zones, if a write has to keep to their pointers.
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
