//! A copy of the volume's metadata on another disk: which blocks does it have, and do they match the archive?
//!
//! A copy is valid if its table entry has the current life of the file and the right checksum. Four rules ensure
//! that a valid copy matches the archive, whatever a power cut leaves of either disk:
//!
//! 1. The head lists the superblocks for which the index is valid. A superblock is listed, durably and after all
//!    earlier copies, before the archive receives it. An archive with an unlisted superblock was written without the
//!    index, and the index begins a new life.
//! 2. A block written to the archive is dropped or updated here. If a power cut loses that, the block was written
//!    behind the archive's current superblock: either it is part of the log, which recovery reads from the archive and
//!    corrects here; or it is behind the end of the log, where every block is free and will be written before it is
//!    read.
//! 3. A block read from the archive is stored here unchanged. Readers and writers hold the volume's lock, so a
//!    block that was overwritten meanwhile is never stored.
//! 4. After an error of the index's disk the index is disabled until the next mount. Its head does not list later
//!    superblocks, so that rule 1 or 2 covers what it missed.
//!
//! Memory: [`TABLES`] blocks of the table. Everything else is read from the index's disk.

use std::sync::Arc;

use device::{BlockDevice, Lba, Tag};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use scherlfs_format::archive::{self, HEADS, IndexHead, Layout, Mark};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Block, Run};
use vfs::{Error, Result};

/// Table blocks kept in memory: 4 MiB, entries for 1 GiB of the volume.
const TABLES: usize = 1024;
/// All inodes were scanned.
pub(crate) const ALL: u64 = u64::MAX;

struct Table {
    block: Box<Block>,
    dirty: bool,
}

#[derive(Default)]
struct Inner {
    life: u64,
    filled: u64,
    mark: Option<Mark>,
    tables: FxHashMap<u64, Table>,
    /// Why it is disabled.
    off: Option<String>,
    hits: u64,
    misses: u64,
}

/// An index.
pub(crate) struct Index {
    dev: Arc<dyn BlockDevice>,
    uuid: [u8; 16],
    layout: Layout,
    inner: Mutex<Inner>,
}

/// State of an index at mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Valid for this volume.
    Whole,
    /// There was none.
    New,
    /// Damaged, or for another volume; it begins a new life.
    Refused(&'static str),
}

/// Counters and state for reports.
pub(crate) struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub filled: u64,
    pub off: Option<String>,
}

type Done<T> = std::result::Result<T, device::DeviceError>;

fn lba(at: u64) -> Lba {
    Lba(at)
}

/// Blocks of an index file for a volume of `volume_blocks` blocks.
///
/// # Errors
/// No volume has this size.
pub fn index_blocks(volume_blocks: u64) -> Result<u64> {
    Layout::for_volume(volume_blocks).map(Layout::size).ok_or(Error::Invalid("no volume has so many blocks"))
}

impl Index {
    /// Opens the index file. `life` is a number for a new life, greater than any before.
    ///
    /// # Errors
    /// The file is too small, or its disk fails.
    pub fn open(dev: Arc<dyn BlockDevice>, sb: &Superblock, life: u64) -> Result<(Self, Found)> {
        let layout = Layout::for_volume(sb.blocks).filter(|layout| layout.size() <= dev.blocks());
        let layout = layout.ok_or(Error::Invalid("the index is too small for this volume"))?;
        let mark = Mark::of_superblock(sb);
        let mut heads = Vec::new();
        let mut empty = true;
        for at in 0..HEADS {
            let mut block = [0; BLOCK];
            dev.read(lba(at), &mut block, Tag::default()).map_err(Error::device)?;
            empty &= block.iter().all(|b| *b == 0);
            heads.push(IndexHead::read(&block));
        }
        let whole: Vec<&IndexHead> = heads.iter().flatten().collect();
        let own = whole.iter().filter(|h| h.uuid == sb.uuid && h.blocks == sb.blocks && h.mark == mark);
        let best = own.max_by_key(|h| (h.life, h.filled)).map(|h| (*h).clone());
        let newest = whole.iter().map(|h| h.life).max().unwrap_or(0);
        let found = match &best {
            Some(_) => Found::Whole,
            None if empty => Found::New,
            None if whole.is_empty() => Found::Refused("it is not an index, is damaged, or has another version"),
            None if whole.iter().all(|h| h.uuid != sb.uuid || h.blocks != sb.blocks) => {
                Found::Refused("it belongs to another volume")
            }
            None => Found::Refused("the volume was written without it, or its head is damaged"),
        };
        let (life, filled) = match &best {
            Some(head) => (head.life, head.filled),
            None => (life.max(newest.saturating_add(1)), 0),
        };
        let inner = Mutex::new(Inner { life, filled, mark: Some(mark), ..Inner::default() });
        let index = Index { dev, uuid: sb.uuid, layout, inner };
        if best.is_none() {
            index.begin(mark);
        }
        Ok((index, found))
    }

