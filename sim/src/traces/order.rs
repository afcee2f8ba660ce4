//! How much of the requests to a device is random?

use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;
use trace::Process;
use trace::block::{DeviceId, Flags, Op};
use trace::requests::Request;
use trace::stat::randomness::{Randomness, Share};

/// Sectors per block.
const SECTORS: u64 = 8;

/// A decorator that separates random from sequential requests by the rule of [`Randomness`], and counts requests.
/// Failed requests count too, because they reached the device.
pub struct Ordered<D> {
    inner: D,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    order: Randomness,
    requests: u64,
}

/// Totals since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// Reads.
    pub read: Share,
    /// Writes.
    pub written: Share,
    /// Number of reads, writes and flushes.
    pub requests: u64,
}

impl<D: BlockDevice> Ordered<D> {
    /// All totals are 0.
    pub fn new(inner: D) -> Self {
        Ordered { inner, seen: Mutex::default() }
    }

    /// The device underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the totals and resets them.
    pub fn take(&self) -> Order {
        let Seen { order, requests } = std::mem::take(&mut *self.seen.lock());
        let (read, written) = order.shares();
        Order { read, written, requests }
    }

    fn note(&self, op: Op, at: Lba, bytes: usize) {
        let seen = &mut *self.seen.lock();
        seen.requests += 1;
        seen.order.add(&Request {
            time: 0,
            op,
            flags: Flags::empty(),
            sector: at.0.saturating_mul(SECTORS),
            sectors: (bytes / BLOCK) as u64 * SECTORS,
            device: DeviceId::default(),
            pid: 0,
            process: Process::default(),
        });
    }
}

impl<D: BlockDevice> BlockDevice for Ordered<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.note(Op::Read, at, buf.len());
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.note(Op::Write, at, data.len());
        self.inner.write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.note(Op::Write, at, parts.iter().map(|p| p.len()).sum());
        self.inner.write_gather(at, parts, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.note(Op::Write, at, data.len());
        self.inner.write_for(at, data, owners, cause)
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.note(Op::Flush, Lba(0), 0);
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
}
