//! How are the kernel's ring buffers read while tracing runs? Pages of `per_cpu/cpuN/trace_pipe_raw`, as they arrive.
//!
//! Pages of all CPUs and instances are merged by time. Incomplete data waits: an event is returned when the caller
//! declares that nothing earlier will come. Numbers have the byte order of this machine, which is the traced one.
//!
//! Left out: which tracepoints are on, and where pages come from.

use crate::block::{Action, Event};
use crate::names::files::Place;
use crate::names::{Names, OtherCounts};
use crate::read::trace_dat::formats::{Formats, ascii};
use crate::read::trace_dat::header;
use crate::read::trace_dat::ring::{InPage, Layout, Lost};
use crate::read::tracepoint::{Heard, Layer};
use crate::writeback::{What, Writings};

/// True if this machine is big-endian.
const BIG: bool = cfg!(target_endian = "big");

/// An inode's page became dirty.
#[derive(Debug, Clone, Copy)]
pub struct Dirtied<'a> {
    /// Number of the thread.
    pub pid: u32,
    /// Place of the inode, with its name.
    pub place: (Place, &'a str),
    /// Inode number.
    pub ino: u64,
}

/// Events in order of time.
pub struct Buffers {
    formats: Formats,
    layout: Layout,
    names: Names,
    others: OtherCounts,
    writings: Writings,
    /// Events not returned yet, unsorted.
    waiting: Vec<Heard>,
}

impl Buffers {
    /// For a kernel with this file `events/header_page`. An error names what is not understood.
    pub fn new(header_page: &[u8]) -> Result<Self, String> {
        let mut formats = Formats::new(size_of::<std::ffi::c_long>() == 8, BIG);
        let text = ascii(header_page).ok_or("a page's format that is no text")?;
        let layout = header::layout(text, formats.long_is_64_bits).ok_or("pages that begin in no known way")?;
        formats.long_is_64_bits = layout.long == 8;
        Ok(Buffers {
            formats,
            layout,
            names: Names::default(),
            others: OtherCounts::new(),
            writings: Writings::default(),
            waiting: Vec::new(),
        })
    }

    /// Learns a tracepoint from its file `format`. An error names what is not understood.
    pub fn learn(&mut self, system: &str, format: &[u8]) -> Result<(), String> {
        self.formats.add(system, format)
    }

    /// Adds a CPU's page; returns the number of events lost before it. An error names what is not understood in the
    /// rest of the page.
    pub fn page(&mut self, processor: u32, page: &[u8]) -> Result<u64, String> {
        let mut at = InPage::default();
        let lost = match at.begin(page, self.layout, BIG)? {
            Lost::None => 0,
            Lost::Some(n) => n.max(1),
            Lost::Unknown => 1,
        };
        while at.advance(page, BIG)? {
            let heard = self.formats.read(at.time, processor, at.event(page), &mut self.names, &mut self.others)?;
            self.waiting.extend(heard);
        }
        Ok(lost)
    }

    /// Forgets open writebacks, because events about them were lost.
    pub fn forget(&mut self) {
        self.writings.forget_open();
    }

    /// Names of processes in returned events, and files with writeback.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the events before `until`, which no further page may contain; `who` gives the name of a thread that
    /// makes pages dirty.
    pub fn before(
        &mut self,
        until: u64,
        mut who: impl FnMut(Dirtied<'_>) -> String,
        mut take: impl FnMut(Event, &Names),
    ) {
        // Pages of one CPU are in order, so this merges a few sorted parts.
        self.waiting.sort_by_key(|heard| heard.event.time);
        let end = self.waiting.partition_point(|heard| heard.event.time < until);
        let mut last = None;
        for heard in self.waiting.drain(..end) {
            let Heard { layer, mut event, notice } = heard;
            if let Some(notice) = notice {
                let dirtied = (notice.what == What::Dirtied).then_some((event.pid, notice.place, notice.ino));
                // Further pages of the same file by the same process add nothing.
                if dirtied.is_some() && dirtied == last {
                    continue;
                }
                last = dirtied;
                if dirtied.is_some() {
                    let place = (notice.place, self.names.files.place(notice.place));
                    let name = who(Dirtied { pid: event.pid, place, ino: notice.ino });
                    event.process = self.names.number(name.as_bytes());
                }
                self.writings.add(notice, (event.time, event.pid, event.process), &self.names);
            } else if layer == Layer::Block {
                if event.action == Action::Queue {
                    event.writing = self.writings.part_of(event.time, event.pid, event.device, &mut self.names);
                }
                take(event, &self.names);
            }
        }
    }
}
