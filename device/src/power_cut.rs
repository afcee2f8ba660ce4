//! A test device for power cuts.
//!
//! It keeps durable blocks apart from requests since the last flush, and composes every image that the contract
//! allows a cut to leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::address::Remap;
use crate::bounds::{check_blocks, check_parts, check_remap};
use crate::loss::{Loss, Request, compose};
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Memory, Result, Tag};

/// A device in memory whose power can be cut at any write.
///
/// Write requests are counted from 1 over the device's life; a gathered write is one. The request at which the
/// power is cut fails, as do all later ones, including reads. But it was on its way to the medium: it is lost, kept
/// or torn like the others since the last flush.
///
/// Run a scenario once without a cut, read [`write_count`](Self::write_count), and run it again for each `n` with
/// [`cut_after`](Self::cut_after), each time examining several [`image`](Self::image)s. A cut at `n` with
/// [`Loss::AllKept`] equals a cut after write `n` and before the flush that follows it.
pub struct PowerCut {
    /// What reads return.
    shown: Memory,
    off: AtomicBool,
    journal: Mutex<Journal>,
}

struct Journal {
    /// The image of the last flush, without applying discards.
    durable: Memory,
    /// Blocks of `durable` discarded before that flush and not written since: they read as before, or as zeroes.
    dropped: BTreeSet<u64>,
    /// Requests since the last flush, in order of return.
    since: Vec<Request>,
    writes: u64,
    flushes: u64,
    cut_at: Option<u64>,
    /// Number of flushes begun.
    flushes_begun: u64,
    /// Flushes that will fail, and what remains of the requests since the previous one.
    failing: BTreeMap<u64, Loss>,
}

impl PowerCut {
    /// A device with the contents of `base`, all of them durable. No cut is set.
    pub fn new(base: Memory) -> Self {
        Self {
            shown: base.fork(),
            off: AtomicBool::new(false),
            journal: Mutex::new(Journal {
                durable: base,
                dropped: BTreeSet::new(),
                since: Vec::new(),
                writes: 0,
                flushes: 0,
                cut_at: None,
                flushes_begun: 0,
                failing: BTreeMap::new(),
            }),
        }
    }

    /// Makes write request `write` and everything after it fail. If that request is already past, the power goes
    /// immediately.
    pub fn cut_after(&self, write: u64) {
        let mut journal = self.journal.lock();
        journal.cut_at = Some(write);
        if write <= journal.writes {
            self.off.store(true, Relaxed);
        }
    }

    /// Makes flush `flush` (from 1 over the device's life, failed ones included) fail with an I/O error. Of the
    /// requests since the last flush only those in `loss` remain, which reads show: like a host whose page cache
    /// drops pages that it could not write. Later flushes do not recover the lost requests.
    pub fn fail_flush(&self, flush: u64, loss: Loss) {
        self.journal.lock().failing.insert(flush, loss);
    }

    /// Number of flushes begun so far.
    pub fn flushes_begun(&self) -> u64 {
        self.journal.lock().flushes_begun
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        let _journal = self.journal.lock();
        self.off.store(true, Relaxed);
    }

    /// True if the power is off.
    pub fn is_cut(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// Number of write requests so far, the interrupted one included.
    pub fn write_count(&self) -> u64 {
        self.journal.lock().writes
    }

    /// Number of completed flushes.
    pub fn flush_count(&self) -> u64 {
        self.journal.lock().flushes
    }

    /// Number of requests (writes and discards) since the last flush, whose fate a [`Loss`] decides.
    pub fn unflushed(&self) -> usize {
        self.journal.lock().since.len()
    }

    /// The image on the medium if the power is cut now; after a cut, the image that it left.
    pub fn image(&self, loss: Loss) -> Memory {
        let journal = self.journal.lock();
        compose(&journal.durable, &journal.dropped, &journal.since, loss)
    }

    /// One of the images that the contract allows, chosen by `seed`: the same as [`Loss::Random`].
    pub fn survivors(&self, seed: u64) -> Memory {
        self.image(Loss::Random(seed))
    }

    fn powered(&self, op: &'static str) -> Result<()> {
        if self.is_cut() { Err(DeviceError::PowerCut { op }) } else { Ok(()) }
    }
}

impl Journal {
    /// Makes everything durable.
    fn settle(&mut self) -> Result<()> {
        for request in self.since.drain(..) {
            match request {
                Request::Write { at, data } => {
                    self.durable.write(at, &data, Tag::default())?;
                    for block in (at.0..).take(data.len() / BLOCK) {
                        self.dropped.remove(&block);
                    }
                }
                Request::Discard { at, blocks } => {
                    // In never-stored ranges, zeroes are the only possible contents.
                    for (start, len) in self.durable.allocated_runs(at, blocks) {
                        self.dropped.extend(start..start + len);
                    }
                }
            }
        }
        self.flushes += 1;
        Ok(())
    }

    /// Drops the requests since the last flush, except those that `loss` keeps, and shows the result.
    fn lose(&mut self, loss: Loss, shown: &Memory) -> Result<()> {
        self.durable = compose(&self.durable, &self.dropped, &self.since, loss);
        for request in self.since.drain(..) {
            let (at, blocks) = match request {
                Request::Write { at, data } => (at, (data.len() / BLOCK) as u64),
                Request::Discard { at, blocks } => (at, blocks),
            };
            for block in (at.0..).take(blocks as usize) {
                let mut bytes = [0; BLOCK];
                self.durable.read(Lba(block), &mut bytes, Tag::default())?;
                shown.write(Lba(block), &bytes, Tag::default())?;
            }
        }
        Ok(())
    }
}

impl BlockDevice for PowerCut {
    fn blocks(&self) -> u64 {
        self.shown.blocks()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.powered("read")?;
        self.shown.read(at, buf, tag)
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.write_gather(at, &[data], tag)
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let mut journal = self.journal.lock();
        self.powered("write")?;
        check_parts("write", at, parts, self.blocks())?;
        journal.writes += 1;
        journal.since.push(Request::Write { at, data: parts.concat().into() });
        if journal.cut_at.is_some_and(|n| journal.writes >= n) {
            self.off.store(true, Relaxed);
            return Err(DeviceError::PowerCut { op: "write" });
        }
        self.shown.write_gather(at, parts, tag)
    }

    fn flush(&self, _: Tag) -> Result<()> {
        let mut journal = self.journal.lock();
        self.powered("flush")?;
        journal.flushes_begun += 1;
        let begun = journal.flushes_begun;
        match journal.failing.remove(&begun) {
            None => journal.settle(),
            Some(loss) => {
                journal.lose(loss, &self.shown)?;
                Err(DeviceError::Io { op: "flush", at: Lba(0), source: Errno::IO.into() })
            }
        }
    }

    /// Discarded blocks read as zeroes while the power is on.
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        let mut journal = self.journal.lock();
        self.powered("discard")?;
        check_blocks("discard", at, blocks, self.blocks())?;
        journal.since.push(Request::Discard { at, blocks });
        self.shown.discard(at, blocks, tag)
    }

    /// Shared data is treated as rewritten data. (A cut may tear it, which no real device does: the test is
    /// stricter.) Other remaps, which remove the source, are rejected.
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.powered("remap")?;
        check_remap(from, to, blocks, self.blocks())?;
        if how != Remap::Share {
            return Err(DeviceError::Unsupported { op: "remap" });
        }
        let mut data = vec![0; blocks as usize * BLOCK];
        self.shown.read(from, &mut data, tag)?;
        self.write(to, &data, tag)
    }
}
