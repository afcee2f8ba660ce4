//! How does a volume get deltas, and how does it become plain F2FS again?
//!
//! The superblock's magic number shows that inodes may hold deltas, and Linux mounts no volume with another magic
//! number. But Linux does mount a volume with one plain superblock copy, and overwrites the other copy. So a volume
//! holds deltas only while *both* copies have the private magic; while one copy is plain, no delta is created
//! ([`SuperBlock::compared_with`]). Unsettling writes one copy after the other before the first delta. Settling first folds
//! every delta and writes a checkpoint, then writes the copies. A power cut at any write leaves a volume that Linux
//! refuses or one without deltas.
//!
//! Deltas need checksums of inodes. A volume made without that feature (`mkfs.f2fs -g android`) gets it in the same
//! order: first every inode is written with its checksum, which Linux ignores, then the superblocks announce them.

use std::ops::Range;
use std::sync::Arc;

use device::BlockDevice;
use device::clock::Clock;
use format::inode::{self, RawInode};
use format::superblock::{DELTA_MAGIC, Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, Ino, Nid};

use crate::cause::Cause;
use crate::context::Begin;
use crate::error::{Error, Result};
use crate::mount::{MountError, read_superblock};
use crate::node::write::Mark;
use crate::options::MountOptions;
use crate::pack::Reason;
use crate::volume::Volume;

/// Why settling or unsettling failed.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The volume cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A volume of this kind cannot hold deltas.
    #[error("this volume cannot hold deltas: {0}")]
    Unfit(String),
    /// Deltas of an inode could not be folded.
    #[error("inode {ino}: {error}; nothing is lost, the volume holds deltas as before")]
    Inode {
        /// The inode.
        ino: Ino,
        /// The reason.
        error: Error,
    },
    /// An inode cannot be upgraded.
    #[error("inode {ino}: {error}; the volume holds no deltas, as before; joulefs fsck --repair first")]
    Unreadable {
        /// The inode.
        ino: Ino,
        /// The reason.
        error: Error,
    },
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<device::DeviceError> for SettleError {
    fn from(e: device::DeviceError) -> Self {
        SettleError::Other(e.into())
    }
}

/// Result of settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Inodes that had deltas.
    pub inodes: u64,
    /// Deltas that were folded.
    pub deltas: u64,
}

/// Gives both superblock copies the magic number of plain F2FS, one after the other.
fn store_plain(dev: &dyn BlockDevice, sb: &SuperBlock) -> Result<()> {
    let mut raw = sb.raw.clone();
    raw.magic = MAGIC.into();
    crate::superblocks::store(dev, &raw)
}

/// The superblock of a volume that may hold deltas, with `more` features.
fn with_deltas(sb: &SuperBlock, more: Features) -> std::result::Result<Box<RawSuperBlock>, SettleError> {
    if !sb.features.contains(Features::EXTRA_ATTR) {
        let why = "it was made without extra_attr, which would move the contents of every inode; make a volume with \
                   joulefs mkfs --features modern,delta, and copy the files";
        return Err(SettleError::Unfit(why.to_owned()));
    }
    let mut raw = sb.raw.clone();
    raw.feature = (raw.feature.get() | more.bits()).into();
    raw.magic = DELTA_MAGIC.into();
    let mut block = [0; BLOCK];
    raw.store(&mut block);
    SuperBlock::check(&block).map_err(|e| SettleError::Unfit(e.to_string()))?;
    Ok(raw)
}

/// Allows the inodes of a volume to hold deltas. Nothing else on it changes. True if that is new.
///
/// # Errors
/// If it is not a volume, or lacks a feature that deltas need.
pub fn unsettle(dev: &dyn BlockDevice) -> std::result::Result<bool, SettleError> {
    let sb = read_superblock(dev)?;
    if sb.features.contains(Features::DELTA) {
        return Ok(false);
    }
    if !sb.features.contains(Features::INODE_CHECKSUM) && sb.features.contains(Features::EXTRA_ATTR) {
        return Err(SettleError::Unfit("it lacks inode_checksum, which --upgrade adds".to_owned()));
    }
    crate::superblocks::store(dev, &*with_deltas(&sb, Features::empty())?)?;
    Ok(true)
}

/// Like [`unsettle`], but first adds checksums of inodes if the volume lacks them; returns the number of inodes that
/// got one, or `None` if the volume could hold deltas already. `progress` gets the number of checked node numbers and
/// the total. After a power cut the volume is as before, or may hold deltas.
///
/// # Errors
/// If it is not a volume, lacks extra attributes, cannot be written, or has no room.
pub fn upgrade(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(u32, u32),
) -> std::result::Result<Option<u64>, SettleError> {
    let sb = read_superblock(&*dev)?;
    if sb.features.contains(Features::DELTA) {
        return Ok(None);
    }
    let with = with_deltas(&sb, Features::INODE_CHECKSUM)?;
    let mut sealed = 0;
    if !sb.features.contains(Features::INODE_CHECKSUM) {
        let most = sb.max_nid();
        // The second time, to be sure, since what lacks a checksum will not be readable: from the device.
        for again in [false, true] {
            let options = MountOptions { seal_inodes: true, ..MountOptions::default() };
            let vol = Volume::mount(dev.clone(), clock.clone(), options)?;
            for first in (sb.root.0..most).step_by(AT_ONCE as usize) {
                progress(first, most);
                let lacking = vol.seal_inodes(first..(first + AT_ONCE).min(most))?;
                if again && lacking > 0 {
                    return Err(SettleError::Unfit(format!("{lacking} inodes still lack a checksum; try again")));
                }
                sealed += lacking;
            }
            vol.unmount_clean()?;
            dev.flush(Cause::Checkpoint.tag())?;
        }
    }
    crate::superblocks::store(&*dev, &with)?;
    Ok(Some(sealed))
}

