//! What does the work after cleaning cost?
//!
//! New small files of `mib` MiB are written without background cleaning: this is the work that free segments are kept
//! for. It is the same under every policy, so its cost shows how the policies' volumes differ: if a writer finds too
//! few free segments, it fills holes and waits for foreground cleaning. Left out on purpose: reading, overwriting, and
//! the choice of victims.

use device::{BLOCK, generate};
use f2fs::Volume;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};
use victim::Policy;

use super::cleaned::{self, Cleaned};
use crate::cost::HELD;
use crate::error::LabError;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Phase, Stage};

/// The phase's name.
const PHASE: &str = "after";
/// Files per directory.
const PER_DIRECTORY: u64 = 1000;
/// Bytes between syncs.
const SYNC_EVERY: u64 = 4 << 20;
/// Blocks that a file takes in addition to its contents: its inode and its share of a directory.
const BESIDE: u64 = 2;

/// The work after cleaning.
#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Afterwards {
    /// MiB written.
    mib: u64,
    /// KiB per file.
    file_kib: u64,
}

impl Afterwards {
    /// Runs the work, and notes the number of free segments at its start.
    pub fn run(&self, bench: &Bench, seed: u64, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let volume = bench.f2fs()?;
        volume.set_cleaning(cleaned::never(Policy::CostBenefit));
        volume.sync()?;
        let (bytes, size) = (self.mib << 20, self.file_kib << 10);
        if size == 0 || !size.is_multiple_of(BLOCK as u64) || !bytes.is_multiple_of(size) {
            return Err(LabError::parameters(format!(
                "after: {} MiB are not whole files of {} KiB, which is whole blocks",
                self.mib, self.file_kib
            )));
        }
        let (files, each) = (bytes / size, size / BLOCK as u64);
        let free = volume.statfs()?.blocks_free;
        if free < files * (each + BESIDE) {
            let left = (free * BLOCK as u64) >> 20;
            return Err(LabError::parameters(format!("after: no room for {} MiB where {left} MiB are free", self.mib)));
        }
        let (held, before) = (volume.state().free_segments, Cleaned::so_far(volume));
        let mut buf = vec![0; size as usize];
        let mut phase = bench.measure(PHASE, files, progress, |recorder| {
            let mut dir = None;
            for n in 0..files {
                if n.is_multiple_of(PER_DIRECTORY) {
                    let name = format!("after-{:04}", n / PER_DIRECTORY);
                    let new = volume.mkdir(Caller::default(), volume.root(), name.as_bytes(), 0o755, 0)?.attr.ino;
                    leave(volume, dir.replace(new));
                }
                generate(seed.rotate_left(7) ^ n, 0, &mut buf);
                write(volume, dir.unwrap_or(volume.root()), n, &buf)?;
                if ((n + 1) * size).is_multiple_of(SYNC_EVERY.next_multiple_of(size)) {
                    volume.sync()?;
                }
                recorder.step()?;
            }
            leave(volume, dir);
            volume.sync()?;
            Ok(bytes)
        })?;
        let cleaned = Cleaned::so_far(volume).since(before);
        phase.stage = Stage::After;
        phase.note(HELD, held.into(), "segments");
        phase.note("free_segments_left", volume.state().free_segments.into(), "segments");
        phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
        phase.note("background_gc_count", (cleaned.sections - cleaned.in_foreground) as f64, "GCs");
        phase.note("files", files as f64, "files");
        Ok(phase)
    }
}

/// Appends the work to `phases`, if the plan has it.
pub(super) fn run(
    after: Option<Afterwards>,
    bench: &Bench,
    seed: u64,
    progress: &Progress<'_>,
    phases: &mut Vec<Phase>,
) -> Result<(), LabError> {
    if let Some(after) = after {
        phases.push(after.run(bench, seed, progress)?);
    }
    Ok(())
}

fn write(volume: &Volume, dir: Ino, n: u64, contents: &[u8]) -> Result<(), LabError> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let ino = volume.mknod(Caller::default(), dir, format!("{n:07}").as_bytes(), &new)?.attr.ino;
    let mut done = 0;
    while done < contents.len() {
        done += match volume.write(ino, done as u64, &contents[done..], WriteFlags::empty())? {
            0 => return Err(vfs::Error::NoSpace.into()),
            n => n,
        };
    }
    leave(volume, Some(ino));
    Ok(())
}

/// Drops a reference.
fn leave(volume: &Volume, ino: Option<Ino>) {
    if let Some(ino) = ino {
        volume.forget(ino, 1);
    }
}
