//! When does background cleaning save more energy than it costs?
//!
//! A volume in a given state, filled to a percentage, alternates between work and pauses without requests, in which the
//! background cleans at the pace of a mount. Then comes the work that free segments are kept for
//! ([`super::afterwards`]). The total energy of use, cleaning and the work after is reported next to the callers'
//! waiting times. The control is the same use without background cleaning.
//!
//! There are no calls in pauses: a call would change the cleaning of that pause, and policies could not be compared.
//! How long a call would wait is calculated from the durations of the steps ([`f2fs::gc::waits`]). The work does not
//! change how full the volume is: what it creates replaces what it deletes.

mod programs;
pub(super) mod user;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::VirtualClock;
use device::clock::Clock;
use device::energy::profile::Profile;
use f2fs::MountOptions;
use f2fs::cause::Cause;
use f2fs::gc::settings::{Intervals, Settings};
use f2fs::gc::waits::Waits;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::afterwards::Afterwards;
use super::app_cleaning::fill;
use super::app_noted::distribution;
use super::cleaned::{self, Cleaned, Who};
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use programs::Programs;
use sim::bench::{Bench, Recorder};
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Stage};
use user::{LARGE, User};

/// The work of a turn.
#[derive(Debug, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Work {
    /// Creates files of 4 to 64 KiB and removes random others.
    SmallFiles,
    /// Creates files of 8 MiB and removes the oldest.
    Downloads,
    /// Overwrites pages of one file, four of five in a fifth of it, with an fsync after every eighth.
    Pages,
    /// A third of the bytes each: database pages (hot), small files, and media (cold), of which the oldest are removed.
    Mixed,
    /// The same files in turn: page changes, reads of a third each, small files, media. A turn has a quarter, half, all
    /// or twice `turn_mib`, at random.
    Day,
    /// Recorded programs in turn, each until it has written a turn's bytes or ends; it restarts at its next turn.
    Programs,
}

impl Work {
    /// Whether there are pages, small files and media at the same time.
    fn has_media(self) -> bool {
        matches!(self, Work::Mixed | Work::Day)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Percent of the user's space in use; an unused file fills what the work does not need.
    fill_percent: u64,
    /// The work.
    work: Work,
    /// MiB that the work gradually replaces; for programs, the space they have.
    live_mib: u64,
    /// Number of turns.
    turns: u64,
    /// MiB written per turn, unless the work defines it.
    turn_mib: u64,
    /// Seconds of the pause after each turn.
    pause_seconds: u64,
    /// The cleaning policy.
    cleaning: Who,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// The work after.
    after: Afterwards,
}

impl Parameters {
    /// Refuses invalid combinations.
    pub fn check(&self) -> Result<(), LabError> {
        self.cleaning.check()?;
        if self.turns == 0 || self.turn_mib == 0 || self.live_mib < (2 * LARGE) >> 20 || self.fill_percent > 99 {
            return Err(LabError::parameters(
                "turns and turn_mib are 1 or more, live_mib 16 or more, fill_percent 99 or less",
            ));
        }
        Ok(())
    }

    /// The sum of all pauses.
    fn pauses(&self) -> Duration {
        Duration::from_secs(self.turns * self.pause_seconds)
    }

