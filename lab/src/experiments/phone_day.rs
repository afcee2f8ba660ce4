//! What does a day of a phone's use cost, from the first call in the morning to the unmount after a night on the charger?
//!
//! Applications ([`crate::apps`]) are used in sessions, each of which begins with reads of the application's package;
//! photos and videos are taken, packages are replaced by newer ones. The old photo goes when a new one comes, so the
//! volume stays as full as it was. In between, and all night, the volume rests and does its own work at its own pace.
//! Every variant begins with the same volume, aged and filled by the same mount; its own mount begins in the morning.
//!
//! Left out on purpose: the applications' computing, everything of the phone but its storage, and the mount in the morning.

mod day;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::BLOCK;
use device::clock::Clock;
use device::energy::profile::{DeviceSpec, Profile};
use f2fs::MountOptions;
use f2fs::gc::settings::{Intervals, Pace, Settings, Urgency};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;
use victim::Power;
use volume::Kind;

use day::{Day, User, package, photo, video};

use super::app_cleaning::fill;
use super::app_noted::{self, Kept, distribution};
use super::cleaned::{self, Cleaned};
use super::given::{Named, OnVolume};
use super::keeping::Keeping;
use super::{Measured, parameters};
use crate::apps::App;
use crate::apps::database;
use crate::apps::play::Player;
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, Recorder, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Histogram, Phase};

/// An application and its use.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Use {
    /// The application by name.
    app: String,
    /// Sessions in the day, evenly spaced.
    sessions: u64,
    /// Minutes of a session.
    minutes: u64,
}

/// Large files.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Large {
    /// How many come in the day, evenly spaced.
    times: u64,
    /// KiB of one.
    kib: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The applications.
    apps: Vec<Use>,
    /// Photos taken.
    photos: Large,
    /// Videos taken.
    videos: Large,
    /// Packages replaced by newer ones.
    updates: Large,
    /// Hours of the day, on battery.
    day_hours: u64,
    /// Hours of the night, on the charger.
    night_hours: u64,
    /// Days, each with its night.
    #[serde(default = "one")]
    days: u64,
    /// KiB of its package that an application reads when a session begins.
    launch_kib: u64,
    /// How small updates are stored.
    keeping: Keeping,
    /// Whether deltas of read-only files are folded while the volume is idle.
    #[serde(default)]
    delta_return: bool,
    /// Mount options of the day, which the aging of the volume has not: options of `joulefs mount` by name.
    #[serde(default)]
    mount: Named,
    /// The cleaning policy, at its own pace; `none`: no cleaning ahead of time.
    cleaning: String,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// Seconds between checkpoints, if not F2FS's 60.
    #[serde(default)]
    checkpoint_seconds: Option<u64>,
    /// At night, clean greedily until at most 100 segments are dirty, for 420 s at most, then discard every free block:
    /// Android's idle maintenance (AOSP, `system/vold`, `IdleMaint.cpp`).
    #[serde(default)]
    maintenance: bool,
    /// MiB of the host's memory.
    memory_mib: u64,
    /// Percent of the user's space in use at the start; an unused file fills the difference.
    fill_percent: u64,
    /// Watt-hours of the phone's battery.
    battery_wh: f64,
    /// GiB of the phone's storage, for its years of life. The simulated volume is smaller.
    storage_gib: u64,
}

fn one() -> u64 {
    1
}

impl Parameters {
    /// Refuses unknown names, and numbers that make no day.
    pub fn check(&self) -> Result<(), LabError> {
        self.apps.iter().try_for_each(|u| App::find(&u.app).map(drop))?;
        self.settings(Power::Battery)?;
        self.mount.beside(Kind::F2fs, MountOptions::default())?;
        let no_use = |u: &Use| u.sessions == 0 || u.minutes == 0;
        if self.apps.iter().any(no_use)
            || self.day_hours == 0
            || self.days == 0
            || self.memory_mib == 0
            || self.fill_percent > 99
        {
            return Err(LabError::parameters(
                "sessions, minutes, day_hours, days and memory_mib are 1 or more, fill_percent 99 or less",
            ));
        }
        if [self.photos, self.videos, self.updates].iter().any(|l| l.times > 0 && l.kib == 0) {
            return Err(LabError::parameters("photos, videos and updates of 0 KiB are none: times = 0"));
        }
        Ok(())
    }

    /// Cleaning as on a mount with this policy.
    fn settings(&self, power: Power) -> Result<Settings, LabError> {
        let policy = cleaned::policy(&self.cleaning)?;
        let (intervals, pace) = (Intervals::of(policy), Pace::of(policy));
        Ok(Settings { on: cleaned::cleans(&self.cleaning), policy, intervals, pace, power, ..Settings::default() })
    }

    fn day(&self) -> Duration {
        Duration::from_secs(self.day_hours * 3600)
    }

    fn night(&self) -> Duration {
        Duration::from_secs(self.night_hours * 3600)
    }
}

