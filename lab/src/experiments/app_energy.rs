//! How much of what an application asks of storage is random, and what does it cost?
//!
//! The same requests are priced twice: by Mohan's table of what file operations cost (HotStorage'17, slide 24), and by
//! a simulation. The experiment takes two kinds of recordings and tells them apart by their content. Calls are made on
//! a new F2FS volume, below a host that caches what it reads and reads ahead. Requests to a block device are made on
//! the device as they are. Each recording is a phase of its own, on a device of its own.

use std::collections::BTreeMap;

use device::energy::profile::Profile;
use device::energy::{Energy, Nanos, Part};
use device::{Blank, Counting};
use f2fs::cause::Cause;
use f2fs::owners::{Look, Owner};
use schemars::JsonSchema;
use serde::Deserialize;
use trace::Opened;
use trace::call::Calls;
use trace::replay::blocks::How;
use trace::replay::needs;
use trace::requests::Requests;

use super::recording::{Beginning, Source};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::error::SimError;
use sim::prices::{self, Prices};
use sim::progress::Progress;
use sim::result::{DELETED, Phase, Raw, Spending};
use sim::traces::order::Order;
use sim::traces::requeued::Cleared;
use sim::traces::source::ByPath;
use sim::traces::{ReplayError, Run, Speed, blocks, calls};

/// The fields of [`Prices`], for the schema of a plan: microjoules for each kilobyte, and where they come from.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "read by the schema alone")]
struct Table {
    /// Reading in order.
    read_sequential: f64,
    /// Reading at random, 4 KB at a time.
    read_random: f64,
    /// Writing in order.
    write_sequential: f64,
    /// Writing at random, 4 KB at a time, an fsync after each.
    write_random: f64,
    /// Where they come from.
    source: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Applications, and their recordings: shipped ones by name, others by the path of their file (what has a slash), or
    /// by the name of the file where those of others are ([`crate::theirs`]).
    recordings: BTreeMap<String, String>,
    /// What reading and writing files costs; without, as it is measured on our F2FS on this device.
    #[serde(default)]
    #[schemars(with = "Option<Table>")]
    prices: Option<Prices>,
    /// Mebibytes of the host's memory for contents of files, for recordings of calls.
    page_cache_mib: u64,
    /// Lines of a mobile block trace that are not what they say are put right.
    #[serde(default = "yes")]
    clear: bool,
    /// Only so many calls, or events of a block device, of each.
    #[serde(default)]
    limit: Option<u64>,
}

fn yes() -> bool {
    true
}

/// Measures each recording.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let prices = match &p.prices {
        Some(prices) => prices.clone(),
        None => Prices::simulated(profile)?,
    };
    let mut phases = Vec::new();
    for (n, (name, recording)) in p.recordings.iter().enumerate() {
        let source = Source::find(recording)?;
        let of = One { name, recording, source: &source, profile, p: &p, prices: &prices, seed: job.seed };
        let progress = progress.part(n, p.recordings.len());
        let phase = match source.open().map_err(|e| of.failed(e))? {
            Opened::Calls(_) => of.calls(&progress),
            Opened::Blocks(_) => of.blocks(&progress),
            Opened::Power(_) => return Err(of.failed("a meter's: it asks nothing of storage")),
        };
        phases.push(phase?);
    }
    Ok((phases, Vec::new()))
}

/// One recording and what is done with it.
struct One<'a> {
    name: &'a str,
    recording: &'a str,
    source: &'a Source,
    profile: &'a Profile,
    p: &'a Parameters,
    prices: &'a Prices,
    seed: u64,
}

/// What the host was asked for, or asked the device.
struct Asked {
    order: Order,
    /// Nanoseconds from the first to the last of the recording.
    span: u64,
}

