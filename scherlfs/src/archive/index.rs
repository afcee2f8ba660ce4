//! The volume's metadata on another disk: which block is there, and is it what the archive has?
//!
//! A copy counts if its entry in the table is of this life of the file and has its checksum. Four rules make sure that a copy
//! that counts is what the archive has, whatever a power cut leaves of either disk:
//!
//! 1. The head names the superblocks for which the index holds: a superblock is named, durably and after all copies made
//!    before it, before the archive gets it. An archive whose superblock is not named was written by somebody else, and the
//!    index begins a new life.
//! 2. What was written to the archive is forgotten here or put here. Where that is lost in a power cut, the block was written
//!    behind the superblock that the archive still has: it is part of the log, which recovery reads from the archive and puts
//!    right here; or it is behind the log's end, where every block is free and will be written before anybody reads it.
//! 3. What is read from the archive is put here as it was read. Whoever reads holds the volume's lock, and so does whoever
//!    writes, so that nothing is put that was overwritten meanwhile.
//! 4. After an error of the index's disk nobody asks it or tells it anything until the next mount. The head does not name a
//!    superblock that comes later, so that rule 1 or 2 holds for what it missed.
//!
//! Memory: [`TABLES`] blocks of the table. Everything else is read where it is.

use std::sync::Arc;

use device::{BlockDevice, Lba, Tag};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use scherlfs_format::archive::{self, HEADS, IndexHead, Layout, Mark};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Block, Run};
use vfs::{Error, Result};

/// Blocks of the table kept in memory: 4 MiB, entries for 1 GiB of the volume.
const TABLES: usize = 1024;
/// Inodes are all looked through.
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
    /// Why nobody asks it any more.
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

/// How an index was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It holds for this volume as it is.
    Whole,
    /// There was none.
    New,
    /// It holds for something else, or is damaged; it begins anew.
    Refused(&'static str),
}

/// Counters and state, as they are told.
pub(crate) struct Told {
    pub hits: u64,
    pub misses: u64,
    pub filled: u64,
    pub off: Option<String>,
}

type Done<T> = std::result::Result<T, device::DeviceError>;

fn lba(at: u64) -> Lba {
    Lba(at)
}

/// Blocks that the file of an index has, for a volume of so many.
///
/// # Errors
/// No volume has so many.
pub fn index_blocks(volume_blocks: u64) -> Result<u64> {
    Layout::of(volume_blocks).map(Layout::size).ok_or(Error::Invalid("no volume has so many blocks"))
}

impl Index {
    /// Looks at what the file holds. `life` is a number for a new life, greater than any before.
    ///
    /// # Errors
    /// The file is too small, or its disk fails.
    pub fn open(dev: Arc<dyn BlockDevice>, sb: &Superblock, life: u64) -> Result<(Self, Found)> {
        let layout = Layout::of(sb.blocks).filter(|layout| layout.size() <= dev.blocks());
        let layout = layout.ok_or(Error::Invalid("the index is too small for this volume"))?;
        let mark = Mark::of(sb);
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

    /// A new life: no entry counts.
    fn begin(&self, mark: Mark) {
        self.ask(|inner| {
            // Advice alone: entries of other lives do not count, whether they are there or not.
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

    /// Does something with the index, if it may still be asked.
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

    /// From now on nobody asks it: it said what the volume does not.
    pub fn distrust(&self, why: &str) {
        self.ask(|inner| {
            log::warn!("the index contradicts the volume; the next mount rebuilds it: {why}");
            inner.off = Some(why.to_owned());
            inner.tables.clear();
            // A head that is not there names no superblock.
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

    /// Whole blocks from `at` on, if it has them all. `counts`: it should, so that what it does not have is counted.
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

    /// These blocks are what the archive has.
    pub fn put(&self, at: Addr, data: &[u8]) {
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

    /// The archive has something else there, or nobody needs it.
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

    /// A superblock is about to be written to the archive: the index holds for it from now on, too.
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

    /// The number of the first inode that was not looked through; [`ALL`]: there is none.
    pub fn filled(&self) -> u64 {
        let inner = self.inner.lock();
        if inner.off.is_some() { ALL } else { inner.filled }
    }

    /// Inodes below a number were looked through.
    pub fn fill(&self, below: u64) {
        let done = self.ask(|inner| {
            inner.filled = below;
            Ok(below == ALL)
        });
        if done == Some(true) {
            self.save();
        }
    }

    /// Says durably how far it was filled: in the place of the head for the superblock before this one, which the archive has
    /// no more.
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

    /// Counters and state.
    pub fn told(&self) -> Told {
        let inner = self.inner.lock();
        Told { hits: inner.hits, misses: inner.misses, filled: inner.filled, off: inner.off.clone() }
    }
}
