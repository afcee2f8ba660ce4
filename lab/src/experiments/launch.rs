//! What does launching programs cost on a volume in a given state, with cold caches?
//!
//! Recordings contain a kernel's requests to a volume while real programs started from it: reads, page faults and
//! read-ahead ([`recorded`]). The programs' files are installed before or after the volume is aged. Before each launch
//! the device is power-cycled and the volume remounted. Between calls the program computes as long as recorded; during
//! a call it waits. Each launch also measures the computing alone, as if everything were cached. Left out: computing
//! during the kernel's read-ahead, and concurrent requests.

mod recorded;

use device::energy::profile::Profile;
use device::energy::{Component, Energy, Nanos};
use f2fs::MountOptions;
use f2fs::cause::Cause;
use record::Tempo;
use record::calls::{Replayed, replay};
use schemars::JsonSchema;
use serde::Deserialize;

use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::installed::{Installed, SYSTEM};
use crate::plan::Job;
use recorded::Launch;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Traffic};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Shipped recordings, named like the owners in the list of files; files of other owners are not installed.
    recordings: Vec<String>,
    /// When the programs' own files are installed; shared system files always come first.
    installed: When,
    /// Where a launch ends.
    until: Until,
    /// The program's computing time relative to the recording.
    #[serde(default = "as_recorded")]
    thinking: f64,
    /// Maximum number of calls per recording.
    #[serde(default)]
    limit_calls: Option<usize>,
    /// Size in KiB at which installed files are cut.
    #[serde(default)]
    limit_file_kib: Option<u64>,
}

fn as_recorded() -> f64 {
    1.0
}

/// When programs are installed.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum When {
    /// On the new volume: aging then fills the space around them.
    Before,
    /// After aging.
    After,
}

/// Where a launch ends.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Until {
    /// When the program's window shows its first picture.
    Window,
    /// At the recording's end, some seconds later.
    End,
}

impl Parameters {
    /// Checks what the types cannot express.
    pub fn check(&self) -> Result<(), LabError> {
        if !(self.thinking.is_finite() && self.thinking >= 0.0) {
            return Err(LabError::parameters(format!("thinking: {} times as long as recorded", self.thinking)));
        }
        Ok(())
    }

    fn end(&self, launch: &Launch) -> usize {
        let end = match self.until {
            Until::Window => launch.window,
            Until::End => launch.events.len(),
        };
        end.min(self.limit_calls.unwrap_or(usize::MAX))
    }
}

/// Measures each launch.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(None)?;
    p.check()?;
    let mut list = recorded::files()?;
    if let Some(kib) = p.limit_file_kib {
        list.iter_mut().for_each(|l| l.cut_at(kib << 10));
    }
    let parts = p.recordings.len() + 2;
    let mut installed = Installed::default();
    let own = |owner: &str| p.recordings.iter().any(|r| r == owner);
    let first = |owner: &str| owner == SYSTEM || p.installed == When::Before && own(owner);
    let mut install = |bench: &Bench, wanted: &dyn Fn(&str) -> bool| -> Result<(), LabError> {
        let volume = bench.volume()?;
        installed.add(&**volume, &list, wanted, job.seed, || Ok(volume.tick().map(drop)?))
    };
    let (mut bench, (mut phases, mut histograms)) =
        given.bench_around(profile, job, MountOptions::default(), &progress.part(0, parts), &mut |bench| {
            install(bench, &first)
        })?;
    install(&bench, &|owner| own(owner) && !first(owner))?;
    histograms.push(Histogram::of_free_space(&bench.volume()?.free_fragments(), "with all programs"));
    for (n, name) in p.recordings.iter().enumerate() {
        let launch = Launch::find(name)?;
        bench.restart(true)?;
        let pieces = [name.as_str(), SYSTEM].map(|owner| installed.pieces(&**bench.volume()?, owner));
        bench.restart(true)?;
        let (mut phase, thought) =
            one(&bench, &p, profile.host.cpu_request.value, name, &launch, &progress.part(n + 1, parts))?;
        for (owner, pieces) in ["own", SYSTEM].into_iter().zip(pieces) {
            let pieces = pieces?;
            phase.note(&format!("{owner}_files"), pieces.files as f64, "files");
            phase.note(&format!("{owner}_pieces"), pieces.pieces as f64, "pieces");
            phase.note(&format!("{owner}_size"), pieces.blocks as f64 / 256.0, "MB");
        }
        phases.push(phase);
        phases.push(bench.measure(&format!("{name}-in-memory"), 1, &progress.part(n + 1, parts), |_| {
            bench.think(thought);
            Ok(0)
        })?);
    }
    Ok((phases, histograms))
}

