//! A volume whose disk sleeps: the layer between the volume and the disk.
//!
//! [`Archive`] is the volume's device. It answers reads from the index ([`index`]) and from cached contents
//! ([`keep`], [`worth`]), stores fsyncs on the stage ([`stage`]), plans read-ahead ([`ahead`]), and counts what
//! woke the disk ([`wakes`]). The volume tells it which written blocks are metadata, and when writes may be staged.
//! All other requests are passed to the disk.
//!
//! Left out: when the volume writes ([`crate::volume`]), and which files on which disks are used, which the
//! mounting program decides.

pub(crate) mod ahead;
mod flushed;
pub(crate) mod index;
pub(crate) mod keep;
mod stage;
pub(crate) mod wakes;
mod worth;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use device::{BlockDevice, Clock, Lba, Tag};
use parking_lot::Mutex;
use scherlfs_format::archive::Mark;
use scherlfs_format::chain::Header;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Block, FIRST_INO, Ino, Run, directory};
use vfs::{Error, Result};

use crate::cause::Cause;
use ahead::Ahead;
use flushed::Flushed;
pub use index::index_blocks;
use index::{ALL, Found, Index};
pub use keep::keep_blocks;
use keep::{Comes, Keep};
use stage::Stage;
pub use wakes::ProgramOf;
use wakes::Wakes;

/// Devices that accompany a volume, and when its own disk sleeps.
#[derive(Clone, Default)]
pub struct Beside {
    /// Its metadata, in [`index_blocks`] blocks.
    pub index: Option<Arc<dyn BlockDevice>>,
    /// Cached contents, in [`keep_blocks`] blocks.
    pub keep: Option<Arc<dyn BlockDevice>>,
    /// Fsyncs that wait for the next burst.
    pub stage: Option<Arc<dyn BlockDevice>>,
    /// Time without a request after which the disk sleeps: then time alone causes no writes.
    pub sleep: Option<Duration>,
    /// Finds the name of a process that woke the disk.
    pub program_of: Option<ProgramOf>,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, keep, stage) = (self.index.is_some(), self.keep.is_some(), self.stage.is_some());
        let mut out = f.debug_struct("Beside");
        out.field("index", &index).field("keep", &keep).field("stage", &stage).field("sleep", &self.sleep).finish()
    }
}

impl Beside {
    /// True if there are no such devices.
    pub fn is_empty(&self) -> bool {
        self.index.is_none() && self.keep.is_none() && self.stage.is_none() && self.sleep.is_none()
    }
}

/// The disk of a volume with its accompanying devices.
pub(crate) struct Archive {
    disk: Arc<dyn BlockDevice>,
    pub index: Option<Index>,
    /// Cached contents.
    pub contents: Option<Keep>,
    /// Files to read ahead while the disk is awake.
    pub ahead: Ahead,
    stage: Option<Stage>,
    pub wakes: Option<Wakes>,
    /// A warning for the mounting program.
    pub warning: Option<String>,
    /// True while index and keep are bypassed to read again.
    bypassed: AtomicBool,
    /// True while the log goes to the stage.
    staging: AtomicBool,
    /// The superblock behind which staged blocks belong.
    mark: Mutex<Option<Mark>>,
    /// Tracks writes to the disk that are not flushed.
    flushed: Flushed,
    /// True if the stage's disk failed: it is not used until the next mount.
    stage_off: AtomicBool,
}

/// True for causes of metadata, which the index should have.
fn is_metadata(cause: u8) -> bool {
    [Cause::Inode, Cause::Directory, Cause::InodeMap].iter().any(|c| *c as u8 == cause)
}

/// True if a block of the log looks like metadata. A false positive does no harm.
fn looks_kept(block: &Block) -> bool {
    Header::read(block).is_ok() || directory::looks_sealed(block)
}

