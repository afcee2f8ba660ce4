//! A bare disk's activities, measured one by one: seeks and rotations by random reads, transfers by sequential reads
//! and writes, and waiting.

use std::time::Duration;

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::{Component, Energy, Part};
use device::{BLOCK, BlockDevice, Lba, Rng, Tag};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Reads of one block at random places.
    random_reads: u64,
    /// MiB read, and MiB written, sequentially.
    sequential_mib: u64,
    /// KiB per sequential request.
    io_kib: u64,
    /// Idle seconds with the platter spinning; less than the spin-down time.
    idle_seconds: u64,
    /// Seconds with the platter stopped.
    standby_seconds: u64,
}

/// Measures random reads, sequential reads and writes, idling and standby.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let DeviceSpec::Disk(spec) = &profile.device else {
        return Err(LabError::parameters(format!("{} is not a disk", profile.name)));
    };
    let bench = Bench::new(profile, spec.size.value / BLOCK as u64)?;
    let device = bench.device();
    let mut rng = Rng::new(job.seed);

    let mut random = bench.measure("random-read", p.random_reads, &progress.part(0, 3), |recorder| {
        let mut block = [0; BLOCK];
        for _ in 0..p.random_reads {
            device.read(Lba(rng.below(device.blocks())), &mut block, Tag::default())?;
            recorder.step()?;
        }
        Ok(p.random_reads * BLOCK as u64)
    })?;
    let requests = p.random_reads as f64;
    random.note("seek", part(&random, Part::Seek).millijoules() / requests, "mJ");
    random.note("rotation", part(&random, Part::Rotate).millijoules() / requests, "mJ");

    let mut phases = vec![random];
    for (n, (name, measure, moved)) in
        [("sequential-read", "read", Part::PlatterRead), ("sequential-write", "write", Part::PlatterWrite)]
            .into_iter()
            .enumerate()
    {
        let io = (p.io_kib.max(4) * 1024 / BLOCK as u64).max(1);
        let total = blocks_of_mib(p.sequential_mib).min(device.blocks()) / io * io;
        let mut buf = vec![0; io as usize * BLOCK];
        let mut phase = bench.measure(name, total / io, &progress.part(n + 1, 3), |recorder| {
            for at in (0..total).step_by(io as usize) {
                match moved {
                    Part::PlatterWrite => device.write(Lba(at), &buf, Tag::default())?,
                    _ => device.read(Lba(at), &mut buf, Tag::default())?,
                }
                recorder.step()?;
            }
            if moved == Part::PlatterWrite {
                device.flush(Tag::default())?;
            }
            Ok(total * BLOCK as u64)
        })?;
        let kilobytes = (total * BLOCK as u64) as f64 / 1024.0;
        phase.note(measure, part(&phase, moved).millijoules() / kilobytes, "mJ/KB");
        phases.push(phase);
    }

    // The platter still spins after the last request, until the spin-down time.
    let wait = |name, seconds| {
        bench.measure(name, 1, progress, |_| {
            bench.clock().advance(Duration::from_secs(seconds));
            Ok(0)
        })
    };
    let standby_after = spec.standby_after.value.duration();
    if Duration::from_secs(p.idle_seconds) >= standby_after && standby_after > Duration::ZERO {
        let text = format!("idle_seconds is {}, but the disk stands still after {standby_after:?}", p.idle_seconds);
        return Err(LabError::parameters(text));
    }
    phases.push(wait("idle", p.idle_seconds)?);
    if standby_after > Duration::ZERO {
        // Wait until it stops; not measured.
        bench.measure("", 1, progress, |_| {
            bench.clock().advance(standby_after);
            Ok(0)
        })?;
        phases.push(wait("standby", p.standby_seconds)?);
    }
    for phase in &mut phases {
        // Power of the disk alone, without the board's waiting.
        let watts = phase.component(Component::Storage).joules() / (phase.took.0 as f64 / 1e9);
        phase.note("disk_power", watts * 1e3, "mW");
    }
    Ok((phases, Vec::new()))
}

fn part(phase: &Phase, part: Part) -> Energy {
    phase.spent.iter().filter(|s| s.part == part).map(|s| s.energy).sum()
}
