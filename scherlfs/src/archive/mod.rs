//! A volume whose disk sleeps: what stands between it and the disk.
//!
//! [`Archive`] is the volume's device. It answers what the index has ([`index`]) and contents that passed by before ([`keep`],
//! [`worth`]), keeps fsyncs on the stage ([`stage`]), notes whose rest is to be read ahead ([`ahead`]), and counts who woke the
//! disk ([`wakes`]). The volume tells it which of the blocks that it writes are metadata, and when what it
//! writes may be staged. What is not there is passed by.
//!
//! Left out: when the volume writes ([`crate::volume`]), and which file on which disk this is, which is whoever mounts'
//! matter.

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

/// What stands beside a volume on other disks, and how long its own sleeps.
#[derive(Clone, Default)]
pub struct Beside {
    /// Its metadata, of [`index_blocks`] blocks.
    pub index: Option<Arc<dyn BlockDevice>>,
    /// Contents that passed by, of [`keep_blocks`] blocks.
    pub keep: Option<Arc<dyn BlockDevice>>,
    /// Fsyncs that wait for the next burst.
    pub stage: Option<Arc<dyn BlockDevice>>,
    /// The disk sleeps after so long without a request: nothing is written because time passed.
    pub sleep: Option<Duration>,
    /// Finds the name of a process that woke it.
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
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.index.is_none() && self.keep.is_none() && self.stage.is_none() && self.sleep.is_none()
    }
}

/// The disk of a volume, and what stands beside it.
pub(crate) struct Archive {
    disk: Arc<dyn BlockDevice>,
    pub index: Option<Index>,
    /// Contents.
    pub contents: Option<Keep>,
    /// Whose rest is to be read while the disk is awake.
    pub ahead: Ahead,
    stage: Option<Stage>,
    pub wakes: Option<Wakes>,
    /// What whoever mounts should be told.
    pub warning: Option<String>,
    /// Index and keep are not asked while something is read again.
    bypassed: AtomicBool,
    /// Log goes to the stage.
    staging: AtomicBool,
    /// Behind which superblock what is staged belongs.
    mark: Mutex<Option<Mark>>,
    /// The disk got something that no flush made durable.
    flushed: Flushed,
    /// The stage's disk failed: it is not used until the next mount.
    stage_off: AtomicBool,
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
    ///
    /// # Errors
    /// The index is too small; the stage holds what does not belong to this volume as it is; a disk fails.
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

