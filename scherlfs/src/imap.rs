//! Where is each inode? The inode map, whose blocks are kept in memory as far as an option allows.

use device::{BlockDevice, Lba, Tag};
use rustc_hash::{FxHashMap, FxHashSet};
use scherlfs_format::ifile::{self, ENTRIES, Place};
use scherlfs_format::{Addr, BLOCK, Block, FIRST_INO, Ino};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::extents::Place as Lies;
use crate::inode::Inode;

/// Blocks of the map at most: as many inodes as there are numbers.
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
    /// Blocks kept beside those that wait.
    limit: usize,
    /// Blocks known to have no free place.
    full: FxHashSet<u64>,
    /// Numbers of inodes that are not written yet.
    taken: FxHashSet<Ino>,
    /// Inodes in use, written or not.
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

    /// Where an inode is.
    pub fn get(&mut self, dev: &dyn BlockDevice, ino: Ino) -> Result<Place> {
        let (index, at) = ifile::at(ino);
        Ok(ifile::get(&self.held(dev, index)?.block, at))
    }

    fn put(&mut self, dev: &dyn BlockDevice, ino: Ino, place: Place) -> Result<()> {
        let (index, at) = ifile::at(ino);
        let held = self.held(dev, index)?;
        ifile::put(&mut held.block, at, place);
        let fresh = !std::mem::replace(&mut held.dirty, true);
        self.dirty += u64::from(fresh);
        let bytes = (index + 1) * BLOCK as u64;
        self.inode.a.size = self.inode.a.size.max(bytes);
        Ok(())
    }

    /// An inode was written there.
    pub fn written(&mut self, dev: &dyn BlockDevice, ino: Ino, addr: Addr, generation: u32) -> Result<()> {
        self.taken.remove(&ino);
        self.put(dev, ino, Place { addr: Some(addr), generation: generation as u16 })
    }

    /// An inode is gone, and that is written; its number may be used again.
    pub fn gone(&mut self, dev: &dyn BlockDevice, ino: Ino) -> Result<()> {
        let was = self.get(dev, ino)?;
        self.taken.remove(&ino);
        self.full.remove(&ifile::at(ino).0);
        self.put(dev, ino, Place { addr: None, generation: was.generation.wrapping_add(1) })
    }

    /// A number is its old inode's again, which waits to be written.
    pub fn bring_back(&mut self, ino: Ino) {
        self.taken.insert(ino);
        self.used += 1;
    }

    /// A number that was taken is not needed.
    pub fn abandon(&mut self, ino: Ino) {
        self.taken.remove(&ino);
        self.full.remove(&ifile::at(ino).0);
        self.used = self.used.saturating_sub(1);
    }

    /// Blocks that wait to be written.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Their numbers, in order.
    pub fn dirty_blocks(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.blocks.iter().filter(|(_, h)| h.dirty).map(|(n, _)| *n).collect();
        all.sort_unstable();
        all
    }

    /// A block in memory.
    pub fn block(&self, index: u64) -> Option<&Block> {
        self.blocks.get(&index).map(|h| &*h.block)
    }

    /// A block, read if it is not in memory.
    pub fn load(&mut self, dev: &dyn BlockDevice, index: u64) -> Result<&Block> {
        Ok(&self.held(dev, index)?.block)
    }

    /// The next blocks that hold anything, `most` of them, and where to go on; none at the end. The size alone says nothing: a
    /// map may have holes, and one of a damaged volume more of them than can be looked at.
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

    /// A block will be written by the next checkpoint, wherever it is.
    pub fn touch(&mut self, dev: &dyn BlockDevice, index: u64) -> Result<()> {
        let fresh = !std::mem::replace(&mut self.held(dev, index)?.dirty, true);
        self.dirty += u64::from(fresh);
        Ok(())
    }

    /// What does not wait is read again.
    pub fn forget_clean(&mut self) {
        self.blocks.retain(|_, held| held.dirty);
    }

    /// Nothing waits any more.
    pub fn clean(&mut self) {
        self.blocks.values_mut().for_each(|h| h.dirty = false);
        self.dirty = 0;
        if self.blocks.len() > self.limit {
            self.blocks.clear();
        }
    }

    /// A number for a new inode, and its generation. Blocks of the map are looked through from the first that is not known to
    /// be full.
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
                // OK to unwrap by saturating: index is below BLOCKS_MAX.
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