/// Runs a day and a night.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let gc = p.settings(Power::Battery)?;
    let (features, options) = p.keeping.of();
    let (mut bench, (mut phases, mut histograms)) = given.bench_with(
        profile,
        job,
        features,
        MountOptions { delta: false, gc: cleaned::never(gc.policy), ..MountOptions::default() },
        &progress.part(0, (1 + 2 * p.days) as usize),
    )?;
    bench.keep_in_memory(blocks_of_mib(p.memory_mib) as usize);
    bench.restart(false)?;
    let mut scripts = Vec::new();
    for of in &p.apps {
        let minutes = of.sessions * of.minutes * p.days;
        scripts.push((format!("{}-", of.app), App::find(&of.app)?.script(minutes, job.seed, None)?));
    }
    let mut users = Vec::new();
    for (n, ((prefix, script), of)) in scripts.iter().zip(&p.apps).enumerate() {
        let mut player = Player::among_others(script, prefix);
        while player.left() > 0 {
            player.step(&**bench.f2fs()?)?;
        }
        users.push(User::new(player, of, n as u64, &p));
    }
    let before = Day::new(&bench, &p, job.seed, Duration::ZERO);
    for (of, name) in [(p.photos, photo as fn(u64) -> String), (p.videos, video)] {
        (0..of.times).try_for_each(|n| before.write(&name(n), of.kib).map(drop))?;
    }
    (0..p.apps.len() as u64).try_for_each(|n| before.write(&package(n), p.updates.kib).map(drop))?;
    fill(&bench, p.fill_percent, job.seed)?;
    let checkpoint_after = p.checkpoint_seconds.map_or(options.checkpoint_after, Duration::from_secs);
    let options =
        MountOptions { gc: cleaned::never(gc.policy), delta_return: p.delta_return, checkpoint_after, ..options };
    bench.mount_as(p.mount.beside(Kind::F2fs, options)?)?;
    let volume = bench.f2fs()?.clone();
    cleaned::set_age_threshold(&volume, p.age_threshold)?;
    volume.forget_past();
    for user in &mut users {
        user.player.find_again(&*volume)?;
        user.player.begin();
    }
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "in the morning"));
    let s = volume.statfs()?;
    let full = 100.0 * (s.blocks - s.blocks_free) as f64 / s.blocks as f64;
    let began = bench.clock().monotonic();
    for nth in 0..p.days {
        let part = |n: u64| progress.part((1 + 2 * nth + n) as usize, (1 + 2 * p.days) as usize);
        let (day_name, night_name) = names(nth);
        let mut day = Day::new(&bench, &p, job.seed, began);
        volume.set_cleaning(gc);
        let seconds = (p.day_hours + p.night_hours) * 3600;
        let mut by_day = measured(&bench, &p, &day_name, seconds, &part(0), |recorder| {
            let bytes = day.pass(nth, &mut users, recorder)?;
            volume.sync()?;
            Ok(bytes)
        })?;
        let Day { times, mut late, .. } = day;
        times.note(&mut by_day);
        by_day.note("full", full, "%");
        distribution(&mut by_day, "late", &mut late);
        volume.set_cleaning(p.settings(Power::Powered)?);
        let by_night = measured(&bench, &p, &night_name, seconds, &part(1), |recorder| {
            let mut left = p.night();
            if p.maintenance {
                left = left.saturating_sub(maintain(&bench, recorder, p.settings(Power::Powered)?)?);
            }
            cleaned::pass_time(&bench, recorder, left)?;
            volume.set_cleaning(cleaned::never(gc.policy));
            if nth + 1 == p.days {
                volume.unmount()?
            } else {
                volume.sync()?
            }
            Ok(0)
        })?;
        in_all(profile, &p, &by_day, &by_night)
            .into_iter()
            .for_each(|(name, value, unit)| by_day.note(name, value, unit));
        histograms.push(Histogram::of_free_space(&volume.free_fragments(), "the next morning"));
        phases.extend([by_day, by_night]);
    }
    drop(volume);
    bench.restart(false)?;
    for (prefix, script) in &scripts {
        for (file, expected) in &script.databases {
            database::check(bench.f2fs()?.clone(), &format!("{prefix}{file}"), expected)?;
        }
    }
    bench.unmount()?;
    Ok((phases, histograms))
}

/// The phases of a day and its night.
fn names(nth: u64) -> (String, String) {
    match nth {
        0 => ("day".into(), "night".into()),
        n => (format!("day-{}", n + 1), format!("night-{}", n + 1)),
    }
}

