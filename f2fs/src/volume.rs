//! What is the state of a mounted volume, and under which locks does every change run?
//!
//! # Locking order
//! 0. An inode's `turn` and `shift` locks ([`crate::inode::Steps`]): held over several changes. Then admission
//!    ([`crate::file::admission`]): a writer of contents waits for other writers before it takes any other lock.
//! 1. `cp`: shared by every operation that changes something, exclusive for checkpoint and cleaning. Readers do not
//!    take it.
//! 2. `names`: renames between directories, one at a time.
//! 3. Inode locks ([`crate::inode::Inode::content`]): parent before child; of two directories the upper one first,
//!    unrelated ones (only under `names`) in order of inode number.
//! 4. `node_io`: order of node writes. `data_io`: order of data writes, on a zoned device; never both.
//! 5. Node bytes: inode before its nodes, parent before child.
//! 6. Innermost locks: the section being cleaned, segments, orphans, fsync's promises, caches, NAT; one at a time, or
//!    in this order. (The names of deleted files come before node bytes.)
//!
//! Cleaning changes addresses without inode locks. A reader notices it by the node's
//! [`moves`](crate::node::cache::Node) and repeats the read.

mod begin;
mod host_room;
mod report;
mod restore;
pub(crate) mod settle;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::clock::{Clock, Time};
use device::energy::{Nanos, Processor};
use device::{BlockDevice, HostRoom, Tag};
use format::superblock::{Features, SuperBlock};
use format::{Block, BlockAddr, Ino};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::changes::Changes;
use crate::delta::bases::Bases;
use crate::delta::hotness::Hotness;
use crate::error::{Error, Result};
use crate::file::writers::Writers;
use crate::gc::cleaner::Cleaner;
use crate::health::Health;
use crate::inode::InodeTable;
use crate::invariant::Sound;
use crate::nat::Nat;
use crate::node::cache::NodeCache;
use crate::orphan::Orphans;
use crate::pack::PackState;
use crate::promises::Promises;
use crate::promises::flush_gate::FlushGate;
use crate::replacement::Cache;
use crate::segment::temperature::Mode;
use crate::segment::{Pressure, Segments};
use crate::space::Space;

/// How a mount treats changes fsynced since the last checkpoint, if the volume was not unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RollForward {
    /// They are replayed. If that fails, the mount fails.
    #[default]
    Replay,
    /// They are ignored: the volume shows its last checkpoint and refuses changes, so that another mount can still
    /// replay them (Linux: `norecovery`).
    Leave,
    /// They are discarded: the volume continues from its last checkpoint (Linux: `disable_roll_forward`).
    GiveUp,
}

/// Which of the two checkpoints a mount uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointChoice {
    /// The newest complete one, as in Linux.
    #[default]
    Newest,
    /// The previous one, for reading: the volume refuses changes.
    Older,
}

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Write nothing. An image that was not unmounted is recovered in memory.
    pub read_only: bool,
    /// How changes fsynced since the last checkpoint are treated.
    pub roll_forward: RollForward,
    /// Which checkpoint is used.
    pub checkpoint: CheckpointChoice,
    /// Where blocks may go; a volume with the feature `blkzoned` is always mounted with [`Mode::Lfs`].
    pub mode: Mode,
    /// Discard freed segments.
    pub discard: bool,
    /// Clean nodes in memory, in blocks of 4 KiB.
    pub node_cache: usize,
    /// Dirty file contents in memory before writers write back, in blocks of 4 KiB.
    pub dirty_limit: usize,
    /// Directory blocks in memory, in blocks of 4 KiB.
    pub dir_cache: usize,
    /// Dirty contents and nodes are written after this time.
    pub writeback_after: Duration,
    /// A checkpoint is written this long after a change (kernel `DEF_CP_INTERVAL`).
    pub checkpoint_after: Duration,
    /// Explicit options that need these features; without them the mount fails.
    pub needs: Vec<(String, Features)>,
    /// When changes become durable without a request; by default only after `checkpoint_after`.
    pub commit: Option<vfs::Commit>,
    /// Small files and directories are stored in their inodes (kernel `inline_data`, `inline_dentry`).
    pub inline: bool,
    /// An fsync of at most this many blocks overwrites in place (kernel `min_fsync_blocks`); 0: none does.
    pub in_place_blocks: usize,
    /// Blocks preallocated at a time for a growing database; `None`: none.
    pub prealloc: Option<u32>,
    /// Small updates become deltas in their inodes, on a volume that may hold deltas.
    pub delta: bool,
    /// Where deltas are stored.
    pub delta_places: crate::delta::places::Places,
    /// Which bases are read to encode deltas.
    pub delta_reads: crate::delta::places::Reads,
    /// How delta nodes are used; anything but the default is for comparison.
    pub delta_study: crate::delta::study::Study,
    /// Which new files are compressed, and how, on a volume that may hold compressed files.
    pub compress: crate::compress::options::Options,
    /// While the volume is idle, fold the deltas in delta nodes of files that are often read and seldom written.
    pub delta_return: bool,
    /// Costs of deltas, on the device and in computation.
    pub delta_costs: crate::delta::costs::Costs,
    /// Costs of compression, in computation.
    pub compress_costs: crate::compress::costs::Costs,
    /// The meter for the computing time of deltas and compression, if any.
    pub processor: Option<Arc<dyn Processor>>,
    /// Which blocks get which placement handle, if the device has several.
    pub streams: crate::streams::Streams,
    /// Background cleaning.
    pub gc: crate::gc::settings::Settings,
    /// What operations cost on the device below, for policies that weigh joules.
    pub prices: victim::joule::Prices,
    /// Room on the host for the image, if the image can grow.
    pub host_room: Option<Arc<HostRoom>>,
}