    /// The settings of cleaning, as on a mount.
    fn settings(&self) -> Result<Settings, LabError> {
        let policy = cleaned::policy(&self.cleaning.policy)?;
        let power = cleaned::power(&self.cleaning.power)?;
        let (on, pace) = (cleaned::cleans(&self.cleaning.policy), self.cleaning.pace.pace(policy));
        Ok(Settings { on, policy, power, pace, intervals: Intervals::of(policy), ..Settings::default() })
    }
}

/// Durations of calls in nanoseconds, including their waits.
#[derive(Default)]
pub(super) struct Times {
    /// Calls that sync.
    syncs: Vec<u64>,
    /// Calls that read contents.
    reads: Vec<u64>,
    /// All other calls.
    calls: Vec<u64>,
}

impl Times {
    /// Makes a call and records its duration.
    fn note<T>(
        times: &mut Vec<u64>,
        clock: &VirtualClock,
        call: impl FnOnce() -> vfs::Result<T>,
    ) -> Result<T, vfs::Error> {
        let from = clock.monotonic();
        let out = call()?;
        times.push((clock.monotonic() - from).as_nanos() as u64);
        Ok(out)
    }
}

/// The workload.
enum Using<'a> {
    User(User<'a>),
    Programs(Programs<'a>),
}

impl<'a> Using<'a> {
    fn begin(bench: &'a Bench, p: &Parameters, seed: u64) -> Result<Self, LabError> {
        Ok(match p.work {
            Work::Programs => Using::Programs(Programs::begin(bench)),
            work => Using::User(User::begin(bench, work, p.live_mib, seed)?),
        })
    }

    /// Runs one turn; returns the bytes written or read.
    fn turn(&mut self, bytes: u64) -> Result<u64, LabError> {
        match self {
            Using::User(user) => user.turn(bytes),
            Using::Programs(programs) => programs.turn(bytes),
        }
    }

    /// Percent of the volume to leave free for the workload.
    fn room(&self, bench: &Bench, p: &Parameters) -> Result<u64, LabError> {
        let s = bench.f2fs()?.statfs()?;
        Ok(match self {
            Using::User(_) => 0,
            Using::Programs(_) => (100 * (p.live_mib << 20)).div_ceil(s.blocks * device::BLOCK as u64),
        })
    }

    /// Closes everything open.
    fn stop(&mut self) {
        if let Using::Programs(programs) = self {
            programs.stop();
        }
    }

    fn end(self, phase: &mut Phase) -> Times {
        match self {
            Using::User(user) => user.end(),
            Using::Programs(programs) => programs.end(phase),
        }
    }
}

fn used(
    bench: &Bench,
    p: &Parameters,
    gc: Settings,
    user: &mut Using<'_>,
    recorder: &mut Recorder<'_>,
) -> Result<(u64, u32), LabError> {
    let volume = bench.f2fs()?;
    let (mut bytes, mut fewest) = (0, u32::MAX);
    for _ in 0..p.turns {
        volume.set_cleaning(gc);
        bytes += user.turn(p.turn_mib << 20)?;
        fewest = fewest.min(volume.state().free_segments);
        cleaned::pass_time(bench, recorder, Duration::from_secs(p.pause_seconds))?;
    }
    volume.set_cleaning(cleaned::never(gc.policy));
    user.stop();
    volume.sync()?;
    Ok((bytes, fewest))
}

/// Fills the volume to `percent` percent and returns the actual percentage; fails if it is fuller already.
fn fill_to(bench: &Bench, percent: u64, seed: u64) -> Result<f64, LabError> {
    fill(bench, percent, seed)?;
    let s = bench.f2fs()?.statfs()?;
    let full = 100.0 * (s.blocks - s.blocks_free) as f64 / s.blocks as f64;
    if full > percent as f64 + 1.0 {
        return Err(LabError::parameters(format!(
            "fill_percent {percent}: with its state and what the work replaces, the volume is {full:.1} % full"
        )));
    }
    Ok(full)
}

/// Notes how long a call at a random moment of cleaning would wait, 0 if nothing was cleaned, and in which share of the
/// pauses a call would wait at all.
fn note_waits(phase: &mut Phase, waits: &Waits, longest: Duration, pauses: Duration) {
    let share = |p| waits.percentile(p).unwrap_or_default();
    for (name, wait) in [("wait_median", share(50.0)), ("wait_p99", share(99.0)), ("wait_most", longest)] {
        phase.note(name, wait.as_nanos() as f64 / 1e6, "ms");
    }
    phase.note("steps", waits.stretches() as f64, "steps");
    phase.note("pauses_with_waits", 100.0 * waits.time().as_secs_f64() / pauses.as_secs_f64(), "%");
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let gc = p.settings()?;
    let options = MountOptions { gc: cleaned::never(gc.policy), ..MountOptions::default() };
    let (bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, 3))?;
    let volume = bench.f2fs()?;
    cleaned::set_age_threshold(volume, p.age_threshold)?;
    let mut user = Using::begin(&bench, &p, job.seed)?;
    let full = fill_to(&bench, p.fill_percent - user.room(&bench, &p)?.min(p.fill_percent), job.seed)?;
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "before use"));
    // What cleaning may spend begins with the use that is measured.
    volume.forget_past();
    let free = volume.state().free_segments;
    let (before, waits) = (Cleaned::so_far(volume), volume.counters.waits.so_far());
    let mut fewest = free;
    let mut phase = bench.measure("use", p.turns * p.pause_seconds, &progress.part(1, 3), |recorder| {
        let (bytes, least) = used(&bench, &p, gc, &mut user, recorder)?;
        fewest = least;
        Ok(bytes)
    })?;
    phase.stage = Stage::Measured;
    let cleaned = Cleaned::so_far(volume).since(before);
    cleaned.note(&mut phase);
    cleaned::note_inside(&mut phase);
    phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
    let all = &volume.counters.waits;
    note_waits(&mut phase, &all.so_far().since(&waits), all.longest(), p.pauses());
    let mut times = user.end(&mut phase);
    distribution(&mut phase, "call", &mut times.calls);
    distribution(&mut phase, "sync", &mut times.syncs);
    distribution(&mut phase, "read", &mut times.reads);
    phase.note("syncs_made", times.syncs.len() as f64, "calls");
    phase.note("full", full, "%");
    phase.note("longest_step", volume.counters.longest_pause.load(Relaxed) as f64 / 1e3, "ms");
    phase.note("free_segments_before", free.into(), "segments");
    phase.note("fewest_free_segments", fewest.into(), "segments");
    let moving = [Cause::BackgroundGcData, Cause::BackgroundGcNode, Cause::ForegroundGcData, Cause::ForegroundGcNode];
    phase.note("joules_moving", moving.iter().map(|c| phase.cause(*c as u8).joules()).sum(), "J");
    let mut after = p.after.run(&bench, job.seed, &progress.part(2, 3))?;
    after.note("in_all", (phase.total() + after.total()).joules(), "J");
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "at the end"));
    phases.extend([phase, after]);
    volume.unmount()?;
    Ok((phases, histograms))
}
