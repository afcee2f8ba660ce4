//! Cleaning in the background, by one policy, until it finds nothing more worth cleaning.
//!
//! The volume is made as FAGC TACO'23, section 6.1 tells it: segments of several types are written one
//! type after the other, each type with so many valid blocks per segment and its free blocks in pieces
//! of one size. Then nothing happens but cleaning, a section whenever one is due.

use std::time::Duration;

use device::{BLOCK, generate};
use f2fs::MountOptions;
use f2fs::cause::Cause;
use f2fs::gc::background::Settings;
use f2fs::gc::policy::Policy;
use serde::Deserialize;
use vfs::{Allocate, FileSystem, Ino, WriteFlags};

use super::{Measured, parameters};
use crate::bench::{Bench, blocks_of_mib};
use crate::plan::Job;
use crate::result::{Histogram, Phase};
use crate::run::{LabError, Progress};

/// Blocks of a segment.
const SEGMENT: u64 = 512;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Mebibytes of the volume.
    volume_mib: u64,
    /// Segments of each type.
    segments: u64,
    /// The types.
    types: Vec<Type>,
    /// Who chooses what is cleaned.
    policy: String,
    /// Milliseconds between two sections.
    interval_ms: u64,
    /// Seconds of age from which policies with a threshold clean.
    age_threshold: u64,
    /// Days the volume was in use before.
    #[serde(default)]
    days_before: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Type {
    /// What it is called.
    name: String,
    /// Valid blocks of a segment.
    valid: u64,
    /// Blocks of a piece of free space; the last piece of a segment may be smaller.
    piece: u64,
}

/// Measures it.
pub(super) fn run(
    profile: &device::energy::profile::Profile,
    job: &Job,
    progress: &Progress<'_>,
) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let policy = Policy::parse(&p.policy).map_err(|why| LabError::Parameters(format!("policy {why}")))?;
    for t in &p.types {
        // Between two pieces stands a valid block.
        if t.valid == 0 || t.valid >= SEGMENT || t.piece == 0 || (SEGMENT - t.valid).div_ceil(t.piece) > t.valid {
            return Err(LabError::Parameters(format!(
                "type {}: {} valid blocks cannot part the rest of a segment into pieces of {}",
                t.name, t.valid, t.piece
            )));
        }
    }
    let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
    let wait = Duration::from_millis(p.interval_ms);
    let mut gc = Settings { on: false, policy, ..Settings::default() };
    (gc.intervals.min, gc.intervals.max, gc.intervals.none, gc.intervals.idle) = (wait, wait, wait, Duration::ZERO);
    bench.format(job.seed, MountOptions { gc, ..MountOptions::default() })?;
    let total = p.segments * p.types.len() as u64;
    let written = bench.measure("writing", total, &progress.part(0, 2), |recorder| {
        for (n, t) in p.types.iter().enumerate() {
            write(&bench, t, p.segments, job.seed ^ n as u64, || recorder.step())?;
        }
        Ok(total * SEGMENT * BLOCK as u64)
    })?;
    bench.clock().advance(Duration::from_secs(p.days_before * 86_400));
    bench.volume()?.sync()?;
    let before = state(&bench, "before")?;
    let mut cleaned = clean(&bench, &p, Settings { on: true, ..gc }, total, &progress.part(1, 2))?;
    let after = state(&bench, "after")?;
    notes(&bench, &mut cleaned)?;
    Ok((vec![written, cleaned], vec![before, after]))
}

/// Writes a file whose every segment's worth loses what is not to be valid.
fn write(
    bench: &Bench,
    t: &Type,
    segments: u64,
    seed: u64,
    mut step: impl FnMut() -> Result<(), LabError>,
) -> Result<(), LabError> {
    let fs = bench.volume()?;
    let ino = bench.file(&format!("type-{}", t.name))?;
    align(bench, &format!("before-{}", t.name))?;
    let mut buf = vec![0; SEGMENT as usize * BLOCK];
    for n in 0..segments {
        let first = n * SEGMENT;
        generate(seed, first as u32, &mut buf);
        fs.write(ino, first * BLOCK as u64, &buf, WriteFlags::empty())?;
        step()?;
    }
    fs.fsync(ino, false)?;
    for n in 0..segments {
        punch(&**fs, ino, n * SEGMENT, t)?;
    }
    Ok(fs.sync()?)
}

