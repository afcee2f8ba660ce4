//! How much energy does a meter recording, or a part of it, contain?

use std::collections::BTreeMap;

use trace::power::{Reading, Readings, Value};
use trace::{OtherCounts, TraceError};

/// Energy in a window of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// Joules.
    pub joules: f64,
    /// The window's length.
    pub seconds: f64,
    /// Contents of the recording other than readings.
    pub others: OtherCounts,
}

/// Part of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// The channels to add up; may be empty if there is only one.
    pub channels: Vec<String>,
    /// Start, in seconds after the first reading.
    pub from: f64,
    /// End; `None` for the end of the recording.
    pub to: Option<f64>,
}

/// Why a recording does not fit the request.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum RecordingError {
    /// There are several channels and none was chosen.
    #[error("choose a channel; it has {}", .0.join(", "))]
    WhichChannel(Vec<String>),
    /// There is no such channel.
    #[error("no channel {asked:?}: it has {}", known.join(", "))]
    NoChannel {
        /// The channel given.
        asked: String,
        /// The channels in the recording.
        known: Vec<String>,
    },
    /// The recording ends before the window.
    #[error("it ends {ends:.3} s after its first reading, not after {to:.3} s")]
    TooShort {
        /// The window's end.
        to: f64,
        /// The recording's end.
        ends: f64,
    },
    /// The recording or window has no duration.
    #[error("no duration: it has fewer than two readings, or the window is empty")]
    Empty,
}

/// Tolerated gap between a recording's end and its window's end, in seconds.
const LATE: f64 = 1e-3;

/// State of a channel.
struct Channel {
    last: Reading,
    /// Inside the window.
    joules: f64,
    seconds: f64,
    /// Time of its last reading, in seconds after the recording's first.
    ends: f64,
}

/// Reads to the end and adds up. A reading stands for the time since the previous one; if it is only partly inside the
/// window, it counts in part. Channels that begin or end a little later than others are extended at their mean power.
/// `progress` gets the number of bytes read so far, at intervals.
pub fn spent(
    readings: &mut dyn Readings,
    window: &Window,
    mut progress: impl FnMut(u64),
) -> Result<Result<Spent, RecordingError>, TraceError> {
    let (mut first, mut all) = (None, 0_u64);
    let mut channels: BTreeMap<u16, Channel> = BTreeMap::new();
    while let Some(reading) = readings.next()? {
        all += 1;
        if all.is_multiple_of(1 << 14) {
            progress(readings.consumed());
        }
        let first = *first.get_or_insert(reading.time);
        let Some(channel) = channels.get_mut(&reading.channel) else {
            let ends = (reading.time - first) as f64 / 1e9;
            channels.insert(reading.channel, Channel { last: reading, joules: 0.0, seconds: 0.0, ends });
            continue;
        };
        let since = (reading.time - channel.last.time) as f64 / 1e9;
        let joules = match (reading.value, channel.last.value) {
            (Value::Watts(watts), _) => watts * since,
            (Value::Joules(now), Value::Joules(before)) => now - before,
            // The first counter reading after a power reading only sets the counter's start.
            (Value::Joules(_), Value::Watts(_)) => 0.0,
        };
        let from = channel.ends;
        channel.ends = (reading.time - first) as f64 / 1e9;
        let inside = channel.ends.min(window.to.unwrap_or(f64::INFINITY)) - from.max(window.from);
        if since == 0.0 && inside >= 0.0 {
            channel.joules += joules;
        } else if inside > 0.0 {
            channel.joules += joules * (inside / since).min(1.0);
            channel.seconds += inside.min(since);
        }
        channel.last = reading;
    }
    let others = readings.other_counts().clone();
    let chosen = chosen(&channels, readings.channels(), window);
    Ok(chosen.and_then(|chosen| {
        let ends = chosen.iter().map(|c| c.ends).fold(f64::INFINITY, f64::min);
        // The missing last sample of a meter is tolerated.
        if let Some(to) = window.to.filter(|to| *to > ends + LATE) {
            return Err(RecordingError::TooShort { to, ends });
        }
        if chosen.iter().any(|c| c.seconds <= 0.0) {
            return Err(RecordingError::Empty);
        }
        let seconds = chosen.iter().map(|c| c.seconds).fold(0.0, f64::max);
        let joules = chosen.iter().map(|c| c.joules * (seconds / c.seconds)).sum();
        Ok(Spent { joules, seconds, others })
    }))
}

/// The channels selected by a window.
fn chosen<'a>(
    channels: &'a BTreeMap<u16, Channel>,
    names: &[String],
    window: &Window,
) -> Result<Vec<&'a Channel>, RecordingError> {
    if window.channels.is_empty() {
        return match names {
            [] => Err(RecordingError::Empty),
            [_] => Ok(channels.values().collect()),
            _ => Err(RecordingError::WhichChannel(names.to_vec())),
        };
    }
    let place = |asked: &String| {
        let place = names.iter().position(|n| n == asked);
        let unknown = || RecordingError::NoChannel { asked: asked.clone(), known: names.to_vec() };
        channels.get(&(place.ok_or_else(unknown)? as u16)).ok_or(RecordingError::Empty)
    };
    window.channels.iter().map(place).collect()
}
