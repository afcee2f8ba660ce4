//! Lookup, insertion, removal and listing of names. Blocks have ext2's format. `.` and `..` are not stored: a
//! directory's inode records its parent, so moving a directory changes none of its blocks.
//!
//! With a directory cache, all blocks of a directory in use are in memory, with an index of its names. Without one
//! (`dir_cache` 0, called `scherlfs` in the measurements of Scherl 2004), a lookup reads block after block until it
//! finds the name.

use device::{Lba, Tag};
use scherlfs_format::directory::{self, Entries, least};
use scherlfs_format::{BLOCK, Block, Ino, NAME_MAX};
use vfs::{DirEntry, Error, FileKind, Flow, Result};

use crate::cause::Cause;
use crate::extents::Place;
use crate::inode::Inode;
use crate::known_names::{Names, Spot, number, spots};
use crate::page::Page;
use crate::volume::State;

/// Positions of a listing: `.`, `..`, then entries by offset.
const DOT: u64 = 1;
const DOTS: u64 = 2;
const FIRST: u64 = 3;

fn position(block: u64, at: usize) -> u64 {
    FIRST + block * BLOCK as u64 + at as u64
}

impl State {
    /// Reads a block of a directory from the disk.
    pub fn read_directory(&mut self, dir: &Inode, index: u64) -> Result<Page> {
        let read = self.read_directory_once(dir, index);
        self.doubting(read, |st| st.read_directory_once(dir, index))
    }

    pub fn read_directory_once(&self, dir: &Inode, index: u64) -> Result<Page> {
        let (Some(Place::At(at)), _) = dir.extents.at(index) else {
            return Err(Error::corrupt(format_args!("directory {}: block {index} is a hole", dir.ino)));
        };
        let mut block = [0; BLOCK];
        let tag = Tag { cause: Cause::Directory as u8, owner: dir.ino.0.into() };
        self.dev.read(Lba(at.0), &mut block[..], tag).map_err(Error::device)?;
        Entries::read(&block, dir.ino, index)
            .map_err(|e| Error::corrupt(format_args!("directory {}, block {index} at {at}: {e}", dir.ino)))?;
        Ok(Page::new(block))
    }