impl One<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> LabError {
        LabError::parameters(format!("recording {}: {why}", self.recording))
    }

    /// What a replay says of a recording, with its name.
    fn said(&self, e: ReplayError) -> LabError {
        match e {
            ReplayError::Sim(e) => e.into(),
            e => self.failed(e),
        }
    }

    fn limit(&self) -> u64 {
        self.p.limit.unwrap_or(u64::MAX)
    }

    fn open_calls(&self) -> Result<Beginning<dyn Calls>, LabError> {
        match self.source.open().map_err(|e| self.failed(e))? {
            Opened::Calls(inner) => Ok(Beginning::new(self.limit(), inner)),
            _ => Err(self.failed("it is another one now")),
        }
    }

    fn open_requests(&self) -> Result<Requests, LabError> {
        match self.source.open().map_err(|e| self.failed(e))? {
            Opened::Blocks(inner) => {
                let begin = Beginning::new(self.limit(), inner);
                Ok(Requests::new(if self.p.clear { Box::new(Cleared::new(Box::new(begin))) } else { Box::new(begin) }))
            }
            _ => Err(self.failed("it is another one now")),
        }
    }

    fn calls(&self, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let (needs, whole) = needs::scan(&mut self.open_calls()?, |_| ());
        whole.map_err(|e| self.failed(e))?;
        let options = calls::Options {
            seed: self.seed,
            speed: Speed::Virtual,
            page_cache: Some(usize::try_from(self.p.page_cache_mib.saturating_mul(256)).unwrap_or(usize::MAX)),
            // As the experiment was first published: nothing of the volume is in memory.
            cold: true,
            ..calls::Options::default()
        };
        let mut tell = |what: &str, part: f64| {
            if what == "replaying" {
                progress.report(part);
            }
        };
        let open = || Ok(Box::new(self.open_calls().map_err(SimError::from)?) as Box<dyn Calls>);
        let mut source = ByPath { open: &open, needs: &needs, length: self.source.length() };
        let run = calls::run(&mut source, &mut [], self.profile, &options, &mut tell);
        let Run { done, ledger, took, counters, .. } = run.map_err(|e| self.said(e))?;
        let raw = Raw {
            ledger: &ledger,
            counts: &done.counts,
            counters: counters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            took: Nanos(took),
            timeline: Vec::new(),
        };
        let made = &done.calls;
        let mut phase = Phase::new(self.name, made.read + made.written, raw);
        phase.account.names = phase
            .account
            .owners()
            .filter_map(|owner| match done.volume.owner_of(owner, Look::InMemory) {
                Owner::Path(path) => Some((owner, String::from_utf8_lossy(&path).into_owned())),
                Owner::Deleted(_) => Some((owner, DELETED.into())),
                Owner::Volume | Owner::Unnamed => None,
            })
            .collect();
        phase.files = phase.named();
        phase.account.latencies = made.latencies.clone();
        phase.note("calls", made.calls as f64, "calls");
        phase.note("calls_left_out", made.left_out as f64, "calls");
        phase.note("calls_failed_now", made.failed as f64, "calls");
        phase.note("asked_to_read", made.read as f64 / 1_048_576.0, "MB");
        phase.note("asked_to_write", made.written as f64 / 1_048_576.0, "MB");
        self.note(&mut phase, &Asked { order: done.order, span: made.span_ns });
        Ok(phase)
    }

    fn blocks(&self, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let options = blocks::Options::default();
        let plan = options.plan(self.open_requests()?, |_| ()).map_err(|e| self.said(e))?;
        let ((read, written), whole) = prices::shares(&mut self.open_requests()?, plan.of, |_| ());
        whole.map_err(|e| self.failed(e))?;
        let length = self.source.length().max(1) as f64;
        let mut requests = self.open_requests()?;
        let tell = |at: u64| progress.report(at as f64 / length);
        let run = blocks::run(&mut requests, self.profile, &plan, Speed::Virtual, How::RECORDED, |_, _, _| {}, tell);
        let Run { done, ledger, took, counters, .. } = run.map_err(|e| self.said(e))?;
        let raw = Raw {
            ledger: &ledger,
            // By cause, which is not ours: the bytes are noted below.
            counts: &Counting::new(Blank::new(1)).snapshot(),
            counters: counters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            took: Nanos(took),
            timeline: Vec::new(),
        };
        let mut phase = Phase::new(self.name, done.read + done.written, raw);
        // Causes and owners of a recording of others are not ours.
        phase.forget_owners();
        phase.spent = joined(&phase.spent);
        phase.account.latencies = done.latencies.clone();
        phase.note("read", done.read as f64 / 1_048_576.0, "MB");
        phase.note("written", done.written as f64 / 1_048_576.0, "MB");
        let asked = done.latencies.iter().filter(|l| ["read", "write", "flush"].contains(&l.op));
        let order = Order { read, written, requests: asked.map(|l| l.spread.count).sum() };
        self.note(&mut phase, &Asked { order, span: done.span_ns });
        Ok(phase)
    }

    /// The numbers of the slides.
    fn note(&self, phase: &mut Phase, asked: &Asked) {
        let Order { read, written, requests } = &asked.order;
        let kinds = prices::estimate(read, written, self.prices);
        let priced: f64 = kinds.iter().map(|p| p.joules).sum();
        for kind in &kinds {
            let name = kind.kind.replace(' ', "_");
            phase.note(&name, kind.bytes as f64 / 1_048_576.0, "MB");
            phase.note(&format!("price_{name}"), kind.uj_per_kb, "uJ/KB");
        }
        let simulated = phase.total().joules();
        let seconds = asked.span as f64 / 1e9;
        phase.note("requests", *requests as f64, "requests");
        phase.note("random_reads", 100.0 * read.random_of_runs(), "%");
        phase.note("random_writes", 100.0 * written.random_of_runs(), "%");
        phase.note("random_bytes_read", 100.0 * read.random_of_bytes(), "%");
        phase.note("random_bytes_written", 100.0 * written.random_of_bytes(), "%");
        phase.note("recorded", seconds, "s");
        phase.note("priced", priced, "J");
        phase.note("simulated", simulated, "J");
        phase.note("priced_above_simulated", 100.0 * (priced / simulated - 1.0), "%");
        phase.note("priced_in_180_s", priced * 180.0 / seconds, "J");
        phase.note("simulated_in_180_s", simulated * 180.0 / seconds, "J");
    }
}

/// The same by part alone.
pub(super) fn joined(spent: &[Spending]) -> Vec<Spending> {
    let of = |part: Part| spent.iter().filter(|s| s.part == part).map(|s| s.energy).sum();
    let all = Part::ALL.iter().map(|part| Spending { cause: Cause::Other as u8, part: *part, energy: of(*part) });
    all.filter(|s| s.energy != Energy::ZERO).collect()
}
