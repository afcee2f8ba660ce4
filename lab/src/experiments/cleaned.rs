//! What did cleaning do during a phase, and how is a volume cleaned at a given pace?
//!
//! Shared by the experiments on cleaning. Left out on purpose: their other measurements.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use f2fs::Volume;
use f2fs::gc::settings::{Pace, Settings};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;
use victim::{Policy, Power};

use crate::error::LabError;
use sim::NOBODY;
use sim::bench::{Bench, Recorder};
use sim::progress::Progress;
use sim::result::Phase;

/// A snapshot of the volume's cleaning counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// Sections cleaned.
    pub sections: u64,
    /// Sections of nodes among them.
    pub of_nodes: u64,
    /// Sections cleaned while a writer waited.
    pub in_foreground: u64,
    /// Blocks moved.
    pub moved: u64,
    /// Blocks moved into holes of used segments.
    pub threaded: u64,
    /// Number of times nothing was worth cleaning.
    pub nothing: u64,
}

impl Cleaned {
    /// The counters since the mount.
    pub fn so_far(volume: &Volume) -> Self {
        let c = &volume.counters;
        Cleaned {
            sections: c.sections_cleaned(),
            of_nodes: c.node_victims.load(Relaxed),
            in_foreground: c.foreground_gc.load(Relaxed),
            moved: c.moved_blocks(),
            threaded: c.moved_threaded.load(Relaxed),
            nothing: c.nothing_to_clean.load(Relaxed),
        }
    }

    /// The counters since `earlier`.
    pub fn since(self, earlier: Cleaned) -> Self {
        Cleaned {
            sections: self.sections - earlier.sections,
            of_nodes: self.of_nodes - earlier.of_nodes,
            in_foreground: self.in_foreground - earlier.in_foreground,
            moved: self.moved - earlier.moved,
            threaded: self.threaded - earlier.threaded,
            nothing: self.nothing - earlier.nothing,
        }
    }

    /// Notes the counters in a phase.
    pub fn note(self, phase: &mut Phase) {
        phase.note("gc_count", self.sections as f64, "GCs");
        phase.note("node_victims", self.of_nodes as f64, "GCs");
        phase.note("moved_blocks", self.moved as f64, "blocks");
        phase.note("moved_threaded", self.threaded as f64, "blocks");
        phase.note("blocks_per_gc", self.moved as f64 / self.sections as f64, "blocks");
        phase.note("time_per_gc", phase.took.0 as f64 / 1e9 / self.sections as f64, "s");
    }
}

/// Notes what a flash device did with the writes: blocks copied by its own cleaning, and blocks programmed (written,
/// copied, padding) per block written.
pub(super) fn note_inside(phase: &mut Phase) {
    let of = |name: &str| phase.counters.get(name).map(|n| *n as f64);
    let all = ["blocks_programmed", "blocks_padded", "blocks_copied", "blocks_written"].map(of);
    // A disk has none of these counters.
    let [Some(programmed), Some(padded), Some(copied), Some(written)] = all else { return };
    phase.note("flash_copied", copied, "blocks");
    phase.note("flash_padded", padded, "blocks");
    phase.note("flash_write_amplification", (programmed + padded + copied) / written, "x");
}

/// How much is cleaned at a time.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub(super) enum AtATime {
    /// As the policy does on a mount.
    #[default]
    Own,
    /// One victim, as in Linux.
    Victim,
    /// Until sixteen sections are won, in steps of whole segments.
    Turns,
}

impl AtATime {
    /// The pace for a policy.
    pub fn pace(self, policy: Policy) -> Pace {
        match self {
            AtATime::Own => Pace::of(policy),
            AtATime::Victim => Pace::VICTIM,
            AtATime::Turns => Pace::TURNS,
        }
    }
}

/// The cleaning policy and its pace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Who {
    /// The policy; `none`: no cleaning ahead of time.
    pub policy: String,
    /// The power source, for policies that use it.
    pub power: String,
    /// How much is cleaned at a time.
    #[serde(default)]
    pub pace: AtATime,
}

impl Who {
    /// Refuses unknown names.
    pub fn check(&self) -> Result<(), LabError> {
        evenly(&self.policy, &self.power, Duration::ZERO).map(drop)
    }
}

/// Background cleaning before something else is measured.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cleaning {
    /// The policy; `none`: no cleaning.
    policy: String,
    /// The power source, for policies that use it.
    #[serde(default)]
    power: Option<String>,
    /// Milliseconds between cleanings.
    interval_ms: u64,
    /// Maximum number of cleanings; ends earlier if nothing is worth cleaning.
    gcs: u64,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
}

