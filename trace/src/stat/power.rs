//! What does a recording of a meter contain?

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::TraceError;
use crate::power::{Readings, Value};

/// A channel.
#[derive(Debug, Clone, Serialize)]
pub struct ChannelStat {
    /// Its name.
    pub name: String,
    /// Number of readings.
    pub readings: u64,
    /// Nanoseconds from the first reading to the last.
    pub span_ns: u64,
    /// Energy in that time, in joules; picojoules in JSON.
    #[serde(rename = "pj", serialize_with = "picojoules")]
    pub joules: f64,
    /// Mean power in watts; microwatts in JSON.
    #[serde(rename = "mean_uw", serialize_with = "microwatts")]
    pub mean_watts: f64,
    /// Highest power in watts, microwatts in JSON; for energy channels, between two readings.
    #[serde(rename = "max_uw", serialize_with = "microwatts")]
    pub max_watts: f64,
}

// Meters may count down, so both can be negative.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn picojoules<S: Serializer>(joules: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64((joules * 1e12).round() as i64)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn microwatts<S: Serializer>(watts: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64((watts * 1e6).round() as i64)
}

/// Statistics of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct PowerStat {
    /// Its format.
    pub format: String,
    /// Number of readings of all channels.
    pub readings: u64,
    /// Each channel, in the recording's order.
    pub channels: Vec<ChannelStat>,
    /// Other contents of the recording.
    pub others: BTreeMap<String, u64>,
}

#[derive(Default, Clone)]
struct Channel {
    readings: u64,
    first: u64,
    last: u64,
    last_joules: f64,
    joules: f64,
    most: f64,
}

/// Reads a recording to its end, or up to damage: the error is returned together with the counts up to there.
/// `progress` receives the number of bytes read so far, at intervals.
pub fn count(readings: &mut dyn Readings, mut progress: impl FnMut(u64)) -> (PowerStat, Result<(), TraceError>) {
    let mut channels: Vec<Channel> = Vec::new();
    let mut all = 0_u64;
    let whole = loop {
        let reading = match readings.next() {
            Ok(Some(reading)) => reading,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        };
        all += 1;
        if all.is_multiple_of(1 << 14) {
            progress(readings.consumed());
        }
        let n = usize::from(reading.channel);
        if channels.len() <= n {
            channels.resize(n + 1, Channel::default());
        }
        let c = &mut channels[n];
        let since = reading.time.saturating_sub(c.last) as f64 / 1e9;
        let joules = match reading.value {
            Value::Watts(watts) => watts * since,
            Value::Joules(joules) => joules - c.last_joules,
        };
        if let Value::Joules(joules) = reading.value {
            c.last_joules = joules;
        }
        if c.readings == 0 {
            c.first = reading.time;
        } else {
            c.joules += joules;
        }
        let watts = match reading.value {
            Value::Watts(watts) => watts,
            Value::Joules(_) if c.readings > 0 && since > 0.0 => joules / since,
            Value::Joules(_) => 0.0,
        };
        c.most = c.most.max(watts);
        c.readings += 1;
        c.last = reading.time;
    };
    let channel = |(n, c): (usize, Channel)| {
        let span_ns = c.last.saturating_sub(c.first);
        ChannelStat {
            name: readings.channels().get(n).cloned().unwrap_or_default(),
            readings: c.readings,
            span_ns,
            joules: c.joules,
            mean_watts: if span_ns == 0 { 0.0 } else { c.joules * 1e9 / span_ns as f64 },
            max_watts: c.most,
        }
    };
    let stat = PowerStat {
        format: readings.format().to_string(),
        readings: all,
        channels: channels.into_iter().enumerate().map(channel).collect(),
        others: readings.other_counts().clone(),
    };
    (stat, whole)
}
