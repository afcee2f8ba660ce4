//! What do a file system's calls cost a disk without caches?
//!
//! The calls of [`crate::uncached`] run on a ScherlFS volume in this process, or the recorded requests of a Linux file
//! system for the same calls are replayed. Both use one disk, one request after the other. The volume is the disk's
//! first part and is remounted for each stage; mounting is not measured, and the cost of unmounting is noted with the
//! stage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::energy::Operation;
use device::energy::profile::{DeviceSpec, Profile};
use device::{BLOCK, BlockDevice, Lba, Tag};
use f2fs::cause::Cause;
use record::blocks::{Event, Request};
use schemars::JsonSchema;
use scherlfs::{MountOptions, Placement, Sync, Volume, make};
use serde::Deserialize;
use vfs::FileSystem;

use super::app_energy::joined;
use super::recording::Source;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use crate::uncached::calls::{self, Call, Contents, Plan, Work};
use crate::uncached::fill;
use crate::uncached::mounted::{Filled, Mounted};
use crate::uncached::partition::Partition;
use crate::uncached::paused::Paused;
use crate::uncached::recorded::{self, Recording};
use crate::uncached::segments::Segments;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Phase, Stage, Traffic};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The work, by name.
    works: BTreeMap<String, Work>,
    /// Run only the work with this name; all by default.
    #[serde(default)]
    only: Option<String>,
    /// MiB of the volume.
    volume_mib: u64,
    /// Whether flushes reach the disk.
    flushes: bool,
    /// Microseconds between calls.
    #[serde(default)]
    think_us: u64,
    /// Microseconds before each request to the disk.
    #[serde(default)]
    gap_us: u64,
    /// The Linux file system whose requests were recorded; ScherlFS by default.
    #[serde(default)]
    peer: Option<String>,
    /// Maximum KiB of a merged request in replays: the guest's disk takes no time, so its kernel cannot merge.
    join_kib: u64,
    /// KiB of recently read data that the disk caches, in addition to its model's buffer.
    #[serde(default)]
    kept_kib: usize,
    /// How ScherlFS is mounted.
    #[serde(default)]
    mount: Mount,
    /// Maximum number of calls per stage.
    #[serde(default)]
    calls: Option<usize>,
}

/// How ScherlFS is mounted.
#[derive(Deserialize, Clone, Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mount {
    /// Where inodes are placed, as in `-o placement=`; by default before their contents.
    placement: Option<String>,
    /// When writes reach the disk.
    sync: When,
    /// Whether a call that writes ends with an fsync.
    durable: bool,
    /// Directory blocks kept in memory.
    dir_cache: usize,
    /// Blocks of the inode map kept in memory.
    ifile_cache: usize,
}

/// When writes reach the disk.
#[derive(Deserialize, Clone, Copy, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum When {
    /// With every operation.
    #[default]
    Call,
    /// With an fsync, or after some seconds.
    Fsync,
}

impl Mount {
    fn options(&self) -> Result<MountOptions, LabError> {
        let placement = self.placement.as_deref().map(Placement::parse).transpose();
        let placement = placement.map_err(|why| LabError::parameters(format!("placement {why}")))?;
        let sync = match self.sync {
            When::Call => Sync::Call,
            When::Fsync => Sync::Fsync,
        };
        let (dir_cache, ifile_cache) = (self.dir_cache, self.ifile_cache);
        Ok(MountOptions { sync, dir_cache, ifile_cache, placement, ..MountOptions::default() })
    }
}