    /// Begins a new life: all entries become invalid.
    fn begin(&self, mark: Mark) {
        self.ask(|inner| {
            // Only a hint: entries of other lives are invalid even if they remain.
            self.dev.discard(Lba(HEADS), self.dev.blocks() - HEADS, Tag::default())?;
            let head = self.head(inner, mark);
            self.dev.write(lba(head.place()), &head.write()[..], Tag::default())?;
            self.dev.write(lba(1 - head.place()), &[0; BLOCK], Tag::default())?;
            self.dev.flush(Tag::default())
        });
    }

    fn head(&self, inner: &Inner, mark: Mark) -> IndexHead {
        IndexHead { uuid: self.uuid, blocks: self.layout.volume(), life: inner.life, mark, filled: inner.filled }
    }

    /// Calls `work` with the index unless it is disabled.
    fn ask<T>(&self, work: impl FnOnce(&mut Inner) -> Done<T>) -> Option<T> {
        let mut inner = self.inner.lock();
        if inner.off.is_some() {
            return None;
        }
        match work(&mut inner) {
            Ok(done) => Some(done),
            Err(e) => {
                log::warn!("the index is no longer used until the next mount: {e}");
                inner.off = Some(e.to_string());
                inner.tables.clear();
                None
            }
        }
    }

    /// Disables the index because it contradicted the volume.
    pub fn distrust(&self, why: &str) {
        self.ask(|inner| {
            log::warn!("the index contradicts the volume; the next mount rebuilds it: {why}");
            inner.off = Some(why.to_owned());
            inner.tables.clear();
            // Without a head no superblock is listed.
            (0..HEADS).try_for_each(|at| self.dev.write(lba(at), &[0; BLOCK], Tag::default()))?;
            self.dev.flush(Tag::default())
        });
    }

    fn write_tables(&self, inner: &mut Inner) -> Done<()> {
        let mut dirty: Vec<(&u64, &mut Table)> = inner.tables.iter_mut().filter(|(_, t)| t.dirty).collect();
        dirty.sort_unstable_by_key(|(at, _)| **at);
        for (at, table) in dirty {
            self.dev.write(lba(*at), &table.block[..], Tag::default())?;
            table.dirty = false;
        }
        Ok(())
    }

