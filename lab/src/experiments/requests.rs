//! What do a kernel file system's requests for known work cost?
//!
//! Each recording of requests is replayed on a separate device, at the recorded times. The plan has the amount of work,
//! so that amplification and energy per kilobyte relate to the work. Idle time belongs to the recorded program and
//! machine; its cost is left out.

use std::collections::BTreeMap;

use device::energy::profile::Profile;
use device::energy::{Energy, Nanos, Operation};
use device::{Blank, Counting};
use schemars::JsonSchema;
use serde::Deserialize;
use trace::Opened;
use trace::block::Op;
use trace::replay::blocks::How;
use trace::requests::{Requests, Seen};

use super::app_energy::joined;
use super::recording::{Beginning, Source};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::progress::Progress;
use sim::result::{Phase, Raw};
use sim::traces::{Run, Speed, blocks};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The work, by name.
    work: BTreeMap<String, Work>,
    /// Maximum number of events per recording.
    #[serde(default)]
    limit: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Work {
    /// The recording of its requests.
    recording: String,
    /// MiB that the program read or wrote.
    asked_mib: f64,
}

/// Measures each recording.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let mut phases = Vec::new();
    for (n, (name, work)) in p.work.iter().enumerate() {
        phases.push(one(profile, name, work, p.limit, &progress.part(n, p.work.len()))?);
    }
    Ok((phases, Vec::new()))
}

fn one(
    profile: &Profile,
    name: &str,
    work: &Work,
    limit: Option<u64>,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    let failed = |why: &dyn std::fmt::Display| LabError::parameters(format!("recording {}: {why}", work.recording));
    let source = Source::find(&work.recording)?;
    let open = || match source.open().map_err(|e| failed(&e))? {
        Opened::Blocks(events) => Ok(Requests::new(Box::new(Beginning::new(limit.unwrap_or(u64::MAX), events)))),
        _ => Err(failed(&"no requests of a block device")),
    };
    let plan = blocks::Options::default().plan(open()?, |_| ()).map_err(|e| failed(&e))?;
    let sizes = Sizes::of(&mut open()?).map_err(|e| failed(&e))?;
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
    let mut phase = Phase::new(name, (work.asked_mib * 1_048_576.0) as u64, raw);
    // The recording has no causes or owners of requests.
    phase.forget_owners();
    phase.spent = joined(&phase.spent);
    phase.account.latencies = done.latencies.clone();
    let idle: Energy = phase.operations.iter().filter(|o| o.operation == Operation::Idle).map(|o| o.energy).sum();
    let spent = phase.total() - idle;
    let (read, written) = (done.read as f64 / 1_048_576.0, done.written as f64 / 1_048_576.0);
    phase.note("energy", spent.millijoules(), "mJ");
    phase.note("energy_idle", idle.millijoules(), "mJ");
    phase.note("energy_per_mb", spent.millijoules() / work.asked_mib, "mJ/MB");
    phase.note("energy_per_kb", spent.millijoules() * 1e3 / (work.asked_mib * 1024.0), "uJ/KB");
    phase.note("asked", work.asked_mib, "MB");
    phase.note("read", read, "MB");
    phase.note("written", written, "MB");
    phase.note("read_amplification", read / work.asked_mib, "x");
    phase.note("write_amplification", written / work.asked_mib, "x");
    phase.note("read_for_100_mb", 100.0 * read / work.asked_mib, "MB");
    phase.note("written_for_10_mb", 10.0 * written / work.asked_mib, "MB");
    phase.note("requests", done.requests as f64, "requests");
    phase.note("flushes", sizes.flushes as f64, "requests");
    for (what, sizes) in [("read", &sizes.read), ("write", &sizes.written)] {
        if let (Some(least), Some(often)) = (sizes.keys().next(), sizes.iter().max_by_key(|(_, n)| **n)) {
            phase.note(&format!("least_{what}"), *least as f64 / 1024.0, "KB");
            phase.note(&format!("usual_{what}"), *often.0 as f64 / 1024.0, "KB");
        }
    }
    Ok(phase)
}

/// Number of requests by size in bytes.
#[derive(Default)]
struct Sizes {
    read: BTreeMap<u64, u64>,
    written: BTreeMap<u64, u64>,
    flushes: u64,
}

impl Sizes {
    fn of(requests: &mut Requests) -> Result<Self, trace::TraceError> {
        let mut out = Sizes::default();
        while let Some(seen) = requests.seen()? {
            let Seen::Asked(asked) = seen else { continue };
            match asked.op {
                Op::Read => *out.read.entry(asked.sectors * 512).or_default() += 1,
                Op::Write => *out.written.entry(asked.sectors * 512).or_default() += 1,
                Op::Flush => out.flushes += 1,
                _ => {}
            }
        }
        Ok(out)
    }
}
