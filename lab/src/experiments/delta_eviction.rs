//! How long does a writer wait if its file grows into the space of its deltas?
//!
//! MedFS FAST'25, section 6.4: an inode's deltas occupy the slots of later block addresses. When the file grows, their
//! pages must first be reconstructed and written whole, and the writer waits. The worst case: caches are cold, and all
//! deltas must be evicted at the same time. Left out: the normal life of deltas, which applications show
//! (`app-updates`).

use device::energy::profile::Profile;
use device::{BLOCK, Rng};
use f2fs::delta::{Costs, Places};
use f2fs::{MountOptions, mkfs};
use format::superblock::Features;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::atomic::Ordering::Relaxed;
use vfs::{FileSystem, WriteFlags};

use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;

/// Slots of an inode that may hold deltas: a file that needs all of them has no space for deltas.
const SLOTS: u64 = 864;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume.
    volume_mib: u64,
    /// MiB of each file.
    files_mib: Vec<u64>,
    /// Bytes changed on each page.
    change: usize,
    /// Whether further deltas go into delta nodes.
    nodes: bool,
}

/// Fills the delta zone of each file, then lets the file grow.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let mut phases = Vec::new();
    for (n, &mib) in p.files_mib.iter().enumerate() {
        let blocks = blocks_of_mib(mib);
        if blocks == 0 || blocks >= SLOTS || p.change == 0 || p.change > BLOCK {
            return Err(LabError::parameters(format!("files_mib: {mib} MiB leave no room for deltas")));
        }
        let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
        let delta_places = if p.nodes { Places::Both } else { Places::Inode };
        let mut options = MountOptions { delta_places, ..MountOptions::default() };
        options.delta_study.at_any_price = true;
        bench.format_with(job.seed, mkfs::Options::modern().features | Features::DELTA, options)?;
        let ino = bench.file("file")?;
        bench.write_whole(ino, blocks * BLOCK as u64, job.seed)?;
        bench.f2fs()?.sync()?;
        let mut rng = Rng::new(job.seed);
        let mut change = vec![0; p.change];
        let volume = bench.f2fs()?.clone();
        // More pages than the zone has space for: the rest are written whole.
        for page in 0..blocks {
            rng.fill(&mut change);
            let at = page * BLOCK as u64 + rng.below((BLOCK - change.len()) as u64 + 1);
            volume.write(ino, at, &change, WriteFlags::empty())?;
            if page % 8 == 7 {
                volume.fsync(ino, false)?;
            }
        }
        volume.sync()?;
        drop(volume);
        bench.restart(false)?;
        let ino = bench.file("file")?;
        let volume = bench.f2fs()?.clone();
        let held = volume.deltas_in(format::Ino(ino.0 as u32)).map_err(vfs::Error::from)? as f64;
        let rest = vec![7; ((SLOTS - blocks) * BLOCK as u64) as usize];
        let mut waited = std::time::Duration::ZERO;
        let mut phase = bench.measure(&format!("{mib}-mib"), 1, &progress.part(n, p.files_mib.len()), |_| {
            let from = device::clock::Clock::monotonic(&**bench.clock());
            volume.write(ino, blocks * BLOCK as u64, &rest, WriteFlags::empty())?;
            waited = device::clock::Clock::monotonic(&**bench.clock()) - from;
            volume.fsync(ino, false)?;
            Ok(rest.len() as u64)
        })?;
        let (folded, moved) = (volume.counters.folded.load(Relaxed), volume.counters.deltas_moved.load(Relaxed));
        phase.note("deltas_moved", moved as f64, "deltas");
        let folded = (folded + moved) as f64;
        phase.note("deltas_held", held, "deltas");
        phase.note("deltas_evicted", folded, "deltas");
        phase.note("eviction_time", waited.as_secs_f64() * 1e3, "ms");
        if folded > 0.0 {
            phase.note("eviction_time_per_delta", waited.as_secs_f64() * 1e3 / folded, "ms");
        }
        let of_formula = Costs::of(profile);
        phase.note(
            "formula_per_delta",
            (of_formula.miss.0 + of_formula.decode.0 + of_formula.write.0) as f64 / 1e6,
            "ms",
        );
        volume.unmount()?;
        phases.push(phase);
    }
    Ok((phases, Vec::new()))
}
