//! What does a number of cleanings by one policy do to the fragments of free space, on a volume in a given state?
//!
//! The experiment counts the fragments before, after, and at times in between, by the sizes L1 to L9 of FAGC TACO'23,
//! Table 3, and by the classes of its Table 5. A volume smaller than the published one has less free space. So it gets
//! proportionally fewer cleanings, and changes are scaled up to the published size.

use std::time::Duration;

use device::BLOCK;
use device::energy::profile::Profile;
use f2fs::MountOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{FileSystem, FreeFragments, LEVELS};
use victim::Power;

use super::afterwards::{self, Afterwards};
use super::cleaned::{self, Cleaned};
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Histogram, Phase};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume.
    volume_mib: u64,
    /// MiB of the published volume: cleanings and changes are scaled to it.
    published_mib: u64,
    /// The recipe that ages the volume.
    state: String,
    /// Whether a writer waits for the space.
    mode: Mode,
    /// The background policy; `none`: no background cleaning. The foreground always cleans the emptiest section.
    #[serde(default = "by_cost")]
    policy: String,
    /// The power source, for policies that use it.
    #[serde(default)]
    power: Option<String>,
    /// Cleanings on a volume of the published size.
    gcs: u64,
    /// Minimum sleep of the background in milliseconds.
    sleep_ms: u64,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// Number of times fragments are counted.
    moments: u64,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

fn by_cost() -> String {
    "cost-benefit".into()
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Foreground,
    Background,
}

/// The classes of Table 5, as names of measures.
const CLASSES: [&str; 4] = ["capacity_under_128k", "capacity_128k_1m", "capacity_1m_2m", "capacity_from_2m"];

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let policy = cleaned::policy(&p.policy)?;
    let power = p.power.as_deref().map_or(Ok(Power::Battery), cleaned::power)?;
    let gcs = (p.gcs * p.volume_mib).div_ceil(p.published_mib.max(1));
    let every = gcs.div_ceil(p.moments.max(1)).max(1);
    let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
    bench.format(job.seed, MountOptions { gc: cleaned::never(policy), ..MountOptions::default() })?;
    let (aging, before_by_size) = bench.age(&p.state, job.seed, &progress.part(0, 3))?;
    let volume = bench.f2fs()?;
    cleaned::set_age_threshold(volume, p.age_threshold)?;
    let (start, from) = (volume.free_fragments(), Cleaned::so_far(volume));
    let mut seen = vec![(0, start)];
    let mut look = |done: u64| {
        if done >= seen.last().map_or(0, |(n, _)| n + every) {
            seen.push((done, volume.free_fragments()));
        }
    };
    let done = || Cleaned::so_far(volume).since(from);
    let mut phase = bench.measure("cleaning", gcs, &progress.part(1, 3), |recorder| {
        match p.mode {
            Mode::Foreground => {
                while done().sections < gcs && volume.clean_in_foreground().map_err(vfs::Error::from)? {
                    look(done().sections);
                    recorder.step()?;
                }
            }
            Mode::Background if !cleaned::cleans(&p.policy) => {}
            Mode::Background => {
                let gc = cleaned::every(policy, Duration::from_millis(p.sleep_ms));
                volume.set_cleaning(f2fs::gc::settings::Settings { power, ..gc });
                cleaned::pass(&bench, recorder, || {
                    let done = done();
                    look(done.sections);
                    Ok((done.sections < gcs && done.nothing == 0).then_some(Duration::from_secs(1)))
                })?;
            }
        }
        volume.set_cleaning(cleaned::never(policy));
        volume.sync()?;
        Ok(0)
    })?;
    let (done, end) = (done(), volume.free_fragments());
    done.note(&mut phase);
    if seen.last().is_some_and(|(n, _)| *n < done.sections) {
        seen.push((done.sections, end));
    }
    note(&mut phase, &start, &end, p.published_mib as f64 / p.volume_mib as f64);
    let mut histograms = vec![before_by_size, Histogram::of_free_space(&end, "after cleaning")];
    histograms.extend(over_cleanings(&seen));
    let mut phases = vec![aging, phase];
    afterwards::run(p.after, &bench, job.seed, &progress.part(2, 3), &mut phases)?;
    Ok((phases, histograms))
}

/// Notes the changes; `scale` is the published volume's size divided by ours.
fn note(phase: &mut Phase, start: &FreeFragments, end: &FreeFragments, scale: f64) {
    const MB: f64 = 1_048_576.0;
    let mb = |blocks: u64| blocks as f64 * BLOCK as f64 / MB;
    let joules = phase.total().joules();
    for (class, name) in CLASSES.iter().enumerate() {
        let change = (mb(end.capacity[class]) - mb(start.capacity[class])) * scale;
        phase.note(name, change, "MB");
        if class == CLASSES.len() - 1 {
            phase.note("gained_per_joule", change / scale / joules, "MB/J");
        }
    }
    let share = |of: fn(&FreeFragments) -> u64| 100.0 * (of(end) as f64 / of(start) as f64 - 1.0);
    phase.note("pieces_change", share(FreeFragments::total), "%");
    for level in 0..LEVELS {
        let change = 100.0 * (end.count[level] as f64 / start.count[level] as f64 - 1.0);
        phase.note(&format!("pieces_change_{}", FreeFragments::name(level)), change, "%");
    }
    phase.note("energy_whole", joules * scale, "J");
}

/// How fragments change over the cleanings.
fn over_cleanings(seen: &[(u64, FreeFragments)]) -> Vec<Histogram> {
    let of = |what: &str, unit: &str, value: &dyn Fn(&FreeFragments) -> u64| Histogram {
        name: format!("{what} over the cleanings"),
        by: "sections cleaned".into(),
        unit: unit.into(),
        bars: seen.iter().map(|(n, free)| (n.to_string(), value(free))).collect(),
    };
    vec![
        of("all pieces of free space", "pieces", &FreeFragments::total),
        of("pieces under 128 KB", "pieces", &|f| f.fragments().0),
        of("pieces over 512 KB (L9)", "pieces", &|f| f.count[LEVELS - 1]),
        of("free space in pieces under 128 KB", "blocks", &|f| f.capacity[0]),
        of("free space in pieces from 2 MB", "blocks", &|f| f.capacity[3]),
    ]
}
