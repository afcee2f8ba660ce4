//! How long do recorded programs' calls take on a volume in a given state with concurrent cleaning?
//!
//! The experiment replays the recordings one after the other on the same volume; each call begins as soon as the
//! previous one returns. The recorded programs removed their files at the end. Here the background does not wait for an
//! idle volume, so cleaning delays the programs, and this delay is compared.

use std::fs::File;
use std::io::{Cursor, Read};

use device::energy::profile::Profile;
use f2fs::MountOptions;
use record::calls::{Call, Event, Events, prepare, replay};
use record::{Reader, Tempo};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem as _;

use super::afterwards::{self, Afterwards};
use super::cleaned::{Cleaned, Cleaning};
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Histogram, Phase};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Shipped recordings by name, or others by path (with a slash).
    recordings: Vec<String>,
    /// Maximum number of calls per recording.
    #[serde(default)]
    limit_calls: Option<usize>,
    /// The cleaning during the replay.
    cleaning: Cleaning,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../experiments/fagc-fig11/", $name, ".rec")))),*]
    };
}

/// Recordings of programs, by name.
const SHIPPED: &[(&str, &[u8])] = shipped!["chat", "clone", "unpack", "download"];

/// Measures each recording.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    let parts = p.recordings.len() + 2;
    let options = MountOptions { gc: p.cleaning.at_rest()?, ..MountOptions::default() };
    let (mut bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, parts))?;
    for (n, recording) in p.recordings.iter().enumerate() {
        bench.restart(true)?;
        let mut phase = one(&bench, &p, recording, &progress.part(n + 1, parts))?;
        let earlier = p.recordings.iter().take(n).filter(|r| *r == recording).count();
        if earlier > 0 {
            phase.name = format!("{}-{}", phase.name, earlier + 1);
        }
        phases.push(phase);
    }
    histograms.push(Histogram::of_free_space(&bench.f2fs()?.free_fragments(), "after all programs"));
    afterwards::run(p.after, &bench, job.seed, &progress.part(parts - 1, parts), &mut phases)?;
    Ok((phases, histograms))
}

/// The error for an unreadable recording.
pub(super) fn unreadable(name: &str, why: &dyn std::fmt::Display) -> LabError {
    LabError::parameters(format!("recording {name}: {why}"))
}

/// Opens a recording at its beginning.
pub(super) fn open(name: &str) -> Result<Events, LabError> {
    let failed = |e: &dyn std::fmt::Display| unreadable(name, e);
    let source: Box<dyn Read + Send> = match SHIPPED.iter().find(|(n, _)| *n == name) {
        Some((_, bytes)) => Box::new(Cursor::new(*bytes)),
        None if name.contains('/') => Box::new(File::open(name).map_err(|e| failed(&e))?),
        None => {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(failed(&format!("choose {}, or give the path of a file", known.join(", "))));
        }
    };
    Events::new(Reader::new(source).map_err(|e| failed(&e))?).map_err(|e| failed(&e))
}

fn one(bench: &Bench, p: &Parameters, recording: &str, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let (cleaning, limit) = (&p.cleaning, p.limit_calls.unwrap_or(usize::MAX));
    let calls = open(recording)?.take(limit).count() as u64;
    let events = open(recording)?;
    let volume = bench.f2fs()?;
    if events.has_contents() {
        let failed = |e: &dyn std::fmt::Display| unreadable(recording, e);
        let (_, whole) =
            prepare(events.root(), open(recording)?.take(limit), &**volume, || ()).map_err(|e| failed(&e))?;
        whole.map_err(|e| failed(&e))?;
    }
    cleaning.begin(volume)?;
    let before = Cleaned::so_far(volume);
    let mut replayed = None;
    let label = recording.rsplit('/').next().unwrap_or(recording);
    let mut phase = bench.measure(label, calls, progress, |recorder| {
        let mut ticked = Ok(());
        let root = events.root();
        // This volume has its own ticks and unmount.
        let own = |e: &Result<Event, _>| matches!(e, Ok(Event { call: Call::Tick {} | Call::Unmount {}, .. }));
        let events = events.take(limit).filter(|e| !own(e));
        let (done, whole) = replay(root, events, &**volume, &Tempo::BackToBack, |_| {
            if ticked.is_ok() {
                ticked = recorder.step();
            }
        });
        ticked?;
        whole.map_err(|e| unreadable(recording, &e))?;
        volume.set_cleaning(cleaning.at_rest()?);
        volume.sync()?;
        let bytes = done.written + done.read;
        replayed = Some(done);
        Ok(bytes)
    })?;
    let cleaned = Cleaned::so_far(volume).since(before);
    let mean = phase.took.0 as f64 / 1e3 / calls as f64;
    phase.note("gc_count", cleaned.sections as f64, "GCs");
    phase.note("moved_blocks", cleaned.moved as f64, "blocks");
    phase.note("time_per_call", mean, "us");
    if let Some(done) = replayed {
        phase.note("calls", done.calls as f64, "calls");
        phase.note("calls_left_out", done.left_out as f64, "calls");
        phase.note("calls_ended_otherwise", done.diverged as f64, "calls");
        phase.note("replay_written", done.written as f64 / 1_048_576.0, "MB");
        phase.note("replay_read", done.read as f64 / 1_048_576.0, "MB");
    }
    Ok(phase)
}
