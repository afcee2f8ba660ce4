//! How are entries found, added, removed and redirected?

use std::sync::Arc;

use format::casefold::{self, Sought};
use format::dentry::{self, Layout, MAX_DEPTH};
use format::inode::{Inline, RawInode};
use format::{BlockAddr, Ino, dentry as area};
use vfs::FileKind;

use super::naming::Naming;
use super::spot::{Found, Spot};
use super::{kind_of, type_number};
use crate::dir::Names;
use crate::error::{Error, Result};
use crate::fields::put_inline;
use crate::file::free::KeptPages;
use crate::inode::dir_block::DirBlock;
use crate::inode::{Content, Inode};
use crate::no_key;

/// The hash levels of a directory.
struct Levels {
    depth: u32,
    /// `i_dir_level`.
    dir_level: u8,
    /// Number of blocks, including holes.
    blocks: u64,
}

impl Levels {
    fn of(r: &RawInode) -> Self {
        Levels { depth: r.i_current_depth.get(), dir_level: r.i_dir_level, blocks: r.i_size.get().div_ceil(4096) }
    }
    fn checked(self, dir: &Inode) -> Result<Self> {
        if self.depth > MAX_DEPTH {
            return Err(Error::corrupt(format_args!("directory {}: depth {} passes 63", dir.ino, self.depth)));
        }
        Ok(self)
    }
}

/// Where a search continues when an entry is not where its hash leads. Linux does so in casefolded directories, because
/// kernels have folded in more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nowhere,
    /// In blocks that have entries under another hash than that of their folded name.
    WhereMisfiled,
    /// In all blocks: the correct hash of an entry is unknown.
    Everywhere,
}

/// The result of a search in one block.
enum Look {
    Here(Found),
    NotHere,
    /// The block is not in memory.
    NotInMemory,
}

impl From<Option<Found>> for Look {
    fn from(found: Option<Found>) -> Self {
        found.map_or(Look::NotHere, Look::Here)
    }
}

impl Names {
    fn found(&self, d: &area::Dentry<'_>, spot: Spot) -> Found {
        Found { ino: Ino(d.ino), kind: kind_of(d.kind), spot }
    }

    /// The hash levels of a directory, checked.
    fn levels(&self, dir: &Inode) -> Result<Levels> {
        dir.node.inode(Levels::of).checked(dir)
    }

    /// Calls `look` for the blocks where a name can be, in order, until it stops the search. `look` gets a block's
    /// index and a function that searches the block.
    fn search(
        &self,
        dir: &Inode,
        name: &[u8],
        mut look: impl FnMut(u64, &dyn Fn(&DirBlock) -> Option<Found>) -> Result<Look>,
    ) -> Result<Look> {
        if name.len() > 255 {
            return Err(vfs::Error::NameTooLong.into());
        }
        let naming = self.naming(dir);
        let encoded = if naming.is_encrypted() { no_key::Sought::new(name) } else { None };
        if let Some(sought) = encoded {
            return self.search_for(dir, sought.hash, |entry| sought.is(entry), Beside::Nowhere, &mut look);
        }
        if naming != Naming::Folded {
            return self.search_exact(dir, (name, naming.hash(name)), look);
        }
        let encoding = self.ctx.sb.raw.s_encoding_flags.get();
        let sought = Sought::new(name);
        if encoding & casefold::STRICT != 0 && !sought.is_lawful() {
            return Err(vfs::Error::Invalid("a name that is not UTF-8, in a directory that takes no other").into());
        }
        let beside = if encoding & casefold::NO_FALLBACK == 0 { Beside::WhereMisfiled } else { Beside::Nowhere };
        self.search_for(dir, sought.hash, |entry| sought.is(entry), beside, &mut look)
    }

    /// As [`Self::search`], for an entry of exactly these bytes.
    fn search_exact(
        &self,
        dir: &Inode,
        (name, hash): (&[u8], u32),
        mut look: impl FnMut(u64, &dyn Fn(&DirBlock) -> Option<Found>) -> Result<Look>,
    ) -> Result<Look> {
        let beside = match self.naming(dir) {
            Naming::Plain | Naming::Encrypted => Beside::Nowhere,
            Naming::Folded => Beside::WhereMisfiled,
            Naming::Keyed => Beside::Everywhere,
        };
        self.search_for(dir, hash, |entry| entry == name, beside, &mut look)
    }

