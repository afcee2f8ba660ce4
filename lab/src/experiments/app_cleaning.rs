//! What do small updates cost on an aged, nearly full volume with concurrent cleaning?
//!
//! All applications ([`crate::apps`]) run at the same time on one volume. Whatever is measured, the volume is aged
//! without deltas and with in-place updates, so every variant begins with the same blocks. Each minute a policy gets
//! the number of sections to clean until enough segments are free, and cleans them one after the other while no
//! application has a call due. Afterwards SQLite checks the databases.
//!
//! A section is cleaned whole before the next call; on a mount, calls run between its steps. So the delay of calls is
//! reported ([`Late`]), separately from the time of an fsync. Left out: the applications' computing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::BLOCK;
use device::clock::Clock;
use device::energy::profile::Profile;
use f2fs::MountOptions;
use f2fs::cause::Cause;
use f2fs::gc::settings::Settings;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::afterwards::{self, Afterwards};
use super::app_noted::{self, Kept, Times, distribution};
use super::cleaned::{self, Cleaned, Who};
use super::given::OnVolume;
use super::keeping::Keeping;
use super::{Measured, parameters};
use crate::apps::App;
use crate::apps::database;
use crate::apps::play::{Made, Player};
use crate::apps::tape::Script;
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, Recorder, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Stage};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The applications by name.
    apps: Vec<String>,
    /// Minutes of use.
    minutes: u64,
    /// How small updates are stored.
    keeping: Keeping,
    /// Whether deltas of read-only files are folded while the volume is idle.
    #[serde(default)]
    delta_return: bool,
    /// MiB of the host's memory.
    memory_mib: u64,
    /// Percent of the user's space in use at the start; an unused file fills the difference.
    fill_percent: u64,
    /// The cleaning policy.
    cleaning: Who,
    /// Percent of the main area's segments that cleaning keeps free.
    keep_free_percent: u32,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

impl Parameters {
    /// Refuses unknown names.
    pub fn check(&self) -> Result<(), LabError> {
        self.apps.iter().try_for_each(|name| App::find(name).map(drop))?;
        self.cleaning.check()?;
        if self.minutes == 0 || self.memory_mib == 0 || self.fill_percent > 99 {
            return Err(LabError::parameters("minutes and memory_mib are 1 or more, fill_percent 99 or less"));
        }
        Ok(())
    }
}

/// An application being replayed.
struct User<'s> {
    player: Player<'s>,
    /// When its next call is due.
    due: Duration,
}

/// How long applications waited for each other and for cleaning before their calls began, in nanoseconds.
type Late = Vec<u64>;

/// Sections still to be cleaned before the next check.
struct Cleaner {
    settings: Settings,
    keep: u32,
    left: u32,
    next_look: Duration,
    fewest: u32,
}

/// Time between checks of the free segments.
const LOOKS: Duration = Duration::from_secs(60);

/// Replays the applications.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let even = cleaned::evenly(&p.cleaning.policy, &p.cleaning.power, Duration::ZERO)?;
    let gc = Settings { pace: p.cleaning.pace.pace(even.policy), ..even };
    let (features, options) = p.keeping.of();
    let aging = MountOptions { delta: false, gc, ..MountOptions::default() };
    let (mut bench, (mut phases, mut histograms)) =
        given.bench_with(profile, job, features, aging, &progress.part(0, 3))?;
    bench.keep_in_memory(blocks_of_mib(p.memory_mib) as usize);
    bench.mount_as(MountOptions { gc, delta_return: p.delta_return, ..options })?;
    let mut scripts = Vec::new();
    for name in &p.apps {
        scripts.push((format!("{name}-"), App::find(name)?.script(p.minutes, job.seed, None)?));
    }
    let mut users: Vec<User<'_>> = Vec::new();
    for (prefix, script) in &scripts {
        let mut player = Player::among_others(script, prefix);
        while player.left() > 0 {
            player.step(&**bench.f2fs()?)?;
        }
        users.push(User { player, due: Duration::ZERO });
    }
    fill(&bench, p.fill_percent, job.seed)?;
    bench.restart(false)?;
    cleaned::set_age_threshold(bench.f2fs()?, p.age_threshold)?;
    let now = bench.clock().monotonic();
    for (n, user) in users.iter_mut().enumerate() {
        user.player.find_again(&**bench.f2fs()?)?;
        user.player.begin();
        user.due = now + Duration::from_millis(100 * n as u64);
    }
    phases.push(use_all(&bench, &p, gc, users, &progress.part(1, 3))?);
    histograms.push(Histogram::of_free_space(&bench.f2fs()?.free_fragments(), "after use"));
    check(&bench, &scripts)?;
    afterwards::run(p.after, &bench, job.seed, &progress.part(2, 3), &mut phases)?;
    bench.f2fs()?.unmount()?;
    Ok((phases, histograms))
}

