//! What do a file system's calls cost a disk if nothing is kept in memory?
//!
//! The calls of [`crate::uncached`] are made on a ScherlFS volume in this process, or the requests are made again that a
//! file system of Linux made for the same calls. Both are asked of one disk, one request after the other. The volume is the
//! disk's first part, and is mounted anew for each stage; mounting is not measured, and what unmounting costs is noted beside the
//! stage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::Operation;
use device::{BLOCK, BlockDevice, Lba, Tag};
use f2fs::cause::Cause;
use record::blocks::{Event, Request};
use scherlfs::{MountOptions, Sync, Volume, make};
use serde::Deserialize;
use vfs::FileSystem;

use super::app_energy::joined;
use super::recording::Source;
use super::{Measured, parameters};
use crate::bench::{Bench, blocks_of_mib};
use crate::error::LabError;
use crate::plan::Job;
use crate::progress::Progress;
use crate::result::{Phase, Stage, Traffic};
use crate::uncached::calls::{self, Call, Contents, Plan, Work};
use crate::uncached::fill;
use crate::uncached::mounted::{Filled, Mounted};
use crate::uncached::partition::Partition;
use crate::uncached::recorded::{self, Recording};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// What is done, by name.
    works: BTreeMap<String, Work>,
    /// Of these only those of this name; all without.
    #[serde(default)]
    only: Option<String>,
    /// Mebibytes of the volume.
    volume_mib: u64,
    /// Flushes reach the disk.
    flushes: bool,
    /// Microseconds from the end of a call to the beginning of the next.
    #[serde(default)]
    think_us: u64,
    /// The file system of Linux whose requests were recorded; ScherlFS without.
    #[serde(default)]
    peer: Option<String>,
    /// Kibibytes of a request at most that neighbours in a recording become: the guest's disk takes no time, so that its kernel
    /// finds nothing to join.
    join_kib: u64,
    /// How ScherlFS is mounted.
    #[serde(default)]
    mount: Mount,
    /// Only so many calls of each stage.
    #[serde(default)]
    calls: Option<usize>,
}

/// How ScherlFS is mounted.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mount {
    /// When writes reach the disk.
    sync: When,
    /// A call that writes ends with an fsync.
    durable: bool,
    /// Directory blocks that are kept in memory.
    dir_cache: usize,
    /// Blocks of the inode map that are kept in memory.
    ifile_cache: usize,
}

/// When what was written reaches the disk.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum When {
    /// With every operation.
    #[default]
    Call,
    /// When somebody asks for it, or after some seconds.
    Fsync,
}

impl Mount {
    fn options(self) -> MountOptions {
        let sync = match self.sync {
            When::Call => Sync::Call,
            When::Fsync => Sync::Fsync,
        };
        MountOptions { sync, dir_cache: self.dir_cache, ifile_cache: self.ifile_cache, ..MountOptions::default() }
    }
}

/// Measures each work.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let works: Vec<_> = p.works.iter().filter(|(name, _)| p.only.as_ref().is_none_or(|o| o == *name)).collect();
    if works.is_empty() {
        let known: Vec<_> = p.works.keys().cloned().collect();
        return Err(LabError::Parameters(format!("only: there is no such work, but {}", known.join(", "))));
    }
    let mut phases = Vec::new();
    for (n, (name, work)) in works.iter().enumerate() {
        let one = One { p: &p, name, plan: limited(work.plan(1), p.calls), full: work.full(), profile };
        let progress = progress.part(n, works.len());
        phases.extend(match &p.peer {
            Some(peer) => one.recorded(peer, &progress)?,
            None => one.mounted(job.seed, &progress)?,
        });
    }
    Ok((phases, Vec::new()))
}

/// The same with so many calls in each stage, of files that the first stage makes.
fn limited(mut plan: Plan, most: Option<usize>) -> Plan {
    let Some(most) = most else { return plan };
    let mut made = Vec::new();
    for (n, stage) in plan.stages.iter_mut().enumerate() {
        if n == 0 {
            stage.calls.truncate(most);
            made = stage.calls.iter().filter_map(|c| if let Call::Create(f) = c { Some(*f) } else { None }).collect();
            continue;
        }
        let of = |call: &Call| match *call {
            Call::Read(f) | Call::Rewrite(f) | Call::Create(f) | Call::ReadAt(f, ..) | Call::WriteAt(f, ..) => Some(f),
            Call::Directory(_) => None,
        };
        stage.calls.retain(|call| of(call).is_some_and(|f| made.binary_search(&f).is_ok()));
        stage.calls.truncate(most);
    }
    plan
}

/// One work.
struct One<'a> {
    p: &'a Parameters,
    name: &'a str,
    plan: Plan,
    /// How full the volume is before, in percent.
    full: u32,
    profile: &'a Profile,
}

