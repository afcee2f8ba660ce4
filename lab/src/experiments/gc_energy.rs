//! What does one cleaning cost on an otherwise idle volume in a given state?
//!
//! Several cleanings in a row in the foreground, and background cleaning at several paces. The model prices what it
//! knows: requests, bytes, flushes, the processor's part of each, and the board during requests. It does not know the
//! power of a phone that is awake; the notes of the foreground phase give that for the published time. The volume is
//! remounted before each measurement, so that each starts with cold caches.

use std::time::Duration;

use device::energy::profile::Profile;
use device::energy::{Component, Energy};
use f2fs::MountOptions;
use f2fs::cause::Cause;
use schemars::JsonSchema;
use serde::Deserialize;
use victim::Policy;

use super::cleaned::{self, Cleaned};
use super::given::{Given, OnVolume};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Histogram, Phase};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Cleanings in the foreground.
    pub foreground: u64,
    /// Seconds of each background measurement.
    pub background_s: u64,
    /// Minimum sleeps of the background in milliseconds, one measurement each; the first is the baseline.
    pub sleeps_ms: Vec<u64>,
    /// The published numbers.
    pub published: Published,
}

/// The paper's numbers for comparison with the model.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// Seconds of all foreground cleanings.
    foreground_s: f64,
    /// Millijoules per foreground cleaning.
    foreground_mj: f64,
    /// Millijoules per background cleaning, for each of the sleeps.
    background_mj: Vec<f64>,
    /// Millijoules per megabyte of random reads and of random writes.
    move_mj_per_mb: [f64; 2],
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    if p.sleeps_ms.len() != p.published.background_mj.len() || p.sleeps_ms.is_empty() {
        return Err(LabError::parameters("published.background_mj: one number for each of sleeps_ms"));
    }
    let parts = 2 + p.sleeps_ms.len();
    let (mut bench, (mut phases, mut histograms)) = prepared(profile, job, &given, &progress.part(0, parts))?;
    let board = profile.host.board.value.watts();
    phases.push(foreground(&mut bench, &p, board, &progress.part(1, parts))?);
    let mut first = None;
    for (n, (sleep, published)) in p.sleeps_ms.iter().zip(&p.published.background_mj).enumerate() {
        let mut phase = background(&mut bench, &p, *sleep, &progress.part(2 + n, parts))?;
        let (energy, count) = (phase.total(), count(&phase));
        let (base, base_count) = *first.get_or_insert((energy, count));
        let above = energy.millijoules() - base.millijoules();
        phase.note("increase", above, "mJ");
        if count > base_count {
            phase.note("energy_per_gc", above / (count - base_count), "mJ");
        }
        // A phone whose board is always powered and that cleans as often as the growing sleep allows.
        let awake = board * 1e3 * p.background_s as f64;
        let wakes = wakes(*sleep, p.background_s * 1000) as f64;
        phase.note("wakes", wakes, "times");
        phase.note("published_whole", awake + published * wakes, "mJ");
        let own = energy.millijoules() - phase.component(Component::Board).millijoules();
        phase.note("whole", awake + own, "mJ");
        phases.push(phase);
    }
    histograms.push(Histogram::of_free_space(&bench.f2fs()?.free_fragments(), "after all cleaning"));
    Ok((phases, histograms))
}

/// A volume in its state, with cleaning off.
pub(super) fn prepared(
    profile: &Profile,
    job: &Job,
    given: &Given,
    progress: &Progress<'_>,
) -> Result<(Bench, Measured), LabError> {
    let options = MountOptions { gc: cleaned::never(Policy::CostBenefit), ..MountOptions::default() };
    given.bench(profile, job, options, progress)
}

