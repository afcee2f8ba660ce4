//! Which lines of a mobile block trace (SYSTOR'24) are not what they seem?
//!
//! The probe writes the same letter for reads and discards. If the host controller was asleep and returned a request, a
//! kernel worker issues it again about a millisecond later, and the probe writes a second line. [`Cleared`] drops the
//! second line, and turns reads of the discarding thread into discards. A worker may merge several returned discards:
//! reads of more than 1 MiB, which no program makes, are discards too. [`Recogniser`] only counts them.

use std::collections::VecDeque;

use trace::block::{Action, Event, Events, Op};
use trace::{Format, Names, OtherCounts, Process, TraceError};

/// Nanoseconds within which a request is repeated.
const AGAIN: u64 = 3_000_000;
/// Longest real read, in sectors.
const LONGEST_READ: u64 = 2048;

/// In [`OtherCounts`]: duplicate lines dropped.
pub const TOLD_AGAIN: &str = "requests told again, left out";
/// In [`OtherCounts`]: reads turned into discards.
pub const DISCARDS: &str = "discards told as reads";
/// In [`OtherCounts`]: duplicate lines kept.
pub const TOLD_AGAIN_KEPT: &str = "requests told again, kept";
/// In [`OtherCounts`]: reads recognised as discards, but kept.
pub const DISCARDS_KEPT: &str = "discards told as reads, kept as reads";

/// Meaning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// As written.
    Plain,
    /// A duplicate of another line.
    Duplicate,
    /// A discard written as a read.
    Discard,
}

/// Recognises and counts such lines.
#[derive(Debug, Default)]
pub struct Recogniser {
    recent: VecDeque<Event>,
    /// Duplicates.
    pub duplicates: u64,
    /// Discards written as reads.
    pub discards: u64,
}

impl Recogniser {
    /// The meaning of the next event, in a recording of this format with these names; [`Line::Plain`] in other formats.
    pub fn look(&mut self, event: &Event, format: Format, names: &Names) -> Line {
        if format != Format::MobileCsv || event.action != Action::Issue {
            return Line::Plain;
        }
        if self.again(event, names) {
            self.duplicates += 1;
            return Line::Duplicate;
        }
        if event.op == Op::Read && (event.sectors > LONGEST_READ || has_prefix(names, event.process, "f2fs_discard")) {
            self.discards += 1;
            return Line::Discard;
        }
        Line::Plain
    }

    /// True if a worker repeats another process's request.
    fn again(&mut self, event: &Event, names: &Names) -> bool {
        while self.recent.front().is_some_and(|e| e.time.saturating_add(AGAIN) < event.time) {
            self.recent.pop_front();
        }
        let same = |e: &Event| {
            (e.device, e.op, e.sector, e.sectors) == (event.device, event.op, event.sector, event.sectors)
                && e.pid != event.pid
        };
        // A process without a name is a worker that the probe missed.
        let worker = has_prefix(names, event.process, "kworker") || names.name(event.process).is_empty();
        let at = self.recent.iter().position(|e| worker && same(e));
        match at {
            Some(at) => _ = self.recent.remove(at),
            None => self.recent.push_back(*event),
        }
        at.is_some()
    }
}

fn has_prefix(names: &Names, process: Process, prefix: &str) -> bool {
    names.name(process).starts_with(prefix)
}

/// A recording without duplicates and with corrected discards; or unchanged, with the same counts. At its end
/// [`OtherCounts`] has both counts.
pub struct Cleared {
    inner: Box<dyn Events>,
    keeps: bool,
    recogniser: Recogniser,
    others: OtherCounts,
}

impl Cleared {
    /// Corrects a recording; other formats are not changed.
    pub fn new(inner: Box<dyn Events>) -> Self {
        Cleared { inner, keeps: false, recogniser: Recogniser::default(), others: OtherCounts::new() }
    }

    /// Only counts, as [`TOLD_AGAIN_KEPT`] and [`DISCARDS_KEPT`], and changes nothing.
    pub fn only_counted(inner: Box<dyn Events>) -> Self {
        Cleared { keeps: true, ..Self::new(inner) }
    }

    fn count(&mut self) {
        self.others.clone_from(self.inner.other_counts());
        let names = if self.keeps { [TOLD_AGAIN_KEPT, DISCARDS_KEPT] } else { [TOLD_AGAIN, DISCARDS] };
        let own = names.into_iter().zip([self.recogniser.duplicates, self.recogniser.discards]);
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
            match self.recogniser.look(&event, self.inner.format(), self.inner.names()) {
                _ if self.keeps => {}
                Line::Duplicate => continue,
                Line::Discard => event.op = Op::Discard,
                Line::Plain => {}
            }
            return Ok(Some(event));
        }
    }
    fn other_counts(&self) -> &OtherCounts {
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
    fn a_request_repeated_by_a_worker_is_one_and_repeated_by_a_program_is_two() {
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
