//! What does background cleaning cost if it frees nothing?
//!
//! Each segment of the volume lacks a few valid blocks: emptying one moves nearly a segment to free one. Then there are
//! hardly any writes for hours, and the background cleans at the pace of a version of Linux ([`Version`]) or of a
//! mount. Reported per hour: the cleaner's runs, sections gained, blocks moved and joules. The control is the same time
//! without background cleaning.
//!
//! Left out: the processor's cost of a run that finds nothing, and reading.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::{BLOCK, generate};
use f2fs::MountOptions;
use f2fs::gc::linux::Version;
use f2fs::gc::settings::{Intervals, Pace, Settings, Urgency};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{FileSystem, WriteFlags};

use super::afterwards::Afterwards;
use super::app_cleaning::fill;
use super::app_noted::distribution;
use super::cleaned::{self, Cleaned};
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, Recorder};
use sim::progress::Progress;
use sim::result::{Histogram, Stage};
use sim::typed::{self, Type};

/// When the background checks for victims.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Looks {
    /// Like a mount.
    Own,
    /// Like a version of Linux on a volume that is not zoned.
    Linux,
    /// Like a version of Linux on a zoned volume.
    LinuxZoned,
    /// Like a version of Linux in urgent mode (`gc_urgent` 1).
    LinuxUrgent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Number of segments that lack some valid blocks.
    segments: u64,
    /// Valid blocks per segment.
    valid: u64,
    /// Percent of the user's space in use; an unused file fills the difference.
    fill_percent: u64,
    /// Seconds between writing the segments and the first check.
    age_seconds: u64,
    /// Hours measured.
    hours: u64,
    /// Seconds between writes of a page, each with an fsync.
    write_seconds: u64,
    /// The cleaning policy; `none`: no cleaning.
    policy: String,
    /// When the background checks.
    looks: Looks,
    /// The version of Linux whose pace is used.
    #[serde(default)]
    version: Option<String>,
    /// Milliseconds between sections in urgent mode.
    #[serde(default)]
    urgent_ms: Option<u64>,
    /// The work after.
    after: Afterwards,
}

impl Parameters {
    /// Refuses invalid combinations.
    pub fn check(&self) -> Result<(), LabError> {
        self.settings()?;
        if !(1..typed::SEGMENT).contains(&self.valid) || self.hours == 0 || self.write_seconds == 0 {
            return Err(LabError::parameters("valid is 1 to 511, hours and write_seconds 1 or more"));
        }
        Ok(())
    }

    fn version(&self) -> Result<Version, LabError> {
        let found = Version::ALL.into_iter().find(|(name, _)| Some(*name) == self.version.as_deref());
        let names = Version::ALL.map(|(name, _)| name).join(", ");
        found.map(|(_, v)| v).ok_or_else(|| LabError::parameters(format!("version is one of {names}")))
    }

    fn settings(&self) -> Result<Settings, LabError> {
        let policy = cleaned::policy(&self.policy)?;
        let on = cleaned::cleans(&self.policy);
        let own =
            Settings { on, policy, pace: Pace::of(policy), intervals: Intervals::of(policy), ..Settings::default() };
        let linux = Settings { pace: Pace::VICTIM, ..own };
        let mut gc = match self.looks {
            Looks::Own => own,
            Looks::Linux => self.version()?.pace(false, linux),
            Looks::LinuxZoned => self.version()?.pace(true, linux),
            Looks::LinuxUrgent => Settings { urgency: Urgency::High, ..self.version()?.pace(false, linux) },
        };
        if let Some(ms) = self.urgent_ms {
            gc.intervals.urgent = Duration::from_millis(ms);
        }
        Ok(gc)
    }
}

/// The time with hardly any writes; returns the bytes written.
fn rest(
    bench: &Bench,
    p: &Parameters,
    recorder: &mut Recorder<'_>,
    seed: u64,
    syncs: &mut Vec<u64>,
) -> Result<u64, LabError> {
    let (volume, ino) = (bench.f2fs()?, bench.file("touched")?);
    let mut page = [0; BLOCK];
    let writes = p.hours * 3600 / p.write_seconds;
    for n in 0..writes {
        cleaned::pass_time(bench, recorder, Duration::from_secs(p.write_seconds))?;
        generate(seed, n as u32, &mut page);
        let from = bench.clock().monotonic();
        volume.write(ino, n % 16 * BLOCK as u64, &page, WriteFlags::empty())?;
        volume.fsync(ino, true)?;
        syncs.push((bench.clock().monotonic() - from).as_nanos() as u64);
    }
    Ok(writes * BLOCK as u64)
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let gc = p.settings()?;
    let options = MountOptions { gc: cleaned::never(gc.policy), ..MountOptions::default() };
    let (bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, 4))?;
    let volume = bench.f2fs()?;
    // Spread its free blocks over the segment.
    let pieces = (typed::SEGMENT - p.valid).min(p.valid).min(8);
    let segment = Type { name: "A", valid: p.valid, pieces };
    let mut writing = bench.measure("writing", p.segments, &progress.part(1, 4), |recorder| {
        typed::write(volume, &segment, p.segments, job.seed, || recorder.step())?;
        Ok(p.segments * typed::SEGMENT * BLOCK as u64)
    })?;
    writing.stage = Stage::Preparation;
    phases.push(writing);
    fill(&bench, p.fill_percent, job.seed)?;
    bench.clock().advance(Duration::from_secs(p.age_seconds));
    volume.sync()?;
    volume.forget_past();
    let soon = || {
        let state = volume.state();
        f64::from(state.free_segments + state.prefree_segments)
    };
    let (free, before, mut syncs) = (soon(), Cleaned::so_far(volume), Vec::new());
    let turns = || volume.counters.background_gc.load(Relaxed);
    let from = turns();
    volume.set_cleaning(gc);
    let mut phase = bench.measure("rest", p.hours * 3600, &progress.part(2, 4), |recorder| {
        let bytes = rest(&bench, &p, recorder, job.seed, &mut syncs)?;
        volume.set_cleaning(cleaned::never(gc.policy));
        volume.sync()?;
        Ok(bytes)
    })?;
    phase.stage = Stage::Measured;
    let cleaned = Cleaned::so_far(volume).since(before);
    let (hours, calls) = (p.hours as f64, (turns() - from + cleaned.nothing) as f64);
    phase.note("calls", calls, "calls");
    phase.note("calls_per_hour", calls / hours, "1/h");
    phase.note("gc_count", cleaned.sections as f64, "GCs");
    phase.note("nothing_found", cleaned.nothing as f64, "calls");
    phase.note("moved_blocks", cleaned.moved as f64, "blocks");
    phase.note("sections_won", soon() - free, "sections");
    phase.note("free_segments_before", free, "segments");
    phase.note("joules_per_hour", phase.total().joules() / hours, "J/h");
    cleaned::note_inside(&mut phase);
    distribution(&mut phase, "sync", &mut syncs);
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "at the end"));
    let mut after = p.after.run(&bench, job.seed, &progress.part(3, 4))?;
    after.note("in_all", (phase.total() + after.total()).joules(), "J");
    phases.extend([phase, after]);
    volume.unmount()?;
    Ok((phases, histograms))
}
