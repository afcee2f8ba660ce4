//! How are recordings of block devices with one event per line read?
//!
//! A line without a line end is not used, even if it looks complete, because its last number may be incomplete. The
//! recording is [cut short](TraceError::CutShort). An invalid line is [skipped](Input::skip_line).

use crate::block::{DeviceId, Event, Events};
use crate::names::count;
use crate::{Format, Input, Names, OtherCounts, TraceError};

/// A parsed line.
pub(crate) enum Read<'a> {
    /// An event, and the name of its process.
    Event(Event, &'a [u8]),
    /// Something to count under this name.
    Other(&'static str),
    /// Something in every recording.
    Nothing,
}

/// Parses one line.
pub(crate) trait Row: Send {
    /// The format.
    fn format(&self) -> Format;
    /// Parses a line, or returns what is wrong with it. Peculiarities of an event are counted in `others`.
    fn read<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String>;
    /// True if a last line without a line end is complete.
    fn may_end_without_newline(&self) -> bool {
        false
    }
    /// False if no line so far had a time.
    fn timed(&self) -> bool {
        true
    }
    /// The recording's name for a device.
    fn device(&self, _: DeviceId) -> Option<String> {
        None
    }
}

/// Turns lines into events.
pub(crate) struct Rows<R> {
    input: Input,
    row: R,
    names: Names,
    others: OtherCounts,
    ended: bool,
}

impl<R: Row> Rows<R> {
    /// Reads every further line of `input` as a row.
    pub(crate) fn new(input: Input, row: R) -> Self {
        Rows { input, row, names: Names::default(), others: OtherCounts::new(), ended: false }
    }
}

impl<R: Row> Events for Rows<R> {
    fn format(&self) -> Format {
        self.row.format()
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        // After an error below, nothing follows.
        let format = self.row.format();
        while !std::mem::replace(&mut self.ended, true) {
            let Some(line) = self.input.line(format)? else { break };
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
            if self.input.ended_without_newline() && !self.row.may_end_without_newline() {
                return Err(self.input.cut_short(format, at));
            }
            let event = match read {
                Ok(event) => event,
                Err(what) => {
                    self.input.skip_line(format, what, &mut self.others)?;
                    None
                }
            };
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

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        self.row.device(id)
    }
}
