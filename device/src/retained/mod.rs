//! Makes a failed flush repeatable.
//!
//! After a failed `fdatasync` Linux marks the pages it could not write as clean and may drop them. The next `fdatasync`
//! returns success, and the data is gone. So [`Retained`] keeps a copy of every block written since the last successful
//! flush. After a failed flush the next one first writes all copies again.
//!
//! # Why no block is missed
//! * A copy is stored before the write returns. Only a successful flush that began later drops it.
//! * A flush waits for writes in progress (`writing`) when it begins to rewrite copies, and when it decides which
//!   copies it may drop. So each write lies wholly before or wholly after both moments.
//! * `stripes` orders overlapping writes, discards and rewrites: the copy always equals the last data sent to the
//!   device.

mod copies;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use copies::Copies;
use parking_lot::{Mutex, RwLock};

use crate::bounds::{check, check_blocks, check_parts};
use crate::stripes::Stripes;
use crate::{BLOCK, BlockDevice, HostRoom, Lba, Result, Tag, Zones};

/// Blocks rewritten in one request: 1 MiB.
const RUN: u64 = 256;

/// Tag of flushes without a caller.
const TAG: Tag = Tag { cause: 0, owner: 0 };

/// A device whose failed writes and flushes can be repeated.
///
/// A successful flush makes all earlier writes durable, even if earlier flushes failed. A failed write may be
/// repeated, too. Until then its blocks hold the old data, the new data, or a mixture.
///
/// Reads return written data even if the device below has lost it.
///
/// Memory is bounded. When copies reach half of the limit, the device flushes by itself. If that fails, writes fail
/// until a flush succeeds.
///
/// Zones are passed through, but a zoned device does not accept a block twice: do not wrap one.
pub struct Retained<D> {
    inner: D,
    copies: RwLock<Copies>,
    /// Number of blocks in `copies`, readable without its lock.
    held: AtomicU64,
    /// Blocks written before the device flushes by itself.
    most: u64,
    stripes: Stripes,
    /// Shared by each write from its start until its copy is stored.
    writing: RwLock<()>,
    /// One flush at a time.
    flushing: Mutex<()>,
    /// True if the device below may have lost blocks that are copied.
    doubtful: AtomicBool,
    /// Releases ballast for writes that find no room.
    room: Option<Arc<HostRoom>>,
}

impl<D: BlockDevice> Retained<D> {
    /// Limits copies to about `limit` bytes.
    pub fn new(inner: D, limit: usize) -> Self {
        Self {
            inner,
            copies: RwLock::default(),
            held: AtomicU64::new(0),
            most: (limit / 2 / BLOCK).max(1) as u64,
            stripes: Stripes::new(),
            writing: RwLock::new(()),
            flushing: Mutex::new(()),
            doubtful: AtomicBool::new(false),
            room: None,
        }
    }

