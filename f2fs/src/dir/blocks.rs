//! Which blocks of a directory are in memory, and how are they loaded and dropped?

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::BlockAddr;
use format::inode::{Inline, RawInode};

use crate::cause::Cause;
use crate::dir::Names;
use crate::error::{Error, Result};
use crate::inode::dir_block::DirBlock;
use crate::inode::{Content, Inode};
use crate::node::map::Lookup;

impl Names {
    /// True if a directory's entries are in its inode.
    pub(crate) fn is_inline_dir(&self, dir: &Inode) -> bool {
        dir.node.inode(|r| r.inline().contains(Inline::DENTRY))
    }

    /// The position of an inline directory in its inode block.
    pub(crate) fn inline_dir_area(&self, raw: &RawInode) -> Result<std::ops::Range<usize>> {
        Ok(self.nodes.division(raw)?.inline_area())
    }

    /// The first block from `index` on whose address has a node, because a directory's size may claim far more blocks
    /// than exist. `u64::MAX` if there is none.
    pub(super) fn after_holes(&self, dir: &Inode, index: u64) -> Result<u64> {
        let mut at = index;
        loop {
            at = match self.nodes.find(&dir.node, at) {
                Ok(Lookup::At(_)) => return Ok(at),
                Ok(Lookup::Hole(blocks)) => blocks.end,
                Err(Error::Fs(vfs::Error::TooBig)) => return Ok(u64::MAX),
                Err(e) => return Err(e),
            };
        }
    }

    /// Loads a directory block; `None` for a hole.
    pub(super) fn dir_block<'c>(
        &self,
        dir: &Inode,
        content: &'c mut Content,
        index: u64,
    ) -> Result<Option<&'c mut DirBlock>> {
        if !content.dir.contains_key(&index) {
            let Lookup::At(place) = self.nodes.find(&dir.node, index)? else { return Ok(None) };
            let stored = || match place.addr(&self.ctx, place.slot) {
                BlockAddr::NULL => Ok(None),
                a if a.is_real() => {
                    self.ctx.check_data_addr(a, dir.ino, index)?;
                    self.ctx.read_block(a, Cause::Directory.of(dir.ino)).map(Some)
                }
                _ => Ok(Some(Box::new([0; 4096]))),
            };
            let Some(bytes) = place.node.steady(stored)? else { return Ok(None) };
            self.make_room(content);
            self.inodes.table.dir_blocks.fetch_add(1, Ordering::Relaxed);
            content.dir.insert(index, DirBlock::of(bytes));
        }
        Ok(content.dir.get_mut(&index))
    }

    /// Adds a new, empty block to a directory, reserved and dirty.
    pub(crate) fn new_dir_block<'c>(
        &self,
        dir: &Arc<Inode>,
        content: &'c mut Content,
        index: u64,
    ) -> Result<&'c mut DirBlock> {
        self.files.reserve(&dir.node, index)?;
        let end = (index + 1) * 4096;
        if dir.size() < end {
            self.nodes.edit_inode(&dir.node, |r| r.i_size = end.into());
        }
        self.make_room(content);
        match content.dir.entry(index) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                self.inodes.table.dir_blocks.fetch_add(1, Ordering::Relaxed);
                dir.gained_dirty(&self.inodes, 1);
                let block = e.insert(DirBlock::empty());
                block.dirty = true;
                Ok(block)
            }
        }
    }

    /// Marks a block in memory as changed.
    pub(crate) fn dirty_dir_block(&self, dir: &Arc<Inode>, content: &mut Content, index: u64) {
        if let Some(b) = content.dir.get_mut(&index)
            && !b.dirty
        {
            b.dirty = true;
            dir.gained_dirty(&self.inodes, 1);
        }
    }

    /// Turns a directory block without entries into a hole; size and nodes stay. On failure the block stays: its last
    /// entry is removed either way.
    pub(super) fn free_dir_block(&self, dir: &Arc<Inode>, content: &mut Content, index: u64) {
        if let Err(e) = self.files.free_range(&dir.node, index, index + 1) {
            log::warn!("directory {}: its empty block {index} could not be freed: {e}", dir.ino);
            return;
        }
        if let Some(b) = content.dir.remove(&index) {
            self.inodes.table.dir_blocks.fetch_sub(1, Ordering::Relaxed);
            dir.lost_dirty(&self.inodes, usize::from(b.dirty));
        }
    }

    /// Drops clean blocks if directories hold too many: first those of other unlocked directories, then of this one. It
    /// checks only after a further eighth of the limit was loaded, because dirty blocks stay.
    fn make_room(&self, content: &mut Content) {
        let limit = self.ctx.options.dir_cache as u64;
        let held = || self.inodes.table.dir_blocks.load(Ordering::Relaxed);
        let brought = self.dir_blocks_brought.fetch_add(1, Ordering::Relaxed);
        if held() < limit || brought < limit / 8 {
            return;
        }
        self.dir_blocks_brought.store(0, Ordering::Relaxed);
        let enough = || held() <= limit / 2;
        for other in self.inodes.table.directories() {
            if enough() {
                return;
            }
            // Waiting for the lock could deadlock with a thread that waits for this directory.
            if let Some(mut c) = other.content.try_write() {
                self.forget_clean(&mut c);
            }
        }
        if !enough() {
            self.forget_clean(content);
        }
    }

    fn forget_clean(&self, content: &mut Content) {
        let before = content.dir.len();
        content.dir.retain(|_, b| b.dirty);
        content.dir.shrink_to_fit();
        self.inodes.table.dir_blocks.fetch_sub((before - content.dir.len()) as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::*;
    use vfs::FileSystem;

    #[test]
    fn a_cache_that_passed_its_limit_by_several_blocks_at_once_is_trimmed() {
        let limit = 64;
        let options = crate::MountOptions { dir_cache: limit, inline: false, ..crate::MountOptions::default() };
        let (_dev, vol) = mounted(64, options);
        let dirs: Vec<_> = (0..2 * limit).map(|i| dir(&vol, vol.root(), &format!("d{i}"))).collect();
        vol.sync().unwrap();
        vol.inodes.table.directories().iter().for_each(|d| vol.names.forget_clean(&mut d.content.write()));
        let bring = |d: &vfs::Ino| assert!(vol.lookup(*d, b"none").is_err());
        let mut dirs = dirs.iter();
        dirs.by_ref().take(limit - 1).for_each(bring);
        // As after two threads that both checked before either had counted its block, and again an eighth later.
        for _ in 0..2 {
            vol.inodes.table.dir_blocks.fetch_add(2, Ordering::Relaxed);
            dirs.by_ref().take(limit / 8 - 2).for_each(bring);
        }
        assert!(vol.inodes.table.dir_blocks.load(Ordering::Relaxed) <= limit as u64, "trimmed");
    }
}
