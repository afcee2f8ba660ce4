//! What is the volume's state when the recorded calls begin, and is there space for them?
//!
//! A new and empty volume hides what users want to know: it is never cleaned. So it can be aged by a recipe, used by
//! another recording first, and filled. Space is estimated before anything is done; if the estimate was too low, an
//! error is returned before the first call.

use std::collections::BTreeSet;

use device::clock::VirtualClock;
use serde::{Deserialize, Serialize};
use vfs::{FileKind, FileSystem, Flow, Ino, Volume};
use volume::Mounted;

use super::{Progress, ReplayError};
use crate::aging::{Ager, Recipe};
use crate::error::SimError;

/// The wanted state of a volume.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The recipe that ages a new volume.
    pub recipe: Option<String>,
    /// Used part of the space for files, from 0 to 1, when the calls begin: unchanging files are added up to it.
    pub full: Option<f64>,
}

/// Smallest new volume.
const SMALLEST: u64 = 256 << 20;
/// Largest share of a volume that is not for files: metadata and reserve.
const NOT_FOR_FILES: f64 = 0.15;
/// Largest share of an aged volume that the recording's files take.
const ROOM_OF_AGED: f64 = 0.1;
/// Factor for space in addition to file bytes: nodes, directories, the last block of each file.
const BESIDE: f64 = 1.15;

impl Wanted {
    /// Size of a volume with space for calls whose files hold at most `room` bytes; `more` of these are written by the
    /// calls.
    pub fn device_bytes(&self, room: u64, more: u64) -> u64 {
        let aged = if self.recipe.is_some() { room as f64 * BESIDE / ROOM_OF_AGED } else { 0.0 };
        let filled = self.full.map_or(0.0, |full| more as f64 * BESIDE / (1.0 - full));
        let for_files = aged.max(filled) / (1.0 - NOT_FOR_FILES);
        let at_least = room.saturating_mul(2).saturating_add(SMALLEST);
        let bytes = at_least.max((for_files.min(1e18) as u64).saturating_add(SMALLEST));
        if for_files > 0.0 { bytes } else { at_least }.next_multiple_of(64 << 20)
    }
}

impl Wanted {
    /// The error that a volume has no space for the files that the calls need at the beginning, with a sufficient size.
    /// The files hold at most `room` bytes; `more` of these are written by the calls.
    pub(super) fn no_room_before(&self, device_bytes: u64, room: u64, more: u64) -> ReplayError {
        // An image may be larger than a new volume would need to be, and still be full; many small files are mostly
        // nodes.
        let beside = (room as f64 * BESIDE / (1.0 - NOT_FOR_FILES)).min(1e18) as u64;
        let larger = device_bytes.saturating_add(beside.max(device_bytes / 4)).saturating_add(1);
        let new = self.device_bytes(room, more);
        let would_do = if new > device_bytes { new } else { larger.next_multiple_of(64 << 20) };
        ReplayError::NoRoomBefore { holds: room, given: device_bytes, would_do }
    }

    /// Ages a volume by the recipe, if any, and then deletes created files until `room` bytes are free.
    pub(super) fn age(
        &self,
        volume: &dyn Volume,
        clock: Option<&VirtualClock>,
        seed: u64,
        room: u64,
        progress: Progress<'_>,
    ) -> Result<(), ReplayError> {
        let Some(recipe) = &self.recipe else { return Ok(()) };
        let mut chain = Recipe::chain(recipe).map_err(SimError::from)?;
        let (all, _) = room_of(volume)?;
        let free = (room as f64 * BESIDE / all as f64).min(1.0);
        chain.push(Recipe::making_room(&chain, free));
        carry_out(volume, clock, seed, "aging", &chain, progress)
    }

    /// Fills a volume, if wanted.
    pub(super) fn fill(
        &self,
        volume: &dyn Volume,
        clock: Option<&VirtualClock>,
        seed: u64,
        progress: Progress<'_>,
    ) -> Result<(), ReplayError> {
        let Some(full) = self.full else { return Ok(()) };
        carry_out(volume, clock, seed, "filling", &[Recipe::until_full(full)], progress)
    }
}

fn carry_out(
    volume: &dyn Volume,
    clock: Option<&VirtualClock>,
    seed: u64,
    what: &str,
    chain: &[Recipe],
    progress: Progress<'_>,
) -> Result<(), ReplayError> {
    let Some(clock) = clock else {
        let why = "a volume is aged in virtual time only; make an image of it first";
        return Err(SimError::Parameters(why.into()).into());
    };
    let mut ager = Ager::new(volume, clock, seed).on_the_devices_time();
    ager.all(chain, &mut |p| progress(what, p.done as f64 / p.total.max(1) as f64))?;
    volume.sync()?;
    Ok(())
}

