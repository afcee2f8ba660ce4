//! How are recordings of Monsoon power monitors read, as Monsoon's Python library writes them (PyMonsoon,
//! `sampleEngine.py`)?
//!
//! A header with the names of the active channels, then one line per sample; every line ends in a comma. Not in the
//! header:
//!
//! * `Time(ms)` is in seconds: since the measurement began, or since 1970 without a fraction (`legacy_timestamp`). The
//!   column exists even if its channel is off and its name is missing.
//! * The clock is read once per USB packet, on some systems only every few milliseconds, so several samples share a
//!   stamp. They are spread evenly up to the next stamp; the last ones at the previous spacing.
//! * With numpy 2, it writes `np.float64(3.9)` for 3.9.
//! * A second header begins a second measurement, whose time begins at 0 again; here it continues.
//! * Currents are in milliamperes, voltages in volts. The aux channel has no voltage, and a voltage may be off: a
//!   current alone is not a power ([`Monsoon::new`] takes a voltage for it).

use std::collections::VecDeque;

use super::decimal::wrong;
use super::measured::{finite, nanoseconds};
use crate::opened::Reader;
use crate::power::{Reading, Readings, Value};
use crate::{Format, Input, Opened, OtherCounts, TraceError};

const FORMAT: Format = Format::MonsoonCsv;
/// Column names in PyMonsoon's order.
const COLUMNS: [&str; 6] = ["Time(ms)", "Main(mA)", "USB(mA)", "Aux(mA)", "Main Voltage(V)", "USB Voltage(V)"];
/// JouleFS's name of a channel, its current, its voltage.
const CHANNELS: [(&str, &str, Option<&str>); 3] = [
    ("main", "Main(mA)", Some("Main Voltage(V)")),
    ("usb", "USB(mA)", Some("USB Voltage(V)")),
    ("aux", "Aux(mA)", None),
];
/// Nanoseconds between samples if stamps do not show it: 5,000 per second.
const PERIOD: u64 = 200_000;
/// Most samples with one stamp; a second has 5,000.
const MOST: usize = 1 << 16;
/// Name under which currents without power are counted.
const ALONE: &str = "a current without its voltage";
/// Largest backward step of a clock, in nanoseconds; a larger one means another recording.
const SET_BACK: u64 = 1_000_000_000;

/// Recognised by its header.
pub(super) const READER: Reader = Reader { knows, open };

fn knows(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    header(line.strip_suffix(b"\r").unwrap_or(line)).is_some()
}

fn open(input: Input) -> Result<Opened, TraceError> {
    Ok(Opened::Power(Box::new(Monsoon::new(input, None)?)))
}

/// Indices in [`COLUMNS`] of a header's names; `None` if it is not a header.
fn header(line: &[u8]) -> Option<Vec<usize>> {
    let line = line.strip_suffix(b",").unwrap_or(line);
    let place = |name: &[u8]| COLUMNS.iter().position(|c| c.as_bytes() == name);
    line.split(|b| *b == b',').map(place).collect()
}

/// Source of a power.
struct Channel {
    /// Column of the current.
    current: usize,
    volts: Volts,
}

/// A parsed line.
enum Line {
    Empty,
    /// The indices of its names.
    Header(Vec<usize>),
    /// Its time, and watts by channel.
    Sample(u64, [f64; CHANNELS.len()]),
}

enum Volts {
    Column(usize),
    Constant(f64),
}

/// A recording of a Monsoon power monitor.
pub struct Monsoon {
    input: Input,
    /// Column names.
    columns: Vec<&'static str>,
    sources: Vec<Channel>,
    channels: Vec<String>,
    others: OtherCounts,
    /// Watts of the samples with the current stamp, channel by channel.
    group: Vec<f64>,
    stamp: u64,
    /// The time of the last reading.
    last: u64,
    /// Spacing of the previous samples.
    step: u64,
    /// Offset of the stamps: start of the measurement.
    from: u64,
    ready: VecDeque<Reading>,
    failed: Option<TraceError>,
    ended: bool,
}

