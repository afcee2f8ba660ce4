//! How many requests and blocks did each cause have?
//!
//! Independent of the meaning of causes, of time and of energy.

use std::ops::{Add, Index, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::model::Remap;
use crate::{BLOCK, BlockDevice, Lba, Result, Tag, Zones};

/// Completed operations of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Write requests; a gathered write is one.
    pub writes: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Blocks discarded.
    pub blocks_discarded: u64,
}

impl Counts {
    fn zip(self, o: Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: f(self.reads, o.reads),
            writes: f(self.writes, o.writes),
            blocks_read: f(self.blocks_read, o.blocks_read),
            blocks_written: f(self.blocks_written, o.blocks_written),
            flushes: f(self.flushes, o.flushes),
            discards: f(self.discards, o.discards),
            blocks_discarded: f(self.blocks_discarded, o.blocks_discarded),
        }
    }
}

impl Add for Counts {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        self.zip(o, u64::saturating_add)
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        self.zip(o, u64::saturating_sub)
    }
}

/// [`Counts`] of each of the 256 causes at one moment. `later - earlier` covers the time in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountSnapshot {
    by_cause: Vec<Counts>,
}

impl CountSnapshot {
    /// The sum over all causes.
    pub fn total(&self) -> Counts {
        self.by_cause.iter().fold(Counts::default(), |sum, c| sum + *c)
    }

    /// The causes with operations, in order.
    pub fn causes(&self) -> impl Iterator<Item = (u8, Counts)> + '_ {
        (0..=u8::MAX).zip(self.by_cause.iter().copied()).filter(|(_, c)| *c != Counts::default())
    }
}

impl Index<u8> for CountSnapshot {
    type Output = Counts;
    fn index(&self, cause: u8) -> &Counts {
        &self.by_cause[cause as usize]
    }
}

impl Sub for &CountSnapshot {
    type Output = CountSnapshot;
    fn sub(self, o: Self) -> CountSnapshot {
        CountSnapshot { by_cause: self.by_cause.iter().zip(&o.by_cause).map(|(a, b)| *a - *b).collect() }
    }
}

/// One cause's counters, in a cache line of their own, so that threads with different causes do not slow each other
/// down.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    reads: AtomicU64,
    writes: AtomicU64,
    blocks_read: AtomicU64,
    blocks_written: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    blocks_discarded: AtomicU64,
}

/// A device that counts every successful operation by [`Tag::cause`].
pub struct Counting<D> {
    inner: D,
    slots: Box<[Slot]>,
}

impl<D> Counting<D> {
    /// Counts the requests to `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner, slots: (0..=u8::MAX).map(|_| Slot::default()).collect() }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the device below and drops the counts.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The counts so far. Concurrent operations may be counted in part.
    pub fn snapshot(&self) -> CountSnapshot {
        let read = |s: &Slot| Counts {
            reads: s.reads.load(Relaxed),
            writes: s.writes.load(Relaxed),
            blocks_read: s.blocks_read.load(Relaxed),
            blocks_written: s.blocks_written.load(Relaxed),
            flushes: s.flushes.load(Relaxed),
            discards: s.discards.load(Relaxed),
            blocks_discarded: s.blocks_discarded.load(Relaxed),
        };
        CountSnapshot { by_cause: self.slots.iter().map(read).collect() }
    }

    fn slot(&self, tag: Tag) -> &Slot {
        &self.slots[tag.cause as usize]
    }
}

impl<D: BlockDevice> BlockDevice for Counting<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.inner.read(at, buf, tag)?;
        let slot = self.slot(tag);
        slot.reads.fetch_add(1, Relaxed);
        slot.blocks_read.fetch_add((buf.len() / BLOCK) as u64, Relaxed);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.inner.write(at, data, tag)?;
        let slot = self.slot(tag);
        slot.writes.fetch_add(1, Relaxed);
        slot.blocks_written.fetch_add((data.len() / BLOCK) as u64, Relaxed);
        Ok(())
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.inner.write_gather(at, parts, tag)?;
        let slot = self.slot(tag);
        slot.writes.fetch_add(1, Relaxed);
        slot.blocks_written.fetch_add(parts.iter().map(|p| (p.len() / BLOCK) as u64).sum(), Relaxed);
        Ok(())
    }

    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.inner.write_for(at, data, owners, cause)?;
        let slot = &self.slots[cause as usize];
        slot.writes.fetch_add(1, Relaxed);
        slot.blocks_written.fetch_add((data.len() / BLOCK) as u64, Relaxed);
        Ok(())
    }

    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)?;
        self.slot(tag).flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)?;
        let slot = self.slot(tag);
        slot.discards.fetch_add(1, Relaxed);
        slot.blocks_discarded.fetch_add(blocks, Relaxed);
        Ok(())
    }

    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }

    /// Resets are not counted.
    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }
}
