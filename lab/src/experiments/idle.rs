//! What does cleaning in the background cost that wins nothing?
//!
//! A volume is written whose segments lack a few blocks each: whoever empties one moves nearly a segment to win one. Then
//! hardly anyone writes for hours, and the background cleans: at the pace of a version of Linux ([`Version`]), or at that
//! of a mount. Calls of the cleaner, sections that are more than before, blocks moved and joules an hour are told. The
//! control is the same time while nobody cleans.
//!
//! Left out: what a call costs the processor that finds nothing, and reading.

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

/// When the background looks whether something is to be cleaned.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Looks {
    /// As on a mount.
    Own,
    /// As a version of Linux on a volume that is not zoned.
    Linux,
    /// As that on a zoned one.
    LinuxZoned,
    /// As a version of Linux that is told to hurry (`gc_urgent` 1).
    LinuxUrgent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Segments that lack some blocks.
    segments: u64,
    /// Valid blocks in each of them.
    valid: u64,
    /// Percent of the user's space in use: what is missing, a file fills that nobody touches.
    fill_percent: u64,
    /// Seconds between writing them and the first look.
    age_seconds: u64,
    /// Hours that are looked at.
    hours: u64,
    /// Seconds between two writes of a page, each with an fsync.
    write_seconds: u64,
    /// Who chooses what is cleaned; `none` if nobody cleans.
    policy: String,
    /// When.
    looks: Looks,
    /// A version of Linux, if it looks.
    #[serde(default)]
    version: Option<String>,
    /// Milliseconds between two sections while it is told to hurry.
    #[serde(default)]
    urgent_ms: Option<u64>,
    /// The work after.
    after: Afterwards,
}

impl Parameters {
    /// Refuses what is not there.
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

/// The time in which hardly anyone writes; says how many bytes were written.
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
    // Its free blocks are spread over the segment.
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
    volume.forget_victims();
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
