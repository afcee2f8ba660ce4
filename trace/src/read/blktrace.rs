//! How are blktrace's binary records read? Version 7 (`struct blk_io_trace`, 48 bytes) and 8 (`struct blk_io_trace2`,
//! 64 bytes, from Linux 6.19), in the byte order of the recording machine, as one stream or one file per CPU.
//!
//! Constants are those of `linux/blktrace_api.h`. Records that are not events are used for names of processes; the
//! others (messages, wall-clock times, data of drivers) are only counted. Gaps in a CPU's sequence numbers are events
//! that the kernel dropped; they are counted too.
//!
//! Left out: cgroups, and driver-specific data.

mod files;
mod order;
mod record;

pub(crate) use files::{of_all_processors, open};

use rustc_hash::FxHashMap;

use crate::block::{Event, Events};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Names, Opened, OtherCounts, Process, TraceError};

use order::Order;
use record::{Stream, magic};

pub(super) const READER: Reader =
    Reader { knows: |head| magic(head).is_some(), open: |input| Ok(open_stream(Stream::new(input))) };

fn open_stream(stream: Stream) -> Opened {
    Opened::Blocks(Box::new(Blktrace { order: Order::of_stream(stream), names: Named::default(), latest: 0 }))
}

fn open_files(streams: Vec<Stream>) -> Opened {
    Opened::Blocks(Box::new(Blktrace { order: Order::of_files(streams), names: Named::default(), latest: 0 }))
}

/// Names of process numbers, and counts of other records.
#[derive(Default)]
struct Named {
    names: Names,
    by_pid: FxHashMap<u32, Process>,
    /// The last lookup.
    last: (u32, Process),
    others: OtherCounts,
}

impl Named {
    fn learn(&mut self, pid: u32, name: &[u8]) {
        let process = self.names.number(name);
        self.by_pid.insert(pid, process);
        self.last = (pid, process);
    }

    fn who(&mut self, pid: u32) -> Process {
        if self.last.0 != pid {
            self.last = (pid, self.by_pid.get(&pid).copied().unwrap_or_default());
        }
        self.last.1
    }
}

struct Blktrace {
    order: Order,
    names: Named,
    /// The latest time of an event.
    latest: u64,
}

impl Events for Blktrace {
    fn format(&self) -> Format {
        Format::Blktrace
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let Some(mut event) = self.order.next(&mut self.names)? else { return Ok(None) };
        event.process = self.names.who(event.pid);
        if event.time < self.latest {
            count(&mut self.names.others, "events told too late to be put in order");
        }
        self.latest = self.latest.max(event.time);
        Ok(Some(event))
    }

    fn names(&self) -> &Names {
        &self.names.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.names.others
    }

    fn consumed(&self) -> u64 {
        self.order.consumed()
    }
}
