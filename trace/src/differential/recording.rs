//! How many joules are in a recording of a meter, or in a part of it?

use std::collections::BTreeMap;

use crate::power::{Reading, Readings, Value};
use crate::{Others, TraceError};

/// What was spent in a window of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// Joules.
    pub joules: f64,
    /// The window's length.
    pub seconds: f64,
    /// What of the recording was no reading.
    pub others: Others,
}

/// Which part of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// The channels, added up; empty if there is but one.
    pub channels: Vec<String>,
    /// Where it begins, in seconds after the first reading.
    pub from: f64,
    /// Where it ends; with the recording if not said.
    pub to: Option<f64>,
}

/// A recording that is not of what is asked for.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum RecordingError {
    /// There are several channels and none was named.
    #[error("say which channel: it has {}", .0.join(", "))]
    WhichChannel(Vec<String>),
    /// A channel that is not there.
    #[error("no channel {asked:?}: it has {}", known.join(", "))]
    NoChannel {
        /// What was asked for.
        asked: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// It ends before the window does.
    #[error("it ends {ends:.3} s after its first reading, not after {to:.3} s")]
    TooShort {
        /// The window's end.
        to: f64,
        /// The recording's.
        ends: f64,
    },
    /// There is no time in it.
    #[error("no time passes: it has fewer than two readings, or the window is empty")]
    Empty,
}

/// One channel while it is read.
struct Channel {
    last: Reading,
    joules: f64,
}

/// Reads to the end and adds up. Readings stand for the time since the reading before; one that is partly in the
/// window counts in part. `progress` is told now and then how many bytes of the file were read.
pub fn spent(
    readings: &mut dyn Readings,
    window: &Window,
    mut progress: impl FnMut(u64),
) -> Result<Result<Spent, RecordingError>, TraceError> {
    let (mut first, mut last, mut all) = (None, 0, 0_u64);
    let mut channels: BTreeMap<u16, Channel> = BTreeMap::new();
    while let Some(reading) = readings.next()? {
        all += 1;
        if all.is_multiple_of(1 << 14) {
            progress(readings.consumed());
        }
        let first = *first.get_or_insert(reading.time);
        last = reading.time;
        let Some(channel) = channels.get_mut(&reading.channel) else {
            channels.insert(reading.channel, Channel { last: reading, joules: 0.0 });
            continue;
        };
        let since = (reading.time - channel.last.time) as f64 / 1e9;
        let joules = match (reading.value, channel.last.value) {
            (Value::Watts(watts), _) => watts * since,
            (Value::Joules(now), Value::Joules(before)) => now - before,
            // A counter's first reading after one of power opens it.
            (Value::Joules(_), Value::Watts(_)) => 0.0,
        };
        let from = (channel.last.time - first) as f64 / 1e9;
        let inside = (from + since).min(window.to.unwrap_or(f64::INFINITY)) - from.max(window.from);
        if inside >= since {
            channel.joules += joules;
        } else if inside > 0.0 {
            channel.joules += joules * inside / since;
        }
        channel.last = reading;
    }
    let others = readings.others().clone();
    Ok(chosen(&channels, readings.channels(), window).and_then(|joules| {
        let ends = (last - first.unwrap_or(last)) as f64 / 1e9;
        // A millisecond is a meter's last sample.
        if let Some(to) = window.to.filter(|to| *to > ends + 1e-3) {
            return Err(RecordingError::TooShort { to, ends });
        }
        let seconds = window.to.unwrap_or(ends).min(ends) - window.from;
        if seconds > 0.0 { Ok(Spent { joules, seconds, others }) } else { Err(RecordingError::Empty) }
    }))
}

fn chosen(channels: &BTreeMap<u16, Channel>, names: &[String], window: &Window) -> Result<f64, RecordingError> {
    if window.channels.is_empty() {
        return match names {
            [] => Err(RecordingError::Empty),
            [_] => Ok(channels.values().map(|c| c.joules).sum()),
            _ => Err(RecordingError::WhichChannel(names.to_vec())),
        };
    }
    let joules = window.channels.iter().map(|asked| {
        let place = names.iter().position(|n| n == asked);
        let place = place.ok_or_else(|| RecordingError::NoChannel { asked: asked.clone(), known: names.to_vec() })?;
        Ok(channels.get(&(place as u16)).map_or(0.0, |c| c.joules))
    });
    joules.sum()
}
