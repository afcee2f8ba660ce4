//! Background cleaning by one policy until it finds nothing more worth cleaning.
//!
//! The volume is made as in FAGC TACO'23, section 6.1 ([`typed`]). Then only cleaning runs, one section per interval.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::BLOCK;
use device::energy::profile::Profile;
use f2fs::MountOptions;
use f2fs::cause::Cause;
use f2fs::gc::settings::Settings;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::afterwards::{self, Afterwards};
use super::cleaned;
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Stage};
use sim::typed;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Segments of each type.
    segments: u64,
    /// Valid blocks per segment of type A or B.
    valid: u64,
    /// Invalid blocks as a percentage of all.
    invalid_percent: f64,
    /// The cleaning policy; `none`: no cleaning.
    policy: String,
    /// The power source.
    power: String,
    /// Milliseconds between two sections.
    interval_ms: u64,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// Days between writing and cleaning.
    days_before: u64,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    let wait = Duration::from_millis(p.interval_ms);
    let gc = cleaned::evenly(&p.policy, &p.power, wait)?;
    let types = typed::types(p.valid, p.invalid_percent)?;
    let options = MountOptions { gc, ..MountOptions::default() };
    let parts = if given.is_aged() { 4 } else { 3 };
    let (bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, parts))?;
    let total = p.segments * types.len() as u64;
    let mut writing = bench.measure("writing", total, &progress.part(parts - 3, parts), |recorder| {
        for (n, t) in types.iter().enumerate() {
            typed::write(bench.f2fs()?, t, p.segments, job.seed ^ n as u64, || recorder.step())?;
        }
        Ok(total * typed::SEGMENT * BLOCK as u64)
    })?;
    writing.stage = Stage::Preparation;
    phases.push(writing);
    bench.clock().advance(Duration::from_secs(p.days_before * 86_400));
    bench.f2fs()?.sync()?;
    let before = bench.f2fs()?.free_fragments().fragments();
    let gc = Settings { on: cleaned::cleans(&p.policy), ..gc };
    let mut cleaned = clean(&bench, &p, gc, total, &progress.part(parts - 2, parts))?;
    histograms.push(Histogram::of_free_space(&bench.f2fs()?.free_fragments(), "after cleaning"));
    notes(&bench, &mut cleaned, before)?;
    phases.push(cleaned);
    afterwards::run(p.after, &bench, job.seed, &progress.part(parts - 1, parts), &mut phases)?;
    Ok((phases, histograms))
}

fn clean(bench: &Bench, p: &Parameters, gc: Settings, total: u64, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let volume = bench.f2fs()?;
    volume.set_cleaning(gc);
    cleaned::set_age_threshold(volume, p.age_threshold)?;
    let wait = Duration::from_millis(p.interval_ms);
    Ok(bench.measure("cleaning", total, progress, |recorder| {
        let nothing = || volume.counters.nothing_to_clean.load(Relaxed);
        let start = nothing();
        while gc.on && nothing() == start {
            bench.clock().advance(wait);
            recorder.step()?;
        }
        volume.sync()?;
        Ok(volume.counters.moved_blocks() * BLOCK as u64)
    })?)
}

fn notes(bench: &Bench, phase: &mut Phase, before: (u64, u64)) -> Result<(), LabError> {
    let volume = bench.f2fs()?;
    let c = &volume.counters;
    let count = c.sections_cleaned() as f64;
    phase.note("gc_count", count, "GCs");
    phase.note("moved_blocks", c.moved_blocks() as f64, "blocks");
    phase.note("moved_threaded", c.moved_threaded.load(Relaxed) as f64, "blocks");
    phase.note("node_victims", c.node_victims.load(Relaxed) as f64, "GCs");
    phase.note("blocks_per_gc", c.moved_blocks() as f64 / count.max(1.0), "blocks");
    let megabytes = |blocks: u64| (blocks * BLOCK as u64) as f64 / 1_048_576.0;
    let after = volume.free_fragments().fragments();
    for (when, (fragments, blocks)) in [("_before", before), ("", after)] {
        phase.note(&format!("free_fragments{when}"), fragments as f64, "pieces");
        phase.note(&format!("free_fragment_capacity{when}"), megabytes(blocks), "MB");
    }
    phase.note("free_segments", volume.state().free_segments.into(), "segments");
    let of = |cause: Cause| phase.cause(cause as u8).joules();
    let joules = of(Cause::BackgroundGcData) + of(Cause::BackgroundGcNode);
    phase.note("joules_moving", joules, "J");
    // The paper's count: the lowest energy it measured for one background GC.
    phase.note("joules_at_102_79_mj", count * 0.102_79, "J");
    Ok(())
}
