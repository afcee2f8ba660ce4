//! Blocks of directories during the repair of names.

use std::collections::BTreeMap;

use scherlfs_format::directory::{self, Entries};
use scherlfs_format::{BLOCK, Block, Ino};

use super::action::{Log, What};
use super::file::File;
use crate::{Disk, unflip};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub dir: Ino,
    /// The block, and the entry's offset in it.
    pub block: u64,
    pub at: usize,
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: u8,
}

/// A directory's blocks.
#[derive(Default)]
pub(crate) struct Dir {
    blocks: BTreeMap<u64, (Box<Block>, bool)>,
    /// True if its blocks must move to other positions in it.
    repack: bool,
    /// True if every block is readable.
    pub whole: bool,
}

/// Reads a directory block, restoring a flipped bit if necessary.
pub(crate) fn block(disk: &Disk<'_>, ino: Ino, n: u64, at: scherlfs_format::Addr) -> Option<(Box<Block>, bool)> {
    let block = disk.read(at).ok()?;
    if Entries::read(&block, ino, n).is_ok() {
        return Some((block, false));
    }
    let block = unflip::of_directory(&block, ino, n).filter(|b| Entries::read(b, ino, n).is_ok())?;
    Some((block, true))
}

impl Dir {
    /// Reads the blocks of a directory. An unreadable one is treated as empty.
    pub fn read(disk: &Disk<'_>, ino: Ino, file: &File, log: &mut Log) -> Dir {
        let mut dir = Dir { whole: true, ..Dir::default() };
        let size = file.attributes.size / BLOCK as u64;
        let mut next = 0;
        for (n, at) in file.stored() {
            match block(disk, ino, n, at) {
                Some((block, mended)) => {
                    if mended {
                        log.file(ino, What::Bit { at });
                    }
                    dir.blocks.insert(n, (block, mended));
                }
                None if n < size => {
                    dir.whole = false;
                    log.file(ino, What::Names { block: n });
                    dir.blocks.insert(n, (directory::empty(), true));
                }
                None => {
                    // Past its end, and not one of its blocks.
                    dir.repack = true;
                    continue;
                }
            }
            dir.repack |= n != next;
            next = n + 1;
        }
        dir.repack |= next != size || !file.attributes.size.is_multiple_of(BLOCK as u64);
        dir.whole &= next >= size && !dir.repack;
        dir
    }

    /// All names in it.
    pub fn names(&self, ino: Ino) -> Vec<Named> {
        let of = |(n, (block, _)): (&u64, &(Box<Block>, bool))| {
            let named = |e: directory::Entry<'_>| Named {
                dir: ino,
                block: *n,
                at: e.at,
                name: e.name.to_vec(),
                ino: e.ino,
                kind: e.kind,
            };
            Entries::unchecked(block).named().map(named).collect::<Vec<_>>()
        };
        self.blocks.iter().flat_map(of).collect()
    }

    /// Removes a name.
    pub fn remove(&mut self, entry: &Named) {
        if let Some((block, changed)) = self.blocks.get_mut(&entry.block) {
            *changed |= directory::remove(block, entry.at);
        }
    }

    /// Sets the kind in a name's entry.
    pub fn set_kind(&mut self, entry: &Named, kind: u8) {
        if let Some((block, changed)) = self.blocks.get_mut(&entry.block) {
            directory::redirect(block, entry.at, entry.ino, kind);
            *changed = true;
        }
    }

    /// Adds a name.
    pub fn add(&mut self, ino: Ino, kind: u8, name: &[u8]) {
        // Starting with the last, so that adding many does not scan all blocks each time.
        for (block, changed) in self.blocks.values_mut().rev().take(8) {
            if directory::insert(block, ino, kind, name).is_some() {
                *changed = true;
                return;
            }
        }
        let mut block = directory::empty();
        directory::insert(&mut block, ino, kind, name);
        let next = self.blocks.last_key_value().map_or(0, |(n, _)| n + 1);
        self.blocks.insert(next, (block, true));
    }

    /// Moves the directory's changes to its inode.
    pub fn settle(mut self, ino: Ino, file: &mut File) {
        if self.repack {
            let names = self.names(ino);
            self.blocks.clear();
            let mut last = directory::empty();
            for e in names {
                if directory::insert(&mut last, e.ino, e.kind, &e.name).is_none() {
                    let n = self.blocks.len() as u64;
                    self.blocks.insert(n, (std::mem::replace(&mut last, directory::empty()), true));
                    directory::insert(&mut last, e.ino, e.kind, &e.name);
                }
            }
            let n = self.blocks.len() as u64;
            self.blocks.insert(n, (last, true));
            file.extents.clear();
        }
        let size = self.blocks.len() as u64 * BLOCK as u64;
        for (n, (mut block, changed)) in self.blocks {
            if changed {
                directory::seal(&mut block, ino, n);
                file.pages.insert(n, block);
            }
        }
        if !file.pages.is_empty() || file.attributes.size != size {
            file.attributes.size = size;
            file.changed = true;
        }
    }
}