/// Lets SQLite check the databases.
fn check(bench: &Bench, scripts: &[(String, Script)]) -> Result<(), LabError> {
    for (prefix, script) in scripts {
        for (file, expected) in &script.databases {
            database::check(bench.f2fs()?.clone(), &format!("{prefix}{file}"), expected)?;
        }
    }
    Ok(())
}

/// Fills the user's space to `percent` percent.
pub(super) fn fill(bench: &Bench, percent: u64, seed: u64) -> Result<(), LabError> {
    let volume = bench.f2fs()?;
    volume.sync()?;
    let s = volume.statfs()?;
    let wanted = (s.blocks * percent / 100).saturating_sub(s.blocks - s.blocks_free);
    // The rest is for the file's nodes.
    let bytes = wanted * 1000 / 1003 * BLOCK as u64;
    let ino = bench.file("ballast")?;
    Ok(bench.write_whole(ino, bytes & !0xf_ffff, seed)?)
}

fn use_all(
    bench: &Bench,
    p: &Parameters,
    gc: Settings,
    mut users: Vec<User<'_>>,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    let volume = bench.f2fs()?;
    let clock = bench.clock();
    let keep = match cleaned::cleans(&p.cleaning.policy) {
        true => volume.superblock().main_segs * p.keep_free_percent / 100,
        false => 0,
    };
    let (before, kept, free) = (Cleaned::so_far(volume), Kept::so_far(volume), volume.state().free_segments);
    let mut cleaner = Cleaner { settings: gc, keep, left: 0, next_look: clock.monotonic(), fewest: free };
    let (mut times, mut late): (Times, Late) = Default::default();
    let asked = bench.asked();
    let steps = users.iter().map(|u| u.player.left() as u64).sum();
    let mut phase = bench.measure("use", steps, progress, |recorder| {
        let mut bytes = 0;
        while let Some(user) = users.iter_mut().filter(|u| u.player.left() > 0).min_by_key(|u| u.due) {
            cleaner.until(bench, recorder, user.due)?;
            late.push((clock.monotonic() - user.due).as_nanos() as u64);
            while user.player.left() > 0 {
                bytes += user.player.bytes();
                let made = times.step(&mut user.player, volume, clock)?;
                recorder.step()?;
                if let Made::Wait(time) = made {
                    user.due = clock.monotonic() + time;
                    break;
                }
            }
        }
        volume.sync()?;
        Ok(bytes)
    })?;
    phase.stage = Stage::Measured;
    let after = bench.asked();
    app_noted::traffic(&mut phase, &(&after.0 - &asked.0), &(&after.1 - &asked.1));
    kept.note(volume, &mut phase);
    times.note(&mut phase);
    distribution(&mut phase, "late", &mut late);
    let cleaned = Cleaned::so_far(volume).since(before);
    cleaned.note(&mut phase);
    phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
    phase.note("longest_step", volume.counters.longest_pause.load(Relaxed) as f64 / 1e3, "ms");
    phase.note("free_segments_before", free.into(), "segments");
    phase.note("fewest_free_segments", cleaner.fewest.into(), "segments");
    phase.note("segments_wanted", keep.into(), "segments");
    let moving = [Cause::BackgroundGcData, Cause::BackgroundGcNode, Cause::ForegroundGcData, Cause::ForegroundGcNode];
    let joules = moving.iter().map(|c| phase.cause(*c as u8).joules()).sum();
    phase.note("joules_moving", joules, "J");
    Ok(phase)
}

impl Cleaner {
    /// Waits until `due`, and cleans pending sections meanwhile.
    fn until(&mut self, bench: &Bench, recorder: &mut Recorder<'_>, due: Duration) -> Result<(), LabError> {
        let (volume, clock) = (bench.f2fs()?, bench.clock());
        while let Some(left) = due.checked_sub(clock.monotonic()).filter(|left| !left.is_zero()) {
            if clock.monotonic() >= self.next_look {
                self.next_look = clock.monotonic() + LOOKS;
                let free = volume.state().free_segments;
                self.fewest = self.fewest.min(free);
                self.left = self.keep.saturating_sub(free);
            }
            if self.left == 0 {
                clock.advance(left.min(Duration::from_secs(1)));
                recorder.step()?;
                continue;
            }
            let nothing = volume.counters.nothing_to_clean.load(Relaxed);
            volume.set_cleaning(Settings { on: true, ..self.settings });
            recorder.step()?;
            volume.set_cleaning(self.settings);
            self.left -= 1;
            if volume.counters.nothing_to_clean.load(Relaxed) > nothing {
                self.left = 0;
            }
        }
        Ok(())
    }
}