impl One<'_> {
    /// A disk that is as large as it is, whatever part of it the volume takes.
    fn bench(&self, blocks: u64) -> Result<Bench, LabError> {
        let whole = match &self.profile.device {
            DeviceSpec::Disk(spec) => spec.size.value / BLOCK as u64,
            _ => blocks,
        };
        Bench::new(self.profile, whole.max(blocks))
    }

    fn think(&self, bench: &Bench) {
        bench.clock().advance(Duration::from_micros(self.p.think_us));
    }

    fn mounted(&self, seed: u64, progress: &Progress<'_>) -> Result<Vec<Phase>, LabError> {
        let blocks = blocks_of_mib(self.p.volume_mib);
        let bench = self.bench(blocks)?;
        let device: Arc<dyn BlockDevice> = Arc::new(Partition::new(bench.device(), blocks, self.p.flushes));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&seed.to_le_bytes());
        make::format(device.clone(), &**bench.clock(), &make::Options { uuid, ..make::Options::default() })?;
        let mut phases = Vec::new();
        if self.full > 0 {
            phases.push(self.filled(&bench, &device, seed, progress)?);
        }
        let mut contents = Contents::default();
        for (n, stage) in self.plan.stages.iter().enumerate() {
            let volume = Volume::mount(device.clone(), bench.clock().clone(), self.p.mount.options())?;
            let mut caller = Mounted::new(&volume, self.p.mount.durable);
            let name = format!("{}-{}", self.name, stage.name);
            let progress = progress.part(n, self.plan.stages.len());
            let begin = bench.asked().1;
            let phase = bench.measure(&name, stage.calls.len() as u64, &progress, |recorder| {
                let mut moved = 0;
                for call in &stage.calls {
                    self.think(&bench);
                    moved += calls::make(&mut caller, &self.plan, &mut contents, *call)?;
                    volume.tick()?;
                    recorder.step()?;
                }
                Ok(moved)
            })?;
            let asked = &bench.asked().1 - &begin;
            let after = bench.measure("unmount", 1, &progress, |_| {
                volume.unmount()?;
                Ok(0)
            })?;
            let mut phase = finished(phase, stage.calls.len(), &after);
            for (cause, counts) in asked.causes() {
                let cause = scherlfs::cause::Cause::ALL.into_iter().find(|c| *c as u8 == cause);
                let Some(cause) = cause.map(|c| c.text().replace(", ", "_").replace(' ', "_")) else { continue };
                phase.note(&format!("requests_{cause}"), (counts.reads + counts.writes) as f64, "requests");
                phase.note(&format!("blocks_{cause}"), (counts.blocks_read + counts.blocks_written) as f64, "blocks");
            }
            phases.push(phase);
        }
        Ok(phases)
    }

    /// Fills the volume and deletes files at random, which is not measured as work.
    fn filled(
        &self,
        bench: &Bench,
        device: &Arc<dyn BlockDevice>,
        seed: u64,
        progress: &Progress<'_>,
    ) -> Result<Phase, LabError> {
        let volume = Volume::mount(device.clone(), bench.clock().clone(), MountOptions::default())?;
        let mut made = 0;
        let phase = bench.measure(&format!("{}-filling", self.name), 1, progress, |_| {
            let mut room = Filled::new(&volume);
            made = fill::fill(&mut room)?;
            volume.sync()?;
            fill::thin(&mut room, (0..made).collect(), self.full, seed)?;
            volume.unmount()?;
            Ok(u64::from(made) * fill::BYTES)
        })?;
        let nothing = bench.measure("", 1, progress, |_| Ok(0))?;
        let mut phase = finished(phase, made as usize, &nothing);
        phase.stage = Stage::Preparation;
        Ok(phase)
    }

    fn recorded(&self, peer: &str, progress: &Progress<'_>) -> Result<Vec<Phase>, LabError> {
        let name = format!("{peer}.{}.rec.zst", self.name);
        let bytes = Source::find(&name)?.bytes().map_err(|e| LabError::Parameters(format!("{name}: {e}")))?;
        let recording = Recording::read(bytes).map_err(|e| LabError::Parameters(format!("{name}: {e}")))?;
        let bench = self.bench(recording.blocks)?;
        let disk = Partition::new(bench.device(), recording.blocks, self.p.flushes);
        let mut again = Again { disk, join: (self.p.join_kib << 10) as usize / BLOCK, buffer: Vec::new() };
        let mut phases: Vec<Phase> = Vec::new();
        let stages = recording.stages.len();
        for (n, recorded) in recording.stages.iter().enumerate() {
            let progress = progress.part(n, stages);
            let Some(stage) = self.plan.stages.iter().find(|s| s.name == recorded.name) else {
                // Mounting and unmounting.
                let after = bench.measure("between", 1, &progress, |_| again.make(recorded, usize::MAX, || Ok(())))?;
                if let Some(last) = phases.last_mut().filter(|_| recorded.name == "unmount") {
                    note_unmount(last, &after);
                }
                continue;
            };
            let name = format!("{}-{}", self.name, stage.name);
            let calls = stage.calls.len();
            let bytes: u64 = stage.calls.iter().map(|c| self.bytes(*c)).sum();
            let phase = bench.measure(&name, calls as u64, &progress, |recorder| {
                again.make(recorded, calls, || {
                    self.think(&bench);
                    recorder.step()
                })?;
                Ok(bytes)
            })?;
            let nothing = bench.measure("", 1, &progress, |_| Ok(0))?;
            phases.push(finished(phase, calls, &nothing));
        }
        Ok(phases)
    }

    /// Bytes of files that a call moves.
    fn bytes(&self, call: Call) -> u64 {
        match call {
            Call::Directory(_) => 0,
            Call::Create(file) | Call::Read(file) | Call::Rewrite(file) => {
                self.plan.sizes.get(file as usize).copied().unwrap_or(0)
            }
            Call::ReadAt(_, _, bytes) | Call::WriteAt(_, _, bytes) => bytes,
        }
    }
}

