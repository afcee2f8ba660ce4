//! What can a mount be asked for?

use std::sync::Arc;
use std::time::Duration;

use device::HostRoom;
use device::energy::Processor;
use format::superblock::Features;

use crate::segment::temperature::Mode;

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

/// Which holes in segments that are in use are discarded ([`crate::trim`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holes {
    /// None.
    #[default]
    Kept,
    /// Those that Linux discards (`discard_unit=block`): of 64 KiB or more while the volume is idle, and every hole if it
    /// is more than 80 % full.
    AsLinux,
    /// While the volume is idle, those whose discard costs less than copying them once inside the device.
    Worth,
}

/// How often an fsync empties the device's cache, and so what a power cut can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FsyncMode {
    /// Before the mark, if blocks got new addresses, and after it: an fsync is durable when it returns. One that was cut
    /// short leaves each block as it was, or as it should be; only an atomic commit is all or nothing.
    #[default]
    Strict,
    /// Only after the mark, as Linux does by default: an fsync is durable when it returns. One that was cut short can
    /// leave whatever the new addresses held before.
    Posix,
    /// Never, as vendors of phones mount it: what a power cut leaves is up to the device's cache. A checkpoint and an
    /// atomic commit still empty it.
    NoBarrier,
}

/// When an fsync overwrites pages in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// If they are at most this many (kernel `min_fsync_blocks`); 0: never.
    Few(usize),
    /// If all have a place, and if that costs fewer joules than new places.
    Price,
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
    /// Which holes in segments that are in use are discarded, too.
    pub discard_holes: Holes,
    /// What an fsync flushes.
    pub fsync_mode: FsyncMode,
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
    /// When an fsync overwrites in place.
    pub in_place: InPlace,
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
    /// Written inodes get a checksum, even if the volume does not announce it yet ([`crate::settle::upgrade`]).
    pub seal_inodes: bool,
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
    /// What the wear of one programmed block is worth besides, in pJ.
    pub wear: u64,
    /// Room on the host for the image, if the image can grow.
    pub host_room: Option<Arc<HostRoom>>,
}

impl MountOptions {
    /// Whether a file's account decides if it gets deltas. Where nothing is overwritten in place, pages leave their deltas
    /// at no cost.
    pub(crate) fn prices_deltas(&self) -> bool {
        self.delta_study.is_priced() && self.in_place != InPlace::Few(0) && self.mode == Mode::Adaptive
    }

    /// The options that decide when something is written, flushed, discarded or overwritten, by their names.
    pub(crate) fn in_effect(&self) -> impl Iterator<Item = (String, String)> {
        let holes = match self.discard_holes {
            _ if !self.discard => "off",
            Holes::Kept => "segment",
            Holes::AsLinux => "block",
            Holes::Worth => "price",
        };
        let fsync_mode = match self.fsync_mode {
            FsyncMode::Strict => "strict",
            FsyncMode::Posix => "posix",
            FsyncMode::NoBarrier => "nobarrier",
        };
        let in_place = match self.in_place {
            InPlace::Few(most) => most.to_string(),
            InPlace::Price => "price".to_owned(),
        };
        [
            ("commit_seconds", self.commit.map_or(0, |commit| commit.after.as_secs()).to_string()),
            ("fsync_mode", fsync_mode.to_owned()),
            ("discard_unit", holes.to_owned()),
            ("in_place", in_place),
            ("wear", (self.wear / 1_000_000).to_string()),
            ("delta", if self.delta { "on" } else { "off" }.to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
    }

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
            discard_holes: Holes::Kept,
            fsync_mode: FsyncMode::Strict,
            node_cache: 8192,
            dirty_limit: 8192,
            dir_cache: 4096,
            writeback_after: Duration::from_secs(5),
            checkpoint_after: Duration::from_secs(60),
            needs: Vec::new(),
            commit: None,
            inline: true,
            in_place: InPlace::Few(crate::segment::temperature::IN_PLACE_BLOCKS),
            prealloc: None,
            delta: true,
            delta_places: crate::delta::places::Places::Both,
            delta_reads: crate::delta::places::Reads::Few,
            delta_study: crate::delta::study::Study::default(),
            delta_return: false,
            compress: crate::compress::options::Options::default(),
            delta_costs: crate::delta::costs::Costs::PAPER.of_own_codecs(),
            seal_inodes: false,
            compress_costs: crate::compress::costs::Costs::default(),
            processor: None,
            streams: crate::streams::Streams::One,
            gc: crate::gc::settings::Settings::default(),
            prices: victim::joule::Prices::default(),
            wear: 0,
            host_room: None,
        }
    }
}
