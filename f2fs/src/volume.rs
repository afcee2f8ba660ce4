//! A mounted volume: what is it made of, and under which guard does every change run?
//!
//! # Locking order
//! 0. An inode's turn and its lock against shifts ([`crate::inode::Steps`]): held over several changes. Then admission
//!    ([`crate::file::admission`]): a writer with contents waits for other writers before it takes any other lock.
//! 1. `cp`: shared by every operation that changes something, exclusive for checkpoint and cleaning. Readers do not
//!    take it.
//! 2. `names`: renames between directories, one at a time.
//! 3. Inode locks ([`crate::inode::Inode::content`]): parent before child; of two directories the upper one first,
//!    unrelated ones (only under `names`) in order of inode number.
//! 4. `node_io`: order of node writes. `data_io`: order of data writes, on a zoned device; never both.
//! 5. Node bytes: inode before its nodes, parent before child.
//! 6. Leaves: the section being cleaned, segments, orphans, fsync's promises, caches, NAT; one at a time, or in this
//!    order. (The names of deleted files come before node bytes.)
//!
//! Cleaning changes addresses without inode locks. A reader notices it by the node's
//! [`moves`](crate::node::cache::Node), and reads again.

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

/// What happens, on a volume that was not unmounted, to what fsync promised since the last checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RollForward {
    /// It is replayed. If it cannot be replayed, the mount fails.
    #[default]
    Replay,
    /// It is not even looked for: the volume shows its last checkpoint and takes no changes, so that another mount can
    /// still replay it (Linux: `norecovery`).
    Leave,
    /// It is given up: the volume continues from its last checkpoint (Linux: `disable_roll_forward`).
    GiveUp,
}

/// Which of the two checkpoints a volume is mounted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointChoice {
    /// The newest one that is whole, as for Linux.
    #[default]
    Newest,
    /// The one before it, to read what that one leads to: the volume takes no changes.
    Older,
}

/// How a volume is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Write nothing. An image that was not unmounted is recovered in memory.
    pub read_only: bool,
    /// What happens to synced contents that only roll-forward finds.
    pub roll_forward: RollForward,
    /// Which checkpoint counts.
    pub checkpoint: CheckpointChoice,
    /// Where blocks may go; a volume with the feature `blkzoned` is always mounted with [`Mode::Lfs`].
    pub mode: Mode,
    /// Tell the device of freed segments.
    pub discard: bool,
    /// Clean nodes kept, in blocks of 4 KiB.
    pub node_cache: usize,
    /// Dirty file contents kept before writers write back, in blocks of 4 KiB.
    pub dirty_limit: usize,
    /// Directory blocks kept, in blocks of 4 KiB.
    pub dir_cache: usize,
    /// Dirty contents and nodes are written after this long.
    pub writeback_after: Duration,
    /// A checkpoint is written this long after a change (kernel `DEF_CP_INTERVAL`).
    pub checkpoint_after: Duration,
    /// Options that somebody gave and that act only on a volume with these features; no other is mounted with them.
    pub needs: Vec<(String, Features)>,
    /// When changes become durable though nobody asks; never before `checkpoint_after` without.
    pub commit: Option<vfs::Commit>,
    /// Small files and directories live in their inodes (kernel `inline_data`, `inline_dentry`).
    pub inline: bool,
    /// An fsync of at most this many blocks overwrites in place (kernel `min_fsync_blocks`); with 0 none does.
    pub in_place_blocks: usize,
    /// Blocks set aside for a database to grow into, at a time; none without.
    pub prealloc: Option<u32>,
    /// Small updates become deltas in their inodes, on a volume that may hold deltas.
    pub delta: bool,
    /// Where they go.
    pub delta_places: crate::delta::places::Places,
    /// Which bases are read to make them.
    pub delta_reads: crate::delta::places::Reads,
    /// How delta nodes are used; anything but the default is for comparison.
    pub delta_study: crate::delta::study::Study,
    /// Which new files are compressed, and how, on a volume that may hold compressed files.
    pub compress: crate::compress::options::Options,
    /// Deltas leave the delta nodes of files that are read often and written seldom, while nobody uses the volume.
    pub delta_return: bool,
    /// What deltas cost on the device below and beside it.
    pub delta_costs: crate::delta::costs::Costs,
    /// What compressing costs beside the device.
    pub compress_costs: crate::compress::costs::Costs,
    /// Who has the time booked that deltas and compressing take; nobody if there is no meter.
    pub processor: Option<Arc<dyn Processor>>,
    /// Which blocks a device that can keeps apart.
    pub streams: crate::streams::Streams,
    /// Cleaning ahead of time.
    pub gc: crate::gc::settings::Settings,
    /// What operations cost on the device below, for policies that weigh joules.
    pub prices: victim::joule::Prices,
    /// Room on the host that holds the image, if the image can grow.
    pub host_room: Option<Arc<HostRoom>>,
}