/// Measures each work.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let works: Vec<_> = p.works.iter().filter(|(name, _)| p.only.as_ref().is_none_or(|o| o == *name)).collect();
    if works.is_empty() {
        let known: Vec<_> = p.works.keys().cloned().collect();
        return Err(LabError::parameters(format!("only: there is no such work, but {}", known.join(", "))));
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

/// Limits the calls in each stage, on files that the first stage creates.
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
    /// A disk of its full size, independent of the volume's size.
    fn bench(&self, blocks: u64) -> Result<Bench, LabError> {
        let whole = match &self.profile.device {
            DeviceSpec::Disk(spec) => spec.size.value / BLOCK as u64,
            _ => blocks,
        };
        Ok(Bench::new(self.profile, whole.max(blocks))?)
    }

    /// The volume's part of the disk.
    fn part(&self, bench: &Bench, blocks: u64) -> Partition<Paused<Segments<Arc<dyn BlockDevice>>>> {
        let answer = match &self.profile.device {
            DeviceSpec::Disk(spec) => spec.request.value.duration(),
            _ => Duration::ZERO,
        };
        let kept = (self.p.kept_kib << 10) / BLOCK;
        let disk = Segments::new(bench.device(), bench.contents(), kept, bench.clock().clone(), answer);
        let disk = Paused::new(disk, bench.clock().clone(), Duration::from_micros(self.p.gap_us));
        Partition::new(disk, blocks, self.p.flushes)
    }

    fn think(&self, bench: &Bench) {
        bench.clock().advance(Duration::from_micros(self.p.think_us));
    }

    fn mounted(&self, seed: u64, progress: &Progress<'_>) -> Result<Vec<Phase>, LabError> {
        let blocks = blocks_of_mib(self.p.volume_mib);
        let bench = self.bench(blocks)?;
        let device: Arc<dyn BlockDevice> = Arc::new(self.part(&bench, blocks));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&seed.to_le_bytes());
        make::format(device.clone(), &**bench.clock(), &make::Options { uuid, ..make::Options::default() })?;
        let mut phases = Vec::new();
        if self.full > 0 {
            phases.push(self.filled(&bench, &device, seed, progress)?);
        }
        let mut contents = Contents::default();
        for (n, stage) in self.plan.stages.iter().enumerate() {
            let volume = Volume::mount(device.clone(), bench.clock().clone(), self.p.mount.options()?)?;
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
                let Some(cause) = cause.map(scherlfs::cause::Cause::key) else { continue };
                phase.note(&format!("requests_{cause}"), (counts.reads + counts.writes) as f64, "requests");
                phase.note(&format!("blocks_{cause}"), (counts.blocks_read + counts.blocks_written) as f64, "blocks");
            }
            phases.push(phase);
        }
        Ok(phases)
    }

    /// Fills the volume and deletes random files; not measured as work.
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
        let bytes = Source::find(&name)?.bytes().map_err(|e| LabError::parameters(format!("{name}: {e}")))?;
        let recording = Recording::read(bytes).map_err(|e| LabError::parameters(format!("{name}: {e}")))?;
        let bench = self.bench(recording.blocks)?;
        let disk = self.part(&bench, recording.blocks);
        let mut again = Again { disk, join: (self.p.join_kib << 10) as usize / BLOCK, buffer: Vec::new() };
        let mut phases: Vec<Phase> = Vec::new();
        let stages = recording.stages.len();
        for (n, recorded) in recording.stages.iter().enumerate() {
            let progress = progress.part(n, stages);
            let Some(stage) = self.plan.stages.iter().find(|s| s.name == recorded.name) else {
                // The cost of mounting and unmounting.
                let after =
                    bench.measure("between", 1, &progress, |_| Ok(again.make(recorded, usize::MAX, || Ok(()))?))?;
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
                    Ok(recorder.step()?)
                })?;
                Ok(bytes)
            })?;
            let nothing = bench.measure("", 1, &progress, |_| Ok(0))?;
            phases.push(finished(phase, calls, &nothing));
        }
        Ok(phases)
    }

    /// File bytes that a call reads or writes.
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

/// Completes a stage's phase. Recordings have no causes and owners of requests; for ScherlFS these are noted in words.
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

/// Replays recorded requests.
struct Again<D> {
    disk: D,
    /// Maximum number of blocks in a merged request.
    join: usize,
    buffer: Vec<u8>,
}

