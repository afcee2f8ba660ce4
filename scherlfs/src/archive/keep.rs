//! A cache of file contents on another disk: which blocks does it have, and do they match the archive?
//!
//! An entry is valid under the same four rules as in the index ([`super::index`]): it has the right checksum, which
//! includes the address, and the current life of the file, and the head lists the archive's superblock durably and
//! after all earlier entries. A block written to the archive is dropped here, or replaced by the new data; if a
//! power cut undoes that, recovery reads the block and drops it again. If two slots claim the same block, both are
//! dropped: one of them was released before a power cut undid that.
//!
//! [`super::worth`] chooses the file to evict. No file has more than half of all slots; a reader that continues in
//! a larger file finds its next blocks. All entries are in memory: some 100 bytes per slot, 25 MiB for 1 GiB.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::{BlockDevice, Lba, Tag};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use scherlfs_format::archive::{HEADS, Mark, copy_crc};
use scherlfs_format::keep::{self, ENTRIES, KeepHead, Kept, Layout};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Ino, Run};
use vfs::{Error, Result};

use super::index::Found;
use super::worth::Files;

type Done<T> = std::result::Result<T, device::DeviceError>;

/// A slot's block, and its number within the file.
#[derive(Clone, Copy)]
struct Held {
    kept: Kept,
    number: u64,
}

struct Inner {
    life: u64,
    mark: Mark,
    filled: u64,
    slots: Vec<Option<Held>>,
    places: FxHashMap<u64, u32>,
    /// Empty slots.
    empty: Vec<u32>,
    files: Files,
    /// Table blocks that differ from the disk.
    dirty: BTreeSet<u64>,
    /// Why it is disabled.
    off: Option<String>,
    hits: u64,
    misses: u64,
}

/// A keep.
pub(crate) struct Keep {
    dev: Arc<dyn BlockDevice>,
    uuid: [u8; 16],
    volume: u64,
    layout: Layout,
    inner: Mutex<Inner>,
}

/// How a block enters the keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    /// Read by a program: evicts other files.
    Read,
    /// Written: evicts only files of less worth.
    Written,
}

/// Counters and state for reports.
pub(crate) struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub blocks: u64,
    pub slots: u64,
    pub files: usize,
    pub off: Option<String>,
}

/// Blocks of a keep file for `contents` blocks of contents.
///
/// # Errors
/// 0, or more than the largest keep.
pub fn keep_blocks(contents: u64) -> Result<u64> {
    Layout::with_slots(contents)
        .map(Layout::size)
        .ok_or(Error::Invalid("a keep has a block at least, and 8 TiB at most"))
}

impl Inner {
    fn set(&mut self, slot: u32, held: Option<Held>) {
        self.slots[slot as usize] = held;
        self.dirty.insert(u64::from(slot) / ENTRIES);
    }

    fn take(&mut self, at: Addr, slot: u32, kept: Kept) {
        let number = self.files.came(kept.ino.0, slot);
        self.set(slot, Some(Held { kept, number }));
        self.places.insert(at.0, slot);
    }

    fn let_go(&mut self, slot: u32) {
        let Some(held) = self.slots[slot as usize] else { return };
        self.files.gone(held.kept.ino.0, held.number);
        self.places.remove(&held.kept.addr.0);
        self.set(slot, None);
        self.empty.push(slot);
    }

    fn forget(&mut self, at: Addr) {
        if let Some(slot) = self.places.get(&at.0).copied() {
            self.let_go(slot);
        }
    }

    /// Finds an empty slot for a block of a file; `None` if there is no room for it.
    fn room(&mut self, ino: u32, how: Comes) -> Option<u32> {
        if self.files.blocks(ino) >= self.slots.len().div_ceil(2) {
            let first = self.files.first(ino).filter(|_| how == Comes::Read)?;
            self.let_go(first);
        }
        if self.empty.is_empty() {
            let leaves = self.files.least(ino, how == Comes::Written)?;
            leaves.into_iter().for_each(|slot| self.let_go(slot));
        }
        self.empty.pop()
    }
}

