//! When does cleaning in the background earn its joules back?
//!
//! A volume in a given state, filled so far, is used in turns: work, then a pause in which nobody asks anything and the
//! background cleans at the pace it has on a mount. What follows is the work that free segments are held for
//! ([`super::afterwards`]). What the use, its cleaning and the work after cost together is told beside what callers waited
//! for. The control is the same use while nobody cleans in the background.
//!
//! No caller comes in a pause: if one did, the cleaning of that pause would be another, and policies could not be compared.
//! How long one would wait follows from how long each step took ([`f2fs::gc::waits`]). The work keeps the volume as full as
//! it is: what comes replaces what goes.

mod programs;
mod user;

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

/// What is done in a turn.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Files of 4 to 64 KiB are made, and others, drawn at random, removed.
    SmallFiles,
    /// Files of 8 MiB are made, and the oldest removed.
    Downloads,
    /// Pages of one file are overwritten, four of five in a fifth of it, with an fsync after every eighth.
    Pages,
    /// A third of the bytes each: pages of a database, which the file system takes for hot, small files, and media, which it
    /// takes for cold, of which the oldest goes.
    Mixed,
    /// Of the same files, one after the other: pages change, a third each is read, small files come, media come. A turn is a
    /// quarter, a half, all or twice of what it is elsewhere, drawn at random.
    Day,
    /// Recorded programs, one after the other. Each goes on until it has written as much as a turn does or is done, and begins
    /// anew when its turn comes again.
    Programs,
}

impl Work {
    /// True if there are pages, small files and media at once.
    fn has_media(self) -> bool {
        matches!(self, Work::Mixed | Work::Day)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Percent of the user's space in use: what the work does not need for itself, a file that nobody touches fills.
    fill_percent: u64,
    /// What is done.
    work: Work,
    /// Mebibytes of what the work replaces bit by bit; of programs, for which they find room.
    live_mib: u64,
    /// How many turns there are.
    turns: u64,
    /// Mebibytes written in each, if nothing else is said of the work.
    turn_mib: u64,
    /// Seconds of the pause behind each.
    pause_seconds: u64,
    /// Who cleans meanwhile.
    cleaning: Who,
    /// Seconds of age from which policies with a threshold clean.
    age_threshold: u64,
    /// The work after.
    after: Afterwards,
}

impl Parameters {
    /// Refuses what is not there.
    pub fn check(&self) -> Result<(), LabError> {
        self.cleaning.check()?;
        if self.turns == 0 || self.turn_mib == 0 || self.live_mib < (2 * LARGE) >> 20 || self.fill_percent > 99 {
            return Err(LabError::parameters(
                "turns and turn_mib are 1 or more, live_mib 16 or more, fill_percent 99 or less",
            ));
        }
        Ok(())
    }

    /// All pauses together.
    fn pauses(&self) -> Duration {
        Duration::from_secs(self.turns * self.pause_seconds)
    }

    /// Cleaning as on a mount.
    fn settings(&self) -> Result<Settings, LabError> {
        let policy = cleaned::policy(&self.cleaning.policy)?;
        let power = cleaned::power(&self.cleaning.power)?;
        let (on, pace) = (cleaned::cleans(&self.cleaning.policy), self.cleaning.pace.pace(policy));
        Ok(Settings { on, policy, power, pace, intervals: Intervals::of(policy), ..Settings::default() })
    }
}

/// How long calls took, in nanoseconds, what they waited for among it.
#[derive(Default)]
struct Times {
    /// Those that make something durable.
    syncs: Vec<u64>,
    /// Those that read contents.
    reads: Vec<u64>,
    /// The others.
    calls: Vec<u64>,
}

impl Times {
    /// Makes a call and notes how long it took.
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

/// Who uses the volume.
enum Using<'a> {
    User(User<'a>),
    Programs(Programs<'a>),
}

impl<'a> Using<'a> {
    fn begin(bench: &'a Bench, p: &Parameters, seed: u64) -> Result<Self, LabError> {
        Ok(match p.work {
            Work::Programs => Using::Programs(Programs::begin(bench)),
            _ => Using::User(User::begin(bench, p, seed)?),
        })
    }

    /// One turn; says how many bytes were written or read.
    fn turn(&mut self, bytes: u64) -> Result<u64, LabError> {
        match self {
            Using::User(user) => user.turn(bytes),
            Using::Programs(programs) => programs.turn(bytes),
        }
    }

    /// How many percent of the volume are left free for what comes and goes.
    fn room(&self, bench: &Bench, p: &Parameters) -> Result<u64, LabError> {
        let s = bench.f2fs()?.statfs()?;
        Ok(match self {
            Using::User(_) => 0,
            Using::Programs(_) => (100 * (p.live_mib << 20)).div_ceil(s.blocks * device::BLOCK as u64),
        })
    }

    /// Lets go of what is open.
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

/// Fills the volume so far, and says how full it is; fails where it is fuller already.
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

/// Notes how long a caller waits that comes at a random moment of the time in which the background cleans, and in which share of
/// the pauses one would wait at all.
fn note_waits(phase: &mut Phase, waits: &Waits, longest: Duration, pauses: Duration) {
    let shares = [("wait_median", waits.percentile(50.0)), ("wait_p99", waits.percentile(99.0))];
    for (name, wait) in shares.into_iter().chain([("wait_most", Some(longest).filter(|d| !d.is_zero()))]) {
        if let Some(wait) = wait {
            phase.note(name, wait.as_nanos() as f64 / 1e6, "ms");
        }
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