    /// The same with ballast: a write or flush that finds no room on the host is repeated while ballast remains.
    pub fn with_room(self, room: Arc<HostRoom>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Number of copied blocks.
    pub fn copied_blocks(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    fn note_held(&self, copies: &Copies) {
        self.held.store(copies.len() as u64, Ordering::Release);
    }

    /// Flushes if copies of `blocks` more blocks would exceed the limit. The caller holds no lock.
    fn make_room(&self, blocks: u64) -> Result<()> {
        let full = || {
            let new = self.copies.read().new_len() as u64;
            new > 0 && new + blocks > self.most
        };
        // Every copy counts in `held`, so the unlocked check never wrongly reports "not full".
        if self.copied_blocks() + blocks <= self.most || !full() {
            return Ok(());
        }
        let _one = self.flushing.lock();
        if full() { self.flush_copies(TAG) } else { Ok(()) }
    }

    /// True if `failed` reports that the host has no room, and ballast was released for `bytes` bytes.
    fn released_room(&self, failed: &Result<()>, bytes: usize) -> bool {
        let is_full = matches!(failed, Err(e) if e.is_full());
        is_full && self.room.as_ref().is_some_and(|room| room.make_way(bytes as u64))
    }

    /// Calls `write`, and stores copies of `parts`.
    fn store(&self, at: Lba, parts: &[&[u8]], mut write: impl FnMut() -> Result<()>) -> Result<()> {
        let blocks = check_parts("write", at, parts, self.blocks())?;
        self.make_room(blocks)?;
        let _before_flush = self.writing.read();
        let _alone = self.stripes.exclusive(at, blocks);
        let mut written = write();
        while self.released_room(&written, blocks as usize * BLOCK) {
            written = write();
        }
        let mut copies = self.copies.write();
        match written {
            Ok(()) => {
                let all = parts.iter().flat_map(|part| part.chunks_exact(BLOCK));
                (at.0..).zip(all).for_each(|(block, bytes)| copies.insert(block, bytes));
                self.note_held(&copies);
            }
            // The failed write may have partly destroyed the stored copies' blocks on the device.
            Err(_) if copies.any_in(at.0, blocks) => self.doubtful.store(true, Ordering::Release),
            Err(_) => {}
        }
        written
    }

    /// Makes all copied blocks durable. The caller holds `flushing`.
    fn flush_copies(&self, tag: Tag) -> Result<()> {
        loop {
            let flushed = self.flush_once(tag);
            // A host with delayed allocation reports only now that it has no room.
            if !self.released_room(&flushed, self.copied_blocks() as usize * BLOCK) {
                return flushed;
            }
        }
    }

    fn flush_once(&self, tag: Tag) -> Result<()> {
        if self.doubtful.swap(false, Ordering::AcqRel) {
            drop(self.writing.write());
            self.write_again(tag).inspect_err(|_| self.doubtful.store(true, Ordering::Release))?;
        }
        {
            let _between_writes = self.writing.write();
            self.copies.write().begin_flush();
        }
        let flushed = self.inner.flush(tag);
        let mut copies = self.copies.write();
        match flushed {
            Ok(()) => copies.flushed(),
            Err(_) => {
                self.doubtful.store(true, Ordering::Release);
                copies.flush_failed();
            }
        }
        self.note_held(&copies);
        flushed
    }

    /// Rewrites all copies to the device below, neighbours in one request.
    fn write_again(&self, tag: Tag) -> Result<()> {
        let blocks = self.copies.read().new_blocks();
        let mut bytes = Vec::new();
        for run in blocks.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(RUN as usize)) {
            let _alone = self.stripes.exclusive(Lba(run[0]), run.len() as u64);
            // A discard may have dropped some of them meanwhile.
            let held: Vec<u64> = {
                let copies = self.copies.read();
                bytes.clear();
                run.iter().copied().filter(|block| copies.append(*block, &mut bytes)).collect()
            };
            let mut rest = &bytes[..];
            for part in held.chunk_by(|a, b| a + 1 == *b) {
                let (data, tail) = rest.split_at(part.len() * BLOCK);
                rest = tail;
                self.inner.write(Lba(part[0]), data, tag)?;
            }
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Retained<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        if self.copied_blocks() == 0 {
            return self.inner.read(at, buf, tag);
        }
        check("read", at, buf.len(), self.blocks())?;
        // Copies first: a block without a copy is on the device below, and stays there.
        let found = self.copies.read().fill(at.0, buf);
        let Some(found) = found else { return Ok(()) };
        self.inner.read(at, buf, tag)?;
        for (block, bytes) in found {
            buf[(block - at.0) as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes[..]);
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.store(at, &[data], || self.inner.write(at, data, tag))
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.store(at, parts, || self.inner.write_gather(at, parts, tag))
    }

    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.store(at, &[data], || self.inner.write_for(at, data, owners, cause))
    }

    fn write_parts_for(
        &self,
        at: Lba,
        parts: &[&[u8]],
        (owners, cause): (&[u64], u8),
        room: &mut Vec<u8>,
    ) -> Result<()> {
        self.store(at, parts, || self.inner.write_parts_for(at, parts, (owners, cause), room))
    }

    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        let _one = self.flushing.lock();
        self.flush_copies(tag)
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks())?;
        let _alone = self.stripes.exclusive(at, blocks);
        self.inner.discard(at, blocks, tag)?;
        if self.copied_blocks() > 0 {
            let mut copies = self.copies.write();
            copies.drop_range(at.0, blocks);
            self.note_held(&copies);
        }
        if let Some(room) = &self.room {
            room.discarded();
        }
        Ok(())
    }

    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }
}