    /// Does something without asking the index or the keep.
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
        if let Some(keep) = &self.contents {
            keep.forget(Run { start: at, blocks: 1 });
        }
    }

    /// A superblock is about to be written.
    ///
    /// # Errors
    /// What is staged belongs before it, and cannot be written.
    pub fn before(&self, sb: &Superblock) -> Result<()> {
        self.drain().map_err(Error::device)?;
        if let Some(index) = &self.index {
            index.name(Mark::of(sb));
        }
        if let Some(keep) = &self.contents {
            keep.name(Mark::of(sb));
        }
        Ok(())
    }

    /// Nothing follows: what index and keep know is kept.
    pub fn close(&self) {
        if let Some(index) = &self.index {
            index.save();
        }
        if let Some(keep) = &self.contents {
            keep.save();
        }
    }

    /// Blocks that are free.
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

    /// Whether fsyncs may be staged.
    pub fn stages(&self) -> bool {
        self.stage.is_some() && !self.stage_off.load(Relaxed)
    }

    /// Does `work`, which writes log behind superblock `sb`, and makes it durable on the stage. False: something of it went to
    /// the disk, which has to be flushed.
    pub fn staged<T>(&self, sb: &Superblock, work: impl FnOnce() -> Result<T>) -> Result<bool> {
        let Some(stage) = self.stage.as_ref().filter(|_| self.stages()) else {
            return work().map(|_| false);
        };
        if self.flushed.is_behind() {
            // The log before this has to be as durable.
            self.flush_disk(Tag { cause: Cause::Log as u8, owner: 0 }).map_err(Error::device)?;
        }
        *self.mark.lock() = Some(Mark::of(sb));
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

    /// Writes what is staged to the disk, durably.
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

    /// Makes what the disk got durable, while it is awake.
    ///
    /// # Errors
    /// The disk's.
    pub fn flush_while_awake(&self) -> Result<()> {
        if self.flushed.is_behind() && self.is_awake() {
            self.flush_disk(Tag { cause: Cause::Log as u8, owner: 0 }).map_err(Error::device)?;
        }
        Ok(())
    }

    /// Whether something is staged.
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

    /// Before blocks are written to the disk.
    fn writes(&self, at: Lba, bytes: usize, tag: Tag) -> device::Result<()> {
        self.drain()?;
        self.overwritten(at, bytes);
        self.touch(tag, true);
        Ok(())
    }

    fn overwritten(&self, at: Lba, bytes: usize) {
        // OK to cut: a request has less than 2^32 blocks.
        self.forget(Run { start: Addr(at.0), blocks: (bytes / BLOCK) as u32 });
    }

    /// Log was written: what is contents of it is kept.
    fn passes_by(&self, at: Lba, data: &[u8], owners: &[u64]) {
        let Some(keep) = &self.contents else { return };
        for ((at, block), owner) in (at.0..).map(Addr).zip(data.as_chunks::<BLOCK>().0).zip(owners) {
            let ino = Ino(u32::try_from(*owner).unwrap_or_default());
            if ino >= FIRST_INO && !looks_kept(block) {
                keep.put(at, block, ino, Comes::Written);
            }
        }
    }

    /// Whether the disk may be asked for what nobody waits for.
    pub fn is_awake(&self) -> bool {
        self.wakes.as_ref().is_none_or(|wakes| wakes.is_awake())
    }

    /// Reads what the stage has of it, and the rest from the disk.
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

    /// What it counted.
    pub fn report(&self, owner: impl Fn(u64) -> Option<String>) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        if let Some(index) = &self.index {
            let told = index.told();
            let state = match (&told.off, told.filled) {
                (Some(why), _) => format!("off: {why}"),
                (None, ALL) => "whole".to_owned(),
                (None, filled) => format!("filled up to inode {filled}"),
            };
            rows.push(("index".to_owned(), state));
            rows.push(("index_blocks_answered".to_owned(), told.hits.to_string()));
            rows.push(("index_blocks_missed".to_owned(), told.misses.to_string()));
        }
        if let Some(keep) = &self.contents {
            let told = keep.told();
            let state =
                told.off.map_or(format!("{} of {} blocks", told.blocks, told.slots), |why| format!("off: {why}"));
            rows.push(("keep".to_owned(), state));
            rows.push(("keep_files".to_owned(), told.files.to_string()));
            rows.push(("keep_blocks_answered".to_owned(), told.hits.to_string()));
            rows.push(("keep_blocks_missed".to_owned(), told.misses.to_string()));
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
        // A symlink's block is read as contents, and is there.
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
                index.put(place, buf);
            } else if recovery {
                for (at, block) in (at.0..).map(Addr).zip(buf.as_chunks::<BLOCK>().0) {
                    match looks_kept(block) {
                        true => index.put(at, block),
                        false => index.forget(Run { start: at, blocks: 1 }),
                    }
                }
            }
        }
        if let Some(keep) = &self.contents {
            // OK to cut: a request has less than 2^32 blocks.
            let run = Run { start: place, blocks: (buf.len() / BLOCK) as u32 };
            if contents {
                keep.put(place, buf, ino, Comes::Read);
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
            // What follows belongs behind it on the disk, too.
            self.staging.store(false, Relaxed);
        }
        self.writes(at, data.len(), Tag { cause, owner: owners.last().copied().unwrap_or_default() })?;
        self.flushed.write(|| self.disk.write_for(at, data, owners, cause))?;
        if cause == Cause::Log as u8 {
            self.passes_by(at, data, owners);
        }
        Ok(())
    }

    /// What is staged is written before: after a flush the disk alone has everything.
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