    /// Searches where a hash leads, then elsewhere.
    fn search_for(
        &self,
        dir: &Inode,
        hash: u32,
        is: impl Fn(&[u8]) -> bool,
        beside: Beside,
        look: &mut impl FnMut(u64, &dyn Fn(&DirBlock) -> Option<Found>) -> Result<Look>,
    ) -> Result<Look> {
        if self.is_inline_dir(dir) {
            return self.search_inline(dir, |l, a| {
                let hashed = area::find_where(l, a, hash, &is);
                hashed.or_else(|| area::entries(l, a, 0).filter(|_| beside != Beside::Nowhere).find(|d| is(d.name)))
            });
        }
        let hashed = self.search_buckets(dir, dir.node.inode(Levels::of), hash, &is, look)?;
        if beside == Beside::Nowhere || !matches!(hashed, Look::NotHere) {
            return Ok(hashed);
        }
        let blocks = dir.size().div_ceil(4096);
        let mut index = self.after_holes(dir, 0)?;
        while index < blocks {
            let find = |b: &DirBlock| {
                let found = match beside == Beside::WhereMisfiled && b.is_folded() {
                    true => b.find(hash, &is),
                    false => area::entries(&Layout::BLOCK, b.bytes(), 0).find(|d| is(d.name)),
                };
                found.map(|d| self.found(&d, Spot::Block { index, slot: d.slot }))
            };
            match look(index, &find)? {
                Look::NotHere => {}
                other => return Ok(other),
            }
            index = self.after_holes(dir, index + 1)?;
        }
        Ok(Look::NotHere)
    }