/// What is known of a stage when it is over. Why and for whose sake requests were made is not told by recordings; of
/// ScherlFS it is noted in words.
fn finished(mut phase: Phase, calls: usize, after: &Phase) -> Phase {
    phase.forget_owners();
    phase.spent = joined(&phase.spent);
    phase.traffic = all_in_one(&phase.traffic);
    let idle = phase.operations.iter().filter(|o| o.operation == Operation::Idle).map(|o| o.energy).sum();
    let spent = phase.total() - idle;
    phase.note("calls", calls as f64, "calls");
    phase.note("energy_per_call", spent.millijoules() / calls.max(1) as f64, "mJ");
    phase.note("energy_idle", idle.millijoules(), "mJ");
    phase.note("joules", phase.total().joules(), "J");
    let requests: u64 = phase.traffic.iter().map(|t| t.reads + t.writes).sum();
    phase.note("requests_per_call", requests as f64 / calls.max(1) as f64, "requests");
    let count = |name: &str| phase.counters.get(name).copied().unwrap_or(0) as f64;
    let seeks = count("seeks") / calls.max(1) as f64;
    phase.note("seeks_per_call", seeks, "seeks");
    note_unmount(&mut phase, after);
    phase
}

fn note_unmount(phase: &mut Phase, after: &Phase) {
    phase.note("energy_unmount", after.total().millijoules(), "mJ");
}

fn all_in_one(traffic: &[Traffic]) -> Vec<Traffic> {
    let sum = |of: fn(&Traffic) -> u64| traffic.iter().map(of).sum();
    vec![Traffic {
        cause: Cause::Other as u8,
        reads: sum(|t| t.reads),
        writes: sum(|t| t.writes),
        blocks_read: sum(|t| t.blocks_read),
        blocks_written: sum(|t| t.blocks_written),
    }]
}

/// Makes recorded requests once more.
struct Again<D> {
    disk: D,
    /// Blocks of a request at most that neighbours become.
    join: usize,
    buffer: Vec<u8>,
}

impl<D: BlockDevice> Again<D> {
    /// Those of a stage's first calls; `each` is called before every call.
    fn make(&mut self, stage: &recorded::Stage, most: usize, mut each: impl FnMut() -> Result<(), LabError>) -> Result<u64, LabError> {
        for call in stage.calls.iter().take(most) {
            each()?;
            let mut waiting: Option<Request> = None;
            for Event { request, .. } in call {
                waiting = match waiting.and_then(|before| together(before, *request, self.join)) {
                    Some(both) => Some(both),
                    None => {
                        self.ask(waiting)?;
                        Some(*request)
                    }
                };
            }
            self.ask(waiting)?;
        }
        Ok(0)
    }

    fn ask(&mut self, request: Option<Request>) -> Result<(), LabError> {
        let tag = Tag { cause: Cause::Other as u8, owner: 0 };
        match request {
            Some(Request::Read { at, blocks }) => {
                self.buffer.resize(blocks as usize * BLOCK, 0);
                self.disk.read(at, &mut self.buffer, tag)?;
            }
            Some(Request::Write { at, blocks, .. }) => {
                self.buffer.clear();
                self.buffer.resize(blocks as usize * BLOCK, 0);
                self.disk.write(at, &self.buffer, tag)?;
            }
            Some(Request::Flush) => self.disk.flush(tag)?,
            // No recording has others.
            Some(Request::Discard { .. } | Request::Remap { .. }) | None => {}
        }
        Ok(())
    }
}

/// Two requests that are one if they are neighbours.
fn together(first: Request, next: Request, most: usize) -> Option<Request> {
    let fits = |at: Lba, blocks: u64, next: Lba, more: u64| at.0 + blocks == next.0 && (blocks + more) as usize <= most;
    match (first, next) {
        (Request::Read { at, blocks }, Request::Read { at: next, blocks: more }) if fits(at, blocks, next, more) => {
            Some(Request::Read { at, blocks: blocks + more })
        }
        (Request::Write { at, blocks, fingerprint }, Request::Write { at: next, blocks: more, .. })
            if fits(at, blocks, next, more) =>
        {
            Some(Request::Write { at, blocks: blocks + more, fingerprint })
        }
        _ => None,
    }
}
