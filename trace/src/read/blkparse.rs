//! How is blkparse's text read? One event per line, without `-f`:
//!
//! ```text
//!   8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
//! ```
//!
//! Device, CPU, sequence number of the CPU, seconds, process, action, letters of the request, then fields of the
//! action: an extent, a process or an error, times (`-t`), commands, the origin of a remap. The tables that follow
//! (totals, programs) are counted.
//!
//! Left out: lines in a custom format (`-f`, `-F`), which do not describe themselves.

mod line;

use rustc_hash::FxHashMap;

use crate::block::{Event, Events};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

use line::{Line, Who};

pub(super) const READER: Reader = Reader {
    knows: |head| head.split(|b| *b == b'\n').find(|line| !said_before(line)).is_some_and(line::looks_like),
    open: |input| Ok(Opened::Blocks(Box::new(Blkparse::new(input)))),
};

/// Messages that blkparse writes to standard error at the start, and that are often kept with the output.
fn said_before(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace) || line.starts_with(b"Input file ")
}

/// Type of a line without an event; `None` if it should be one.
fn beside_events(line: &[u8], tables: &mut bool) -> Option<&'static str> {
    match line.iter().find(|b| !b.is_ascii_whitespace()) {
        None => return Some("empty lines"),
        Some(first) if first.is_ascii_digit() => return None,
        Some(_) => {}
    }
    if line.starts_with(b"Input file ") {
        return Some("names of input files");
    }
    // `CPU0 (sda):`, `Total (sda):`, and with `-s` a program and its number: `kjournald (697)`.
    let named = line.strip_suffix(b":").unwrap_or(line).ends_with(b")") && line.contains(&b'(');
    *tables |= named;
    tables.then_some("lines of tables")
}

struct Blkparse {
    input: Input,
    names: Names,
    by_pid: FxHashMap<u32, Process>,
    others: OtherCounts,
    /// True after the first table.
    tables: bool,
    /// True after an error.
    failed: bool,
}

impl Blkparse {
    fn new(input: Input) -> Self {
        Blkparse {
            input,
            names: Names::default(),
            by_pid: FxHashMap::default(),
            others: OtherCounts::new(),
            tables: false,
            failed: false,
        }
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let Some(text) = self.input.line(Format::Blkparse)? else { return Ok(None) };
            if let Some(what) = beside_events(text, &mut self.tables) {
                count(&mut self.others, what);
                if self.input.ended_without_newline() {
                    return Err(self.input.cut_short(Format::Blkparse, self.input.at_line()));
                }
                continue;
            }
            let parsed = line::read(text).map(|line| match line {
                Line::Message => None,
                Line::Event(mut event, who) => {
                    let number = match who {
                        Who::Name(name) => {
                            let number = self.names.number(name);
                            self.by_pid.insert(event.pid, number);
                            Some(number)
                        }
                        Who::Untold => self.by_pid.get(&event.pid).copied(),
                    };
                    event.process = number.unwrap_or_default();
                    Some(event)
                }
            });
            // Half a line may look complete.
            if self.input.ended_without_newline() {
                return Err(self.input.cut_short(Format::Blkparse, self.input.at_line()));
            }
            match parsed {
                Ok(Some(event)) => {
                    self.tables = false;
                    return Ok(Some(event));
                }
                Ok(None) => count(&mut self.others, "messages"),
                Err(what) => {
                    let what = format!("{what}; the lines of blkparse without -f are read");
                    self.input.skip_line(Format::Blkparse, what, &mut self.others)?;
                }
            }
        }
    }
}

impl Events for Blkparse {
    fn format(&self) -> Format {
        Format::Blkparse
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        if self.failed {
            return Ok(None);
        }
        let next = self.event();
        self.failed = next.is_err();
        next
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
