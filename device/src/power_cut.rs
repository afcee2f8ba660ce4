//! What is on the medium when the power goes?
//!
//! A test device that keeps durable blocks apart from requests made since the last flush, and composes from the two
//! every image that the contract allows a cut to leave.

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
/// Write requests are counted from 1 over the device's life; a gathered write is one. The request
/// at which the power goes fails, as does everything after it, reads too, but it was on its way to
/// the medium: it is lost, kept or torn like the others since the last flush.
///
/// A scenario is run once without a cut, [`write_count`](Self::write_count) read, and then run
/// again for each `n` with [`cut_after`](Self::cut_after), each time looking at several
/// [`image`](Self::image)s. Cutting at `n` and looking at [`Loss::AllKept`] is also the cut
/// after write `n` and before the flush that follows it.
pub struct PowerCut {
    /// What reads see.
    shown: Memory,
    off: AtomicBool,
    journal: Mutex<Journal>,
}

struct Journal {
    /// The image of the last flush, discards not carried out.
    durable: Memory,
    /// Blocks of `durable` discarded before that flush and not written since: they read as they
    /// were, or as zeroes.
    dropped: BTreeSet<u64>,
    /// Since the last flush, in order of return.
    since: Vec<Request>,
    writes: u64,
    flushes: u64,
    cut_at: Option<u64>,
    /// Flushes begun.
    flushes_begun: u64,
    /// Flushes that fail, and what they leave of the requests since the last one.
    failing: BTreeMap<u64, Loss>,
}

impl PowerCut {
    /// Over the contents of `base`, all of it durable. No cut is set.
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

    /// Makes write request number `write` and everything after it fail. If that request is already past, the power
    /// goes at once.
    pub fn cut_after(&self, write: u64) {
        let mut journal = self.journal.lock();
        journal.cut_at = Some(write);
        if write <= journal.writes {
            self.off.store(true, Relaxed);
        }
    }

    /// Makes flush number `flush` (from 1 over the device's life, failed ones included) fail with an I/O error. It
    /// leaves of the requests since the last flush what `loss` says, and reads show that: a host whose page cache
    /// drops pages that it could not write. A later flush makes none of the lost requests good.
    pub fn fail_flush(&self, flush: u64, loss: Loss) {
        self.journal.lock().failing.insert(flush, loss);
    }

    /// Flushes begun so far.
    pub fn flushes_begun(&self) -> u64 {
        self.journal.lock().flushes_begun
    }

    /// Takes the power away now.
    pub fn cut(&self) {
        let _journal = self.journal.lock();
        self.off.store(true, Relaxed);
    }

    /// True once the power is off.
    pub fn is_cut(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// Write requests so far, the one that was cut included.
    pub fn write_count(&self) -> u64 {
        self.journal.lock().writes
    }

    /// Flushes that returned.
    pub fn flush_count(&self) -> u64 {
        self.journal.lock().flushes
    }

    /// How many requests (writes and discards) came since the last flush: a [`Loss`] decides about these.
    pub fn unflushed(&self) -> usize {
        self.journal.lock().since.len()
    }

    /// The image on the medium if the power goes now; after a cut, the image that the cut left.
    pub fn image(&self, loss: Loss) -> Memory {
        let journal = self.journal.lock();
        compose(&journal.durable, &journal.dropped, &journal.since, loss)
    }

    /// One of the images the contract allows, drawn by `seed`: the same as [`Loss::Random`].
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
                    // Where nothing was ever stored, zeroes are all there is.
                    for (start, len) in self.durable.allocated_runs(at, blocks) {
                        self.dropped.extend(start..start + len);
                    }
                }
            }
        }
        self.flushes += 1;
        Ok(())
    }

    /// Drops the requests since the last flush, except what `loss` leaves of them, and shows that.
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

    /// Data that is shared is like data that was written again. (A cut may tear it, which no device does: who survives
    /// that survives more.) The other remaps, which take the source away, are refused.
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
