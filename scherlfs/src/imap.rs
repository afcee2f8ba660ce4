//! The inode map: the place of each inode. Its blocks are cached up to a limit.

use device::{BlockDevice, Lba, Tag};
use rustc_hash::{FxHashMap, FxHashSet};
use scherlfs_format::ifile::{self, ENTRIES, Place};
use scherlfs_format::{Addr, BLOCK, Block, FIRST_INO, Ino};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::extents::Place as Lies;
use crate::inode::Inode;

/// Most blocks of the map: enough for all inode numbers.
const BLOCKS_MAX: u64 = (1 << 32) / ENTRIES as u64;

struct Held {
    block: Box<Block>,
    dirty: bool,
}

/// The inode map.
pub(crate) struct InodeMap {
    /// Its own inode.
    pub inode: Inode,
    blocks: FxHashMap<u64, Held>,
    dirty: u64,
    /// Most cached blocks that do not wait.
    limit: usize,
    /// Blocks known to be full.
    full: FxHashSet<u64>,
    /// Inode numbers that are allocated but not written yet.
    taken: FxHashSet<Ino>,
    /// Number of used inodes, written or not.
    pub used: u64,
}

impl InodeMap {
    pub fn new(inode: Inode, limit: usize, used: u64) -> Self {
        InodeMap {
            inode,
            blocks: FxHashMap::default(),
            dirty: 0,
            limit,
            full: FxHashSet::default(),
            taken: FxHashSet::default(),
            used,
        }
    }

    fn held(&mut self, dev: &dyn BlockDevice, index: u64) -> Result<&mut Held> {
        if !self.blocks.contains_key(&index) {
            let mut block = Box::new([0; BLOCK]);
            if let (Some(Lies::At(at)), _) = self.inode.extents.at(index) {
                let tag = Tag { cause: Cause::InodeMap as u8, owner: scherlfs_format::IFILE.0.into() };
                dev.read(Lba(at.0), &mut block[..], tag).map_err(Error::device)?;
            }
            if self.blocks.len() as u64 >= self.limit as u64 + self.dirty {
                self.blocks.retain(|_, held| held.dirty);
            }
            self.blocks.insert(index, Held { block, dirty: false });
        }
        self.blocks.get_mut(&index).ok_or_else(|| Error::corrupt("inode map"))
    }

    /// The place of an inode.
    pub fn get(&mut self, dev: &dyn BlockDevice, ino: Ino) -> Result<Place> {
        let (index, at) = ifile::at(ino);
        Ok(ifile::get(&self.held(dev, index)?.block, at))
    }

    fn set(&mut self, dev: &dyn BlockDevice, ino: Ino, place: Place) -> Result<()> {
        let (index, at) = ifile::at(ino);
        let held = self.held(dev, index)?;
        ifile::set(&mut held.block, at, place);
        let fresh = !std::mem::replace(&mut held.dirty, true);
        self.dirty += u64::from(fresh);
        let bytes = (index + 1) * BLOCK as u64;
        self.inode.a.size = self.inode.a.size.max(bytes);
        Ok(())
    }

    /// Records the new place of an inode.
    pub fn written(&mut self, dev: &dyn BlockDevice, ino: Ino, addr: Addr, generation: u32) -> Result<()> {
        self.taken.remove(&ino);
        self.set(dev, ino, Place { addr: Some(addr), generation: generation as u16 })
    }

    /// Frees an inode whose deletion is written; its number may be reused.
    pub fn gone(&mut self, dev: &dyn BlockDevice, ino: Ino) -> Result<()> {
        let was = self.get(dev, ino)?;
        self.taken.remove(&ino);
        self.full.remove(&ifile::at(ino).0);
        self.set(dev, ino, Place { addr: None, generation: was.generation.wrapping_add(1) })
    }

    /// Returns a number to its old inode, which waits to be written.
    pub fn bring_back(&mut self, ino: Ino) {
        self.taken.insert(ino);
        self.used += 1;
    }

    /// Frees an allocated number.
    pub fn abandon(&mut self, ino: Ino) {
        self.taken.remove(&ino);
        self.full.remove(&ifile::at(ino).0);
        self.used = self.used.saturating_sub(1);
    }

    /// Number of blocks waiting to be written.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Their indices, in order.
    pub fn dirty_blocks(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.blocks.iter().filter(|(_, h)| h.dirty).map(|(n, _)| *n).collect();
        all.sort_unstable();
        all
    }

    /// A cached block.
    pub fn block(&self, index: u64) -> Option<&Block> {
        self.blocks.get(&index).map(|h| &*h.block)
    }

    /// A block, read if not cached.
    pub fn load(&mut self, dev: &dyn BlockDevice, index: u64) -> Result<&Block> {
        Ok(&self.held(dev, index)?.block)
    }

    /// The next `most` nonempty blocks, and where to continue (`None` at the end). The size alone does not help: a
    /// map may have holes, and a damaged one more of them than can be scanned.
    pub fn next_blocks(&self, from: u64, most: usize) -> (Vec<u64>, Option<u64>) {
        let stored = self.inode.extents.stored(from).flat_map(|(at, _, blocks)| at..at.saturating_add(blocks));
        let mut found: Vec<u64> = stored.take(most + 1).collect();
        found.extend(self.blocks.keys().filter(|index| **index >= from));
        found.retain(|index| *index < BLOCKS_MAX);
        found.sort_unstable();
        found.dedup();
        let rest = found.get(most).copied();
        found.truncate(most);
        (found, rest)
    }

    /// Marks a block to be written by the next checkpoint.
    pub fn touch(&mut self, dev: &dyn BlockDevice, index: u64) -> Result<()> {
        let fresh = !std::mem::replace(&mut self.held(dev, index)?.dirty, true);
        self.dirty += u64::from(fresh);
        Ok(())
    }

    /// Drops cached blocks that do not wait.
    pub fn forget_clean(&mut self) {
        self.blocks.retain(|_, held| held.dirty);
    }

    /// Marks all blocks as written.
    pub fn clean(&mut self) {
        self.blocks.values_mut().for_each(|h| h.dirty = false);
        self.dirty = 0;
        if self.blocks.len() > self.limit {
            self.blocks.clear();
        }
    }

    /// Allocates a number and a generation for a new inode. Map blocks are searched from the first that may have
    /// free entries.
    pub fn take(&mut self, dev: &dyn BlockDevice) -> Result<(Ino, u32)> {
        let mut index = 0;
        while index < BLOCKS_MAX {
            if self.full.contains(&index) {
                index += 1;
                continue;
            }
            let block = &self.held(dev, index)?.block;
            let places: Vec<(usize, Place)> = (0..ENTRIES).map(|at| (at, ifile::get(block, at))).collect();
            for (at, place) in places {
                // OK to saturate: index is below BLOCKS_MAX.
                let ino = Ino(u32::try_from(index * ENTRIES as u64 + at as u64).unwrap_or(u32::MAX));
                if place.addr.is_none() && ino >= FIRST_INO && !self.taken.contains(&ino) {
                    self.taken.insert(ino);
                    self.used += 1;
                    return Ok((ino, place.generation.into()));
                }
            }
            self.full.insert(index);
            index += 1;
        }
        Err(Error::NoSpace)
    }
}
