//! How are requests recorded while a device is in use?

use std::io::{self, Write};
use std::sync::Arc;

use device::clock::Clock;
use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;

use super::event::{Before, Event, Request};
use crate::field::{encode_number, encode_text};
use crate::{Kind, Writer};

struct Out {
    writer: Writer,
    before: Before,
}

/// A decorator that records every request on completion, including failed ones.
///
/// If the recording cannot be written, recording stops, [`finish`](Self::finish) reports it, and the device goes on.
pub struct Recorder<D> {
    inner: D,
    clock: Arc<dyn Clock>,
    began: u64,
    out: Mutex<Out>,
}

impl<D: BlockDevice> Recorder<D> {
    /// Records requests to `inner` into `out`. `clock` gives the times: for a device in virtual time, the device's
    /// clock. `causes` gives the meanings of [`Tag::cause`], for readers of the recording.
    pub fn new(
        inner: D,
        out: impl Write + Send + 'static,
        clock: Arc<dyn Clock>,
        causes: &[(u8, &str)],
    ) -> io::Result<Self> {
        let mut subject = Vec::new();
        encode_number(&mut subject, inner.blocks());
        encode_number(&mut subject, causes.len() as u64);
        for (number, name) in causes {
            subject.push(*number);
            encode_text(&mut subject, name);
        }
        let writer = Writer::new(Box::new(out), Kind::Blocks, &subject)?;
        let began = nanos(&*clock);
        Ok(Recorder { inner, clock, began, out: Mutex::new(Out { writer, before: Before::default() }) })
    }

    /// The device underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Ends the recording and returns its number of requests; the device goes on unrecorded. Dropping does the same
    /// without reporting errors.
    ///
    /// # Errors
    /// The first write error since the beginning.
    pub fn finish(&self) -> io::Result<u64> {
        let out = &mut self.out.lock().writer;
        out.finish()?;
        Ok(out.records())
    }

    fn note<T>(&self, tag: Tag, request: impl FnOnce() -> Request, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = nanos(&*self.clock);
        let answer = ask();
        let took = nanos(&*self.clock).saturating_sub(start);
        let (arrival, failed) = (start.saturating_sub(self.began), answer.is_err());
        let event = Event { arrival, took, tag, request: request(), failed };
        let Out { writer, before } = &mut *self.out.lock();
        writer.add(|bytes, first| {
            if first {
                *before = Before::default();
            }
            event.encode(bytes, before);
        });
        answer
    }
}

fn nanos(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        let blocks = (buf.len() / BLOCK) as u64;
        self.note(tag, || Request::Read { at, blocks }, || self.inner.read(at, buf, tag))
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        let blocks = (data.len() / BLOCK) as u64;
        let request = || Request::Write { at, blocks, fingerprint: crc32fast::hash(data) };
        self.note(tag, request, || self.inner.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let request = || {
            let mut crc = crc32fast::Hasher::new();
            parts.iter().for_each(|p| crc.update(p));
            let blocks = parts.iter().map(|p| (p.len() / BLOCK) as u64).sum();
            Request::Write { at, blocks, fingerprint: crc.finalize() }
        };
        self.note(tag, request, || self.inner.write_gather(at, parts, tag))
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        // The recording has one owner per request.
        let tag = Tag { cause, owner: owners.last().copied().unwrap_or_default() };
        let blocks = (data.len() / BLOCK) as u64;
        let request = || Request::Write { at, blocks, fingerprint: crc32fast::hash(data) };
        self.note(tag, request, || self.inner.write_for(at, data, owners, cause))
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.note(tag, || Request::Flush, || self.inner.flush(tag))
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.note(tag, || Request::Discard { at, blocks }, || self.inner.discard(at, blocks, tag))
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        let request = || Request::Remap { from, to, blocks, how };
        self.note(tag, request, || self.inner.remap(from, to, blocks, how, tag))
    }
}