impl Archive {
    /// Opens a volume's disk with its accompanying devices.
    ///
    /// # Errors
    /// The index is too small; the stage holds data that does not fit the volume's current state; a disk
    /// fails.
    pub fn open(
        disk: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        beside: &Beside,
        read_only: bool,
    ) -> Result<(Archive, Superblock)> {
        let wakes = beside.sleep.map(|sleep| Wakes::new(clock.clone(), sleep, beside.program_of));
        let mut archive = Archive {
            disk,
            index: None,
            contents: None,
            ahead: Ahead::default(),
            stage: None,
            wakes,
            warning: None,
            bypassed: AtomicBool::new(false),
            staging: AtomicBool::new(false),
            mark: Mutex::new(None),
            flushed: Flushed::default(),
            stage_off: AtomicBool::new(false),
        };
        let sb = crate::superblock::superblock(&archive)?;
        let now = clock.now();
        let life = (now.secs.max(1) as u64).saturating_mul(1 << 30).saturating_add(now.nanos.into());
        if let Some(dev) = &beside.stage {
            archive.stage = Some(Stage::open(dev.clone(), &sb, life)?);
        }
        if let Some(dev) = &beside.index {
            let (index, found) = Index::open(dev.clone(), &sb, life)?;
            if let Found::Refused(why) = found {
                archive.warning = Some(format!("the index is rebuilt: {why}"));
            }
            archive.index = Some(index);
        }
        if let Some(dev) = &beside.keep {
            let (keep, found) = Keep::open(dev.clone(), &sb, life)?;
            if let Found::Refused(why) = found {
                let more = format!("the keep is rebuilt: {why}");
                archive.warning = Some(archive.warning.take().map_or(more.clone(), |first| format!("{first}; {more}")));
            }
            archive.contents = Some(keep);
        }
        if !read_only {
            archive.drain().map_err(Error::device)?;
        }
        Ok((archive, sb))
    }

