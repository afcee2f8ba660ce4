//! How large are programs' reads and writes?
//!
//! Counts the calls that transferred data in recordings of calls, and the requests in recordings of a block device.
//! Nothing is simulated.

use std::collections::BTreeMap;

use device::energy::profile::Profile;
use schemars::JsonSchema;
use serde::Deserialize;
use trace::Opened;
use trace::block::{Events, Op as Request};
use trace::call::{Calls, Op};
use trace::requests::{Requests, Seen};

use super::recording::{Beginning, Source};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::Histogram;
use sim::traces::requeued::Cleared;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Programs and their recordings.
    recordings: BTreeMap<String, String>,
    /// Maximum size in KiB of a small request.
    small_kib: u64,
    /// Maximum number of calls or block events per recording.
    #[serde(default)]
    limit: Option<u64>,
}

/// Number of requests by size.
#[derive(Default)]
struct Sizes(BTreeMap<u64, u64>);

impl Sizes {
    fn add(&mut self, bytes: u64) {
        *self.0.entry(bytes).or_default() += 1;
    }

    fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The share of requests of at most `bytes` bytes.
    fn up_to(&self, bytes: u64) -> Option<f64> {
        let small: u64 = self.0.range(..=bytes).map(|(_, n)| n).sum();
        (self.count() > 0).then(|| 100.0 * small as f64 / self.count() as f64)
    }

    fn histogram(&self, name: String) -> Histogram {
        const CLASSES: [(u64, &str); 7] = [
            (4, "to 4 KiB"),
            (16, "to 16"),
            (64, "to 64"),
            (128, "to 128"),
            (256, "to 256"),
            (512, "to 512"),
            (u64::MAX >> 10, "above"),
        ];
        let mut from = 0;
        let bars = CLASSES.map(|(kib, class)| {
            let to = kib << 10;
            let n = self.0.range(from + u64::from(from > 0)..=to).map(|(_, n)| n).sum();
            from = to;
            (class.to_owned(), n)
        });
        Histogram { name, by: "size (KiB)".into(), unit: "requests".into(), bars: bars.into() }
    }
}

/// Reads and writes.
#[derive(Default)]
struct Moved {
    read: Sizes,
    written: Sizes,
}

impl Moved {
    fn of_calls(calls: &mut dyn Calls) -> Result<Self, trace::TraceError> {
        let mut moved = Moved::default();
        while let Some(call) = calls.next()? {
            let (sizes, bytes) = match call.op {
                Op::Read { bytes, .. } => (&mut moved.read, bytes),
                Op::Write { bytes, .. } => (&mut moved.written, bytes),
                _ => continue,
            };
            // A read at the end of the file is not a transfer.
            if bytes > 0 && call.failed.is_none() {
                sizes.add(bytes);
            }
        }
        Ok(moved)
    }

    fn of_blocks(events: Box<dyn Events>) -> Result<Self, trace::TraceError> {
        let (mut requests, mut moved) = (Requests::new(events), Moved::default());
        while let Some(seen) = requests.seen()? {
            let Seen::Asked(asked) = seen else { continue };
            let sizes = match asked.op {
                Request::Read => &mut moved.read,
                Request::Write => &mut moved.written,
                _ => continue,
            };
            if asked.sectors > 0 {
                sizes.add(asked.sectors * 512);
            }
        }
        Ok(moved)
    }
}

/// Counts the requests of each recording.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let (mut phases, mut histograms) = (Vec::new(), Vec::new());
    let still = Bench::new(profile, 1)?;
    for (n, (name, recording)) in p.recordings.iter().enumerate() {
        progress.part(n, p.recordings.len()).report(0.0);
        let failed = |why: &dyn std::fmt::Display| LabError::parameters(format!("recording {recording}: {why}"));
        let limit = p.limit.unwrap_or(u64::MAX);
        let moved = match Source::find(recording)?.open().map_err(|e| failed(&e))? {
            Opened::Calls(calls) => Moved::of_calls(&mut Beginning::new(limit, calls)),
            Opened::Blocks(events) => Moved::of_blocks(Box::new(Cleared::new(Box::new(Beginning::new(limit, events))))),
            Opened::Power(_) => return Err(failed(&"a meter's: it asks nothing of storage")),
        };
        let moved = moved.map_err(|e| failed(&e))?;
        let mut phase = still.measure(name, 1, progress, |_| Ok(0))?;
        for (what, sizes) in [("reads", &moved.read), ("writes", &moved.written)] {
            phase.note(what, sizes.count() as f64, "requests");
            if let Some(share) = sizes.up_to(p.small_kib << 10) {
                phase.note(&format!("{what}_small"), share, "%");
            }
            histograms.push(sizes.histogram(format!("{name}: {what} by size")));
        }
        phases.push(phase);
    }
    Ok((phases, histograms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_belongs_to_one_class_and_the_bound_is_within() {
        let mut sizes = Sizes::default();
        for bytes in [1, 4096, 4097, 131_072, 131_073, 1 << 30] {
            sizes.add(bytes);
        }
        assert_eq!(sizes.up_to(131_072), Some(100.0 * 4.0 / 6.0));
        let bars: Vec<u64> = sizes.histogram("x".into()).bars.iter().map(|(_, n)| *n).collect();
        assert_eq!(bars, [2, 1, 0, 1, 1, 0, 1]);
        assert_eq!(Sizes::default().up_to(1), None, "nothing has no share");
    }
}