/// How often a thread wakes within `within` milliseconds if its `n`-th sleep is `n` times the shortest: the rule of the
/// kernel and of [`f2fs::gc::pacer::Pacer`] for a volume with little to gain, up to the longest sleep.
fn wakes(shortest: u64, within: u64) -> u64 {
    let longest = cleaned::every(Policy::CostBenefit, Duration::from_millis(shortest)).intervals.max.as_millis() as u64;
    let mut at = 0;
    (1..)
        .take_while(|n| {
            at += (n * shortest).min(longest);
            at <= within
        })
        .count() as u64
}

fn count(phase: &Phase) -> f64 {
    phase.measures.get("gc_count").map_or(0.0, |m| m.value)
}

/// Runs several cleanings in a row.
pub(super) fn foreground(
    bench: &mut Bench,
    p: &Parameters,
    board: f64,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    bench.restart(true)?;
    let volume = bench.f2fs()?;
    let before = Cleaned::so_far(volume);
    let mut phase = bench.measure("foreground", p.foreground, progress, |recorder| {
        for _ in 0..p.foreground {
            if !volume.clean_in_foreground().map_err(vfs::Error::from)? {
                break;
            }
            recorder.step()?;
        }
        Ok(0)
    })?;
    let done = Cleaned::so_far(volume).since(before);
    done.note(&mut phase);
    let count = done.sections as f64;
    let of = |cause: Cause| phase.cause(cause as u8);
    let moving = of(Cause::ForegroundGcData) + of(Cause::ForegroundGcNode);
    let own_board = phase.component(Component::Board);
    let each = |e: Energy| e.millijoules() / count;
    let (total, moving, own_board) = (each(phase.total()), each(moving), each(own_board));
    let published_time = p.published.foreground_s / p.foreground as f64;
    // The board's energy for the published time instead of the simulated one.
    let board_over_published = board * 1e3 * published_time;
    let known = total - own_board + board_over_published;
    phase.note("energy_per_gc", total, "mJ");
    phase.note("energy_per_gc_moving", moving, "mJ");
    phase.note("energy_per_gc_rest", total - moving, "mJ");
    phase.note("board_over_published_time", board_over_published, "mJ");
    phase.note("energy_per_gc_with_published_time", known, "mJ");
    phase.note("power_unexplained", (p.published.foreground_mj - known) / published_time, "mW");
    // A segment has 2 MiB: cleaning cannot move more.
    let most: f64 = 2.0 * p.published.move_mj_per_mb.iter().sum::<f64>();
    phase.note("moving_at_most", most, "mJ");
    let rest = p.published.foreground_mj - most - board_over_published;
    phase.note("power_unexplained_at_least", rest / published_time, "mW");
    Ok(phase)
}

/// Cleans in the background for a number of seconds. By the file system's rule, each sleep is longer than the previous
/// by the shortest.
pub(super) fn background(
    bench: &mut Bench,
    p: &Parameters,
    sleep: u64,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    bench.restart(true)?;
    let volume = bench.f2fs()?;
    let time = Duration::from_secs(p.background_s);
    volume.set_cleaning(cleaned::every(Policy::CostBenefit, Duration::from_millis(sleep)));
    let before = Cleaned::so_far(volume);
    let name = format!("background-{sleep}ms");
    let mut phase = bench.measure(&name, p.background_s, progress, |recorder| {
        cleaned::pass_time(bench, recorder, time)?;
        // Moved blocks become free with the checkpoint.
        volume.set_cleaning(cleaned::never(Policy::CostBenefit));
        vfs::FileSystem::sync(&**volume)?;
        Ok(0)
    })?;
    Cleaned::so_far(volume).since(before).note(&mut phase);
    Ok(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_growing_sleep_wakes_as_often_as_was_published_for_800_seconds() {
        // 73.68 J at 184.3 mJ each are 399.8 (FAGC TACO'23, section 4.5).
        assert_eq!(wakes(10, 800_000), 399);
        assert_eq!([120_000, 1000, 100, 10].map(|sleep| wakes(sleep, 120_000)), [1, 15, 48, 154]);
    }
}
