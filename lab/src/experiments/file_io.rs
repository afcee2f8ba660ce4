//! Sequential or random reads and writes of one file, phase after phase, on a volume in a given state.
//!
//! The volume is remounted before every phase: caches are cold, as after a reboot. If the plan requests it, the device
//! is power-cycled, too. A phase pays for its own writes: a phase of writes ends with an fsync.

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
    /// Whether the device is power-cycled between phases, in addition to the remount.
    #[serde(default)]
    device_restarts: bool,
    /// Idle seconds before each phase, measured as separate phases.
    #[serde(default)]
    rest_s: u64,
    /// MiB of the file.
    file_mib: u64,
    /// The phases, in order.
    phase: Vec<PhaseSpec>,
    /// Maximum MiB read or written per phase.
    #[serde(default)]
    limit_mib: Option<u64>,
    /// How the volume is cleaned before the measurement; not at all by default.
    #[serde(default)]
    cleaning: Option<Cleaning>,
    /// Clean nodes kept in memory, in blocks; by default the file system decides.
    #[serde(default)]
    node_cache: Option<usize>,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

impl Parameters {
    /// Checks that the work is possible on the volume.
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
    /// Its name in results.
    name: String,
    /// Whether it reads or writes.
    #[serde(rename = "do")]
    what: What,
    /// Whether calls are sequential or random.
    order: Order,
    /// KiB per call.
    io_kib: u64,
    /// MiB read or written; by default the whole file.
    #[serde(default)]
    total_mib: Option<u64>,
    /// Whether each write is followed by an fsync, or only the last.
    #[serde(default)]
    fsync_each: bool,
    /// Whether the file is one hole before: every write allocates a block.
    #[serde(default)]
    holes: bool,
    /// Whether each call becomes one device request (`O_DIRECT`), without merging.
    #[serde(default)]
    direct: bool,
}

impl PhaseSpec {
    /// Bytes read or written in a file of `size` bytes.
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
    // If the first phase does not write the whole file, it must exist before.
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

/// Runs the volume's due work without requests.
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