impl Monsoon {
    /// Reads from the header on. Currents without a recorded voltage are taken to be at `volts`; without `volts` they
    /// are skipped, and it is an error if there are no others.
    pub fn new(mut input: Input, volts: Option<f64>) -> Result<Self, TraceError> {
        let places = match input.line(FORMAT)? {
            Some(line) => header(line).ok_or_else(|| wrong("the header", line)),
            None => Err("there is no header".into()),
        };
        let places = places.map_err(|what| input.damaged(FORMAT, input.at_line(), what))?;
        let mut columns: Vec<&'static str> = places.iter().map(|p| COLUMNS[*p]).collect();
        if !columns.contains(&COLUMNS[0]) {
            columns.insert(0, COLUMNS[0]);
        }
        let place = |name: &str| columns.iter().position(|c| *c == name);
        let (mut sources, mut channels, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for (channel, current, voltage) in CHANNELS {
            let Some(current) = place(current) else { continue };
            let volts = match (voltage.and_then(place), volts) {
                (Some(column), _) => Volts::Column(column),
                (None, Some(volts)) => Volts::Constant(volts),
                (None, None) => {
                    alone.push(format!("samples of {channel}, {ALONE}"));
                    continue;
                }
            };
            sources.push(Channel { current, volts });
            channels.push(channel.to_owned());
        }
        if sources.is_empty() {
            let what = format!("{}: no current with its voltage, so no power", columns.join(", "));
            return Err(input.unsupported(FORMAT, input.at_line(), what));
        }
        let others = alone.into_iter().map(|name| (name, 0)).collect();
        Ok(Monsoon {
            input,
            columns,
            sources,
            channels,
            others,
            group: Vec::new(),
            stamp: 0,
            last: 0,
            step: PERIOD,
            from: 0,
            ready: VecDeque::new(),
            failed: None,
            ended: false,
        })
    }

    /// Turns the held samples into readings; `next` is the following stamp.
    fn spread(&mut self, next: Option<u64>) {
        let width = self.sources.len();
        let samples = (self.group.len() / width) as u64;
        if samples == 0 {
            return;
        }
        let gap = next.map_or(self.step.saturating_mul(samples), |n| n.saturating_sub(self.stamp));
        for (n, watts) in self.group.chunks(width).enumerate() {
            let after = u128::from(gap) * n as u128 / u128::from(samples);
            let time = self.stamp.saturating_add(after as u64);
            self.last = time;
            let reading = |(channel, watts): (usize, &f64)| Reading {
                time,
                channel: channel as u16,
                value: Value::Watts(*watts),
            };
            self.ready.extend(watts.iter().enumerate().map(reading));
        }
        self.step = gap / samples;
        self.group.clear();
    }

    fn count(&mut self, what: &str) {
        *self.others.entry(what.to_owned()).or_default() += 1;
    }

    /// Reads a line; false at the end.
    fn take(&mut self) -> Result<bool, TraceError> {
        let line = match self.input.line(FORMAT)? {
            None => return Ok(false),
            Some([]) => Ok(Line::Empty),
            Some(text) => match header(text) {
                Some(places) => Ok(Line::Header(places)),
                None => sample(text, &self.columns, &self.sources).map(|(time, watts)| Line::Sample(time, watts)),
            },
        };
        let at = self.input.at_line();
        if self.input.ended_without_newline() {
            // The last number may be incomplete.
            return Err(self.input.cut_short(FORMAT, at));
        }
        match line {
            Ok(Line::Sample(stamp, watts)) => self.sample(stamp, watts).map(|()| true),
            Ok(Line::Header(places)) => self.begin_again(&places).map(|()| true),
            Ok(Line::Empty) => {
                self.count("empty lines");
                Ok(true)
            }
            Err(what) => Err(self.input.damaged(FORMAT, at, what)),
        }
    }

    fn begin_again(&mut self, places: &[usize]) -> Result<(), TraceError> {
        let names = || places.iter().map(|p| COLUMNS[*p]);
        if !names().eq(self.columns.iter().copied()) && !names().eq(self.columns[1..].iter().copied()) {
            let what = "a second header with other channels than the first";
            return Err(self.input.unsupported(FORMAT, self.input.at_line(), what));
        }
        self.spread(None);
        self.from = self.last.saturating_add(self.step);
        self.stamp = self.from;
        self.count("measurements begun again");
        Ok(())
    }

    fn sample(&mut self, stamp: u64, watts: [f64; CHANNELS.len()]) -> Result<(), TraceError> {
        let time = self.from.saturating_add(stamp);
        if self.group.is_empty() {
            // The first sample of this or another measurement.
            self.stamp = self.stamp.max(time);
        } else if time > self.stamp {
            self.spread(Some(time));
            self.stamp = time;
        } else if self.stamp - time > SET_BACK {
            let what = format!("time goes back by {:.3} s", (self.stamp - time) as f64 / 1e9);
            return Err(self.input.damaged(FORMAT, self.input.at_line(), what));
        } else if time < self.stamp {
            self.count("stamps of a clock that was set back");
        }
        if self.group.len() >= MOST * self.sources.len() {
            let what = format!("more than {MOST} samples with one time stamp");
            return Err(self.input.damaged(FORMAT, self.input.at_line(), what));
        }
        self.group.extend_from_slice(&watts[..self.sources.len()]);
        for (name, count) in &mut self.others {
            *count += u64::from(name.ends_with(ALONE));
        }
        Ok(())
    }
}

/// A sample's stamp in nanoseconds and its watts by channel; or what is wrong with it.
fn sample(text: &[u8], columns: &[&str], sources: &[Channel]) -> Result<(u64, [f64; CHANNELS.len()]), String> {
    let text = text.strip_suffix(b",").unwrap_or(text);
    let mut values = [0.0; COLUMNS.len()];
    let mut fields = text.split(|b| *b == b',');
    for (value, name) in values.iter_mut().zip(columns) {
        let field = fields.next().ok_or_else(|| format!("{name} is missing"))?;
        *value = number(field).ok_or_else(|| wrong(name, field))?;
    }
    if let Some(more) = fields.next() {
        return Err(format!("more values than the header has names: {}", wrong("the next", more)));
    }
    let time = nanoseconds(values[0]).ok_or_else(|| format!("a time of {} s", values[0]))?;
    let mut watts = [0.0; CHANNELS.len()];
    for (watts, source) in watts.iter_mut().zip(sources) {
        let volts = match source.volts {
            Volts::Column(column) => values[column],
            Volts::Constant(volts) => volts,
        };
        *watts = values[source.current] / 1e3 * volts;
    }
    Ok((time, watts))
}

/// A number in the format of Python's `repr`, including numpy's.
fn number(text: &[u8]) -> Option<f64> {
    let types = [&b"np.float64("[..], b"np.float32(", b"np.int64(", b"np.int32("];
    let inside = types.iter().find_map(|name| text.strip_prefix(*name)?.strip_suffix(b")"));
    finite(inside.unwrap_or(text))
}

impl Readings for Monsoon {
    fn format(&self) -> Format {
        FORMAT
    }

    fn next(&mut self) -> Result<Option<Reading>, TraceError> {
        loop {
            if let Some(reading) = self.ready.pop_front() {
                return Ok(Some(reading));
            }
            if let Some(e) = self.failed.take() {
                return Err(e);
            }
            if self.ended {
                return Ok(None);
            }
            match self.take() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.spread(None);
                }
                // Readings before the error are complete.
                Err(e) => {
                    self.ended = true;
                    self.spread(None);
                    self.failed = Some(e);
                }
            }
        }
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
