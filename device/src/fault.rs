//! A device with injected faults.
//!
//! Errors on chosen requests or places, flipped bits, writes that are accepted and lost: real devices have them,
//! though no contract allows it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use rustix::io::Errno;

use crate::bounds::{check, check_blocks, check_parts};
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write, gathered or not.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// A fault. Requests are counted from 1, separately by kind, over the device's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Requests with numbers in the range fail with an I/O error and have no effect.
    Nth {
        /// The kind.
        op: Op,
        /// Their numbers, from 1.
        requests: Range<u64>,
    },
    /// Requests that include a block in the range fail with an I/O error. The blocks of a write before the first
    /// bad one are stored.
    Place {
        /// Reads, writes or discards.
        op: Op,
        /// The blocks.
        blocks: Range<u64>,
    },
    /// The block reads with a flipped bit until it is written.
    BadBit {
        /// The block.
        at: Lba,
        /// Bit offset in the block, modulo 32768.
        bit: u32,
    },
    /// A write request is stored with a flipped bit.
    FlipOnWrite {
        /// Its number, from 1.
        request: u64,
        /// Bit offset in the request, modulo its length.
        bit: u64,
    },
    /// A write request fails, and the earlier contents of its blocks are lost.
    Spoiled {
        /// Its number, from 1.
        request: u64,
    },
    /// A write request returns success but is not stored.
    Dropped {
        /// Its number, from 1.
        request: u64,
    },
}

/// A device with faults.
pub struct Faulty<D> {
    inner: D,
    faults: RwLock<Vec<Fault>>,
    counts: [AtomicU64; 4],
}

fn failed(op: Op, at: Lba) -> DeviceError {
    DeviceError::Io { op: op.name(), at, source: Errno::IO.into() }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits > 0 {
        let bit = bit % bits;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl<D: BlockDevice> Faulty<D> {
    /// A device without faults.
    pub fn new(inner: D) -> Self {
        Self { inner, faults: RwLock::default(), counts: Default::default() }
    }

    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        self.faults.write().push(fault);
    }

    /// Removes all faults. Their effects on the contents remain.
    pub fn heal(&self) {
        self.faults.write().clear();
    }

    /// Number of requests of this kind so far.
    pub fn requests(&self, op: Op) -> u64 {
        self.counts[op as usize].load(Relaxed)
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the device below without the faults.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Counts a request; returns its number, or the error for this number.
    fn count(&self, op: Op, at: Lba) -> Result<u64> {
        let number = self.counts[op as usize].fetch_add(1, Relaxed) + 1;
        let fails = |f: &Fault| matches!(f, Fault::Nth { op: o, requests } if *o == op && requests.contains(&number));
        if self.faults.read().iter().any(fails) { Err(failed(op, at)) } else { Ok(number) }
    }

    /// The first bad block in the range.
    fn bad_place(&self, op: Op, at: Lba, blocks: u64) -> Option<u64> {
        let hit = |f: &Fault| match f {
            Fault::Place { op: o, blocks: bad } if *o == op => {
                let first = bad.start.max(at.0);
                (first < bad.end.min(at.0 + blocks)).then_some(first)
            }
            _ => None,
        };
        self.faults.read().iter().filter_map(hit).min()
    }

    /// Writing a block repairs its bad bits.
    fn rewritten(&self, at: Lba, blocks: u64) {
        let cured = |f: &Fault| matches!(f, Fault::BadBit { at: bad, .. } if (at.0..at.0 + blocks).contains(&bad.0));
        if self.faults.read().iter().any(cured) {
            self.faults.write().retain(|f| !cured(f));
        }
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        let blocks = check("read", at, buf.len(), self.blocks())?;
        self.count(Op::Read, at)?;
        if let Some(bad) = self.bad_place(Op::Read, at, blocks) {
            return Err(failed(Op::Read, Lba(bad)));
        }
        self.inner.read(at, buf, tag)?;
        for fault in self.faults.read().iter() {
            if let Fault::BadBit { at: bad, bit } = fault
                && let Some(i) = bad.0.checked_sub(at.0)
                && let Some(block) = buf.chunks_exact_mut(BLOCK).nth(i as usize)
            {
                flip(block, u64::from(*bit));
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.write_gather(at, &[data], tag)
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let blocks = check_parts("write", at, parts, self.blocks())?;
        let number = self.count(Op::Write, at)?;
        if let Some(bad) = self.bad_place(Op::Write, at, blocks) {
            let stored = bad - at.0;
            self.inner.write(at, &parts.concat()[..stored as usize * BLOCK], tag)?;
            self.rewritten(at, stored);
            return Err(failed(Op::Write, Lba(bad)));
        }
        let (mut dropped, mut flips) = (false, Vec::new());
        for fault in self.faults.read().iter() {
            match fault {
                Fault::Dropped { request } if *request == number => dropped = true,
                Fault::FlipOnWrite { request, bit } if *request == number => flips.push(*bit),
                _ => {}
            }
        }
        if self.faults.read().contains(&Fault::Spoiled { request: number }) {
            self.inner.write(at, &vec![0xEE; blocks as usize * BLOCK], tag)?;
            self.rewritten(at, blocks);
            return Err(failed(Op::Write, at));
        }
        if dropped {
            return if self.read_only() { Err(DeviceError::ReadOnly { op: "write" }) } else { Ok(()) };
        }
        if flips.is_empty() {
            self.inner.write_gather(at, parts, tag)?;
        } else {
            let mut data = parts.concat();
            flips.into_iter().for_each(|bit| flip(&mut data, bit));
            self.inner.write(at, &data, tag)?;
        }
        self.rewritten(at, blocks);
        Ok(())
    }

    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        self.count(Op::Flush, Lba(0))?;
        self.inner.flush(tag)
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks())?;
        self.count(Op::Discard, at)?;
        if let Some(bad) = self.bad_place(Op::Discard, at, blocks) {
            return Err(failed(Op::Discard, Lba(bad)));
        }
        self.inner.discard(at, blocks, tag)
    }
}
