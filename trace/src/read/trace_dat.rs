//! How is `trace.dat` read, the output of `trace-cmd record` and `trace-cmd extract`? It contains the kernel's
//! ring-buffer pages, one stretch per CPU, and their formats. Versions 6 and 7, compressed or not.
//!
//! CPUs are merged by time; a few pages of each are held. The parts of the file are in any order, so piped input is
//! copied first. Of several instances the first one with data is read; others, which may contain the same requests, are
//! counted.
//!
//! Left out: clocks that do not count seconds, texts of latency tracers, time shifts of guests.

pub(crate) mod formats;
pub(crate) mod header;
mod pages;
pub(crate) mod ring;
mod store;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use formats::Formats;
use pages::Pages;
use ring::Ring;
use store::Store;

use crate::opened::Reader;
use crate::read::tracepoint::layers::{Layered, Source};
use crate::read::tracepoint::{Heard, Layer, blank};
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// Recognised by its first bytes.
pub(crate) const READER: Reader = Reader { knows, open };

fn knows(head: &[u8]) -> bool {
    head.starts_with(header::MARK)
}

fn open(input: Input) -> Result<Opened, TraceError> {
    let mut store = Store::new(input)?;
    let mut others = OtherCounts::new();
    let header = header::read(&mut store, &mut others)?;
    let mut merged = Merged {
        formats: header.formats,
        names: Names::default(),
        others,
        rings: Vec::new(),
        next: Vec::new(),
        waiting: BinaryHeap::new(),
        failed: None,
        store,
    };
    for stretch in header.stretches {
        let pages = Pages::new(stretch, &mut merged.store)?;
        merged.rings.push(Ring::new(pages, header.layout));
    }
    for ring in 0..merged.rings.len() {
        let none = Heard::new(Layer::Block, blank(0, 0, 0, Process::default()));
        let heard = match merged.next_of(ring) {
            Ok(Some(heard)) => {
                merged.waiting.push(Reverse((heard.event.time, ring)));
                heard
            }
            Ok(None) => none,
            Err(e) => {
                merged.failed = Some(merged.failed.take().unwrap_or(e));
                none
            }
        };
        merged.next.push(heard);
    }
    Ok(Opened::Blocks(Box::new(Layered::new(merged))))
}

/// All CPUs.
struct Merged {
    store: Store,
    formats: Formats,
    names: Names,
    others: OtherCounts,
    rings: Vec<Ring>,
    /// The next event of each ring, if it has one.
    next: Vec<Heard>,
    /// Their times and rings; the maximum is the earliest.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The error that ended a ring.
    failed: Option<TraceError>,
}

/// The next block device event in a ring; others are counted.
#[inline]
fn next_of(
    ring: &mut Ring,
    store: &mut Store,
    formats: &mut Formats,
    names: &mut Names,
    others: &mut OtherCounts,
) -> Result<Option<Heard>, TraceError> {
    while ring.advance(store, others)? {
        match formats.read(ring.time(), ring.processor(), ring.event(), names, others) {
            Ok(Some(heard)) => return Ok(Some(heard)),
            Ok(None) => {}
            Err(what) => return Err(store.damaged(ring.place(), what)),
        }
    }
    Ok(None)
}

impl Merged {
    fn next_of(&mut self, ring: usize) -> Result<Option<Heard>, TraceError> {
        let Merged { rings, store, formats, names, others, .. } = self;
        next_of(&mut rings[ring], store, formats, names, others)
    }
}

impl Source for Merged {
    fn format(&self) -> Format {
        Format::TraceDat
    }

    fn pull(&mut self) -> Result<Option<Heard>, TraceError> {
        let Merged { rings, next, store, formats, names, others, waiting, failed } = self;
        // After damage, times are unknown, so nothing later can be ordered.
        if let Some(e) = failed.take() {
            waiting.clear();
            formats.tell(others);
            return Err(e);
        }
        let Some(mut first) = waiting.peek_mut() else {
            formats.tell(others);
            return Ok(None);
        };
        let Reverse((_, ring)) = *first;
        let heard = next[ring];
        match next_of(&mut rings[ring], store, formats, names, others) {
            Ok(Some(after)) => {
                *first = Reverse((after.event.time, ring));
                next[ring] = after;
            }
            Ok(None) => _ = PeekMut::pop(first),
            Err(e) => *failed = Some(e),
        }
        Ok(Some(heard))
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn other_counts_mut(&mut self) -> &mut OtherCounts {
        &mut self.others
    }

    fn consumed(&self) -> u64 {
        self.store.read
    }
}