/// The names in the root directory.
pub(super) fn names_in_root(fs: &dyn FileSystem) -> Result<BTreeSet<Vec<u8>>, ReplayError> {
    Ok(entries(fs, fs.root())?.into_iter().map(|(name, _)| name).collect())
}

/// The entries of a directory, without `.` and `..`.
fn entries(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<(Vec<u8>, FileKind)>, vfs::Error> {
    let mut all = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            all.push((entry.name.to_vec(), entry.kind));
        }
        Flow::Continue
    })?;
    Ok(all)
}

/// Removes everything in the root directory whose name is not listed.
pub(super) fn remove_all_but(fs: &dyn FileSystem, stays: &BTreeSet<Vec<u8>>) -> Result<(), ReplayError> {
    // A directory, its entries still to remove, and its name in its parent.
    let mut inside: Vec<(Ino, Vec<(Vec<u8>, FileKind)>, Vec<u8>)> = Vec::new();
    let all = entries(fs, fs.root())?.into_iter().filter(|(name, _)| !stays.contains(name)).collect();
    inside.push((fs.root(), all, Vec::new()));
    while let Some((dir, left, _)) = inside.last_mut() {
        let dir = *dir;
        match left.pop() {
            Some((name, FileKind::Directory)) => {
                let ino = fs.lookup(dir, &name)?.attr.ino;
                inside.push((ino, entries(fs, ino)?, name));
            }
            Some((name, _)) => fs.unlink(dir, &name)?,
            None => {
                let Some((ino, _, name)) = inside.pop() else { break };
                if let Some((above, ..)) = inside.last() {
                    fs.forget(ino, 1);
                    fs.rmdir(*above, &name)?;
                }
            }
        }
    }
    Ok(())
}

/// State of a volume when the calls began.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Began {
    /// Used part of the space for files, from 0 to 1.
    pub full: f64,
    /// Free segments, if the file system has segments.
    pub free_segments: Option<u64>,
    /// Pieces of free space, if the file system has no segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_pieces: Option<u64>,
    /// Free bytes for files.
    pub free: u64,
    /// Most bytes by which the recording's files grow later.
    pub needs: u64,
    /// The cleaning policy uses age, and the volume was too young: cost-benefit was used instead.
    pub waits_for_age: bool,
}

/// Examines a volume before the calls, which need `needs` bytes more than it holds.
///
/// # Errors
/// If there is too little space: with the size of a volume that is large enough.
pub(super) fn look(mounted: &Mounted, device_bytes: u64, needs: u64) -> Result<Began, ReplayError> {
    let volume = &*mounted.volume();
    let (all, free) = room_of(volume)?;
    if free < needs {
        return Err(no_room(volume, device_bytes, needs)?);
    }
    let f2fs = mounted.f2fs();
    Ok(Began {
        full: 1.0 - free as f64 / all as f64,
        free_segments: f2fs.map(|volume| volume.state().free_segments.into()),
        free_pieces: f2fs.is_none().then(|| volume.free_fragments().total()),
        free,
        needs,
        waits_for_age: f2fs.is_some_and(|volume| volume.waits_for_age()),
    })
}

/// Bytes for files in total, and free.
fn room_of(volume: &dyn Volume) -> Result<(u64, u64), ReplayError> {
    let st = volume.statfs()?;
    Ok((st.blocks.max(1) * 4096, st.blocks_free * 4096))
}

/// The error that a volume is too small for calls that need `needs` bytes more than it holds, with a sufficient size.
pub(super) fn no_room(volume: &dyn Volume, device_bytes: u64, needs: u64) -> Result<ReplayError, ReplayError> {
    let (all, free) = room_of(volume)?;
    let short = (needs as f64 * BESIDE - free as f64).max(0.0);
    // The same part of the additional space of a larger volume is free.
    let free_part = (free as f64 / all as f64).max(0.01);
    let more = short / free_part / (1.0 - NOT_FOR_FILES);
    let would_do = device_bytes.saturating_add(more.min(1e18) as u64).saturating_add(1).next_multiple_of(64 << 20);
    Ok(ReplayError::NoRoom { free, needs, would_do })
}
