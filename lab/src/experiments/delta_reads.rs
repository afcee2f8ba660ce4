//! How fast are reads of a file that has deltas in delta nodes?
//!
//! MedFS FAST'25, section 6.2.5 and Figure 11 (b): some pages of a file are changed a little; the file is read at
//! random often enough to be classified as read-only; then the volume is idle for a while, during which the file's
//! pages may be folded. The measured reads follow a restart, with cold caches. Left out: the classification (`f2fs`),
//! and writing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::{BLOCK, Rng};
use f2fs::MountOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{FileSystem, Ino, WriteFlags};

use super::app_noted::distribution;
use super::keeping::Keeping;
use super::{Measured, cleaned, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, Recorder, blocks_of_mib};
use sim::progress::Progress;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume.
    volume_mib: u64,
    /// MiB of the file.
    file_mib: u64,
    /// Percentages of pages changed, one run for each.
    changed_percent: Vec<u64>,
    /// Maximum number of bytes changed per page.
    change: u64,
    /// Number of reads to classify the file as read-only, and of the measured reads after it.
    reads: u64,
    /// MiB of the host's memory.
    memory_mib: u64,
    /// How small updates are stored.
    keeping: Keeping,
    /// Whether deltas of read-only files are folded while the volume is idle.
    delta_return: bool,
}

/// Pages per fsync.
const SYNC_EVERY: usize = 8;
/// Time between the first reads.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than the window in which a file's reads and writes are counted together.
const WINDOW: Duration = Duration::from_secs(61);
/// How long the volume is idle.
const REST: Duration = Duration::from_secs(180);

/// Measures each percentage of changed pages.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let pages = blocks_of_mib(p.file_mib);
    if pages == 0 || p.change == 0 || p.change > BLOCK as u64 || p.changed_percent.iter().any(|share| *share > 100) {
        return Err(LabError::parameters("file_mib and change are 1 or more, changed_percent 100 or less"));
    }
    let mut phases = Vec::new();
    for (n, &share) in p.changed_percent.iter().enumerate() {
        let progress = progress.part(n, p.changed_percent.len());
        let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
        bench.keep_in_memory(blocks_of_mib(p.memory_mib) as usize);
        let (features, mut options) = p.keeping.of();
        // The question is what reading deltas costs, not whether the file should have any.
        options.delta_study.at_any_price = true;
        bench.format_with(job.seed, features, MountOptions { delta_return: p.delta_return, ..options })?;
        let ino = bench.file("file")?;
        bench.write_whole(ino, pages * BLOCK as u64, job.seed)?;
        bench.f2fs()?.sync()?;
        let mut rng = Rng::new(job.seed ^ share);
        change(&bench, ino, &p, pages * share / 100, pages, &mut rng)?;
        let deltas = |bench: &Bench, ino: Ino| -> Result<f64, LabError> {
            Ok(bench.f2fs()?.deltas_in(format::Ino(ino.0 as u32)).map_err(vfs::Error::from)? as f64)
        };
        let made = deltas(&bench, ino)?;
        // Writes and reads must fall into different counting windows.
        bench.measure("writes", 1, &progress, |recorder| {
            cleaned::pass_time(&bench, recorder, WINDOW)?;
            Ok(0)
        })?;
        let mut warm = bench.measure("first", p.reads, &progress, |recorder| {
            let (bytes, _) = read(&bench, ino, pages, p.reads, &mut rng, recorder, PAUSE)?;
            cleaned::pass_time(&bench, recorder, REST)?;
            bench.f2fs()?.sync()?;
            Ok(bytes)
        })?;
        warm.name = format!("{share}-percent-first");
        warm.stage = sim::result::Stage::Preparation;
        let restored = bench.f2fs()?.counters.restored.load(Relaxed) as f64;
        bench.restart(false)?;
        let ino = bench.file("file")?;
        let mut times = Vec::new();
        let asked = bench.asked();
        let mut phase = bench.measure(&format!("{share}-percent"), p.reads, &progress, |recorder| {
            let (bytes, took) = read(&bench, ino, pages, p.reads, &mut rng, recorder, Duration::ZERO)?;
            times = took;
            Ok(bytes)
        })?;
        let device = &bench.asked().1 - &asked.1;
        distribution(&mut phase, "read", &mut times);
        phase.note("blocks_read", device.total().blocks_read as f64, "blocks");
        phase.note("requests", device.total().reads as f64, "requests");
        phase.note("deltas_made", made, "deltas");
        phase.note("deltas_restored", restored, "deltas");
        phase.note("deltas_left", deltas(&bench, ino)?, "deltas");
        bench.f2fs()?.unmount()?;
        phases.extend([warm, phase]);
    }
    Ok((phases, Vec::new()))
}

/// Changes `n` different pages a little.
fn change(bench: &Bench, ino: Ino, p: &Parameters, n: u64, pages: u64, rng: &mut Rng) -> Result<(), LabError> {
    let volume = bench.f2fs()?;
    let mut order: Vec<u64> = (0..pages).collect();
    rng.shuffle(&mut order);
    for some in order[..n as usize].chunks(SYNC_EVERY) {
        for page in some {
            let mut bytes = vec![0; 1 + rng.below(p.change) as usize];
            rng.fill(&mut bytes);
            let at = page * BLOCK as u64 + rng.below((BLOCK - bytes.len()) as u64 + 1);
            volume.write(ino, at, &bytes, WriteFlags::empty())?;
        }
        volume.fsync(ino, false)?;
    }
    Ok(volume.sync()?)
}

/// Reads pages at random; returns the bytes and each read's duration in nanoseconds.
fn read(
    bench: &Bench,
    ino: Ino,
    pages: u64,
    reads: u64,
    rng: &mut Rng,
    recorder: &mut Recorder<'_>,
    pause: Duration,
) -> Result<(u64, Vec<u64>), LabError> {
    let (volume, clock) = (bench.f2fs()?, bench.clock());
    let (mut page, mut times) = (vec![0; BLOCK], Vec::new());
    for _ in 0..reads {
        let from = clock.monotonic();
        volume.read(ino, rng.below(pages) * BLOCK as u64, &mut page)?;
        times.push((clock.monotonic() - from).as_nanos() as u64);
        clock.advance(pause);
        recorder.step()?;
    }
    Ok((reads * BLOCK as u64, times))
}
