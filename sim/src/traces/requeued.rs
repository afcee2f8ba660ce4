//! Which lines of a mobile block trace (SYSTOR'24) are not what they say?
//!
//! The probe writes one letter for reads and for discards. If the host controller was asleep and sent a request back,
//! a kernel worker issues it again about a millisecond later, and the probe writes a second line. [`Cleared`] leaves
//! the second line out, and turns the reads of the thread that discards into discards. A worker may join several
//! discards that were sent back: reads of more than 1 MiB, which nobody else makes, are discards, too. [`Told`] counts the
//! same and leaves all as it is.

use std::collections::VecDeque;

use trace::block::{Action, Event, Events, Op};
use trace::{Format, Names, Others, Process, TraceError};

/// Nanoseconds within which a request comes again.
const AGAIN: u64 = 3_000_000;
/// The longest read in sectors.
const LONGEST_READ: u64 = 2048;

/// In [`Others`]: lines left out.
pub const TOLD_AGAIN: &str = "requests told again, left out";
/// In [`Others`]: lines read otherwise.
pub const DISCARDS: &str = "discards told as reads";
/// In [`Others`]: lines that would be left out and were not.
pub const TOLD_AGAIN_KEPT: &str = "requests told again, kept";
/// In [`Others`]: lines that would be read otherwise and were not.
pub const DISCARDS_KEPT: &str = "discards told as reads, kept as reads";

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// What it says.
    Plain,
    /// The request of another line.
    ToldAgain,
    /// A discard that says it is a read.
    Discard,
}

/// Tells lines that are not what they say, and counts them.
#[derive(Debug, Default)]
pub struct Told {
    recent: VecDeque<Event>,
    /// Requests told again.
    pub told_again: u64,
    /// Discards told as reads.
    pub discards: u64,
}

impl Told {
    /// What the next event is, in a recording of this format with these names; of one that is no mobile block trace,
    /// what it says.
    pub fn look(&mut self, event: &Event, format: Format, names: &Names) -> Line {
        if format != Format::MobileCsv || event.action != Action::Issue {
            return Line::Plain;
        }
        if self.again(event, names) {
            self.told_again += 1;
            return Line::ToldAgain;
        }
        if event.op == Op::Read && (event.sectors > LONGEST_READ || is(names, event.process, "f2fs_discard")) {
            self.discards += 1;
            return Line::Discard;
        }
        Line::Plain
    }

    /// True if a worker gives again what somebody else gave.
    fn again(&mut self, event: &Event, names: &Names) -> bool {
        while self.recent.front().is_some_and(|e| e.time.saturating_add(AGAIN) < event.time) {
            self.recent.pop_front();
        }
        let same = |e: &Event| {
            (e.device, e.op, e.sector, e.sectors) == (event.device, event.op, event.sector, event.sectors)
                && e.pid != event.pid
        };
        // Who is not named is a worker whose name the probe missed.
        let worker = is(names, event.process, "kworker") || names.name(event.process).is_empty();
        let at = self.recent.iter().position(|e| worker && same(e));
        match at {
            Some(at) => _ = self.recent.remove(at),
            None => self.recent.push_back(*event),
        }
        at.is_some()
    }
}

fn is(names: &Names, process: Process, prefix: &str) -> bool {
    names.name(process).starts_with(prefix)
}

/// A recording without what was told twice. At its end it counts both as [`TOLD_AGAIN`] and [`DISCARDS`]. Or as it is, with
/// the same counts.
pub struct Cleared {
    inner: Box<dyn Events>,
    keeps: bool,
    told: Told,
    others: Others,
}

impl Cleared {
    /// Of a recording; of one that is no mobile block trace, nothing is left out.
    pub fn new(inner: Box<dyn Events>) -> Self {
        Cleared { inner, keeps: false, told: Told::default(), others: Others::new() }
    }

    /// Of a recording that stays as it is: both are only counted, as [`TOLD_AGAIN_KEPT`] and [`DISCARDS_KEPT`].
    pub fn only_counted(inner: Box<dyn Events>) -> Self {
        Cleared { keeps: true, ..Self::new(inner) }
    }

    fn count(&mut self) {
        self.others.clone_from(self.inner.others());
        let names = if self.keeps { [TOLD_AGAIN_KEPT, DISCARDS_KEPT] } else { [TOLD_AGAIN, DISCARDS] };
        let own = names.into_iter().zip([self.told.told_again, self.told.discards]);
        self.others.extend(own.filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)));
    }
}

impl Events for Cleared {
    trace::passes_on!(inner: format, timed, names, consumed, device, timing);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let mut event = match self.inner.next() {
                Ok(Some(event)) => event,
                end => {
                    self.count();
                    return end;
                }
            };
            match self.told.look(&event, self.inner.format(), self.inner.names()) {
                _ if self.keeps => {}
                Line::ToldAgain => continue,
                Line::Discard => event.op = Op::Discard,
                Line::Plain => {}
            }
            return Ok(Some(event));
        }
    }
    fn others(&self) -> &Others {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use trace::{Input, Opened, open_input};

    use super::*;

    fn left(lines: &[&str]) -> Vec<(Op, u64, u64)> {
        let text = format!("proces,device,rw_flag,sector,size,timestamp\n{}\n", lines.join("\n"));
        let input = Input::new(Path::new("t"), Cursor::new(text.into_bytes())).unwrap();
        let Opened::Blocks(events) = open_input(input).unwrap() else { panic!("no recording of a block device") };
        let mut cleared = Cleared::new(events);
        std::iter::from_fn(|| cleared.next().unwrap()).map(|e| (e.op, e.sector, e.sectors)).collect()
    }

    #[test]
    fn what_a_worker_gives_again_at_once_is_one_request_and_what_a_program_writes_again_is_two() {
        let lines = [
            "app-7,8388608,W,800,8,10.000000",
            "kworker/u17:0-9,8388608,W,800,8,10.001100",
            "app-7,8388608,W,800,8,10.002000",
            "<...>-9,8388608,W,800,8,10.003000",
            "app-7,8388608,W,900,8,20.000000",
            "kworker/u17:0-9,8388608,W,900,8,20.500000",
            "other-8,8388608,W,900,8,20.500100",
        ];
        let write = |at| (Op::Write, at, 8);
        assert_eq!(left(&lines), [write(800), write(800), write(900), write(900), write(900)]);
    }

    #[test]
    fn reads_by_the_thread_that_discards_and_very_long_ones_are_discards() {
        let lines = [
            "f2fs_discard-25-692,8388608,R,100,8,10.0",
            "kworker/u17:2-9,8388608,R,100,8,10.001",
            "kworker/u17:2-9,8388608,R,4096,16384,10.002",
            "app-7,8388608,R,100,2048,10.5",
        ];
        assert_eq!(left(&lines), [(Op::Discard, 100, 8), (Op::Discard, 4096, 16384), (Op::Read, 100, 2048)]);
    }
}
