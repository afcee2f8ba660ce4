//! Reading and writing one file in order or at random, phase after phase, on a volume in a given state.
//!
//! The volume is mounted anew before every phase: nothing is in memory, as after the phone was restarted. If
//! the plan says so, the device is switched off and on as well.
//! What a phase writes it pays for: a phase of writes ends with an fsync.

use std::time::Duration;

use device::energy::profile::Profile;
use device::{BLOCK, Rng};
use f2fs::MountOptions;
use schemars::JsonSchema;
use serde::Deserialize;

use super::afterwards::{self, Afterwards};
use super::cleaned::Cleaning;
use super::given::{Given, OnVolume};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::file_calls::{Calls, FILE};
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Stage};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Whether the device is switched off and on between phases, and not only the volume mounted anew.
    #[serde(default)]
    device_restarts: bool,
    /// Seconds before each phase in which nobody asks anything, measured as phases of their own.
    #[serde(default)]
    rest_s: u64,
    /// Mebibytes of the file.
    file_mib: u64,
    /// What is done with it, in this order.
    phase: Vec<PhaseSpec>,
    /// No phase moves more than so many mebibytes.
    #[serde(default)]
    limit_mib: Option<u64>,
    /// How it is cleaned before anything is measured; not at all without.
    #[serde(default)]
    cleaning: Option<Cleaning>,
    /// Clean nodes kept in memory, in blocks; the file system's own choice without.
    #[serde(default)]
    node_cache: Option<usize>,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

impl Parameters {
    /// Whether it can be done on the volume.
    pub fn check(&self, given: &Given) -> Result<(), LabError> {
        given.check(match self {
            Parameters { cleaning: Some(_), .. } => Some("cleaning"),
            Parameters { node_cache: Some(_), .. } => Some("node_cache"),
            Parameters { after: Some(_), .. } => Some("after, which counts segments,"),
            _ => None,
        })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PhaseSpec {
    /// What it is called in results.
    name: String,
    /// Whether it reads or writes.
    #[serde(rename = "do")]
    what: What,
    /// Whether calls are in order or at random.
    order: Order,
    /// Kibibytes of one call.
    io_kib: u64,
    /// Mebibytes moved; the whole file without.
    #[serde(default)]
    total_mib: Option<u64>,
    /// Whether an fsync follows every write, or only the last.
    #[serde(default)]
    fsync_each: bool,
    /// The file is one hole of its size before: every write takes a block it did not have.
    #[serde(default)]
    holes: bool,
    /// Calls reach the device as they are, one request each (`O_DIRECT`), not joined in memory.
    #[serde(default)]
    direct: bool,
}

impl PhaseSpec {
    /// Bytes it moves in a file of `size`.
    fn moves(&self, p: &Parameters, size: u64) -> u64 {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        self.total_mib.map_or(size, bytes).min(p.limit_mib.map_or(u64::MAX, bytes))
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum What {
    Read,
    Write,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Sequential,
    Random,
}

/// Measures every phase.
pub(crate) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    p.check(&given)?;
    let mut options = MountOptions::default();
    if let Some(blocks) = p.node_cache {
        options.node_cache = blocks;
    }
    if let Some(c) = &p.cleaning {
        options.gc = c.at_rest()?;
    }
    let before = usize::from(given.is_aged()) + usize::from(p.cleaning.is_some());
    let parts = before + p.phase.len() + 1;
    let (mut bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, parts))?;
    if let Some(c) = &p.cleaning {
        phases.push(c.run(&bench, &progress.part(phases.len(), parts))?);
        histograms.push(Histogram::of_free_space(&bench.volume()?.free_fragments(), "after cleaning"));
    }
    let mut rng = Rng::new(job.seed);
    let size = blocks_of_mib(p.file_mib) * BLOCK as u64;
    // Where the first phase does not write all of it, there must be something before.
    let whole = |f: &PhaseSpec| f.what == What::Write && f.moves(&p, size) >= size;
    if !p.phase.first().is_some_and(whole) {
        let ino = bench.file(FILE)?;
        bench.write_whole(ino, size, job.seed)?;
    }
    for (n, spec) in p.phase.iter().enumerate() {
        bench.restart(p.device_restarts)?;
        if p.rest_s > 0 {
            phases.push(rest(&bench, &spec.name, p.rest_s)?);
        }
        bench.cut_requests_at(spec.direct.then_some(spec.io_kib * 1024 / BLOCK as u64));
        let mut rng = rng.split();
        phases.push(one(&bench, spec, &p, size, job.seed, &mut rng, &progress.part(before + n, parts))?);
        bench.cut_requests_at(None);
    }
    afterwards::run(p.after, &bench, job.seed, &progress.part(parts - 1, parts), &mut phases)?;
    Ok((phases, histograms))
}

/// Nobody asks anything; the volume does what is due.
fn rest(bench: &Bench, before: &str, seconds: u64) -> Result<Phase, LabError> {
    let mut phase = bench.measure(&format!("rest-before-{before}"), seconds, &Progress::new(&|_| ()), |recorder| {
        for _ in 0..seconds {
            recorder.wait(Duration::from_secs(1))?;
        }
        Ok(0)
    })?;
    phase.stage = Stage::Preparation;
    Ok(phase)
}

fn one(
    bench: &Bench,
    spec: &PhaseSpec,
    p: &Parameters,
    size: u64,
    seed: u64,
    rng: &mut Rng,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    let io = spec.io_kib * 1024;
    if io == 0 || !io.is_multiple_of(BLOCK as u64) || !size.is_multiple_of(io) {
        return Err(LabError::parameters(format!(
            "phase {}: a file of {} MiB cannot be done in calls of {} KiB, whole blocks each",
            spec.name, p.file_mib, spec.io_kib
        )));
    }
    let calls = Calls {
        name: &spec.name,
        writes: spec.what == What::Write,
        random: spec.order == Order::Random,
        io,
        count: spec.moves(p, size) / io,
        fsync_each: spec.fsync_each,
        holes: spec.holes,
    };
    Ok(calls.measure(bench, size, seed, rng, progress)?)
}