    fn table<'i>(&self, inner: &'i mut Inner, at: u64) -> Done<&'i mut Table> {
        if !inner.tables.contains_key(&at) && inner.tables.len() >= TABLES {
            self.write_tables(inner)?;
            inner.tables.clear();
        }
        match inner.tables.entry(at) {
            std::collections::hash_map::Entry::Occupied(held) => Ok(held.into_mut()),
            std::collections::hash_map::Entry::Vacant(room) => {
                let mut block = Box::new([0; BLOCK]);
                self.dev.read(lba(at), &mut block[..], Tag::default())?;
                Ok(room.insert(Table { block, dirty: false }))
            }
        }
    }

    fn entry(&self, inner: &mut Inner, at: Addr) -> Done<Option<u32>> {
        let ((table, n), life) = (self.layout.entry(at), inner.life);
        Ok(archive::entry(&self.table(inner, table)?.block, n, life))
    }

    fn set(&self, inner: &mut Inner, at: Addr, crc: Option<u32>) -> Done<()> {
        let ((table, n), life) = (self.layout.entry(at), inner.life);
        let held = self.table(inner, table)?;
        archive::put_entry(&mut held.block, n, life, crc);
        held.dirty = true;
        Ok(())
    }

    fn inside(&self, at: Addr, blocks: u64) -> bool {
        at.0.checked_add(blocks).is_some_and(|end| end <= self.layout.volume())
    }

    /// Reads whole blocks from `at` on, if it has all of them. With `counts`, missing blocks are counted.
    pub fn read(&self, at: Addr, buf: &mut [u8], counts: bool) -> bool {
        let blocks = (buf.len() / BLOCK) as u64;
        if !self.inside(at, blocks) {
            return false;
        }
        let all = self.ask(|inner| {
            for (at, block) in (at.0..).map(Addr).zip(buf.chunks_exact_mut(BLOCK)) {
                let Some(crc) = self.entry(inner, at)? else { return Ok(false) };
                self.dev.read(lba(self.layout.copy(at)), block, Tag::default())?;
                if archive::copy_crc(at, block) != crc {
                    self.set(inner, at, None)?;
                    return Ok(false);
                }
            }
            Ok(true)
        });
        let all = all == Some(true);
        if all || counts {
            let mut inner = self.inner.lock();
            *(if all { &mut inner.hits } else { &mut inner.misses }) += blocks;
        }
        all
    }

    /// Stores blocks of the archive.
    pub fn insert(&self, at: Addr, data: &[u8]) {
        if !self.inside(at, (data.len() / BLOCK) as u64) {
            return;
        }
        self.ask(|inner| {
            self.dev.write(lba(self.layout.copy(at)), data, Tag::default())?;
            for (at, block) in (at.0..).map(Addr).zip(data.chunks_exact(BLOCK)) {
                self.set(inner, at, Some(archive::copy_crc(at, block)))?;
            }
            Ok(())
        });
    }

    /// Drops blocks that changed in the archive or are not needed.
    pub fn forget(&self, run: Run) {
        if !self.inside(run.start, run.blocks.into()) {
            return;
        }
        self.ask(|inner| {
            for at in run.addrs() {
                if self.entry(inner, at)?.is_some() {
                    self.set(inner, at, None)?;
                    self.dev.discard(Lba(self.layout.copy(at)), 1, Tag::default())?;
                }
            }
            Ok(())
        });
    }

    /// Lists a superblock that is about to be written to the archive.
    pub fn name(&self, mark: Mark) {
        self.ask(|inner| {
            self.write_tables(inner)?;
            self.dev.flush(Tag::default())?;
            let head = self.head(inner, mark);
            self.dev.write(lba(head.place()), &head.write()[..], Tag::default())?;
            self.dev.flush(Tag::default())?;
            inner.mark = Some(mark);
            Ok(())
        });
    }

    /// The first inode that was not scanned; [`ALL`] if all were.
    pub fn filled(&self) -> u64 {
        let inner = self.inner.lock();
        if inner.off.is_some() { ALL } else { inner.filled }
    }

    /// Records that all inodes below a number were scanned.
    pub fn fill(&self, below: u64) {
        let done = self.ask(|inner| {
            inner.filled = below;
            Ok(below == ALL)
        });
        if done == Some(true) {
            self.save();
        }
    }

    /// Saves the progress of the scan durably, in place of the head for the previous superblock, which the archive
    /// no longer has.
    pub fn save(&self) {
        self.ask(|inner| {
            let Some(mark) = inner.mark else { return Ok(()) };
            self.write_tables(inner)?;
            self.dev.flush(Tag::default())?;
            let head = self.head(inner, mark);
            self.dev.write(lba(1 - head.place()), &head.write()[..], Tag::default())?;
            self.dev.flush(Tag::default())
        });
    }

    /// Counters and state for reports.
    pub fn counters(&self) -> Counters {
        let inner = self.inner.lock();
        Counters { hits: inner.hits, misses: inner.misses, filled: inner.filled, off: inner.off.clone() }
    }
}