    fn search_inline(
        &self,
        dir: &Inode,
        find: impl for<'a> Fn(&Layout, &'a [u8]) -> Option<area::Dentry<'a>>,
    ) -> Result<Look> {
        let bytes = dir.node.read();
        let a = &bytes[self.inline_dir_area(RawInode::of(&bytes))?];
        let d = find(&Layout::inline(a.len()), a);
        Ok(d.map(|d| self.found(&d, Spot::Inline { slot: d.slot })).into())
    }

    /// The buckets of a hash, level by level.
    fn search_buckets(
        &self,
        dir: &Inode,
        levels: Levels,
        hash: u32,
        is: impl Fn(&[u8]) -> bool,
        look: &mut impl FnMut(u64, &dyn Fn(&DirBlock) -> Option<Found>) -> Result<Look>,
    ) -> Result<Look> {
        let Levels { depth, dir_level, blocks } = levels.checked(dir)?;
        for level in 0..depth {
            for index in dentry::bucket(level, dir_level, hash) {
                if index >= blocks {
                    return Ok(Look::NotHere);
                }
                let find =
                    |b: &DirBlock| b.find(hash, &is).map(|d| self.found(&d, Spot::Block { index, slot: d.slot }));
                match look(index, &find)? {
                    Look::NotHere => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Look::NotHere)
    }

    /// Finds a name.
    pub(crate) fn find_entry(&self, dir: &Inode, content: &mut Content, name: &[u8]) -> Result<Option<Found>> {
        let out = self
            .search(dir, name, |index, find| Ok(self.dir_block(dir, content, index)?.and_then(|b| find(b)).into()))?;
        Ok(if let Look::Here(found) = out { Some(found) } else { None })
    }

    /// Finds the entry with exactly these bytes under this hash, however the directory compares names: roll-forward
    /// does so, in Linux too.
    pub(crate) fn find_exact(&self, dir: &Inode, content: &mut Content, name: (&[u8], u32)) -> Result<Option<Found>> {
        let out = self.search_exact(dir, name, |index, find| {
            Ok(self.dir_block(dir, content, index)?.and_then(|b| find(b)).into())
        })?;
        Ok(if let Look::Here(found) = out { Some(found) } else { None })
    }

    /// Finds a name only in memory; `None` if that is not enough.
    pub(crate) fn find_in_memory(&self, dir: &Inode, content: &Content, name: &[u8]) -> Result<Option<Option<Found>>> {
        let out = self.search(dir, name, |index, find| {
            Ok(match content.dir.get(&index) {
                Some(b) => find(b).into(),
                None if self.nodes.addr_of(&dir.node, index)? == BlockAddr::NULL => Look::NotHere,
                None => Look::NotInMemory,
            })
        })?;
        Ok(match out {
            Look::Here(found) => Some(Some(found)),
            Look::NotHere => Some(None),
            Look::NotInMemory => None,
        })
    }

    /// Finds a name, or a place that fits it: the first block in memory on the search path with room.
    pub(crate) fn find_or_room(
        &self,
        dir: &Inode,
        content: &mut Content,
        name: &[u8],
    ) -> Result<(Option<Found>, Option<Spot>)> {
        let slots = area::slots_for(name.len());
        let mut room = None;
        let mut hole = false;
        let out = self.search(dir, name, |index, find| {
            let Some(b) = self.dir_block(dir, content, index)? else {
                hole = true;
                return Ok(Look::NotHere);
            };
            let found = find(b);
            // A hole on the search path has room, but only [`Self::insert_entry`] can give it a block.
            if found.is_none() && room.is_none() && !hole {
                room = area::free_run(&Layout::BLOCK, b.bytes(), slots).map(|slot| Spot::Block { index, slot });
            }
            Ok(found.into())
        })?;
        // In casefolded directories the search also visits blocks to which the hash does not lead.
        let room = room.filter(|_| self.naming(dir) == Naming::Plain);
        Ok((if let Look::Here(found) = out { Some(found) } else { None }, room))
    }

    /// Adds an entry whose name does not exist yet; `room` is the result of [`Self::find_or_room`] under the same lock.
    pub(crate) fn insert_entry(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
        room: Option<Spot>,
    ) -> Result<()> {
        let hash = self.naming(dir).hash(name);
        self.insert_under(dir, content, (name, hash), ino, kind, room)
    }

    /// The same, under a hash that the caller knows.
    pub(crate) fn insert_under(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        (name, hash): (&[u8], u32),
        ino: Ino,
        kind: FileKind,
        room: Option<Spot>,
    ) -> Result<()> {
        self.place_entry(dir, content, (name, hash), ino, kind, room)?;
        self.note_bound(dir, name, None, Some(ino));
        Ok(())
    }

    fn place_entry(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        (name, hash): (&[u8], u32),
        ino: Ino,
        kind: FileKind,
        room: Option<Spot>,
    ) -> Result<()> {
        // The block may have been dropped from memory since.
        if let Some(Spot::Block { index, slot }) = room
            && let Some(b) = content.dir.get_mut(&index)
        {
            b.insert(slot, name, hash, ino.0, type_number(kind));
            self.dirty_dir_block(dir, content, index);
            return Ok(());
        }
        if self.is_inline_dir(dir) {
            let done = self.nodes.edit(&dir.node, |b| -> Result<bool> {
                let range = self.inline_dir_area(RawInode::of(b))?;
                let a = &mut b[range];
                let l = Layout::inline(a.len());
                let slot = area::free_run(&l, a, area::slots_for(name.len()));
                if let Some(slot) = slot {
                    area::insert(&l, a, slot, name, hash, ino.0, type_number(kind));
                }
                Ok(slot.is_some())
            })?;
            if done {
                return Ok(());
            }
            self.leave_inline_dir(dir, content)?;
        }
        self.insert_hashed(dir, content, name, hash, ino, type_number(kind))
    }

    fn insert_hashed(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        name: &[u8],
        hash: u32,
        ino: Ino,
        kind: u8,
    ) -> Result<()> {
        let Levels { depth, dir_level, .. } = self.levels(dir)?;
        let slots = area::slots_for(name.len());
        for level in 0..MAX_DEPTH {
            for index in dentry::bucket(level, dir_level, hash) {
                let slot = match self.dir_block(dir, content, index)? {
                    Some(b) => area::free_run(&Layout::BLOCK, b.bytes(), slots),
                    None => Some(0),
                };
                let Some(slot) = slot else { continue };
                let b = match content.dir.contains_key(&index) {
                    true => content.dir.get_mut(&index),
                    false => Some(self.new_dir_block(dir, content, index)?),
                };
                if let Some(b) = b {
                    b.insert(slot, name, hash, ino.0, kind);
                }
                self.dirty_dir_block(dir, content, index);
                if level >= depth {
                    self.nodes.edit_inode(&dir.node, |r| r.i_current_depth = (level + 1).into());
                }
                return Ok(());
            }
        }
        Err(Error::no_space())
    }

    /// Moves an inline directory's entries to blocks.
    fn leave_inline_dir(&self, dir: &Arc<Inode>, content: &mut Content) -> Result<()> {
        let before = **dir.node.read();
        let range = self.inline_dir_area(RawInode::of(&before))?;
        let old = before[range.clone()].to_vec();
        let l = Layout::inline(old.len());
        self.nodes.edit(&dir.node, |b| {
            b[range].fill(0);
            let r = RawInode::of_mut(b);
            put_inline(r, Inline::DENTRY, false);
            r.i_current_depth = 1.into();
            r.i_size = 4096.into();
        });
        let out = if RawInode::of(&before).i_dir_level == 0 {
            // The first bucket takes every hash: entries keep their slots, so a listing in progress misses none (kernel
            // `f2fs_move_inline_dirents`).
            self.new_dir_block(dir, content, 0).map(|b| {
                for d in area::entries(&l, &old, 0) {
                    b.insert(d.slot, d.name, d.hash, d.ino, d.kind);
                }
            })
        } else {
            area::entries(&l, &old, 0)
                .try_for_each(|d| self.insert_hashed(dir, content, d.name, d.hash, Ino(d.ino), d.kind))
        };
        if out.is_err() {
            // No space: restores the directory, so that nothing is half done.
            self.files.drop_contents(dir, content);
            self.files.free_from(&dir.node, 0, KeptPages::Go)?;
            let blocks = RawInode::of(&before).i_blocks;
            self.nodes.edit(&dir.node, |b| {
                *b = before;
                RawInode::of_mut(b).i_blocks = blocks;
            });
        }
        out
    }

    /// Changes the bytes of an entry's block or inline area.
    fn edit_area<T>(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        spot: Spot,
        f: impl FnOnce(&Layout, &mut [u8], usize) -> T,
    ) -> Result<T> {
        match spot {
            Spot::Inline { slot } => self.nodes.edit(&dir.node, |b| {
                let range = self.inline_dir_area(RawInode::of(b))?;
                let l = Layout::inline(range.len());
                Ok(f(&l, &mut b[range], slot))
            }),
            Spot::Block { index, slot } => {
                self.dirty_dir_block(dir, content, index);
                let b = content.dir.get_mut(&index).ok_or_else(|| {
                    Error::corrupt(format_args!("directory {}: block {index} left memory while in use", dir.ino))
                })?;
                Ok(f(&Layout::BLOCK, b.edit(), slot))
            }
        }
    }

    /// Removes an entry just found. If it was its block's last, the block becomes a hole (kernel `f2fs_delete_entry`).
    pub(crate) fn remove_entry(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        name: &[u8],
        found: Found,
    ) -> Result<()> {
        let name = self.spelled(dir, content, found.spot, name)?;
        let empty = self.edit_area(dir, content, found.spot, |l, a, slot| {
            area::remove(l, a, slot);
            area::is_empty(l, a)
        })?;
        self.note_bound(dir, &name, Some(found.ino), None);
        if let Spot::Block { index, .. } = found.spot
            && empty
        {
            self.free_dir_block(dir, content, index);
        }
        Ok(())
    }

    /// Points an entry just found at another inode.
    pub(crate) fn redirect_entry(
        &self,
        dir: &Arc<Inode>,
        content: &mut Content,
        name: &[u8],
        found: Found,
        (ino, kind): (Ino, FileKind),
    ) -> Result<()> {
        let name = self.spelled(dir, content, found.spot, name)?;
        self.redirect_spot(dir, content, found.spot, ino, kind)?;
        self.note_bound(dir, &name, Some(found.ino), Some(ino));
        Ok(())
    }

    /// Points a directory's `..` at another parent.
    pub(crate) fn redirect_up(&self, dir: &Arc<Inode>, content: &mut Content, at: Spot, parent: Ino) -> Result<()> {
        self.redirect_spot(dir, content, at, parent, FileKind::Directory)
    }

    fn redirect_spot(&self, dir: &Arc<Inode>, content: &mut Content, at: Spot, ino: Ino, kind: FileKind) -> Result<()> {
        self.edit_area(dir, content, at, |l, a, slot| area::redirect(l, a, slot, ino.0, type_number(kind)))
    }

    /// True if a directory contains only `.` and `..`.
    pub(crate) fn is_empty_dir(&self, dir: &Inode, content: &mut Content) -> Result<bool> {
        let only_dots = |l: &Layout, a: &[u8]| area::entries(l, a, 0).all(|d| d.name == b"." || d.name == b"..");
        if self.is_inline_dir(dir) {
            let bytes = dir.node.read();
            let a = &bytes[self.inline_dir_area(RawInode::of(&bytes))?];
            return Ok(only_dots(&Layout::inline(a.len()), a));
        }
        let blocks = dir.size().div_ceil(4096);
        let mut index = self.after_holes(dir, 0)?;
        while index < blocks {
            if let Some(b) = self.dir_block(dir, content, index)?
                && !only_dots(&Layout::BLOCK, b.bytes())
            {
                return Ok(false);
            }
            index = self.after_holes(dir, index + 1)?;
        }
        Ok(true)
    }
}