impl Keep {
    /// Opens the keep file. `life` is a number for a new life, greater than any before.
    ///
    /// # Errors
    /// The file is too small, or its disk fails.
    pub fn open(dev: Arc<dyn BlockDevice>, sb: &Superblock, life: u64) -> Result<(Self, Found)> {
        let layout = Layout::within(dev.blocks()).ok_or(Error::Invalid("the keep is too small"))?;
        let mark = Mark::of_superblock(sb);
        let (mut heads, mut empty) = (Vec::new(), true);
        for at in 0..HEADS {
            let mut block = [0; BLOCK];
            dev.read(Lba(at), &mut block, Tag::default()).map_err(Error::device)?;
            empty &= block.iter().all(|b| *b == 0);
            heads.push(KeepHead::read(&block));
        }
        let whole: Vec<&KeepHead> = heads.iter().flatten().collect();
        let same = |h: &KeepHead| h.uuid == sb.uuid && h.blocks == sb.blocks && h.slots == layout.slots();
        let own = whole.iter().filter(|h| same(h) && h.mark == mark);
        let best = own.max_by_key(|h| (h.life, h.filled)).map(|h| (*h).clone());
        let newest = whole.iter().map(|h| h.life).max().unwrap_or(0);
        let found = match &best {
            Some(_) => Found::Whole,
            None if empty => Found::New,
            None if whole.is_empty() => Found::Refused("it is not a keep, is damaged, or has another version"),
            None if whole.iter().all(|h| !same(h)) => Found::Refused(
                "it belongs to another volume, or has another \
                size",
            ),
            None => Found::Refused("the volume was written without it, or its head is damaged"),
        };
        let (life, filled) =
            best.as_ref().map_or((life.max(newest.saturating_add(1)), 0), |head| (head.life, head.filled));
        let slots = layout.slots();
        let inner = Inner {
            life,
            mark,
            filled,
            slots: vec![None; slots as usize],
            places: FxHashMap::default(),
            empty: Vec::new(),
            files: Files::default(),
            dirty: BTreeSet::new(),
            off: None,
            hits: 0,
            misses: 0,
        };
        let keep = Keep { dev, uuid: sb.uuid, volume: sb.blocks, layout, inner: Mutex::new(inner) };
        keep.ask(|inner| match best.is_some() {
            true => keep.look(inner),
            false => keep.begin(inner),
        });
        {
            let mut inner = keep.inner.lock();
            // OK to truncate: a keep has at most 2^31 slots.
            inner.empty = (0..slots as u32).rev().filter(|slot| inner.slots[*slot as usize].is_none()).collect();
        }
        Ok((keep, found))
    }

    /// Reads the table.
    fn look(&self, inner: &mut Inner) -> Done<()> {
        let mut twice = Vec::new();
        for table in 0..self.layout.tables() {
            let mut block = [0; BLOCK];
            self.dev.read(Lba(self.layout.table(table)), &mut block, Tag::default())?;
            for n in 0..ENTRIES {
                let slot = table * ENTRIES + n;
                let kept = keep::entry(&block, n as usize, inner.life).filter(|k| k.addr.0 < self.volume);
                let Some(kept) = kept.filter(|_| slot < self.layout.slots()) else { continue };
                if inner.places.contains_key(&kept.addr.0) {
                    twice.push(kept.addr);
                    inner.set(slot as u32, None);
                } else {
                    inner.take(kept.addr, slot as u32, kept);
                }
            }
        }
        inner.dirty.clear();
        for at in twice {
            inner.forget(at);
            // The entries of both slots must be removed from the disk, too.
            inner.dirty.extend(0..self.layout.tables());
        }
        Ok(())
    }

    /// Begins a new life: all entries become invalid.
    fn begin(&self, inner: &mut Inner) -> Done<()> {
        let head = self.head(inner, inner.mark);
        self.dev.write(Lba(head.place()), &head.write()[..], Tag::default())?;
        self.dev.write(Lba(1 - head.place()), &[0; BLOCK], Tag::default())?;
        self.dev.flush(Tag::default())
    }

    fn head(&self, inner: &Inner, mark: Mark) -> KeepHead {
        let (slots, filled) = (self.layout.slots(), inner.filled);
        KeepHead { uuid: self.uuid, blocks: self.volume, slots, life: inner.life, mark, filled }
    }

    /// Calls `work` with the keep unless it is disabled.
    fn ask<T>(&self, work: impl FnOnce(&mut Inner) -> Done<T>) -> Option<T> {
        let mut inner = self.inner.lock();
        if inner.off.is_some() {
            return None;
        }
        match work(&mut inner) {
            Ok(done) => Some(done),
            Err(e) => {
                log::warn!("the keep is no longer used until the next mount: {e}");
                inner.off = Some(e.to_string());
                None
            }
        }
    }

    fn write_tables(&self, inner: &mut Inner) -> Done<()> {
        for table in std::mem::take(&mut inner.dirty) {
            let mut block = [0; BLOCK];
            let from = (table * ENTRIES) as usize;
            for (n, held) in inner.slots[from..].iter().take(ENTRIES as usize).enumerate() {
                keep::put_entry(&mut block, n, inner.life, held.map(|held| held.kept));
            }
            self.dev.write(Lba(self.layout.table(table)), &block, Tag::default())?;
        }
        Ok(())
    }

