//! What do applications' small updates cost, depending on how they are stored?
//!
//! Each application's script ([`crate::apps`]) is replayed on a separate volume: first the preparation, then the
//! measured use. [`Keeping`] selects how the volume stores small updates. Afterwards SQLite checks the databases. Left
//! out: the applications' computing.

use device::energy::profile::Profile;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::app_classes::Classes;
use super::app_noted::{self, Kept, Times};
use super::keeping::Keeping;
use super::{Measured, parameters};
use crate::apps::App;
use crate::apps::census::Census;
use crate::apps::database::{self, Journal};
use crate::apps::play::{Made, Player};
use crate::apps::tape::Script;
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB per volume.
    volume_mib: u64,
    /// The applications by name.
    apps: Vec<String>,
    /// Minutes of use.
    minutes: u64,
    /// SQLite's journal, instead of the applications' own.
    #[serde(default)]
    journal: Option<Journal>,
    /// How small updates are stored.
    keeping: Keeping,
    /// MiB of the host's memory.
    memory_mib: u64,
    /// Whether to compress pages and differences as the paper does and report their sizes.
    #[serde(default)]
    sizes: bool,
    /// Percent of the volume that an unused file fills.
    #[serde(default)]
    fill_percent: u64,
    /// Maximum length of a delta in a delta node, in bytes; default 819.
    #[serde(default)]
    longest_delta: Option<usize>,
    /// Whether to report file classes per minute.
    #[serde(default)]
    classes: bool,
    /// Whether deltas of read-only files are folded while the volume is idle.
    #[serde(default)]
    delta_return: bool,
    /// Whether the applications' syncs are left out, as in requests that were recorded below a file system.
    #[serde(default)]
    without_syncs: bool,
    /// Whether the application is restarted at the end, with cold caches.
    #[serde(default)]
    launch: bool,
}

impl Parameters {
    /// Refuses unknown names and invalid combinations.
    pub fn check(&self) -> Result<(), LabError> {
        self.apps.iter().try_for_each(|name| App::find(name).map(drop))?;
        if self.minutes == 0 || self.memory_mib == 0 || self.fill_percent > 90 {
            return Err(LabError::parameters("minutes and memory_mib are 1 or more, fill_percent 90 or less"));
        }
        let most = format::node::delta::LONGEST;
        if self.longest_delta.is_some_and(|n| n == 0 || n > most) {
            return Err(LabError::parameters(format!("longest_delta is from 1 to {most}")));
        }
        if self.classes && !self.delta_return {
            return Err(LabError::parameters("classes are told only with delta_return"));
        }
        Ok(())
    }
}

/// Replays each application.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    p.check()?;
    let mut phases = Vec::new();
    for (n, name) in p.apps.iter().enumerate() {
        let script = App::find(name)?.script(p.minutes, job.seed, p.journal)?;
        phases.extend(one(profile, job, &p, name, &script, &progress.part(n, p.apps.len()))?);
    }
    Ok((phases, Vec::new()))
}

fn one(
    profile: &Profile,
    job: &Job,
    p: &Parameters,
    name: &str,
    script: &Script,
    progress: &Progress<'_>,
) -> Result<Vec<Phase>, LabError> {
    let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
    bench.keep_in_memory(blocks_of_mib(p.memory_mib) as usize);
    let (features, mut options) = p.keeping.of();
    options.delta_return = p.delta_return;
    if let Some(longest) = p.longest_delta {
        options.delta_study.longest = longest;
    }
    bench.format_with(job.seed, features, options)?;
    if p.fill_percent > 0 {
        let bytes = (p.volume_mib << 20) / 100 * p.fill_percent;
        let ino = bench.file("ballast")?;
        bench.write_whole(ino, bytes & !0xfff, job.seed)?;
    }
    let mut player = Player::new(script);
    if p.without_syncs {
        player = player.without_syncs();
    }
    while player.left() > 0 {
        player.step(&**bench.f2fs()?)?;
    }
    bench.f2fs()?.sync()?;
    // The application reads its cached data itself.
    bench.restart(false)?;
    player.find_again(&**bench.f2fs()?)?;
    player.begin();
    let before = bench.asked();
    let volume = bench.f2fs()?.clone();
    let kept = Kept::so_far(&volume);
    let calls = player.left();
    let mut times = Times::default();
    let mut classes = p.classes.then(Classes::default);
    let mut phase = bench.measure(name, calls as u64, progress, |recorder| {
        let mut bytes = 0;
        while player.left() > 0 {
            bytes += player.bytes();
            if let Made::Wait(time) = times.step(&mut player, &volume, bench.clock())? {
                bench.clock().advance(time);
                if let Some(classes) = &mut classes {
                    classes.look(&volume, &player)?;
                }
            }
            recorder.step()?;
        }
        volume.sync()?;
        Ok(bytes)
    })?;
    let after = bench.asked();
    app_noted::traffic(&mut phase, &(&after.0 - &before.0), &(&after.1 - &before.1));
    let node_reads = phase.measures["node_reads"].value;
    phase.note("nodes_in_memory", 100.0 - 100.0 * node_reads / calls as f64, "%");
    kept.note(&volume, &mut phase);
    times.note(&mut phase);
    if let Some(classes) = classes {
        classes.note(&mut phase);
    }
    app_noted::census(&mut phase, &Census::of(script, p.sizes));
    let mut phases = vec![phase];
    drop(volume);
    if p.launch {
        phases.push(launch(&mut bench, name, &player, progress)?);
    }
    let volume = bench.f2fs()?.clone();
    for (file, expected) in &script.databases {
        database::check(volume.clone(), file, expected)?;
    }
    volume.unmount()?;
    Ok(phases)
}

/// Bytes per request of an application that reads a file sequentially, like the kernel's read-ahead.
const AHEAD: usize = 128 << 10;

/// Restarts the application: it reads each of its remaining files whole.
fn launch(bench: &mut Bench, name: &str, player: &Player<'_>, progress: &Progress<'_>) -> Result<Phase, LabError> {
    bench.restart(false)?;
    let volume = bench.f2fs()?.clone();
    let names: Vec<&str> = player.names().collect();
    let mut phase = bench.measure(&format!("{name}-launch"), names.len() as u64, progress, |recorder| {
        let (mut bytes, mut piece) = (0, vec![0; AHEAD]);
        for name in &names {
            let ino = volume.lookup(volume.root(), name.as_bytes())?.attr.ino;
            let mut at = 0;
            loop {
                let n = volume.read(ino, at, &mut piece)?;
                if n == 0 {
                    break;
                }
                at += n as u64;
            }
            volume.forget(ino, 1);
            bytes += at;
            recorder.step()?;
        }
        Ok(bytes)
    })?;
    phase.note("calls_time", phase.took.0 as f64 / 1e6, "ms");
    phase.note("files", names.len() as f64, "files");
    Ok(phase)
}
