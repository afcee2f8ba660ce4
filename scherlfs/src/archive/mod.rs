//! A volume whose disk sleeps: what stands between it and the disk.
//!
//! [`Archive`] is the volume's device. It answers what the index has ([`index`]), and the volume tells it which of the
//! blocks that it writes are metadata. Without an index it passes everything on.
//!
//! Left out: when the volume writes ([`crate::volume`]), and what a file is on which disk, which is who mounts' matter.

mod fill;
pub(crate) mod index;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::{BlockDevice, Clock, Lba, Tag};
use scherlfs_format::archive::Mark;
use scherlfs_format::chain::Header;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Block, Run, directory};
use vfs::{Error, Result};

use crate::cause::Cause;
pub use index::index_blocks;
use index::{Found, Index};

/// What stands beside a volume on other disks.
#[derive(Clone, Default)]
pub struct Beside {
    /// Its metadata, of [`index_blocks`] blocks.
    pub index: Option<Arc<dyn BlockDevice>>,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("index", &self.index.is_some()).finish()
    }
}

impl Beside {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.index.is_none()
    }
}

/// The disk of a volume, and what stands beside it.
pub(crate) struct Archive {
    disk: Arc<dyn BlockDevice>,
    pub index: Option<Index>,
    /// What whoever mounts should be told.
    pub warning: Option<String>,
    /// The index is not asked while something is read again.
    bypassed: AtomicBool,
}

/// Blocks of metadata, which the index should have.
fn is_metadata(cause: u8) -> bool {
    [Cause::Inode, Cause::Directory, Cause::InodeMap].iter().any(|c| *c as u8 == cause)
}

/// Whether a block of the log looks like metadata. What only looks so is kept to no harm.
fn looks_kept(block: &Block) -> bool {
    Header::read(block).is_ok() || directory::looks_sealed(block)
}

impl Archive {
    /// A volume's disk with what stands beside it.
    pub fn open(disk: Arc<dyn BlockDevice>, clock: &dyn Clock, beside: &Beside, sb: &Superblock) -> Result<Archive> {
        let mut warning = None;
        let index = match &beside.index {
            None => None,
            Some(dev) => {
                let now = clock.now();
                let life = (now.secs.max(1) as u64).saturating_mul(1 << 30).saturating_add(now.nanos.into());
                let (index, found) = Index::open(dev.clone(), sb, life)?;
                if let Found::Refused(why) = found {
                    warning = Some(format!("the index is made anew: {why}"));
                }
                Some(index)
            }
        };
        Ok(Archive { disk, index, warning, bypassed: AtomicBool::new(false) })
    }

    /// Does something without asking the index.
    pub fn without_index<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bypassed.store(true, Relaxed);
        let out = work();
        self.bypassed.store(false, Relaxed);
        out
    }

    /// Does something, and again without the index if what was read contradicts the volume; see [`State::doubting`].
    ///
    /// [`State::doubting`]: crate::volume::State::doubting
    pub fn doubted<T>(archive: Option<&Archive>, work: impl Fn() -> Result<T>) -> Result<T> {
        let first = work();
        let (Err(Error::Corrupt(why)), Some((archive, index))) =
            (&first, archive.and_then(|a| Some((a, a.index.as_ref()?))))
        else {
            return first;
        };
        let second = archive.without_index(work);
        if second.is_ok() {
            index.distrust(why);
        }
        second
    }

    /// A block that was written is metadata.
    pub fn keep(&self, at: Addr, block: &Block) {
        if let Some(index) = &self.index {
            index.put(at, block);
        }
    }

    /// A superblock is about to be written.
    pub fn before(&self, sb: &Superblock) {
        if let Some(index) = &self.index {
            index.name(Mark::of(sb));
        }
    }

    /// Blocks that are free.
    pub fn freed(&self, runs: impl Iterator<Item = Run>) {
        if let Some(index) = &self.index {
            runs.for_each(|run| index.forget(run));
        }
    }

    fn written(&self, at: Lba, bytes: usize) {
        let Some(index) = &self.index else { return };
        // OK to cut: a request has less than 2^32 blocks.
        index.forget(Run { start: Addr(at.0), blocks: (bytes / BLOCK) as u32 });
    }
}

impl BlockDevice for Archive {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read_only(&self) -> bool {
        self.disk.read_only()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        let Some(index) = self.index.as_ref().filter(|_| !self.bypassed.load(Relaxed)) else {
            return self.disk.read(at, buf, tag);
        };
        let (metadata, recovery) = (is_metadata(tag.cause), tag.cause == Cause::Recovery as u8);
        // A symlink's block is read as contents, and is there.
        let asked = metadata || (tag.cause == Cause::Contents as u8 && buf.len() == BLOCK);
        if asked && index.read(Addr(at.0), buf, metadata) {
            return Ok(());
        }
        self.disk.read(at, buf, tag)?;
        if metadata {
            index.put(Addr(at.0), buf);
        } else if recovery {
            for (at, block) in (at.0..).map(Addr).zip(buf.as_chunks::<BLOCK>().0) {
                match looks_kept(block) {
                    true => index.put(at, block),
                    false => index.forget(Run { start: at, blocks: 1 }),
                }
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.written(at, data.len());
        self.disk.write(at, data, tag)
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> device::Result<()> {
        self.written(at, parts.iter().map(|p| p.len()).sum());
        self.disk.write_gather(at, parts, tag)
    }

    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> device::Result<()> {
        self.written(at, data.len());
        self.disk.write_for(at, data, owners, cause)
    }

    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.disk.flush(tag)
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        let mut from = at.0;
        while let Some(index) = self.index.as_ref().filter(|_| from < at.0.saturating_add(blocks)) {
            let some = u32::try_from(at.0 + blocks - from).unwrap_or(u32::MAX);
            index.forget(Run { start: Addr(from), blocks: some });
            from += u64::from(some);
        }
        self.disk.discard(at, blocks, tag)
    }
}
