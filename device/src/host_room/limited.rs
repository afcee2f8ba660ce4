//! A sparse image on a file system of limited size, as a test device.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Host;
use crate::bounds::{check, check_blocks, check_parts};
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

const BYTES: u64 = BLOCK as u64;

/// A device that takes room of its host for each block written for the first time, gives it back for discarded
/// ones, and fails with `ENOSPC` if there is none. Blocks of a write before the first without room are stored.
pub struct Limited<D> {
    inner: D,
    room: Arc<Mutex<Room>>,
}

struct Room {
    /// Free blocks of the host.
    free: u64,
    /// Blocks of the image with room.
    taken: BTreeSet<u64>,
    size: u64,
}

/// The host of a [`Limited`].
struct Shared {
    room: Arc<Mutex<Room>>,
    held: u64,
}

impl<D: BlockDevice> Limited<D> {
    /// An image without allocated blocks, on a host with `free` free blocks.
    pub fn new(inner: D, free: u64) -> Self {
        let room = Room { free, taken: BTreeSet::new(), size: inner.blocks() };
        Self { inner, room: Arc::new(Mutex::new(room)) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Its host, for a [`HostRoom`](super::HostRoom).
    pub fn host(&self) -> impl Host + use<D> {
        Shared { room: self.room.clone(), held: 0 }
    }

    /// Free blocks of the host.
    pub fn free(&self) -> u64 {
        self.room.lock().free
    }

    /// Simulates other users of the host, who write or delete until `blocks` blocks are free.
    pub fn leave_free(&self, blocks: u64) {
        self.room.lock().free = blocks;
    }

    /// Takes room for the blocks while there is any; returns their number.
    fn take(&self, at: u64, blocks: u64) -> u64 {
        let room = &mut *self.room.lock();
        for block in at..at + blocks {
            if room.taken.contains(&block) {
                continue;
            }
            if room.free == 0 {
                return block - at;
            }
            room.free -= 1;
            room.taken.insert(block);
        }
        blocks
    }
}

impl<D: BlockDevice> BlockDevice for Limited<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.inner.read(at, buf, tag)
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        let blocks = check("write", at, data.len(), self.blocks())?;
        let roomy = self.take(at.0, blocks);
        self.inner.write(at, &data[..roomy as usize * BLOCK], tag)?;
        match roomy == blocks {
            true => Ok(()),
            false => Err(DeviceError::Io { op: "write", at: Lba(at.0 + roomy), source: Errno::NOSPC.into() }),
        }
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        check_parts("write", at, parts, self.blocks())?;
        self.write(at, &parts.concat(), tag)
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks())?;
        self.inner.discard(at, blocks, tag)?;
        let room = &mut *self.room.lock();
        let gone: Vec<u64> = room.taken.range(at.0..at.0 + blocks).copied().collect();
        room.free += gone.len() as u64;
        gone.iter().for_each(|block| _ = room.taken.remove(block));
        Ok(())
    }
}

impl Host for Shared {
    fn hold(&mut self, bytes: u64) -> io::Result<()> {
        let room = &mut *self.room.lock();
        let (now, then) = (self.held.div_ceil(BYTES), bytes.div_ceil(BYTES));
        room.free = (room.free + now).checked_sub(then).ok_or(Errno::NOSPC)?;
        self.held = bytes;
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.room.lock().free * BYTES)
    }

    fn growth(&self) -> io::Result<u64> {
        let room = self.room.lock();
        Ok((room.size - room.taken.len() as u64) * BYTES)
    }

    fn most(&self) -> u64 {
        256 << 20
    }
}
