//! The kernel's ring buffers while they are filled: pages of `per_cpu/cpuN/trace_pipe_raw`, as they are taken.
//!
//! Pages of any number of processors and instances become one order, that of time. What is not yet complete waits: an
//! event is given when the caller says that nothing earlier comes any more. Numbers are in the order of bytes of the machine
//! that this runs on, which is the one that is listened to.
//!
//! Left out: which tracepoints are on, and where pages come from.

use crate::block::{Action, Event};
use crate::names::files::Place;
use crate::names::{Names, Others};
use crate::read::trace_dat::formats::{Formats, ascii};
use crate::read::trace_dat::header;
use crate::read::trace_dat::ring::{InPage, Layout, Lost};
use crate::read::tracepoint::{Heard, Layer};
use crate::writeback::{What, Writings};

/// The numbers of this machine have their high bytes first.
const BIG: bool = cfg!(target_endian = "big");

/// A page of an inode became dirty.
#[derive(Debug, Clone, Copy)]
pub struct Dirtied<'a> {
    /// By a thread of this number.
    pub pid: u32,
    /// Where the inode is; its name.
    pub place: (Place, &'a str),
    /// Its number.
    pub ino: u64,
}

/// Events in the order of time.
pub struct Buffers {
    formats: Formats,
    layout: Layout,
    names: Names,
    others: Others,
    writings: Writings,
    /// What was read and not given, in no order.
    waiting: Vec<Heard>,
}

impl Buffers {
    /// Of a kernel whose file `events/header_page` says this. An error says what is not understood.
    pub fn new(header_page: &[u8]) -> Result<Self, String> {
        let mut formats = Formats::new(size_of::<std::ffi::c_long>() == 8, BIG);
        let text = ascii(header_page).ok_or("a page's format that is no text")?;
        let layout = header::layout(text, formats.long_is_64_bits).ok_or("pages that begin in no known way")?;
        formats.long_is_64_bits = layout.long == 8;
        Ok(Buffers {
            formats,
            layout,
            names: Names::default(),
            others: Others::new(),
            writings: Writings::default(),
            waiting: Vec::new(),
        })
    }

    /// Learns a tracepoint by its file `format`. An error says what is not understood.
    pub fn learn(&mut self, system: &str, format: &[u8]) -> Result<(), String> {
        self.formats.add(system, format)
    }

    /// Takes a processor's page; says how many events were lost before it. An error says what is not understood of the
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

    /// Events were lost that told who asks for what: nobody knows what threads of the kernel are writing.
    pub fn forget(&mut self) {
        self.writings.forget_open();
    }

    /// Names of processes in events that were given, and the files that are written.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Gives what came before `until`, of which nothing comes any more; `who` is asked for the name of a thread that makes
    /// pages dirty.
    pub fn before(
        &mut self,
        until: u64,
        mut who: impl FnMut(Dirtied<'_>) -> String,
        mut take: impl FnMut(Event, &Names),
    ) {
        // Pages of one processor are in order, so this is a merge of a few sorted parts.
        self.waiting.sort_by_key(|heard| heard.event.time);
        let end = self.waiting.partition_point(|heard| heard.event.time < until);
        let mut last = None;
        for heard in self.waiting.drain(..end) {
            let Heard { layer, mut event, notice } = heard;
            if let Some(notice) = notice {
                let dirtied = (notice.what == What::Dirtied).then_some((event.pid, notice.place, notice.ino));
                // One page after the other of one file by one process says nothing more.
                if dirtied.is_some() && dirtied == last {
                    continue;
                }
                last = dirtied;
                if dirtied.is_some() {
                    let place = (notice.place, self.names.files.place(notice.place));
                    let name = who(Dirtied { pid: event.pid, place, ino: notice.ino });
                    event.process = self.names.number(name.as_bytes());
                }
                self.writings.hear(notice, (event.time, event.pid, event.process), &self.names);
            } else if layer == Layer::Block {
                if event.action == Action::Queue {
                    event.writing = self.writings.part_of(event.time, event.pid, event.device, &mut self.names);
                }
                take(event, &self.names);
            }
        }
    }
}