/// A launch, and how long its program computed.
fn one(
    bench: &Bench,
    p: &Parameters,
    cpu_request: Energy,
    name: &str,
    launch: &Launch,
    progress: &Progress<'_>,
) -> Result<(Phase, Nanos), LabError> {
    let volume = bench.volume()?;
    let events = &launch.events[..p.end(launch)];
    let thinking = launch.thinking(events);
    let scaled = |ns: u64| Nanos((ns as f64 * p.thinking) as u64);
    let mut done = Replayed::default();
    let mut phase = bench.measure(name, events.len() as u64, progress, |recorder| {
        let mut ticked = Ok(());
        let calls = events.iter().zip(&thinking).map(|(event, before)| {
            bench.think(scaled(*before));
            Ok(event.clone())
        });
        let (replayed, _) = replay(launch.root, calls, &**volume, &Tempo::BackToBack, |_| {
            if ticked.is_ok() {
                ticked = recorder.step();
            }
        });
        ticked?;
        done = replayed;
        Ok(done.read + done.written)
    })?;
    let thought = Nanos(thinking.iter().map(|ns| scaled(*ns).0).sum());
    note(&mut phase, &done, thought);
    let read = |of: fn(&Traffic) -> u64| phase.traffic.iter().map(of).sum::<u64>();
    let alone = cpu_request.times(read(|t| t.blocks_read) - read(|t| t.reads));
    let bound = phase.component(Component::Cpu) + alone;
    phase.note("launch_energy_cpu_if_every_block_was_alone", bound.millijoules(), "mJ");
    Ok((phase, thought))
}

/// Notes the measures that only launches have.
fn note(phase: &mut Phase, done: &Replayed, thought: Nanos) {
    let seconds = phase.took.0 as f64 / 1e9;
    phase.note("launch_time", seconds, "s");
    phase.note("launch_thinking", thought.0 as f64 / 1e9, "s");
    phase.note("launch_waiting", seconds - thought.0 as f64 / 1e9, "s");
    phase.note("launch_energy", phase.total().millijoules(), "mJ");
    for c in Component::ALL {
        let energy = phase.component(c).millijoules();
        let name = c.text().to_lowercase();
        phase.note(&format!("launch_energy_{name}"), energy, "mJ");
        phase.note(&format!("launch_power_{name}"), energy / seconds, "mW");
    }
    let of = |causes: &[Cause]| {
        let those = phase.traffic.iter().filter(|t| causes.iter().any(|c| *c as u8 == t.cause));
        those.fold((0, 0), |(requests, blocks), t| (requests + t.reads, blocks + t.blocks_read))
    };
    let (contents, blocks) = of(&[Cause::UserData]);
    let (nodes, _) = of(&[Cause::Node, Cause::Directory]);
    let written: u64 = phase.traffic.iter().map(|t| t.blocks_written).sum();
    let requests: u64 = phase.traffic.iter().map(|t| t.reads + t.writes).sum();
    phase.note("requests", requests as f64, "requests");
    phase.note("reads_of_contents", contents as f64, "requests");
    phase.note("mean_read", blocks as f64 * 4.0 / contents as f64, "KB");
    phase.note("reads_of_nodes_and_directories", nodes as f64, "requests");
    phase.note("blocks_written", written as f64, "blocks");
    phase.note("calls", done.calls as f64, "calls");
    phase.note("calls_left_out", done.left_out as f64, "calls");
    phase.note("calls_ended_otherwise", done.diverged as f64, "calls");
    phase.note("asked_to_read", done.read as f64 / 1_048_576.0, "MB");
    phase.note("asked_to_write", done.written as f64 / 1_048_576.0, "MB");
}
