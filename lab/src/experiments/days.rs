//! What does a day of calls cost a disk that spins down, and how often does it spin up?
//!
//! Each day is the recorded requests of one file system, replayed at their times on a disk of the profile, which spins
//! down by its timer. The first and the last request of a recording only mark its length, so that all days are equally
//! long; they are priced, but do not count as spin-ups.
//!
//! Left out: the origin of the requests (`recordings/archive-day`), and the energy of other disks.

use std::collections::BTreeMap;

use device::energy::Nanos;
use device::energy::profile::{DeviceSpec, Profile};
use device::{Blank, Counting};
use schemars::JsonSchema;
use serde::Deserialize;
use trace::Opened;
use trace::block::Op;
use trace::replay::blocks::How;
use trace::requests::{Requests, Seen};

use super::app_energy::joined;
use super::recording::Source;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::progress::Progress;
use sim::result::{Phase, Raw};
use sim::traces::{Run, Speed, blocks};

/// The variant with sums over several days.
const ALL: &str = "together";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The recorded file system; recordings are named FILE-SYSTEM.DAY.csv.zst.
    file_system: String,
    /// The recorded days.
    days: Vec<String>,
    /// Sums over several days, by name.
    #[serde(default)]
    together: BTreeMap<String, Vec<String>>,
}

impl Parameters {
    /// Checks that each sum names known days.
    pub fn check(&self) -> Result<(), LabError> {
        let unknown = self.together.values().flatten().find(|day| !self.days.contains(day));
        unknown.map_or(Ok(()), |day| Err(LabError::parameters(format!("{ALL}: there is no day {day:?}"))))
    }
}

/// Totals to be summed.
#[derive(Default, Clone, Copy)]
struct Day {
    wakes: f64,
    joules: f64,
}

/// Measures each day.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    p.check()?;
    let (mut phases, mut days) = (Vec::new(), BTreeMap::new());
    for (n, day) in p.days.iter().enumerate() {
        let recording = format!("{}.{day}.csv.zst", p.file_system);
        let (mut phase, told) = one(profile, day, &recording, &progress.part(n, p.days.len()))?;
        days.insert(day.as_str(), told);
        for (name, of) in p.together.iter().filter(|(_, of)| of.last() == Some(day)) {
            let all = of.iter().filter_map(|day| days.get(day.as_str()));
            let sum = all.fold(Day::default(), |a, b| Day { wakes: a.wakes + b.wakes, joules: a.joules + b.joules });
            phase.note(&format!("{name}_wakes"), sum.wakes, "wakes");
            phase.note(&format!("{name}_energy"), sum.joules / 1e3, "kJ");
        }
        phases.push(phase);
    }
    Ok((phases, Vec::new()))
}

fn one(profile: &Profile, day: &str, recording: &str, progress: &Progress<'_>) -> Result<(Phase, Day), LabError> {
    let failed = |why: &dyn std::fmt::Display| LabError::parameters(format!("recording {recording}: {why}"));
    let DeviceSpec::Disk(disk) = &profile.device else { return Err(failed(&"days are for a disk that sleeps")) };
    let source = Source::find(recording)?;
    let open = || match source.open().map_err(|e| failed(&e))? {
        Opened::Blocks(events) => Ok(Requests::new(events)),
        _ => Err(failed(&"no requests of a block device")),
    };
    let plan = blocks::Options::default().plan(open()?, |_| ()).map_err(|e| failed(&e))?;
    let asked = Asked::of(&mut open()?).map_err(|e| failed(&e))?;
    let length = source.length().max(1) as f64;
    let tell = |at: u64| progress.report(at as f64 / length);
    let run = blocks::run(&mut open()?, profile, &plan, Speed::Virtual, How::RECORDED, |_, _, _| {}, tell);
    let Run { done, ledger, took, counters, .. } = run.map_err(|e| failed(&e))?;
    let raw = Raw {
        ledger: &ledger,
        counts: &Counting::new(Blank::new(1)).snapshot(),
        counters: counters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
        took: Nanos(took),
        timeline: Vec::new(),
    };
    let mut phase = Phase::new(day, asked.read + asked.written, raw);
    // The recording has no causes or owners of requests.
    phase.forget_owners();
    phase.spent = joined(&phase.spent);
    phase.account.latencies = done.latencies;
    let told = Day { wakes: asked.wakes(disk.standby_after.value.0) as f64, joules: phase.total().joules() };
    phase.note("wakes", told.wakes, "wakes");
    phase.note("energy", told.joules / 1e3, "kJ");
    phase.note("requests", asked.times.len() as f64, "requests");
    phase.note("read", asked.read as f64 / 1_048_576.0, "MB");
    phase.note("written", asked.written as f64 / 1_048_576.0, "MB");
    Ok((phase, told))
}

/// A day's requests, without the first and last.
#[derive(Default)]
struct Asked {
    /// Times of the requests.
    times: Vec<u64>,
    read: u64,
    written: u64,
}

impl Asked {
    fn of(requests: &mut Requests) -> Result<Self, trace::TraceError> {
        let mut all = Vec::new();
        while let Some(seen) = requests.seen()? {
            if let Seen::Asked(asked) = seen {
                all.push((asked.time, asked.op, asked.sectors * 512));
            }
        }
        let mut out = Asked::default();
        let end = all.len().saturating_sub(1);
        for (time, op, bytes) in all.into_iter().take(end).skip(1) {
            out.times.push(time);
            match op {
                Op::Read => out.read += bytes,
                Op::Write => out.written += bytes,
                _ => {}
            }
        }
        Ok(out)
    }

    /// Number of requests after at least `after` without one. The first counts, too: how long the disk was idle before
    /// is unknown.
    fn wakes(&self, after: u64) -> usize {
        let gaps = self.times.windows(2).filter(|pair| pair[1].saturating_sub(pair[0]) >= after);
        gaps.count() + usize::from(!self.times.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_a_request_after_so_long_without_one() {
        let of = |times: &[u64]| Asked { times: times.into(), ..Asked::default() }.wakes(900);
        assert_eq!([of(&[]), of(&[5]), of(&[5, 904]), of(&[5, 905]), of(&[5, 905, 906, 5000])], [0, 1, 1, 2, 3]);
    }
}
