//! How is a volume of ScherlFS mounted in a case? Drawn from a seed.

use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Rng};
use scherlfs_scheduled::{Clean, MountOptions, Placement, Strategy, Sync};
use vfs::Power;

/// How the volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounting {
    /// When writes reach the disk.
    pub sync: Sync,
    /// Maximum number of dirty blocks.
    pub dirty: u64,
    /// Maximum number of cached directory blocks.
    pub dir_cache: usize,
    /// Maximum number of cached blocks of the inode map.
    pub ifile_cache: usize,
    /// Cached inodes in addition to those in use.
    pub inode_cache: usize,
    /// Seconds until writeback.
    pub writeback: u64,
    /// Blocks of log between checkpoints.
    pub checkpoint_blocks: u64,
    /// Seconds between checkpoints.
    pub checkpoint_every: Option<u64>,
    /// How space is freed.
    pub clean: Clean,
    /// The initial power source.
    pub power: Power,
    /// Blocks kept to undo transactions.
    pub undo: u64,
    /// Where an inode is placed relative to its file.
    pub placement: Placement,
    /// Whether metadata is also on another disk.
    pub index: bool,
    /// Seconds until the disk spins down.
    pub sleep: Option<u64>,
    /// New files created before the threads start and used by none.
    pub crowd: u64,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.index(from.len())]
}

impl Mounting {
    /// How the volume of a case is mounted.
    pub fn draw(rng: &mut Rng) -> Mounting {
        let all = Strategy::ALL.map(Clean::Always);
        let sync = pick(rng, &[Sync::Call, Sync::Fsync, Sync::Fsync, Sync::Burst]);
        Mounting {
            sync,
            dirty: pick(rng, &[4, 32, 8192]),
            dir_cache: pick(rng, &[0, 2, 4096]),
            ifile_cache: pick(rng, &[0, 1, 4096]),
            inode_cache: pick(rng, &[0, 2, 16384]),
            writeback: pick(rng, &[0, 0, 5]),
            checkpoint_blocks: pick(rng, &[10, 100, 16384]),
            checkpoint_every: pick(rng, &[None, None, Some(20)]),
            clean: if rng.chance(1, 2) { Clean::ByPower } else { pick(rng, &all) },
            power: pick(rng, &[Power::Battery, Power::Powered]),
            undo: pick(rng, &[0, 0, 40, 10_000]),
            placement: pick(rng, &Placement::ALL),
            index: if sync == Sync::Burst { rng.chance(1, 2) } else { rng.chance(1, 5) },
            sleep: (sync == Sync::Burst && rng.chance(1, 2)).then_some(10),
            crowd: if rng.chance(1, 2) { 1 + rng.below(20) } else { 0 },
        }
    }

    pub(crate) fn options(
        &self,
        index: Option<Arc<dyn BlockDevice>>,
        stage: Option<Arc<dyn BlockDevice>>,
    ) -> MountOptions {
        let mut options = MountOptions {
            sync: self.sync,
            dirty: self.dirty,
            dir_cache: self.dir_cache,
            ifile_cache: self.ifile_cache,
            inode_cache: self.inode_cache,
            writeback: Duration::from_secs(self.writeback),
            checkpoint_blocks: self.checkpoint_blocks,
            checkpoint_every: self.checkpoint_every.map(Duration::from_secs),
            clean: self.clean,
            power: self.power,
            undo: Some(self.undo),
            placement: Some(self.placement),
            ..MountOptions::default()
        };
        options.beside.index = index;
        options.beside.stage = stage;
        options.beside.sleep = self.sleep.map(Duration::from_secs);
        options
    }
}