    /// Reads whole blocks of a file from `at` on, if it has all of them.
    pub fn read(&self, at: Addr, buf: &mut [u8], ino: Ino) -> bool {
        let blocks = (buf.len() / BLOCK) as u64;
        let all = self.ask(|inner| {
            if !(at.0..at.0.saturating_add(blocks)).all(|at| inner.places.contains_key(&at)) {
                inner.misses += blocks;
                return Ok(false);
            }
            for (at, block) in (at.0..).zip(buf.chunks_exact_mut(BLOCK)) {
                let Some(slot) = inner.places.get(&at).copied() else { return Ok(false) };
                self.dev.read(Lba(self.layout.slot(slot.into())), block, Tag::default())?;
                if inner.slots[slot as usize].is_none_or(|held| held.kept.crc != copy_crc(Addr(at), block)) {
                    inner.let_go(slot);
                    inner.misses += blocks;
                    return Ok(false);
                }
            }
            inner.hits += blocks;
            inner.files.used(ino.0, blocks);
            Ok(true)
        });
        all == Some(true)
    }

    /// Stores blocks of a file.
    pub fn insert(&self, at: Addr, data: &[u8], ino: Ino, how: Comes) {
        self.ask(|inner| {
            for (at, block) in (at.0..).map(Addr).zip(data.chunks_exact(BLOCK)) {
                let kept = Kept { addr: at, crc: copy_crc(at, block), ino };
                let held = inner.places.get(&at.0).and_then(|slot| inner.slots[*slot as usize]);
                if held.is_some_and(|held| held.kept == kept) {
                    continue;
                }
                inner.forget(at);
                let Some(slot) = inner.room(ino.0, how).filter(|_| at.0 < self.volume) else { continue };
                self.dev.write(Lba(self.layout.slot(slot.into())), block, Tag::default())?;
                inner.take(at, slot, kept);
            }
            Ok(())
        });
    }

    /// Drops blocks that changed in the archive or are not needed.
    pub fn forget(&self, run: Run) {
        self.ask(|inner| {
            run.addrs().for_each(|at| inner.forget(at));
            Ok(())
        });
    }

    /// True if it has all of these blocks.
    pub fn has_all(&self, run: Run) -> bool {
        let inner = self.inner.lock();
        run.addrs().all(|at| inner.places.contains_key(&at.0))
    }

    /// Most blocks of one file.
    pub fn most(&self) -> u64 {
        self.layout.slots().div_ceil(2)
    }

    /// True if `blocks` blocks fit without evicting files.
    pub fn has_room(&self, blocks: u64) -> bool {
        let inner = self.inner.lock();
        inner.off.is_none() && inner.empty.len() as u64 >= blocks
    }

    /// Lists a superblock that is about to be written to the archive.
    pub fn name(&self, mark: Mark) {
        self.ask(|inner| {
            self.write_tables(inner)?;
            self.dev.flush(Tag::default())?;
            let head = self.head(inner, mark);
            self.dev.write(Lba(head.place()), &head.write()[..], Tag::default())?;
            self.dev.flush(Tag::default())?;
            inner.mark = mark;
            Ok(())
        });
    }

    /// The first inode that was not scanned for small files.
    pub fn filled(&self) -> u64 {
        let inner = self.inner.lock();
        if inner.off.is_some() { super::index::ALL } else { inner.filled }
    }

    /// Records that all inodes below a number were scanned.
    pub fn fill(&self, below: u64) {
        self.inner.lock().filled = below;
        if below == super::index::ALL {
            self.save();
        }
    }

    /// Saves its entries durably, in place of the head for the previous superblock, which the archive no longer
    /// has.
    pub fn save(&self) {
        self.ask(|inner| {
            self.write_tables(inner)?;
            self.dev.flush(Tag::default())?;
            let head = self.head(inner, inner.mark);
            self.dev.write(Lba(1 - head.place()), &head.write()[..], Tag::default())?;
            self.dev.flush(Tag::default())
        });
    }

    /// Counters and state for reports.
    pub fn counters(&self) -> Counters {
        let inner = self.inner.lock();
        let (blocks, slots) = (inner.places.len() as u64, self.layout.slots());
        Counters {
            hits: inner.hits,
            misses: inner.misses,
            blocks,
            slots,
            files: inner.files.count(),
            off: inner.off.clone(),
        }
    }
}
