//! Which file system is judged?
//!
//! A judge that knows a file system by its trait alone needs somebody to make volumes of it, to mount them and to say whether they
//! are whole. What a judge asks of one file system only (cleaning, deltas) is not here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Clock, Memory};
use vfs::FileSystem;

/// Why a subject could not do what it was asked to.
pub type Why = String;

fn told(e: impl fmt::Display) -> Why {
    e.to_string()
}

/// A file system with the options it is judged with.
pub trait Subject: Clone {
    /// A mounted volume.
    type Volume: FileSystem;

    /// Makes a volume of all of a device.
    ///
    /// # Errors
    /// Those of making it.
    fn format(&self, dev: Arc<dyn BlockDevice>, clock: &dyn Clock) -> Result<(), Why>;
    /// Mounts it.
    ///
    /// # Errors
    /// Those of mounting it.
    fn mount(&self, dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<Self::Volume>, Why>;
    /// Says what is wrong with a volume that is not mounted, by a reader that shares no code with it.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, dev: &dyn BlockDevice) -> Result<(), Why>;
    /// Names in the root directory of a new volume that are the file system's own.
    fn own_names(&self) -> &'static [&'static [u8]] {
        &[]
    }
    /// Pages that became deltas since the mount, where there are any.
    fn deltas(&self, _volume: &Self::Volume) -> u64 {
        0
    }
}

/// F2FS.
#[derive(Clone)]
pub struct F2fs {
    /// What volumes are made like.
    pub made: f2fs::mkfs::Options,
    /// How they are mounted.
    pub mounted: f2fs::MountOptions,
    /// They may hold deltas.
    pub deltas: bool,
}

impl Subject for F2fs {
    type Volume = f2fs::Volume;

    fn format(&self, dev: Arc<dyn BlockDevice>, clock: &dyn Clock) -> Result<(), Why> {
        f2fs::mkfs::format(&*dev, clock, &self.made).map_err(told)?;
        if self.deltas {
            f2fs::delta::unsettle(&*dev).map_err(told)?;
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
    fn deltas(&self, volume: &f2fs::Volume) -> u64 {
        volume.counters.deltas.load(Relaxed)
    }
}

/// ScherlFS.
#[derive(Clone, Default)]
pub struct ScherlFs {
    /// What volumes are made like.
    pub made: scherlfs::make::Options,
    /// How they are mounted.
    pub mounted: scherlfs::MountOptions,
    /// Every mount has a stage of its own, and an index where `mounted` has none, both empty at first.
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
