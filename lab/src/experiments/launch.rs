//! What does it cost to launch programs on a volume in a given state, with nothing in memory?
//!
//! Recordings have what a kernel asked a volume for while real programs started from it: reads, page faults and
//! read-ahead ([`recorded`]). The programs' files are installed before the volume comes into its state, or after. Each launch begins with the
//! device switched off and on and the volume mounted anew. Between two calls the program computes as long as it did when it was
//! recorded; while a call is under way it waits. Beside each launch the same computing is measured alone, as if everything
//! were in memory. Left out: that programs compute while the kernel reads ahead for them, and several requests at a time.

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
    /// Shipped recordings by name, which are the names of owners in the list of files. Files of others are not installed.
    recordings: Vec<String>,
    /// When the programs' own files are installed. Those of the system, which several programs need, always come first.
    installed: When,
    /// Where a launch ends.
    until: Until,
    /// How many times as long the program computes as it did when it was recorded.
    #[serde(default = "as_recorded")]
    thinking: f64,
    /// Only so many calls of each.
    #[serde(default)]
    limit_calls: Option<usize>,
    /// Only files of so many kibibytes at most are installed whole; larger ones are cut there.
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
    /// When the volume is still pristine: what comes later fills it up around them.
    Before,
    /// When the volume is in its state.
    After,
}

/// Where a launch ends.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Until {
    /// When the program's window has its first picture.
    Window,
    /// With the recording: some seconds later.
    End,
}

impl Parameters {
    /// What the types cannot say.
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

/// What is told of launches alone, so that no other phase has it.
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