impl MountOptions {
    /// The defaults for a machine with this much memory: 1/64 of it for clean nodes, at least 32 and at most 256 MiB.
    pub fn for_machine(memory: u64) -> Self {
        let blocks = (memory / 64 / 4096).clamp(8192, 65_536);
        MountOptions { node_cache: blocks as usize, ..MountOptions::default() }
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            roll_forward: RollForward::Replay,
            checkpoint: CheckpointChoice::Newest,
            mode: Mode::Adaptive,
            discard: true,
            node_cache: 8192,
            dirty_limit: 8192,
            dir_cache: 4096,
            writeback_after: Duration::from_secs(5),
            checkpoint_after: Duration::from_secs(60),
            needs: Vec::new(),
            commit: None,
            inline: true,
            in_place_blocks: crate::segment::temperature::IN_PLACE_BLOCKS,
            prealloc: None,
            delta: true,
            delta_places: crate::delta::places::Places::Both,
            delta_reads: crate::delta::places::Reads::Few,
            delta_study: crate::delta::study::Study::default(),
            delta_return: false,
            compress: crate::compress::options::Options::default(),
            delta_costs: crate::delta::costs::Costs::PAPER,
            compress_costs: crate::compress::costs::Costs::default(),
            processor: None,
            streams: crate::streams::Streams::One,
            gc: crate::gc::settings::Settings::default(),
            prices: victim::joule::Prices::default(),
            host_room: None,
        }
    }
}

/// Counters that users can read.
#[derive(Debug, Default)]
pub struct Counters {
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Sections cleaned in the foreground, because space ran out.
    pub foreground_gc: AtomicU64,
    /// Sections cleaned in the background.
    pub background_gc: AtomicU64,
    /// Times the background found nothing worth cleaning.
    pub nothing_to_clean: AtomicU64,
    /// Cleaned sections of file contents and directories.
    pub data_victims: AtomicU64,
    /// Cleaned sections of nodes.
    pub node_victims: AtomicU64,
    /// Blocks moved in the foreground.
    pub moved_foreground: AtomicU64,
    /// Blocks moved in the background.
    pub moved_background: AtomicU64,
    /// Moved blocks of both kinds that went into holes of used segments.
    pub moved_threaded: AtomicU64,
    /// The longest step of background cleaning, during which changes waited, in microseconds.
    pub longest_pause: AtomicU64,
    /// All periods in which background cleaning blocked changes: steps, and the checkpoints of its batches.
    pub waits: crate::gc::waits::Stretches,
    /// Dirty pages that became deltas.
    pub deltas: AtomicU64,
    /// Database pages kept in delta nodes, for blocks of journals and logs.
    pub kept: AtomicU64,
    /// New pages of small files packed into delta nodes.
    pub packed: AtomicU64,
    /// Bytes of these deltas in zones.
    pub delta_bytes: AtomicU64,
    /// Deltas whose pages were written as whole blocks.
    pub folded: AtomicU64,
    /// Deltas moved from an inode to delta nodes because the file grew.
    pub deltas_moved: AtomicU64,
    /// Folded deltas of files that are only read.
    pub restored: AtomicU64,
    /// Clusters written packed.
    pub packed_clusters: AtomicU64,
    /// Blocks saved by packing.
    pub packed_saved: AtomicU64,
    /// Blocks that defragmentation moved.
    pub defragmented: AtomicU64,
    /// Bytes written by users.
    pub user_bytes: AtomicU64,
    /// Blocks overwritten in place.
    pub in_place: AtomicU64,
    /// fsyncs that wrote only nodes for roll-forward.
    pub fast_fsyncs: AtomicU64,
    /// fsyncs of directories that needed no checkpoint.
    pub fast_dir_fsyncs: AtomicU64,
    /// Files written by the fsync of a directory, or of another file, because of their names.
    pub names_put: AtomicU64,
    /// Deleted files whose names an fsync withdrew from the chain.
    pub names_withdrawn: AtomicU64,
    /// fsyncs that needed a checkpoint.
    pub slow_fsyncs: AtomicU64,
}

