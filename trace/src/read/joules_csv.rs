//! How are the energies written by `joulefs energy measure` read? `seconds`, then one column per counter, its name
//! followed by ` (J)`, with joules since the first line.

use super::decimal::wrong;
use super::measured::{finite, nanoseconds};
use crate::opened::Reader;
use crate::power::{Reading, Readings, Value};
use crate::{Format, Input, Opened, OtherCounts, TraceError};

const FORMAT: Format = Format::JoulesCsv;
const TIME: &str = "seconds";
const UNIT: &str = " (J)";
/// Most columns; the widest machine has some dozens of counters.
const WIDEST: usize = 4096;

/// Recognised by its header.
pub(super) const READER: Reader = Reader { knows, open };

/// The header for these counters, with line end.
pub fn header<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = TIME.to_owned();
    for name in names {
        out.push(',');
        out.extend(name.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }));
        out += UNIT;
    }
    out.push('\n');
    out
}

/// A line: `nanos` after the first one, and joules by counter.
pub fn row(nanos: u64, joules: impl IntoIterator<Item = f64>) -> String {
    let mut out = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    for joules in joules {
        out += &format!(",{joules:.6}");
    }
    out.push('\n');
    out
}

fn names(line: &[u8]) -> Option<Vec<String>> {
    let mut fields = line.split(|b| *b == b',').map(std::str::from_utf8);
    if fields.next()? != Ok(TIME) {
        return None;
    }
    let name = |f: Result<&str, _>| f.ok()?.strip_suffix(UNIT).map(str::to_owned);
    let names: Vec<String> = fields.map(name).collect::<Option<_>>()?;
    (1..=WIDEST).contains(&names.len()).then_some(names)
}

fn knows(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    names(line.strip_suffix(b"\r").unwrap_or(line)).is_some()
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    let channels = input.line(FORMAT)?.and_then(names);
    let Some(channels) = channels else {
        return Err(input.damaged(FORMAT, input.at_line(), "the header names no counters"));
    };
    let row = vec![0.0; channels.len()];
    let given = channels.len();
    let reader = Counters { input, channels, others: OtherCounts::new(), time: 0, row, given, ended: false };
    Ok(Opened::Power(Box::new(reader)))
}

struct Counters {
    input: Input,
    channels: Vec<String>,
    others: OtherCounts,
    /// The current line: its time, its joules, how many of them were returned.
    time: u64,
    row: Vec<f64>,
    given: usize,
    ended: bool,
}

/// Parses a line's joules into `row`; returns its time, or what is wrong with it.
fn joules(line: &[u8], channels: &[String], row: &mut [f64]) -> Result<u64, String> {
    let mut fields = line.split(|b| *b == b',');
    let time = fields.next().unwrap_or_default();
    let time = finite(time).and_then(nanoseconds).ok_or_else(|| wrong(TIME, time))?;
    for (value, name) in row.iter_mut().zip(channels) {
        let field = fields.next().ok_or_else(|| format!("{name} is missing"))?;
        *value = finite(field).ok_or_else(|| wrong(name, field))?;
    }
    match fields.next() {
        Some(_) => Err("more values than the header has names".into()),
        None => Ok(time),
    }
}

impl Counters {
    /// Reads a line; false at the end.
    fn take(&mut self) -> Result<bool, TraceError> {
        loop {
            let read = match self.input.line(FORMAT)? {
                None => return Ok(false),
                Some([]) => None,
                Some(line) => Some(joules(line, &self.channels, &mut self.row)),
            };
            let at = self.input.at_line();
            if self.input.ended_without_newline() {
                return Err(self.input.cut_short(FORMAT, at));
            }
            match read {
                None => *self.others.entry("empty lines".into()).or_default() += 1,
                Some(Ok(time)) if time >= self.time => {
                    (self.time, self.given) = (time, 0);
                    return Ok(true);
                }
                Some(Ok(_)) => return Err(self.input.damaged(FORMAT, at, "time goes back")),
                Some(Err(what)) => return Err(self.input.damaged(FORMAT, at, what)),
            }
        }
    }
}

impl Readings for Counters {
    fn format(&self) -> Format {
        FORMAT
    }

    fn next(&mut self) -> Result<Option<Reading>, TraceError> {
        if self.given == self.row.len() {
            // After an error below, nothing follows.
            if std::mem::replace(&mut self.ended, true) || !self.take()? {
                return Ok(None);
            }
            self.ended = false;
        }
        let channel = self.given;
        self.given += 1;
        Ok(Some(Reading { time: self.time, channel: channel as u16, value: Value::Joules(self.row[channel]) }))
    }

    fn channels(&self) -> &[String] {
        &self.channels
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
