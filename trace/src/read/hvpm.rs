//! How are recordings of Monsoon HVPM power monitors read, as powermonitor-hvpm 0.1.0 exports them (`storage.py`, CSV)?
//!
//! One line per sample: its number, its start, its arrival at the host, amperes, volts, watts, flags and the device's
//! count of dropped samples. A sample covers the 0.2 ms after `time_s`; like every meter, [`Reading::time`] is the end
//! of that time.
//!
//! Samples that are invalid, from a device error or without numbers are counted and skipped; the next good one covers
//! their time too, and that of missing samples.

use bitflags::bitflags;

use super::decimal::wrong;
use super::measured::{finite, nanoseconds};
use crate::opened::Reader;
use crate::power::{Reading, Readings, Value};
use crate::{Format, Input, Opened, OtherCounts, TraceError};

const FORMAT: Format = Format::HvpmCsv;
const HEADER: &[u8] = b"index,time_s,host_elapsed_s,current_a,voltage_v,power_w,flags,dropped";
/// Nanoseconds per sample: 5,000 per second.
const PERIOD: u64 = 200_000;

bitflags! {
    /// Flags of a sample.
    #[derive(Clone, Copy)]
    struct Quality: u16 {
        /// Samples were lost at an unknown place.
        const LOSS_UNKNOWN = 1;
        /// Samples before it are missing.
        const GAP_BEFORE = 2;
        /// The device was in an error state.
        const DEVICE_ERROR = 4;
        /// Not a measurement.
        const INVALID = 8;
    }
}

/// Recognised by its header.
pub(super) const READER: Reader = Reader { knows, open };

fn knows(head: &[u8]) -> bool {
    head.strip_prefix(HEADER).is_some_and(|rest| rest.first().is_none_or(|b| b"\r\n".contains(b)))
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    // Skip the header, which was checked.
    input.line(FORMAT)?;
    let channels = vec!["main".to_owned()];
    Ok(Opened::Power(Box::new(Hvpm { input, channels, others: OtherCounts::new(), before: None, ended: false })))
}

struct Hvpm {
    input: Input,
    channels: Vec<String>,
    others: OtherCounts,
    /// Number and end of the previous sample.
    before: Option<(u64, u64)>,
    ended: bool,
}

struct Sample {
    index: u64,
    start: u64,
    watts: f64,
    quality: Quality,
}

/// Parses a line; an error describes what is wrong.
fn sample(text: &[u8]) -> Result<Sample, String> {
    let mut fields = text.split(|b| *b == b',');
    let mut field = |name: &'static str| fields.next().map(|f| (name, f)).ok_or_else(|| format!("{name} is missing"));
    let index = whole(field("index")?)?;
    let start = field("time_s")?;
    let start = finite(start.1).and_then(nanoseconds).ok_or_else(|| wrong(start.0, start.1))?;
    real(field("host_elapsed_s")?)?;
    let current = real(field("current_a")?)?;
    let voltage = real(field("voltage_v")?)?;
    let power = real(field("power_w")?)?;
    let quality = whole(field("flags")?)?;
    let quality = u16::try_from(quality).ok().and_then(Quality::from_bits).ok_or(format!("flags are {quality}"))?;
    whole(field("dropped")?)?;
    if fields.next().is_some() {
        return Err("more than eight values".into());
    }
    let product = current * voltage;
    let agree = (power - product).abs() <= 1e-15 + 1e-12 * product.abs().max(power.abs());
    if product.is_finite() != power.is_finite() || (power.is_finite() && !agree) {
        return Err(format!("power_w is {power}, but current times voltage {product}"));
    }
    Ok(Sample { index, start, watts: power, quality })
}

fn whole((name, text): (&str, &[u8])) -> Result<u64, String> {
    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or_else(|| wrong(name, text))
}

/// A number as Python writes it, including `nan` and `inf`.
fn real((name, text): (&str, &[u8])) -> Result<f64, String> {
    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or_else(|| wrong(name, text))
}

impl Hvpm {
    fn count(&mut self, what: &str) {
        *self.others.entry(what.to_owned()).or_default() += 1;
    }

    /// The reading of a sample; `None` for a skipped one.
    fn reading(&mut self, s: &Sample) -> Result<Option<Reading>, String> {
        let end = s.start.saturating_add(PERIOD);
        let lost = s.quality.contains(Quality::GAP_BEFORE);
        if let Some((index, until)) = self.before {
            if s.index <= index {
                return Err(format!("index is {}, after {index}", s.index));
            }
            // Two roundings of half a nanosecond, and the program's own tolerance.
            if s.start.saturating_add(2) < until {
                return Err("it begins before the sample before it ends".into());
            }
            if lost || s.start > until.saturating_add(2) {
                self.count("gaps");
            }
        } else if lost {
            self.count("gaps");
        }
        self.before = Some((s.index, end));
        if s.quality.contains(Quality::LOSS_UNKNOWN) {
            self.count("samples after a loss nobody knows the place of");
        }
        if s.quality.intersects(Quality::INVALID | Quality::DEVICE_ERROR) || !s.watts.is_finite() {
            self.count("invalid samples");
            return Ok(None);
        }
        Ok(Some(Reading { time: end, channel: 0, value: Value::Watts(s.watts) }))
    }
}

impl Readings for Hvpm {
    fn format(&self) -> Format {
        FORMAT
    }

    fn next(&mut self) -> Result<Option<Reading>, TraceError> {
        // After an error below, nothing follows.
        while !std::mem::replace(&mut self.ended, true) {
            let read = match self.input.line(FORMAT)? {
                None => break,
                Some([]) => Ok(None),
                Some(line) => sample(line).map(Some),
            };
            let at = self.input.at_line();
            if self.input.ended_without_newline() {
                return Err(self.input.cut_short(FORMAT, at));
            }
            let reading = match read {
                Ok(None) => {
                    self.count("empty lines");
                    Ok(None)
                }
                Ok(Some(s)) => self.reading(&s),
                Err(what) => Err(what),
            };
            match reading {
                Ok(None) => self.ended = false,
                Ok(reading) => {
                    self.ended = false;
                    return Ok(reading);
                }
                Err(what) => return Err(self.input.damaged(FORMAT, at, what)),
            }
        }
        Ok(None)
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