impl Cleaning {
    /// The same settings with cleaning switched off.
    pub fn at_rest(&self) -> Result<Settings, LabError> {
        Ok(never(policy(&self.policy)?))
    }

    /// The settings.
    pub fn settings(&self) -> Result<Settings, LabError> {
        if !cleans(&self.policy) {
            return self.at_rest();
        }
        let mut gc = every(policy(&self.policy)?, Duration::from_millis(self.interval_ms));
        // No longer intervals, even if nothing was found.
        gc.intervals.max = gc.intervals.min;
        gc.intervals.none = gc.intervals.min;
        if let Some(power) = &self.power {
            gc.power = self::power(power)?;
        }
        Ok(gc)
    }

    /// Applies the settings.
    pub fn begin(&self, volume: &Volume) -> Result<(), LabError> {
        set_age_threshold(volume, self.age_threshold)?;
        volume.set_cleaning(self.settings()?);
        Ok(())
    }

    /// Cleans an otherwise idle volume.
    pub fn run(&self, bench: &Bench, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let volume = bench.f2fs()?;
        self.begin(volume)?;
        let before = Cleaned::so_far(volume);
        let done = || Cleaned::so_far(volume).since(before);
        let mut phase = bench.measure("cleaning", self.gcs, progress, |recorder| {
            pass(bench, recorder, || {
                let done = done();
                let goes_on = cleans(&self.policy) && done.sections < self.gcs && done.nothing == 0;
                Ok(goes_on.then_some(Duration::from_secs(1)))
            })?;
            volume.set_cleaning(self.at_rest()?);
            volume.sync()?;
            Ok(0)
        })?;
        done().note(&mut phase);
        phase.note("free_pieces", volume.free_fragments().total() as f64, "pieces");
        Ok(phase)
    }
}

/// A policy by name. For `none`, the default policy: cleaning is switched off, and the foreground does not use it.
pub(super) fn policy(name: &str) -> Result<Policy, LabError> {
    match cleans(name) {
        true => Policy::parse(name).map_err(|why| LabError::parameters(format!("policy {why}, or {NOBODY}"))),
        false => Ok(Settings::default().policy),
    }
}

/// False without background cleaning: the control of every comparison.
pub(super) fn cleans(policy: &str) -> bool {
    policy != NOBODY
}

/// A power source by name.
pub(super) fn power(name: &str) -> Result<Power, LabError> {
    Power::parse(name).map_err(|why| LabError::parameters(format!("power {why}")))
}

/// Sets the minimum age in seconds for policies with an age threshold.
pub(super) fn set_age_threshold(volume: &Volume, seconds: u64) -> Result<(), LabError> {
    volume.tune("atgc_age_threshold", &seconds.to_string()).map_err(LabError::parameters)
}

/// Cleaning at a fixed interval, whatever else runs and whatever it finds.
pub(super) fn evenly(policy: &str, power: &str, wait: Duration) -> Result<Settings, LabError> {
    let mut gc = Settings { power: self::power(power)?, ..never(self::policy(policy)?) };
    (gc.intervals.min, gc.intervals.max, gc.intervals.none, gc.intervals.idle) = (wait, wait, wait, Duration::ZERO);
    Ok(gc)
}

/// Cleaning with a minimum sleep and no urgency: for callers that do nothing else meanwhile, or want to be disturbed.
pub(super) fn every(policy: Policy, sleep: Duration) -> Settings {
    let mut gc = Settings { policy, ..Settings::default() };
    gc.intervals.min = sleep;
    gc.intervals.max = gc.intervals.max.max(sleep);
    gc.intervals.idle = Duration::ZERO;
    gc
}

/// No background cleaning.
pub(super) fn never(policy: Policy) -> Settings {
    Settings { on: false, policy, ..Settings::default() }
}

/// Advances the time and runs due work until `end` returns true.
pub(super) fn pass(
    bench: &Bench,
    recorder: &mut Recorder<'_>,
    mut end: impl FnMut() -> Result<Option<Duration>, LabError>,
) -> Result<(), LabError> {
    let volume = bench.f2fs()?;
    loop {
        recorder.step()?;
        let Some(left) = end()? else { return Ok(()) };
        bench.clock().advance(volume.tick()?.min(left).max(Duration::from_micros(1)));
    }
}

/// Advances the time by `time`.
pub(super) fn pass_time(bench: &Bench, recorder: &mut Recorder<'_>, time: Duration) -> Result<(), LabError> {
    let end = bench.clock().monotonic() + time;
    pass(bench, recorder, || Ok(end.checked_sub(bench.clock().monotonic()).filter(|left| !left.is_zero())))
}
