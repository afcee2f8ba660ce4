//! How is the CSV output of the energy meter Alumet read (version 0.9 of the agent, plugin csv 0.2)?
//!
//! One line per measurement: metric, wall-clock time, value, resource, consumer, attributes. A channel is an energy or
//! power metric with one combination of resource, consumer and attributes. Energies count from the channel's previous
//! measurement and are summed up; powers are means since the previous one. Other metrics of Alumet (times, percentages,
//! memory) are counted.
//!
//! Sources write several seconds at once, one after the other, so lines are not in order of time. They are sorted
//! within [`HORIZON`]; later lines get the time of the last returned reading, and are counted.

mod row;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

pub use self::row::{Amount, Columns, Row, time};
use crate::opened::Reader;
use crate::power::{Reading, Readings, Value};
use crate::{Format, Input, Opened, OtherCounts, TraceError};

const FORMAT: Format = Format::AlumetCsv;
/// Nanoseconds within which lines are sorted: far more than Alumet's sources buffer.
const HORIZON: u64 = 60_000_000_000;
/// Most readings held for sorting.
const MOST: usize = 1 << 16;
/// Most channels, limited by the type of the index; processes come and go.
const CHANNELS: usize = 1 << 16;
/// Most other metrics counted by name.
const METRICS: usize = 256;

/// Recognised by its header.
pub(super) const READER: Reader = Reader { knows, open };

fn header(line: &[u8]) -> Option<Columns> {
    Columns::parse(std::str::from_utf8(line).ok()?)
}

fn knows(head: &[u8]) -> bool {
    header(head.split(|b| *b == b'\n').next().unwrap_or_default()).is_some()
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    let Some(columns) = input.line(FORMAT)?.and_then(header) else {
        return Err(input.damaged(FORMAT, input.at_line(), "not an Alumet header"));
    };
    Ok(Opened::Power(Box::new(Alumet {
        input,
        columns,
        names: Vec::new(),
        places: FxHashMap::default(),
        sums: Vec::new(),
        waiting: BinaryHeap::new(),
        read: 0,
        latest: 0,
        given: 0,
        others: OtherCounts::new(),
        ended: None,
    })))
}

struct Alumet {
    input: Input,
    columns: Columns,
    /// Names of channels.
    names: Vec<String>,
    places: FxHashMap<String, u16>,
    /// Sum of joules by channel.
    sums: Vec<f64>,
    /// Readings not returned yet: time, line, channel, and the bits of a value in joules or watts.
    waiting: BinaryHeap<Reverse<(u64, u64, u16, bool, u64)>>,
    read: u64,
    /// The latest time read, and the last one returned.
    latest: u64,
    given: u64,
    others: OtherCounts,
    /// Result at the end of the file.
    ended: Option<Result<(), TraceError>>,
}

impl Alumet {
    fn count(&mut self, what: &str) {
        let room = self.others.len() < METRICS || self.others.contains_key(what);
        *self.others.entry(if room { what } else { "other metrics" }.to_owned()).or_default() += 1;
    }

    /// Reads a line; `false` at the end.
    fn take(&mut self) -> Result<bool, TraceError> {
        let read = match self.input.line(FORMAT)? {
            None => return Ok(false),
            Some([]) => Ok(None),
            Some(line) => match std::str::from_utf8(line) {
                Ok(line) => self.columns.row(line).map(Some),
                Err(_) => Err("no UTF-8".into()),
            },
        };
        let at = self.input.at_line();
        if self.input.ended_without_newline() {
            return Err(self.input.cut_short(FORMAT, at));
        }
        match read {
            Ok(None) => self.count("empty lines"),
            Ok(Some(row)) => self.measured(&row),
            Err(what) => return Err(self.input.damaged(FORMAT, at, what)),
        }
        Ok(true)
    }

    fn measured(&mut self, row: &Row) {
        let Some(amount) = row.amount() else {
            return self.count(&row.metric);
        };
        let (Amount::Joules(value) | Amount::Watts(value)) = amount;
        if !value.is_finite() {
            return self.count("measurements that are no number");
        }
        let name = row.channel();
        let channel = match self.places.get(&name) {
            Some(channel) => *channel,
            None if self.names.len() == CHANNELS => return self.count("measurements of more channels"),
            None => {
                let channel = self.names.len() as u16;
                self.names.push(name.clone());
                self.sums.push(0.0);
                self.places.insert(name, channel);
                channel
            }
        };
        self.read += 1;
        self.latest = self.latest.max(row.time);
        let is_joules = matches!(amount, Amount::Joules(_));
        self.waiting.push(Reverse((row.time, self.read, channel, is_joules, value.to_bits())));
    }

    /// The earliest waiting reading, if no earlier one can follow.
    fn ready(&mut self) -> Option<Reading> {
        let Reverse((time, ..)) = self.waiting.peek()?;
        let settled = self.ended.is_some() || self.waiting.len() >= MOST || time.saturating_add(HORIZON) <= self.latest;
        if !settled {
            return None;
        }
        let Reverse((time, _, channel, is_joules, bits)) = self.waiting.pop()?;
        let value = f64::from_bits(bits);
        if time < self.given {
            self.count("measurements told too late to be put in order");
        }
        self.given = self.given.max(time);
        let value = if is_joules {
            let sum = &mut self.sums[usize::from(channel)];
            *sum += value;
            Value::Joules(*sum)
        } else {
            Value::Watts(value)
        };
        Some(Reading { time: self.given, channel, value })
    }
}

impl Readings for Alumet {
    fn format(&self) -> Format {
        FORMAT
    }

    fn next(&mut self) -> Result<Option<Reading>, TraceError> {
        loop {
            if let Some(reading) = self.ready() {
                return Ok(Some(reading));
            }
            match self.ended.take() {
                Some(end) => {
                    self.ended = Some(Ok(()));
                    return end.map(|()| None);
                }
                None => match self.take() {
                    Ok(true) => {}
                    Ok(false) => self.ended = Some(Ok(())),
                    // Readings before the error come first.
                    Err(e) => self.ended = Some(Err(e)),
                },
            }
        }
    }

    fn channels(&self) -> &[String] {
        &self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