    /// Calls `work` without index and keep.
    pub fn without_index<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bypassed.store(true, Relaxed);
        let out = work();
        self.bypassed.store(false, Relaxed);
        out
    }

    /// Calls `work`, and again without the index if the data read contradicts the volume; see [`State::doubting`].
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

    /// Stores a written metadata block.
    pub fn keep(&self, at: Addr, block: &Block) {
        if let Some(index) = &self.index {
            index.insert(at, block);
        }
        if let Some(keep) = &self.contents {
            keep.forget(Run { start: at, blocks: 1 });
        }
    }

    /// To be called before a superblock is written.
    ///
    /// # Errors
    /// Staged data belongs before it, and cannot be written.
    pub fn before(&self, sb: &Superblock) -> Result<()> {
        self.drain().map_err(Error::device)?;
        if let Some(index) = &self.index {
            index.name(Mark::of_superblock(sb));
        }
        if let Some(keep) = &self.contents {
            keep.name(Mark::of_superblock(sb));
        }
        Ok(())
    }

    /// Saves index and keep at unmount.
    pub fn close(&self) {
        if let Some(index) = &self.index {
            index.save();
        }
        if let Some(keep) = &self.contents {
            keep.save();
        }
    }

    /// Drops blocks that became free.
    pub fn freed(&self, runs: impl Iterator<Item = Run>) {
        runs.for_each(|run| self.forget(run));
    }

    fn forget(&self, run: Run) {
        if let Some(index) = &self.index {
            index.forget(run);
        }
        if let Some(keep) = &self.contents {
            keep.forget(run);
        }
    }

    /// True if fsyncs may be staged.
    pub fn stages(&self) -> bool {
        self.stage.is_some() && !self.stage_off.load(Relaxed)
    }

    /// Calls `work`, which writes log behind superblock `sb`, and makes it durable on the stage. False if some of
    /// it went to the disk, which must be flushed.
    pub fn staged<T>(&self, sb: &Superblock, work: impl FnOnce() -> Result<T>) -> Result<bool> {
        let Some(stage) = self.stage.as_ref().filter(|_| self.stages()) else {
            return work().map(|_| false);
        };
        if self.flushed.is_behind() {
            // The preceding log must be durable, too.
            self.flush_disk(Tag { cause: Cause::Log as u8, owner: 0 }).map_err(Error::device)?;
        }
        *self.mark.lock() = Some(Mark::of_superblock(sb));
        self.staging.store(true, Relaxed);
        let out = work();
        self.staging.store(false, Relaxed);
        out?;
        if self.flushed.is_behind() {
            return Ok(false);
        }
        if let Err(e) = stage.flush() {
            self.give_up_stage(&e);
            self.drain().map_err(Error::device)?;
        }
        Ok(true)
    }

    fn give_up_stage(&self, e: &device::DeviceError) {
        log::warn!("fsyncs are no longer staged until the next mount: {e}");
        self.stage_off.store(true, Relaxed);
    }

    /// Writes all staged data durably to the disk.
    fn drain(&self) -> device::Result<()> {
        let Some(stage) = self.stage.as_ref().filter(|stage| !stage.is_empty()) else { return Ok(()) };
        let tag = Tag { cause: Cause::Log as u8, owner: 0 };
        stage.each(|at, data| {
            self.touch(tag, true);
            self.flushed.write(|| self.disk.write(at, data, tag))
        })?;
        self.flush_disk(tag)?;
        if let Err(e) = stage.forget() {
            self.give_up_stage(&e);
        }
        Ok(())
    }

    /// Flushes the disk while it is awake.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn flush_while_awake(&self) -> Result<()> {
        if self.flushed.is_behind() && self.is_awake() {
            self.flush_disk(Tag { cause: Cause::Log as u8, owner: 0 }).map_err(Error::device)?;
        }
        Ok(())
    }

    /// True if data is staged.
    pub fn has_staged(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| !stage.is_empty())
    }

    fn flush_disk(&self, tag: Tag) -> device::Result<()> {
        self.touch(tag, true);
        self.flushed.flush(|| self.disk.flush(tag))?;
        self.done();
        Ok(())
    }

    fn touch(&self, tag: Tag, writes: bool) {
        if let Some(wakes) = &self.wakes {
            wakes.touch(tag, writes);
        }
    }

    fn done(&self) {
        if let Some(wakes) = &self.wakes {
            wakes.done();
        }
    }

    /// Prepares for a write to the disk.
    fn writes(&self, at: Lba, bytes: usize, tag: Tag) -> device::Result<()> {
        self.drain()?;
        self.overwritten(at, bytes);
        self.touch(tag, true);
        Ok(())
    }

    fn overwritten(&self, at: Lba, bytes: usize) {
        // OK to truncate: a request has less than 2^32 blocks.
        self.forget(Run { start: Addr(at.0), blocks: (bytes / BLOCK) as u32 });
    }

    /// Caches contents among written log blocks.
    fn passes_by(&self, at: Lba, data: &[u8], owners: &[u64]) {
        let Some(keep) = &self.contents else { return };
        for ((at, block), owner) in (at.0..).map(Addr).zip(data.as_chunks::<BLOCK>().0).zip(owners) {
            let ino = Ino(u32::try_from(*owner).unwrap_or_default());
            if ino >= FIRST_INO && !looks_kept(block) {
                keep.insert(at, block, ino, Comes::Written);
            }
        }
    }

    /// True if background requests may be sent to the disk.
    pub fn is_awake(&self) -> bool {
        self.wakes.as_ref().is_none_or(|wakes| wakes.is_awake())
    }

    /// Reads staged blocks from the stage, the rest from the disk.
    fn read_below(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        let stage = self.stage.as_ref().filter(|stage| !stage.is_empty());
        let blocks = (buf.len() / BLOCK) as u64;
        if !stage.is_some_and(|stage| stage.has_all(Addr(at.0), blocks)) {
            self.touch(tag, false);
            self.disk.read(at, buf, tag)?;
            self.done();
        }
        stage.map_or(Ok(()), |stage| stage.overlay(Addr(at.0), buf))
    }

    /// Its counters.
    pub fn report(&self, owner: impl Fn(u64) -> Option<String>) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        if let Some(index) = &self.index {
            let counters = index.counters();
            let state = match (&counters.off, counters.filled) {
                (Some(why), _) => format!("off: {why}"),
                (None, ALL) => "whole".to_owned(),
                (None, filled) => format!("filled up to inode {filled}"),
            };
            rows.push(("index".to_owned(), state));
            rows.push(("index_blocks_answered".to_owned(), counters.hits.to_string()));
            rows.push(("index_blocks_missed".to_owned(), counters.misses.to_string()));
        }
        if let Some(keep) = &self.contents {
            let counters = keep.counters();
            let state = counters
                .off
                .map_or(format!("{} of {} blocks", counters.blocks, counters.slots), |why| format!("off: {why}"));
            rows.push(("keep".to_owned(), state));
            rows.push(("keep_files".to_owned(), counters.files.to_string()));
            rows.push(("keep_blocks_answered".to_owned(), counters.hits.to_string()));
            rows.push(("keep_blocks_missed".to_owned(), counters.misses.to_string()));
        }
        if let Some(stage) = &self.stage {
            rows.push(("staged_blocks".to_owned(), stage.blocks().to_string()));
        }
        if let Some(wakes) = &self.wakes {
            rows.extend(wakes.report(owner));
        }
        rows
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
        if self.bypassed.load(Relaxed) {
            return self.read_below(at, buf, tag);
        }
        let (metadata, recovery) = (is_metadata(tag.cause), tag.cause == Cause::Recovery as u8);
        let contents = tag.cause == Cause::Contents as u8;
        let (place, ino) = (Addr(at.0), Ino(u32::try_from(tag.owner).unwrap_or_default()));
        // A symlink's block is read as contents, and is in the index.
        let asked = metadata || (contents && buf.len() == BLOCK);
        if let Some(index) = self.index.as_ref().filter(|_| asked)
            && index.read(place, buf, metadata)
        {
            return Ok(());
        }
        if let Some(keep) = self.contents.as_ref().filter(|_| contents)
            && keep.read(place, buf, ino)
        {
            return Ok(());
        }
        self.read_below(at, buf, tag)?;
        if let Some(index) = &self.index {
            if metadata {
                index.insert(place, buf);
            } else if recovery {
                for (at, block) in (at.0..).map(Addr).zip(buf.as_chunks::<BLOCK>().0) {
                    match looks_kept(block) {
                        true => index.insert(at, block),
                        false => index.forget(Run { start: at, blocks: 1 }),
                    }
                }
            }
        }
        if let Some(keep) = &self.contents {
            // OK to truncate: a request has less than 2^32 blocks.
            let run = Run { start: place, blocks: (buf.len() / BLOCK) as u32 };
            if contents {
                keep.insert(place, buf, ino, Comes::Read);
                self.ahead.note(ino, run);
            } else if recovery {
                keep.forget(run);
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.writes(at, data.len(), tag)?;
        self.flushed.write(|| self.disk.write(at, data, tag))
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> device::Result<()> {
        self.writes(at, parts.iter().map(|p| p.len()).sum(), tag)?;
        self.flushed.write(|| self.disk.write_gather(at, parts, tag))
    }

    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> device::Result<()> {
        let staged = self.stage.as_ref().filter(|_| self.staging.load(Relaxed) && cause == Cause::Log as u8);
        if let (Some(stage), Some(mark)) = (staged, *self.mark.lock()) {
            match stage.append(Addr(at.0), data, mark) {
                Ok(true) => {
                    self.overwritten(at, data.len());
                    self.passes_by(at, data, owners);
                    return Ok(());
                }
                Ok(false) => {}
                Err(e) => self.give_up_stage(&e),
            }
            // Later writes belong behind this on the disk, too.
            self.staging.store(false, Relaxed);
        }
        self.writes(at, data.len(), Tag { cause, owner: owners.last().copied().unwrap_or_default() })?;
        self.flushed.write(|| self.disk.write_for(at, data, owners, cause))?;
        if cause == Cause::Log as u8 {
            self.passes_by(at, data, owners);
        }
        Ok(())
    }

    /// Writes staged data first: after a flush the disk alone is complete.
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.drain()?;
        self.flush_disk(tag)
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.drain()?;
        let mut from = at.0;
        while from < at.0.saturating_add(blocks) {
            let some = u32::try_from(at.0 + blocks - from).unwrap_or(u32::MAX);
            self.forget(Run { start: Addr(from), blocks: some });
            from += u64::from(some);
        }
        self.touch(tag, true);
        self.disk.discard(at, blocks, tag)
    }
}
