//! Recordings of block devices with one event a line.
//!
//! A line without an end is not read, although it may look whole: its last number may be half a number. It is
//! [cut short](TraceError::CutShort).

use crate::block::{DeviceId, Event, Events};
use crate::names::count;
use crate::{Format, Input, Names, Others, TraceError};

/// What a line was.
pub(crate) enum Read<'a> {
    /// An event, and the name of its process.
    Event(Event, &'a [u8]),
    /// Something to count by this name.
    Other(&'static str),
    /// What every recording has.
    Nothing,
}

/// How one line is read.
pub(crate) trait Row: Send {
    /// Of which format.
    const FORMAT: Format;
    /// What a line is, or what is wrong with it. What is remarkable about an event is counted in `others`.
    fn read<'a>(&mut self, line: &'a [u8], others: &mut Others) -> Result<Read<'a>, String>;
    /// False if no line so far told a time.
    fn timed(&self) -> bool {
        true
    }
    /// What the recording calls a device.
    fn device(&self, _: DeviceId) -> Option<String> {
        None
    }
}

/// Lines as events.
pub(crate) struct Rows<R> {
    input: Input,
    row: R,
    names: Names,
    others: Others,
    ended: bool,
}

impl<R: Row> Rows<R> {
    /// Every further line of `input` is a row.
    pub(crate) fn new(input: Input, row: R) -> Self {
        Rows { input, row, names: Names::default(), others: Others::new(), ended: false }
    }
}

impl<R: Row> Events for Rows<R> {
    fn format(&self) -> Format {
        R::FORMAT
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        // Whatever goes wrong below, nothing comes after it.
        while !std::mem::replace(&mut self.ended, true) {
            let Some(line) = self.input.line(R::FORMAT)? else { break };
            let read = match line {
                b"" => Ok(Read::Other("empty lines")),
                line => self.row.read(line, &mut self.others),
            };
            let read = read.map(|read| match read {
                Read::Event(event, name) => Some(Event { process: self.names.number(name), ..event }),
                Read::Other(what) => {
                    count(&mut self.others, what);
                    None
                }
                Read::Nothing => None,
            });
            let at = self.input.at_line();
            if self.input.ended_without_newline() {
                return Err(self.input.cut_short(R::FORMAT, at));
            }
            let event = read.map_err(|what| self.input.damaged(R::FORMAT, at, what))?;
            self.ended = false;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn timed(&self) -> bool {
        self.row.timed()
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn others(&self) -> &Others {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        self.row.device(id)
    }
}