impl MountOptions {
    /// The defaults on a machine with so many bytes of memory: a 64th of it for clean nodes, from 32 to 256 MiB.
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

/// Counters a user may ask for.
#[derive(Debug, Default)]
pub struct Counters {
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Sections cleaned because space ran out.
    pub foreground_gc: AtomicU64,
    /// Sections cleaned ahead of time.
    pub background_gc: AtomicU64,
    /// Times the background looked and found nothing worth cleaning.
    pub nothing_to_clean: AtomicU64,
    /// Cleaned sections of file contents and directories.
    pub data_victims: AtomicU64,
    /// Cleaned sections of nodes.
    pub node_victims: AtomicU64,
    /// Blocks moved because space ran out.
    pub moved_foreground: AtomicU64,
    /// Blocks moved ahead of time.
    pub moved_background: AtomicU64,
    /// Moved blocks, of either kind, that went into holes of used segments.
    pub moved_threaded: AtomicU64,
    /// The longest step of background cleaning, during which changes waited, in microseconds.
    pub longest_pause: AtomicU64,
    /// All times for which background cleaning kept changes waiting: steps, and the checkpoints of its turns.
    pub waits: crate::gc::waits::Stretches,
    /// Dirty pages that became deltas, and the bytes that they take in zones.
    pub deltas: AtomicU64,
    /// Pages of databases kept in delta nodes, for blocks of journals and logs.
    pub kept: AtomicU64,
    /// New pages of small files packed in delta nodes.
    pub packed: AtomicU64,
    /// See `deltas`.
    pub delta_bytes: AtomicU64,
    /// Deltas whose pages were written whole.
    pub folded: AtomicU64,
    /// Deltas that left an inode for delta nodes, since the file grew.
    pub deltas_moved: AtomicU64,
    /// Of those that were folded, the ones of files that are only read.
    pub restored: AtomicU64,
    /// Clusters that were packed, and the blocks that saved.
    pub packed_clusters: AtomicU64,
    /// See `packed_clusters`.
    pub packed_saved: AtomicU64,
    /// Blocks that defragmentation moved.
    pub defragmented: AtomicU64,
    /// Bytes users wrote.
    pub user_bytes: AtomicU64,
    /// Blocks overwritten in place.
    pub in_place: AtomicU64,
    /// fsyncs done by roll-forward nodes alone.
    pub fast_fsyncs: AtomicU64,
    /// fsyncs of directories that needed no checkpoint.
    pub fast_dir_fsyncs: AtomicU64,
    /// Files written by the fsync of a directory, or of another file, for the sake of their names.
    pub names_put: AtomicU64,
    /// Deleted files whose names an fsync took out of the chain.
    pub names_withdrawn: AtomicU64,
    /// fsyncs that needed a checkpoint.
    pub slow_fsyncs: AtomicU64,
}

impl Counters {
    /// Sections cleaned, for whatever reason.
    pub fn sections_cleaned(&self) -> u64 {
        self.foreground_gc.load(Ordering::Relaxed) + self.background_gc.load(Ordering::Relaxed)
    }
    /// Blocks moved by cleaning, for whatever reason.
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
    /// The layer of `dev` that keeps bases, if the mount makes deltas.
    pub(crate) bases: Option<Arc<Bases>>,
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    pub(crate) checksum_seed: u32,
    pub(crate) cp: RwLock<PackState>,
    pub(crate) names: Mutex<()>,
    pub(crate) nat: Nat,
    pub(crate) seg: Mutex<Segments>,
    pub(crate) nodes: NodeCache,
    pub(crate) inodes: InodeTable,
    pub(crate) space: Space,
    pub(crate) writers: Writers,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) orphans: Orphans,
    pub(crate) node_io: Mutex<()>,
    /// Keeps data writes in the order of their allocation, on a zoned device.
    pub(crate) data_io: Mutex<()>,
    pub(crate) promises: Promises,
    pub(crate) hotness: Mutex<Hotness>,
    /// Pages of databases that delta nodes hold, by inode, generation and id.
    pub(crate) kept_pages: Mutex<Cache<(Ino, u32, u32), Box<Block>>>,
    pub(crate) flushes: FlushGate,
    pub(crate) cleaner: Cleaner,
    /// How cleaning is set now.
    pub(crate) gc: Mutex<crate::gc::settings::Settings>,
    /// See [`vfs::Volume::account_by`].
    pub(crate) accountant: Mutex<Option<vfs::Accountant>>,
    /// See [`vfs::Volume::report_too`].
    pub(crate) reported_too: Mutex<Option<vfs::Reporter>>,
    /// Which counts were right at mount.
    pub(crate) sound: Sound,
    /// Segments beyond those that users may fill, as the checkpoint says.
    pub(crate) overprov_segs: u32,
    /// True if the volume got a request since the background last looked.
    pub(crate) used: AtomicBool,
    /// True if nothing changed since the mount, and the checkpoint is one of an earlier mount.
    pub(crate) untouched: AtomicBool,
    pub(crate) cp_ver: AtomicU64,
    pub(crate) health: Health,
    pub(crate) changed: AtomicBool,
    /// The last shortage of the host at whose beginning everything was made durable.
    pub(crate) relieved: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) changes: Changes,
    pub(crate) elapsed_base: u64,
    pub(crate) mounted_at: Duration,
    /// Monotonic time of the last checkpoint and the last writeback, in milliseconds.
    pub(crate) last_checkpoint: AtomicU64,
    pub(crate) last_writeback: AtomicU64,
    pub(crate) generation: AtomicU64,
    /// How many directory blocks came into memory since the last look at their number.
    pub(crate) dir_blocks_brought: AtomicU64,
    /// What users and operators ask for.
    pub counters: Counters,
}

/// Held while an operation changes something: no checkpoint and no cleaning happens meanwhile.
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
    /// Now, for time stamps.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
    /// Seconds this volume was ever mounted: the clock of block ages (kernel `get_mtime`).
    pub(crate) fn mounted_seconds(&self) -> u64 {
        self.elapsed_base + (self.clock.monotonic().saturating_sub(self.mounted_at)).as_secs()
    }
    pub(crate) fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }
    /// What node footers carry: checkpoint version and its CRC.
    pub(crate) fn cp_ver(&self) -> u64 {
        self.cp_ver.load(Ordering::Acquire)
    }

    /// Has computation booked, if there is a meter.
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
        // The kernel draws it at random; all that matters is that two lives of one number differ.
        self.generation.fetch_add(1, Ordering::Relaxed) as u32
    }
}