impl Counters {
    /// Sections cleaned, for any reason.
    pub fn sections_cleaned(&self) -> u64 {
        self.foreground_gc.load(Ordering::Relaxed) + self.background_gc.load(Ordering::Relaxed)
    }
    /// Blocks moved by cleaning, for any reason.
    pub fn moved_blocks(&self) -> u64 {
        self.moved_foreground.load(Ordering::Relaxed) + self.moved_background.load(Ordering::Relaxed)
    }
    pub(crate) fn cleaned(&self, foreground: bool, of_nodes: bool) {
        let when = if foreground { &self.foreground_gc } else { &self.background_gc };
        when.fetch_add(1, Ordering::Relaxed);
        let what = if of_nodes { &self.node_victims } else { &self.data_victims };
        what.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn moved(&self, foreground: bool, blocks: u64, threaded: u64) {
        let when = if foreground { &self.moved_foreground } else { &self.moved_background };
        when.fetch_add(blocks, Ordering::Relaxed);
        self.moved_threaded.fetch_add(threaded, Ordering::Relaxed);
    }
    pub(crate) fn held_off(&self, pause: Duration) {
        self.longest_pause.fetch_max(pause.as_micros() as u64, Ordering::Relaxed);
        self.waits.count(pause);
    }
}

/// A mounted volume.
pub struct Volume {
    pub(crate) dev: Arc<dyn BlockDevice>,
    /// The cache of bases above `dev`, if the mount creates deltas.
    pub(crate) bases: Option<Arc<Bases>>,
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    pub(crate) checksum_seed: u32,
    pub(crate) cp: RwLock<PackState>,
    pub(crate) renames: Mutex<()>,
    pub(crate) nat: Nat,
    pub(crate) seg: Mutex<Segments>,
    pub(crate) node_cache: NodeCache,
    pub(crate) inode_table: InodeTable,
    pub(crate) space: Space,
    pub(crate) writers: Writers,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) orphans: Orphans,
    pub(crate) node_io: Mutex<()>,
    /// Keeps data writes in allocation order, on a zoned device.
    pub(crate) data_io: Mutex<()>,
    pub(crate) promises: Promises,
    pub(crate) hotness: Mutex<Hotness>,
    /// Database pages in delta nodes, by inode, generation and id.
    pub(crate) kept_pages: Mutex<Cache<(Ino, u32, u32), Box<Block>>>,
    pub(crate) flushes: FlushGate,
    pub(crate) cleaner: Cleaner,
    /// The current settings of cleaning.
    pub(crate) gc: Mutex<crate::gc::settings::Settings>,
    /// See [`vfs::Volume::account_by`].
    pub(crate) accountant: Mutex<Option<vfs::Accountant>>,
    /// See [`vfs::Volume::report_too`].
    pub(crate) reported_too: Mutex<Option<vfs::Reporter>>,
    /// Which counts were right at mount.
    pub(crate) sound: Sound,
    /// Segments beyond those available to users, from the checkpoint.
    pub(crate) overprov_segs: u32,
    /// True if the volume got a request since the last check by the background.
    pub(crate) used: AtomicBool,
    /// True if nothing changed since the mount, and the checkpoint is from an earlier mount.
    pub(crate) untouched: AtomicBool,
    pub(crate) cp_ver: AtomicU64,
    pub(crate) health: Health,
    pub(crate) changed: AtomicBool,
    /// The last shortage of the host for which everything was made durable.
    pub(crate) relieved: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) changes: Changes,
    pub(crate) elapsed_base: u64,
    pub(crate) mounted_at: Duration,
    /// Monotonic time of the last checkpoint and the last writeback, in milliseconds.
    pub(crate) last_checkpoint: AtomicU64,
    pub(crate) last_writeback: AtomicU64,
    pub(crate) generation: AtomicU64,
    /// Directory blocks loaded since the last check of their number.
    pub(crate) dir_blocks_brought: AtomicU64,
    /// Counters for users and operators.
    pub counters: Counters,
}

/// Held while an operation makes changes: no checkpoint and no cleaning runs meanwhile.
pub(crate) struct Change<'v> {
    cp: RwLockReadGuard<'v, PackState>,
}

impl std::ops::Deref for Change<'_> {
    type Target = PackState;
    fn deref(&self) -> &PackState {
        &self.cp
    }
}

impl Volume {
    /// The superblock.
    pub fn superblock(&self) -> &SuperBlock {
        &self.sb
    }
    /// Feature bits.
    pub(crate) fn has(&self, f: Features) -> bool {
        self.sb.features.contains(f)
    }
    /// True if inodes of this volume may hold deltas.
    pub(crate) fn may_hold_deltas(&self) -> bool {
        self.has(Features::DELTA)
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
    pub(crate) fn compute(&self, busy: Nanos, tag: Tag) {
        if let Some(processor) = &self.options.processor {
            processor.compute(busy, tag);
        }
    }

    /// Refuses changes on a volume that is read-only, unmounted or failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only || self.closed.load(Ordering::Acquire) {
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