/// Measures a part of the day, with everything that is noted of both.
fn measured(
    bench: &Bench,
    p: &Parameters,
    name: &str,
    seconds: u64,
    progress: &Progress<'_>,
    work: impl FnOnce(&mut Recorder<'_>) -> Result<u64, LabError>,
) -> Result<Phase, LabError> {
    let volume = bench.f2fs()?;
    let (before, kept, asked) = (Cleaned::so_far(volume), Kept::so_far(volume), bench.asked());
    let mut phase = bench.measure(name, seconds, progress, |recorder| Ok(work(recorder)?))?;
    let after = bench.asked();
    app_noted::traffic(&mut phase, &(&after.0 - &asked.0), &(&after.1 - &asked.1));
    kept.note(volume, &mut phase);
    let cleaned = Cleaned::so_far(volume).since(before);
    cleaned.note(&mut phase);
    cleaned::note_inside(&mut phase);
    phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
    phase.note("longest_step", volume.counters.longest_pause.load(Relaxed) as f64 / 1e3, "ms");
    phase.note("free_segments", volume.state().free_segments.into(), "segments");
    phase.note("dirty_segments", volume.state().dirty_segments.into(), "segments");
    phase.note("nothing_to_clean", cleaned.nothing as f64, "calls");
    phase.note("battery", 100.0 * phase.total().joules() / (p.battery_wh * 3600.0), "%");
    Ok(phase)
}

/// The most that Android's maintenance cleans, and when it stops.
const MAINTAINED: (Duration, u32) = (Duration::from_secs(420), 100);

/// Android's idle maintenance; returns how long it took.
fn maintain(bench: &Bench, recorder: &mut Recorder<'_>, gc: Settings) -> Result<Duration, LabError> {
    let (volume, clock) = (bench.f2fs()?, bench.clock());
    let began = clock.monotonic();
    volume.set_cleaning(Settings { urgency: Urgency::High, ..gc });
    cleaned::pass(bench, recorder, || {
        let left = MAINTAINED.0.checked_sub(clock.monotonic() - began).filter(|left| !left.is_zero());
        Ok(left.filter(|_| volume.state().dirty_segments > MAINTAINED.1))
    })?;
    volume.set_cleaning(gc);
    volume.trim(1)?;
    Ok(clock.monotonic() - began)
}

/// Day and night together: joules, blocks, erases, and how many years the phone's flash would take such days (its cycles
/// times its capacity, by what was programmed for the host, as padding, and by the flash's own copies).
fn in_all(profile: &Profile, p: &Parameters, day: &Phase, night: &Phase) -> Vec<(&'static str, f64, &'static str)> {
    let sum = |of: fn(&Phase) -> f64| of(day) + of(night);
    let counted = |phase: &Phase, names: &[&str]| names.iter().filter_map(|n| phase.counters.get(*n)).sum::<u64>();
    let of = |names: &[&str]| (counted(day, names) + counted(night, names)) as f64;
    let programmed = of(&["blocks_programmed", "blocks_padded", "blocks_copied"]);
    let mut all = vec![
        ("joules_in_all", sum(|phase| phase.total().joules()), "J"),
        ("blocks_in_all", sum(|phase| phase.measures["blocks"].value), "blocks"),
        ("flushes_in_all", sum(|phase| phase.measures["flushes"].value), "flushes"),
        ("erases_in_all", of(&["erases"]), "erases"),
        ("programmed_in_all", programmed, "blocks"),
    ];
    if let DeviceSpec::Flash(flash) = &profile.device {
        let cycles = flash.nand.endurance.value as f64 * (p.storage_gib << 30) as f64;
        all.push(("life", cycles / (programmed * BLOCK as f64) / 365.0, "years"));
    }
    all
}

#[cfg(test)]
mod tests {
    use device::energy::{Ledger, Nanos};
    use device::{Counting, Memory};
    use sim::result::Raw;

    use super::*;
    use crate::plan::Experiment;

    #[test]
    fn a_day_and_its_night_are_added_and_the_flash_ages_by_all_that_it_programs() {
        let (profile, plan) = (Profile::find("oneplus8t-ufs31").unwrap(), Experiment::find("phone-day").unwrap());
        let job = &plan.jobs(&Default::default()).unwrap()[0];
        let OnVolume { work: p, .. } = parameters::<OnVolume<Parameters>>(job).unwrap();
        let (ledger, counts) = (Ledger::default(), Counting::new(Memory::new(1)).snapshot());
        let phase = |erases: u64, blocks: f64| {
            let of = [
                ("erases", erases),
                ("blocks_programmed", 1 << 20),
                ("blocks_padded", 1 << 19),
                ("blocks_copied", 1 << 19),
            ];
            let counters = of.map(|(name, n)| (name.to_owned(), n)).into();
            let raw = Raw { ledger: &ledger, counts: &counts, counters, took: Nanos(1), timeline: Vec::new() };
            let mut phase = Phase::new("day", 0, raw);
            phase.note("blocks", blocks, "blocks");
            phase.note("flushes", 1.0, "flushes");
            phase
        };
        let all = in_all(&profile, &p, &phase(3, 5.0), &phase(4, 7.0));
        let of = |name: &str| all.iter().find(|(n, ..)| *n == name).unwrap().1;
        assert_eq!((of("erases_in_all"), of("blocks_in_all"), of("flushes_in_all")), (7.0, 12.0, 2.0));
        assert_eq!(of("programmed_in_all"), f64::from(1 << 22));
        // 16 GiB a day of 128 GiB and 3,000 cycles.
        assert!((of("life") - 3000.0 * 8.0 / 365.0).abs() < 1e-9, "{}", of("life"));
    }
}
