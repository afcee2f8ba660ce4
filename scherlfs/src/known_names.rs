//! What is known of a directory in memory: its blocks that do not wait, where each of its names stands, and where there is room.
//!
//! Knows entries, no disk: `directory` fills it and keeps it true.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use scherlfs_format::directory::{self, Entries, largest_room};
use scherlfs_format::{Block, Ino};
use vfs::FileKind;

use crate::page::Page;

/// Where a name stands and where it leads.
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
    /// The most bytes that a new entry could have, by block.
    pub room: Vec<usize>,
}

impl Names {
    /// Blocks in memory that do not wait.
    pub fn blocks(&self) -> usize {
        self.clean.len()
    }
    /// Blocks that waited were written; they stay. Says how many came.
    pub fn written(&mut self, pages: BTreeMap<u64, Page>) -> usize {
        let before = self.clean.len();
        self.clean.extend(pages);
        self.clean.len() - before
    }
    /// Where a name is.
    pub fn find(&self, name: &[u8]) -> Option<Spot> {
        self.spots.get(name).copied()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }
}

/// A kind's number in an entry.
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

/// The kind of a number; the format lets no other through.
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

/// The entries of a block that was checked when it was read, or was made here.
pub(crate) fn spots(block: &Block, index: u64) -> impl Iterator<Item = (&[u8], Spot)> {
    let spot = move |e: &directory::Entry<'_>| Spot { block: index, at: e.at, ino: e.ino, kind: kind(e.kind) };
    Entries::made(block).named().map(move |e| (e.name, spot(&e)))
}

impl Names {
    /// Takes down what a block holds.
    pub fn note(&mut self, index: u64, block: &Block) {
        self.note_room(index, block);
        for (name, spot) in spots(block, index) {
            self.spots.insert(name.into(), spot);
        }
    }
    /// Takes down how much room a block has.
    pub fn note_room(&mut self, index: u64, block: &Block) {
        let room = largest_room(Entries::made(block));
        match self.room.get_mut(index as usize) {
            Some(known) => *known = room,
            None => self.room.push(room),
        }
    }
}