/// Fills up the log that takes contents of files, so that the next file begins with a segment.
fn align(bench: &Bench, name: &str) -> Result<(), LabError> {
    let fs = bench.volume()?;
    fs.sync()?;
    let warm = format::sit::LogType::WarmData.index();
    let next = fs.state().logs.get(warm).map_or(0, |l| u64::from(l.2));
    let ino = bench.file(name)?;
    let mut buf = vec![0; ((SEGMENT - next) % SEGMENT) as usize * BLOCK];
    generate(0, 0, &mut buf);
    fs.write(ino, 0, &buf, WriteFlags::empty())?;
    Ok(fs.fsync(ino, false)?)
}

/// Makes holes of the type's size, spread over the segment.
fn punch(fs: &dyn FileSystem, ino: Ino, first: u64, t: &Type) -> Result<(), LabError> {
    let mut free = SEGMENT - t.valid;
    let pieces = free.div_ceil(t.piece);
    let mut at = first;
    for n in 0..pieces {
        // Valid blocks are shared out evenly before the pieces.
        at += t.valid * (n + 1) / pieces - t.valid * n / pieces;
        let piece = free.min(t.piece);
        fs.fallocate(ino, Allocate::PunchHole, at * BLOCK as u64, piece * BLOCK as u64)?;
        at += piece;
        free -= piece;
    }
    Ok(())
}

fn clean(bench: &Bench, p: &Parameters, gc: Settings, total: u64, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let volume = bench.volume()?;
    volume.set_cleaning(gc);
    volume.tune("atgc_age_threshold", &p.age_threshold.to_string()).map_err(LabError::Parameters)?;
    let wait = Duration::from_millis(p.interval_ms);
    bench.measure("cleaning", total, progress, |recorder| {
        let nothing = || volume.counters.nothing_to_clean.load(std::sync::atomic::Ordering::Relaxed);
        let start = nothing();
        while nothing() == start {
            bench.clock().advance(wait);
            recorder.step()?;
        }
        volume.sync()?;
        Ok(volume.counters.moved_blocks() * BLOCK as u64)
    })
}

fn notes(bench: &Bench, phase: &mut Phase) -> Result<(), LabError> {
    use std::sync::atomic::Ordering::Relaxed;
    let volume = bench.volume()?;
    let c = &volume.counters;
    let count = c.sections_cleaned() as f64;
    phase.note("gc_count", count, "GCs");
    phase.note("moved_blocks", c.moved_blocks() as f64, "blocks");
    phase.note("moved_threaded", c.moved_threaded.load(Relaxed) as f64, "blocks");
    phase.note("node_victims", c.node_victims.load(Relaxed) as f64, "GCs");
    phase.note("blocks_per_gc", c.moved_blocks() as f64 / count.max(1.0), "blocks");
    let free = volume.free_fragments();
    let (fragments, blocks) = free.fragments();
    phase.note("free_fragments", fragments as f64, "pieces");
    phase.note("free_fragment_capacity", blocks as f64 * BLOCK as f64 / 1e6, "MB");
    phase.note("free_segments", volume.state().free_segments.into(), "segments");
    let of = |cause: Cause| phase.cause(cause as u8).joules();
    let joules = of(Cause::BackgroundGcData) + of(Cause::BackgroundGcNode);
    phase.note("joules_moving", joules, "J");
    // As the paper counts them: the least it measured for one GC in the background.
    phase.note("joules_at_102_79_mj", count * 0.102_79, "J");
    Ok(())
}

fn state(bench: &Bench, when: &str) -> Result<Histogram, LabError> {
    let free = bench.volume()?.free_fragments();
    let bars = free.count.iter().enumerate().map(|(level, n)| (f2fs::FreeFragments::name(level), *n));
    Ok(Histogram {
        name: format!("pieces of free space by size, {when} cleaning (L1 is 4 KB, L9 over 512 KB)"),
        unit: "pieces".into(),
        bars: bars.collect(),
    })
}
