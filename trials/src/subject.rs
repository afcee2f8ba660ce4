//! Which file system is judged?
//!
//! Judges know a file system only by its trait; this module creates, mounts and checks its volumes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{BlockDevice, Clock, CountSnapshot, Memory, VirtualClock};
use f2fs::cause::Cause;
use f2fs::gc::settings::Settings;
use format::superblock::Features;
use vfs::{Error, FileFlags, FileSystem};

use judges::medium::Zoning;

/// Why an operation of a subject failed.
pub type Why = String;

fn told(e: impl fmt::Display) -> Why {
    e.to_string()
}

/// A mounted volume, with operations for judges beyond those of every file system.
pub trait Judged: FileSystem {
    /// Background cleaning of one place, moving this many blocks per step, if the file system cleans and it is worth
    /// it.
    ///
    /// # Errors
    /// The device's, or that of a volume that accepts no more changes.
    fn make_room(&self, _step_blocks: usize) -> vfs::Result<()> {
        Ok(())
    }
    /// Time until a change is durable without a request (`commit=`).
    fn commits_within(&self) -> Option<Duration> {
        let report = self.report();
        let (_, seconds) = report.iter().find(|(name, _)| name == "commit_seconds")?;
        seconds.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
    /// Checks that incrementally updated counters agree with a full recount.
    ///
    /// # Errors
    /// The first that does not.
    fn audit(&self) -> Result<(), Why> {
        Ok(())
    }
}

impl Judged for f2fs::Volume {
    fn make_room(&self, step_blocks: usize) -> vfs::Result<()> {
        let settings = Settings { step_blocks, ..self.cleaning() };
        self.clean_in_background(&settings).map(drop).map_err(Error::from)
    }
    fn audit(&self) -> Result<(), Why> {
        self.audit_segments().map_err(told)
    }
}

impl Judged for scherlfs::Volume {
    /// All maintenance done while charging, regardless of the step size.
    fn make_room(&self, _step_blocks: usize) -> vfs::Result<()> {
        match self.tidy() {
            Ok(_) | Err(Error::NoSpace) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Activity of a volume since its mount, by which a judge verifies that a scenario is effective. Empty for file systems
/// other than F2FS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Did {
    /// Dirty pages that became deltas, deltas whose pages were written completely, and delta nodes written.
    pub deltas: [u64; 3],
    /// Blocks moved by background work, and blocks moved into holes of used segments.
    pub moved: (u64, u64),
    /// Blocks overwritten in place.
    pub in_place: u64,
    /// Blocks that defragmentation moved.
    pub defragmented: u64,
    /// fsyncs of directories without a checkpoint, files written for the sake of their names, names withdrawn.
    pub names: (u64, u64, u64),
    /// fsyncs that wrote a checkpoint.
    pub slow_fsyncs: u64,
    /// Clusters that were compressed.
    pub packed: u64,
}

/// A file system with the options it is judged with.
pub trait Subject: Clone {
    /// A mounted volume.
    type Volume: Judged;

    /// The zones of a zoned device of this size for such a volume; `None` for a device without zones.
    fn zoning(&self, _blocks: u64) -> Option<Zoning> {
        None
    }
    /// Formats the whole device.
    ///
    /// # Errors
    /// Those of formatting.
    fn format(&self, dev: Arc<dyn BlockDevice>, clock: &dyn Clock) -> Result<(), Why>;
    /// Mounts it.
    ///
    /// # Errors
    /// Those of mounting it.
    fn mount(&self, dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<Self::Volume>, Why>;
    /// Checks a volume that is not mounted, by a reader that shares no code with it.
    ///
    /// # Errors
    /// The problem found.
    fn check(&self, dev: &dyn BlockDevice) -> Result<(), Why>;
    /// Names in the root directory of a new volume that belong to the file system.
    fn own_names(&self) -> &'static [&'static [u8]] {
        &[]
    }
    /// Activity of a volume since its mount; `counts` are the requests to its device.
    fn did(&self, _volume: &Self::Volume, _counts: &CountSnapshot) -> Did {
        Did::default()
    }
    /// Pages that became deltas since the mount; 0 without deltas.
    fn deltas(&self, _volume: &Self::Volume) -> u64 {
        0
    }
}

/// F2FS.
#[derive(Clone)]
pub struct F2fs {
    /// Format options. With [`Features::CASEFOLD`] all directories fold case.
    pub made: f2fs::mkfs::Options,
    /// Mount options.
    pub mounted: f2fs::MountOptions,
    /// Volumes may contain deltas.
    pub deltas: bool,
}

impl Subject for F2fs {
    type Volume = f2fs::Volume;

    /// A section is a zone, and the tables are in conventional ones.
    fn zoning(&self, blocks: u64) -> Option<Zoning> {
        if !self.made.features.contains(Features::BLKZONED) {
            return None;
        }
        let zone = u64::from(self.made.segs_per_sec) * 512;
        let geometry = f2fs::mkfs::Geometry::plan(blocks, &self.made).ok()?;
        Some(Zoning { zone, conventional: u64::from(geometry.main) / zone })
    }
    fn format(&self, dev: Arc<dyn BlockDevice>, clock: &dyn Clock) -> Result<(), Why> {
        f2fs::mkfs::format(&*dev, clock, &self.made).map_err(told)?;
        if self.made.features.contains(Features::CASEFOLD) {
            // Starting at the root.
            let still = Arc::new(VirtualClock::new(clock.now()));
            let volume = f2fs::Volume::mount(dev.clone(), still, self.mounted.clone()).map_err(told)?;
            volume.set_flags(volume.root(), FileFlags::CASEFOLD, None).map_err(told)?;
            volume.unmount().map_err(told)?;
        }
        if self.deltas {
            f2fs::settle::unsettle(&*dev).map_err(told)?;
        }
        Ok(())
    }
    fn mount(&self, dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<f2fs::Volume>, Why> {
        f2fs::Volume::mount(dev, clock, self.mounted.clone()).map_err(told)
    }
    fn check(&self, dev: &dyn BlockDevice) -> Result<(), Why> {
        let report = fsck::check(dev, &fsck::Options::default()).map_err(told)?;
        if report.is_clean() { Ok(()) } else { Err(format!("fsck: {:?}", report.findings)) }
    }
    fn did(&self, volume: &f2fs::Volume, counts: &CountSnapshot) -> Did {
        let c = &volume.counters;
        let n = |counter: &AtomicU64| counter.load(Relaxed);
        Did {
            deltas: [n(&c.deltas), n(&c.folded), counts[Cause::DeltaNode as u8].blocks_written],
            moved: (n(&c.moved_background), n(&c.moved_threaded)),
            in_place: n(&c.in_place),
            defragmented: n(&c.defragmented),
            names: (n(&c.fast_dir_fsyncs), n(&c.names_put), n(&c.names_withdrawn)),
            slow_fsyncs: n(&c.slow_fsyncs),
            packed: n(&c.packed_clusters),
        }
    }
    fn deltas(&self, volume: &f2fs::Volume) -> u64 {
        volume.counters.deltas.load(Relaxed)
    }
}

/// ScherlFS.
#[derive(Clone, Default)]
pub struct ScherlFs {
    /// Format options.
    pub made: scherlfs::make::Options,
    /// Mount options.
    pub mounted: scherlfs::MountOptions,
    /// Every mount has its own stage, and an index if `mounted` has none, both initially empty.
    pub beside: bool,
}

impl Subject for ScherlFs {
    type Volume = scherlfs::Volume;

    fn format(&self, dev: Arc<dyn BlockDevice>, clock: &dyn Clock) -> Result<(), Why> {
        scherlfs::make::format(dev, clock, &self.made).map_err(told)
    }
    fn mount(&self, dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<scherlfs::Volume>, Why> {
        let mut options = self.mounted.clone();
        if self.beside {
            let blocks = scherlfs::index_blocks(dev.blocks()).map_err(told)?;
            options.beside.index.get_or_insert_with(|| Arc::new(Memory::new(blocks)));
            options.beside.stage = Some(Arc::new(Memory::new(2048)));
        }
        scherlfs::Volume::mount(dev, clock, options).map(Arc::new).map_err(told)
    }
    fn check(&self, dev: &dyn BlockDevice) -> Result<(), Why> {
        let report = scherlfs_fsck::check(dev);
        if report.is_clean() { Ok(()) } else { Err(format!("fsck: {:?}", report.findings)) }
    }
    fn own_names(&self) -> &'static [&'static [u8]] {
        &[b".ifile"]
    }
}
