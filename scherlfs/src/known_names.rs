//! A directory in memory: its blocks that do not wait, the place of each name, and free room.
//!
//! Independent of the disk: `directory` fills and updates it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use scherlfs_format::directory::{self, Entries, largest_room};
use scherlfs_format::{Block, Ino};
use vfs::FileKind;

use crate::page::Page;

/// Place and target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub block: u64,
    pub at: usize,
    pub ino: Ino,
    pub kind: FileKind,
}

/// A directory in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub spots: FxHashMap<Box<[u8]>, Spot>,
    /// Blocks that do not wait.
    pub clean: FxHashMap<u64, Page>,
    /// Largest entry that fits, by block.
    pub room: Vec<usize>,
}

impl Names {
    /// Number of cached blocks that do not wait.
    pub fn blocks(&self) -> usize {
        self.clean.len()
    }
    /// Adds waiting blocks that were written; returns their number.
    pub fn written(&mut self, pages: BTreeMap<u64, Page>) -> usize {
        let before = self.clean.len();
        self.clean.extend(pages);
        self.clean.len() - before
    }
    /// Looks up a name.
    pub fn find(&self, name: &[u8]) -> Option<Spot> {
        self.spots.get(name).copied()
    }
    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }
}

/// Number of a kind in an entry.
pub(crate) fn number(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The kind for a number; the format rejects invalid numbers.
pub(crate) fn kind(number: u8) -> FileKind {
    match number {
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => FileKind::Regular,
    }
}

/// The entries of a block that was checked on reading, or was created here.
pub(crate) fn spots(block: &Block, index: u64) -> impl Iterator<Item = (&[u8], Spot)> {
    let spot = move |e: &directory::Entry<'_>| Spot { block: index, at: e.at, ino: e.ino, kind: kind(e.kind) };
    Entries::unchecked(block).named().map(move |e| (e.name, spot(&e)))
}

impl Names {
    /// Records the names of a block.
    pub fn note(&mut self, index: u64, block: &Block) {
        self.note_room(index, block);
        for (name, spot) in spots(block, index) {
            self.spots.insert(name.into(), spot);
        }
    }
    /// Records the free room of a block.
    pub fn note_room(&mut self, index: u64, block: &Block) {
        let room = largest_room(Entries::unchecked(block));
        match self.room.get_mut(index as usize) {
            Some(known) => *known = room,
            None => self.room.push(room),
        }
    }
}
