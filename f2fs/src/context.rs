//! What does every part of a mounted volume know?
//!
//! The device and its clock, the superblock, the options of the mount, the valid checkpoint with the lock that all
//! changes share, counters, and whether the volume still accepts changes. It knows nothing of what uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::clock::{Clock, Time};
use device::energy::{Nanos, Work};
use device::{BlockDevice, Counting, Tag};
use format::superblock::{Features, SuperBlock};
use format::{Block, BlockAddr, Ino};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::changes::Changes;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::health::Health;
use crate::options::MountOptions;
use crate::pack::PackState;

/// What every part of a mounted volume knows.
pub struct Context {
    pub(crate) dev: Arc<dyn BlockDevice>,
    /// The requests to `dev` since the mount.
    pub(crate) requests: Arc<Counting<Arc<dyn BlockDevice>>>,
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    /// True for a volume mounted for reading, once it is recovered.
    pub(crate) read_only: AtomicBool,
    pub(crate) checksum_seed: u32,
    pub(crate) cp: RwLock<PackState>,
    pub(crate) cp_ver: AtomicU64,
    /// Segments beyond those available to users, from the checkpoint.
    pub(crate) overprov_segs: u32,
    /// True if the volume got a request since the last check by the background.
    pub(crate) used: AtomicBool,
    /// True if nothing changed since the mount, and the checkpoint is from an earlier mount.
    pub(crate) untouched: AtomicBool,
    pub(crate) health: Health,
    pub(crate) changed: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) changes: Changes,
    pub(crate) elapsed_base: u64,
    pub(crate) mounted_at: Duration,
    pub(crate) generation: AtomicU64,
    pub(crate) counters: Arc<Counters>,
}

/// Begins changes that can be completed.
///
/// A change first makes room, for which everything may be needed: the volume implements this, and what needs several
/// changes for one request asks for it.
pub trait Begin {
    /// Begins a change that may need room: makes sure there is enough to complete it, then prevents checkpoints.
    fn begin(&self) -> Result<Change<'_>>;
    /// Begins a change that frees room or needs hardly any: it is accepted even while the host is short of room.
    fn begin_modest(&self) -> Result<Change<'_>>;
}

/// Held while an operation makes changes: no checkpoint and no cleaning runs meanwhile.
pub struct Change<'v> {
    pub(crate) cp: RwLockReadGuard<'v, PackState>,
}

impl std::ops::Deref for Change<'_> {
    type Target = PackState;
    fn deref(&self) -> &PackState {
        &self.cp
    }
}

impl Context {
    /// True if the volume refuses changes since it was mounted.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }
    /// Feature bits.
    pub(crate) fn has(&self, f: Features) -> bool {
        self.sb.features.contains(f)
    }
    /// True if inodes of this volume may hold deltas.
    pub(crate) fn may_hold_deltas(&self) -> bool {
        self.has(Features::DELTA)
    }
    /// The features that decide whether a written inode gets a checksum.
    pub(crate) fn sealing(&self) -> Features {
        let more = if self.options.seal_inodes { Features::INODE_CHECKSUM } else { Features::empty() };
        self.sb.features | more
    }
    /// The current time, for time stamps.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
    /// Total seconds that this volume was mounted: the clock of block ages (kernel `get_mtime`).
    pub(crate) fn mounted_seconds(&self) -> u64 {
        self.elapsed_base + (self.clock.monotonic().saturating_sub(self.mounted_at)).as_secs()
    }
    pub(crate) fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }
    /// The version in node footers: checkpoint version and its CRC.
    pub(crate) fn cp_ver(&self) -> u64 {
        self.cp_ver.load(Ordering::Acquire)
    }

    /// Counts computation on the meter, if there is one.
    pub(crate) fn compute(&self, work: Work, busy: Nanos, tag: Tag) {
        if let Some(processor) = &self.options.processor {
            processor.compute(work, busy, tag);
        }
    }

    /// Refuses changes on a volume that is read-only, unmounted or failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() || self.closed.load(Ordering::Acquire) {
            return Err(vfs::Error::ReadOnly.into());
        }
        match self.health.why() {
            None => Ok(()),
            Some(why) => Err(vfs::Error::device(format_args!("the volume accepts no changes: {why}")).into()),
        }
    }

    /// Checks an address found in a data slot.
    pub(crate) fn check_data_addr(&self, addr: BlockAddr, ino: Ino, index: u64) -> Result<()> {
        if self.sb.locate(addr).is_none() {
            return Err(Error::corrupt(format_args!(
                "inode {ino}, file block {index}: address {addr} is outside the main area"
            )));
        }
        Ok(())
    }

    pub(crate) fn read_block(&self, addr: BlockAddr, tag: device::Tag) -> Result<Box<Block>> {
        let mut b = Box::new([0; 4096]);
        self.dev.read(device::Lba(addr.0.into()), &mut *b, tag)?;
        Ok(b)
    }

    /// A generation for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        // The kernel draws it at random; only a reused number must get another one.
        self.generation.fetch_add(1, Ordering::Relaxed) as u32
    }
}