/// Node numbers that are upgraded in one change.
const AT_ONCE: u32 = 256;

/// Converts a volume to plain F2FS: folds every delta, unmounts, and changes the magic number. `None` if it was plain
/// already. `progress` gets the number of checked node numbers and the total.
///
/// # Errors
/// If a delta cannot be folded; the volume then still holds deltas.
pub fn settle(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(u32, u32),
) -> std::result::Result<Option<Settled>, SettleError> {
    let sb = read_superblock(&*dev)?;
    if !sb.features.contains(Features::DELTA) {
        // A power cut may have left the copies different.
        if sb.mixed {
            store_plain(&*dev, &sb)?;
        }
        return Ok(None);
    }
    let vol = Volume::mount(dev.clone(), clock, MountOptions { delta: false, ..MountOptions::default() })?;
    let mut done = Settled::default();
    let most = sb.max_nid();
    for nid in (sb.root.0..most).map(Nid) {
        if nid.0.is_multiple_of(4096) {
            progress(nid.0, most);
        }
        let folded = vol.settle_inode(nid).map_err(|error| SettleError::Inode { ino: nid.as_ino(), error })?;
        done.deltas += folded;
        done.inodes += u64::from(folded > 0);
    }
    vol.unmount_clean()?;
    dev.flush(Cause::Checkpoint.tag())?;
    store_plain(&*dev, &sb)?;
    Ok(Some(done))
}

/// Totals for the deltas of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeltaCount {
    /// Inodes with deltas.
    pub inodes: u64,
    /// Deltas.
    pub deltas: u64,
    /// Their bytes, in inodes and delta nodes.
    pub bytes: u64,
}

impl Volume {
    /// Counts the deltas of all inodes. Reads every inode.
    ///
    /// # Errors
    /// If an inode cannot be read.
    pub fn count_deltas(&self) -> Result<DeltaCount> {
        let mut count = DeltaCount::default();
        for nid in (self.ctx.sb.root.0..self.ctx.sb.max_nid()).map(Nid) {
            let Some(node) = self.nodes.inode_node(nid)? else { continue };
            let (deltas, bytes) = self.deltas.deltas_of(&node)?;
            let (deltas, bytes) = (deltas as u64, bytes as u64);
            count.inodes += u64::from(deltas > 0);
            count.deltas += deltas;
            count.bytes += bytes;
        }
        Ok(count)
    }

    /// Writes the inodes with these numbers whose checksum is missing or wrong; returns how many. Those that `mkfs.f2fs`
    /// made, root and quota files, may have no room for one.
    fn seal_inodes(&self, nids: Range<u32>) -> std::result::Result<u64, SettleError> {
        let features = self.ctx.sealing();
        let mut lacking = Vec::new();
        for nid in nids.map(Nid) {
            let failed = |error| SettleError::Unreadable { ino: nid.as_ino(), error };
            let Some(node) = self.nodes.inode_node(nid).map_err(failed)? else { continue };
            let bytes = node.read();
            if !inode::make_room_for_checksum(features, &mut RawInode::of(&bytes).clone()) {
                let why =
                    format!("inode {nid} has no room for a checksum, and Linux's fsck.f2fs would write one into it");
                return Err(SettleError::Unfit(why));
            }
            let sealed = inode::has_checksum(features, RawInode::of(&bytes))
                && inode::verify_checksum(features, self.ctx.checksum_seed, &bytes).is_ok();
            drop(bytes);
            if !sealed {
                lacking.push(node);
            }
        }
        if lacking.is_empty() {
            return Ok(0);
        }
        let change = self.begin()?;
        for node in &lacking {
            self.nodes.edit_inode(node, |r| inode::make_room_for_checksum(features, r));
        }
        let out = self.nodes.write_nodes(&change, &lacking, Mark::Plain, Cause::Node);
        drop(change);
        match out {
            // The checkpoint frees the blocks of the inodes written before, and writes the rest.
            Err(Error::Fs(vfs::Error::NoSpace)) => self.cleaning.checkpoint(Reason::Running)?,
            out => out?,
        }
        Ok(lacking.len() as u64)
    }

    /// Folds an inode's deltas and frees its delta nodes; returns how many deltas it had.
    fn settle_inode(&self, nid: Nid) -> Result<u64> {
        let Some(node) = self.nodes.inode_node(nid)? else { return Ok(0) };
        let (count, _) = self.deltas.deltas_of(&node)?;
        if self.deltas.holds_deltas(&node) {
            let fold = || {
                let _change = self.begin()?;
                self.files.fold_all(&node)?;
                self.deltas.free_delta_nodes(&node).map(drop)
            };
            let mut left = usize::MAX;
            while let Err(e) = fold() {
                // A checkpoint frees the overwritten blocks.
                let now = self.deltas.deltas_of(&node)?.0;
                if !matches!(e, Error::Fs(vfs::Error::NoSpace)) || now >= left {
                    return Err(e);
                }
                left = now;
                self.cleaning.checkpoint(Reason::Running)?;
            }
        }
        Ok(count as u64)
    }
}
