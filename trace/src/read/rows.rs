//! Recordings of block devices with one event a line.
//!
//! A line without an end is not read, although it may look whole: its last number may be half a number. It is
//! [cut short](TraceError::CutShort).

use crate::block::{Event, Events};
use crate::{Format, Input, Names, Others, TraceError};

/// How one line is read.
pub(crate) trait Row: Send {
    /// Of which format.
    const FORMAT: Format;
    /// The event of a line, and the name of its process; or what is wrong with it.
    fn event<'a>(&mut self, line: &'a [u8]) -> Result<(Event, &'a [u8]), String>;
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
            let read = if line.is_empty() {
                None
            } else {
                Some(self.row.event(line).map(|(event, name)| Event { process: self.names.number(name), ..event }))
            };
            let at = self.input.at_line();
            if self.input.ended_without_newline() {
                return Err(self.input.cut_short(R::FORMAT, at));
            }
            self.ended = false;
            match read {
                Some(Ok(event)) => return Ok(Some(event)),
                None => *self.others.entry("empty lines".into()).or_default() += 1,
                Some(Err(what)) => {
                    self.ended = true;
                    return Err(self.input.damaged(R::FORMAT, at, what));
                }
            }
        }
        Ok(None)
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
}
