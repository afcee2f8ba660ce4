//! How many of an application's storage requests are random, and what do they cost?
//!
//! The same requests are priced twice: by Mohan's table of costs of file operations (HotStorage'17, slide 24), and by a
//! simulation. The experiment accepts two kinds of recordings and distinguishes them by content. Recorded calls are
//! replayed on a new F2FS volume, with a page cache and read-ahead. Recorded block requests are replayed on the device
//! directly. Each recording is a separate phase, on a separate device.

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

/// The fields of [`Prices`], for the schema of a plan: microjoules per kilobyte, and the source.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "read by the schema alone")]
struct Table {
    /// Sequential reads.
    read_sequential: f64,
    /// Random reads of 4 KB.
    read_random: f64,
    /// Sequential writes.
    write_sequential: f64,
    /// Random writes of 4 KB, each with an fsync.
    write_random: f64,
    /// The source of the prices.
    source: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Applications and their recordings: shipped ones by name, others by path (with a slash) or by the name of an
    /// external file ([`crate::theirs`]).
    recordings: BTreeMap<String, String>,
    /// Cost of file reads and writes; by default measured on F2FS on this device.
    #[serde(default)]
    #[schemars(with = "Option<Table>")]
    prices: Option<Prices>,
    /// MiB of the host's page cache, for recordings of calls.
    page_cache_mib: u64,
    /// Whether inconsistent lines of a mobile block trace are corrected.
    #[serde(default = "yes")]
    clear: bool,
    /// Maximum number of calls or block events per recording.
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

/// A recording and how it is replayed.
struct One<'a> {
    name: &'a str,
    recording: &'a str,
    source: &'a Source,
    profile: &'a Profile,
    p: &'a Parameters,
    prices: &'a Prices,
    seed: u64,
}

/// Requests to the host or the device.
struct Asked {
    order: Order,
    /// Nanoseconds from the recording's first to its last event.
    span: u64,
}

impl One<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> LabError {
        LabError::parameters(format!("recording {}: {why}", self.recording))
    }

    /// Adds the recording's name to a replay error.
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
            // Caches start cold, as in the published experiment.
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
            // Not by cause, since the causes are not ours: the bytes are noted below.
            counts: &Counting::new(Blank::new(1)).snapshot(),
            counters: counters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            took: Nanos(took),
            timeline: Vec::new(),
        };
        let mut phase = Phase::new(self.name, done.read + done.written, raw);
        // Causes and owners of an external recording do not map to ours.
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

    /// Notes the numbers of the slides.
    fn note(&self, phase: &mut Phase, asked: &Asked) {
        let Order { read, written, requests } = &asked.order;
        let kinds = prices::estimate(read, written, self.prices);
        let priced: f64 = kinds.iter().map(|p| p.joules).sum();
        for kind in &kinds {
            let name = kind.kind.replace(' ', "_");
            phase.note(&name, kind.bytes as f64 / 1_048_576.0, "MB");
            phase.note(&format!("price_{name}"), kind.uj_per_kb, "uJ/KB");
        }
        // Every write priced as one in order.
        let in_order = kinds[..2].iter().map(|p| p.joules).sum::<f64>()
            + kinds[2..].iter().map(|p| p.bytes as f64 / 1024.0 * self.prices.write_sequential / 1e6).sum::<f64>();
        let simulated = phase.total().joules();
        let seconds = asked.span as f64 / 1e9;
        phase.note("requests", *requests as f64, "requests");
        phase.note("random_reads", 100.0 * read.random_of_runs(), "%");
        phase.note("random_writes", 100.0 * written.random_of_runs(), "%");
        phase.note("random_bytes_read", 100.0 * read.random_of_bytes(), "%");
        phase.note("random_bytes_written", 100.0 * written.random_of_bytes(), "%");
        phase.note("recorded", seconds, "s");
        phase.note("priced", priced, "J");
        phase.note("saved_by_order", 100.0 * (1.0 - in_order / priced), "%");
        phase.note("simulated", simulated, "J");
        phase.note("priced_above_simulated", 100.0 * (priced / simulated - 1.0), "%");
        phase.note("priced_in_180_s", priced * 180.0 / seconds, "J");
        phase.note("simulated_in_180_s", simulated * 180.0 / seconds, "J");
    }
}

/// Adds up energy by component only.
pub(super) fn joined(spent: &[Spending]) -> Vec<Spending> {
    let of = |part: Part| spent.iter().filter(|s| s.part == part).map(|s| s.energy).sum();
    let all = Part::ALL.iter().map(|part| Spending { cause: Cause::Other as u8, part: *part, energy: of(*part) });
    all.filter(|s| s.energy != Energy::ZERO).collect()
}