    /// Loads a whole directory into memory.
    pub fn names<'i>(&mut self, dir: &'i mut Inode) -> Result<&'i mut Names> {
        if !dir.is_dir() {
            return Err(Error::NotDirectory);
        }
        if dir.names.is_none() {
            let mut names = Names::default();
            for index in 0..dir.size_blocks() {
                // If the cache was dropped meanwhile, a waiting block is in memory without an index of its
                // directory.
                let loaded = if dir.pages.contains_key(&index) { None } else { Some(self.read_directory(dir, index)?) };
                let block = match &loaded {
                    Some(block) => block,
                    None => &dir.pages[&index],
                };
                names.note(index, block);
                if let Some(block) = loaded {
                    names.clean.insert(index, block);
                }
            }
            self.dir_blocks += names.clean.len();
            dir.names = Some(Box::new(names));
        }
        dir.names.as_deref_mut().ok_or(Error::NotDirectory)
    }

    /// Looks up a name.
    pub fn find(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Option<Spot>> {
        if !dir.is_dir() {
            return Err(Error::NotDirectory);
        }
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if dir.names.is_some() || self.dir_cache > 0 {
            return Ok(self.names(dir)?.find(name));
        }
        for index in 0..dir.size_blocks() {
            let loaded = if dir.pages.contains_key(&index) { None } else { Some(self.read_directory(dir, index)?) };
            let block: &Block = loaded.as_deref().unwrap_or_else(|| &dir.pages[&index]);
            if let Some(spot) = spots(block, index).find(|(n, _)| *n == name).map(|(_, s)| s) {
                return Ok(Some(spot));
            }
        }
        Ok(None)
    }

    /// Drops examined directories from memory if none are to be cached.
    pub fn forget_names(&mut self, dir: &mut Inode) {
        if self.dir_blocks > self.dir_cache {
            self.dir_blocks = self.dir_blocks.saturating_sub(dir.names.take().map_or(0, |n| n.blocks()));
        }
    }

    /// Most blocks that adding a name changes.
    pub const ADDING: u64 = 3;

    /// Marks a block of a directory as waiting, in memory.
    pub fn change_block(&mut self, dir: &mut Inode, index: u64) -> Result<()> {
        self.names(dir)?;
        if !dir.pages.contains_key(&index) {
            let clean = dir.names.as_mut().and_then(|n| n.clean.remove(&index));
            self.dir_blocks = self.dir_blocks.saturating_sub(usize::from(clean.is_some()));
            let block = match clean {
                Some(block) => block,
                None => self.read_directory(dir, index)?,
            };
            dir.pages.insert(index, block);
        }
        Ok(())
    }

    /// Adds a new name. There must be room.
    pub fn add_name(&mut self, dir: &mut Inode, name: &[u8], ino: Ino, what: FileKind) -> Result<()> {
        let need = least(name.len());
        let room = self.names(dir)?.room.iter().position(|room| *room >= need);
        let index = match room {
            Some(index) => index as u64,
            None => {
                let index = dir.size_blocks();
                dir.a.size += BLOCK as u64;
                dir.pages.insert(index, directory::empty().into());
                self.names(dir)?.room.push(directory::ENTRIES);
                index
            }
        };
        self.change_block(dir, index)?;
        let Some(block) = dir.pages.get_mut(&index).map(Page::make_mut) else {
            return Err(Error::corrupt("a directory's block"));
        };
        let Some(at) = directory::insert(block, ino, number(what), name) else {
            return Err(Error::corrupt(format_args!("directory {}: block {index} has no room", dir.ino)));
        };
        let names = dir.names.as_deref_mut().ok_or(Error::NotDirectory)?;
        names.spots.insert(name.into(), Spot { block: index, at, ino, kind: what });
        names.note_room(index, block);
        Ok(())
    }

    /// Removes a name.
    pub fn remove_name(&mut self, dir: &mut Inode, name: &[u8], spot: Spot) -> Result<()> {
        self.change_block(dir, spot.block)?;
        let Some(block) = dir.pages.get_mut(&spot.block).map(Page::make_mut) else {
            return Err(Error::corrupt("a directory's block"));
        };
        directory::remove(block, spot.at);
        let names = dir.names.as_deref_mut().ok_or(Error::NotDirectory)?;
        names.spots.remove(name);
        names.note_room(spot.block, block);
        // Remove empty blocks at the end.
        while let Some(last) = dir.size_blocks().checked_sub(1) {
            let empty = dir.names.as_ref().is_some_and(|n| n.room.last() == Some(&directory::ENTRIES));
            if !empty {
                break;
            }
            dir.a.size = last * BLOCK as u64;
            dir.pages.remove(&last);
            if let Some(names) = dir.names.as_deref_mut() {
                names.room.pop();
                let gone = names.clean.remove(&last).is_some();
                self.dir_blocks = self.dir_blocks.saturating_sub(usize::from(gone));
            }
            let freed = dir.extents.clear(last..last + 1);
            self.free_blocks(freed)?;
        }
        Ok(())
    }

    /// Points a name at another inode.
    pub fn redirect_name(&mut self, dir: &mut Inode, name: &[u8], spot: Spot, to: (Ino, FileKind)) -> Result<()> {
        self.change_block(dir, spot.block)?;
        let Some(block) = dir.pages.get_mut(&spot.block).map(Page::make_mut) else {
            return Err(Error::corrupt("a directory's block"));
        };
        directory::redirect(block, spot.at, to.0, number(to.1));
        let names = dir.names.as_deref_mut().ok_or(Error::NotDirectory)?;
        names.spots.insert(name.into(), Spot { ino: to.0, kind: to.1, ..spot });
        Ok(())
    }

    /// Lists names after a position.
    pub fn list(&mut self, dir: &mut Inode, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        self.names(dir)?;
        let up = if dir.a.parent.0 == 0 { dir.ino } else { dir.a.parent };
        let mut give = |next, ino: Ino, kind, name: &[u8]| {
            next <= cookie || each(DirEntry { ino: vfs::Ino(ino.0.into()), kind, name, next }) == Flow::Continue
        };
        if !give(DOT, dir.ino, FileKind::Directory, b".") || !give(DOTS, up, FileKind::Directory, b"..") {
            return Ok(());
        }
        let first = cookie.saturating_sub(FIRST) / BLOCK as u64;
        for index in first..dir.size_blocks() {
            let clean = || dir.names.as_ref().and_then(|n| n.clean.get(&index));
            let Some(block) = dir.pages.get(&index).or_else(clean) else { continue };
            for (name, spot) in spots(block, index) {
                if !give(position(index, spot.at), spot.ino, spot.kind, name) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