impl<D: BlockDevice> Again<D> {
    /// Replays the requests of a stage's first calls; runs `each` before every call.
    fn make(
        &mut self,
        stage: &recorded::Stage,
        most: usize,
        mut each: impl FnMut() -> Result<(), LabError>,
    ) -> Result<u64, LabError> {
        for call in stage.calls.iter().take(most) {
            each()?;
            let (mut waiting, mut last): (Option<Request>, Option<Request>) = (None, None);
            for Event { request, .. } in call {
                let Some(request) = (match last.replace(*request) {
                    Some(last) => behind(last, *request),
                    None => Some(*request),
                }) else {
                    continue;
                };
                waiting = match waiting.and_then(|before| together(before, request, self.join)) {
                    Some(both) => Some(both),
                    None => {
                        self.ask(waiting)?;
                        Some(request)
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
            // Recordings have no other requests.
            Some(Request::Discard { .. } | Request::Remap { .. }) | None => {}
        }
        Ok(())
    }
}

/// Minimum number of blocks that 255 sectors touch: the maximum request of the guest's disk.
const CUT: u64 = 32;

/// The part of a request that comes after the previous one. 255 sectors are not whole blocks, so a block at which the
/// guest's kernel split a request is in both recorded halves. It is requested only once.
fn behind(before: Request, request: Request) -> Option<Request> {
    let left = |Lba(at): Lba, blocks: u64, next: Lba, more: u64| match blocks >= CUT && next.0 + 1 == at + blocks {
        true => (more > 1).then_some((Lba(next.0 + 1), more - 1)),
        false => Some((next, more)),
    };
    match (before, request) {
        (Request::Read { at, blocks }, Request::Read { at: next, blocks: more }) => {
            left(at, blocks, next, more).map(|(at, blocks)| Request::Read { at, blocks })
        }
        (Request::Write { at, blocks, .. }, Request::Write { at: next, blocks: more, fingerprint }) => {
            left(at, blocks, next, more).map(|(at, blocks)| Request::Write { at, blocks, fingerprint })
        }
        _ => Some(request),
    }
}

/// Merges two requests if they are neighbours.
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

#[cfg(test)]
mod tests {
    use super::*;

    const READ: fn(u64, u64) -> Request = |at, blocks| Request::Read { at: Lba(at), blocks };
    const WRITE: fn(u64, u64) -> Request = |at, blocks| Request::Write { at: Lba(at), blocks, fingerprint: 0 };

    #[test]
    fn neighbours_of_one_kind_become_one_request_of_bounded_size() {
        assert_eq!(together(READ(4, 2), READ(6, 1), 128), Some(READ(4, 3)));
        assert_eq!(together(WRITE(4, 2), WRITE(6, 126), 128), Some(WRITE(4, 128)));
        for (first, next) in [
            (WRITE(4, 2), WRITE(6, 127)),
            (WRITE(4, 2), READ(6, 1)),
            (READ(4, 2), READ(7, 1)),
            (READ(4, 2), READ(3, 1)),
            (WRITE(4, 2), Request::Flush),
        ] {
            assert_eq!(together(first, next, 128), None, "{first:?}, {next:?}");
        }
    }

    #[test]
    fn a_block_in_which_a_request_was_cut_is_asked_for_once() {
        // 256 KiB as split for the guest's disk: sectors 0 to 254, 255 to 509, 510 and 511.
        let cut = [WRITE(0, 32), WRITE(31, 33), WRITE(63, 1)];
        assert_eq!(behind(cut[0], cut[1]), Some(WRITE(32, 32)));
        assert_eq!(behind(cut[1], cut[2]), None);
        assert_eq!(behind(READ(0, 32), READ(31, 33)), Some(READ(32, 32)));
        // A rewritten block, or a request of another kind, is a separate request.
        assert_eq!(behind(WRITE(4, 2), WRITE(5, 1)), Some(WRITE(5, 1)));
        assert_eq!(behind(READ(0, 32), WRITE(31, 33)), Some(WRITE(31, 33)));
        assert_eq!(behind(WRITE(0, 32), WRITE(32, 1)), Some(WRITE(32, 1)));
    }

    #[test]
    fn a_limited_plan_asks_only_for_files_that_it_makes() {
        let plan = limited(Work::Files { kib: 4, mib: 4 }.plan(1), Some(30));
        assert_eq!(plan.stages[0].calls.len(), 30);
        assert_eq!(plan.stages[0].calls[0], Call::Directory(0));
        for stage in &plan.stages[1..] {
            assert_eq!(stage.calls.len(), 29, "{}", stage.name);
            let made = |call: &Call| matches!(call, Call::Read(f) | Call::Rewrite(f) if *f < 29);
            assert!(stage.calls.iter().all(made), "{}", stage.name);
        }
    }
}
