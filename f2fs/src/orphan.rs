//! Orphans: inodes without a name. When are they freed, and what if a checkpoint's list of them is full?
//!
//! An orphan is freed when its last user is gone, at the latest by the next mount. A checkpoint lists all orphans; its
//! pack has room for about half a million. So an operation that is about to remove an inode's last name first asks for
//! a place in the list ([`Orphans::place`]), and is refused if there is none (kernel `f2fs_acquire_orphan_inode`). No
//! checkpoint fails for the length of the list.
//!
//! An orphan that cannot be freed, because its nodes cannot be read or are damaged, stays in the list. It stops neither
//! mount nor unmount; every mount tries again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use format::Ino;
use format::orphan::ORPHANS_PER_BLOCK;
use format::superblock::SuperBlock;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Blocks of a checkpoint pack.
const PACK_BLOCKS: u32 = 512;
/// Of these, what an unmount writes beside payload and orphans: head, six summaries, tail.
const OTHER_BLOCKS: u32 = 8;

/// The list of orphans.
#[derive(Debug)]
pub(crate) struct Orphans {
    most: usize,
    /// How many are listed, for the many who ask and find none. It changes under the list's lock. A thread that takes
    /// an inode's last reference reads it after that reference's lock: if the thread that listed the inode saw the
    /// reference, this one sees the count.
    listed: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Debug)]
struct List {
    inos: BTreeSet<Ino>,
    /// Places given out that no orphan fills yet.
    promised: usize,
}

/// A place in the list for one orphan more; given back when dropped.
pub(crate) struct Place<'o>(&'o Orphans);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.list.lock().promised -= 1;
    }
}

impl Orphans {
    /// The orphans that a checkpoint lists, with room for as many as a pack of this volume has.
    pub(crate) fn new(sb: &SuperBlock, inos: BTreeSet<Ino>) -> Self {
        let blocks = PACK_BLOCKS.saturating_sub(OTHER_BLOCKS).saturating_sub(sb.cp_payload);
        let listed = AtomicUsize::new(inos.len());
        Orphans { most: blocks as usize * ORPHANS_PER_BLOCK, listed, list: Mutex::new(List { inos, promised: 0 }) }
    }
    fn change<T>(&self, f: impl FnOnce(&mut List) -> T) -> T {
        let mut list = self.list.lock();
        let out = f(&mut list);
        self.listed.store(list.inos.len(), Ordering::Release);
        out
    }
    /// A place for one more.
    pub(crate) fn place(&self) -> Result<Place<'_>> {
        let mut list = self.list.lock();
        if list.inos.len() + list.promised >= self.most {
            return Err(Error::no_space());
        }
        list.promised += 1;
        Ok(Place(self))
    }
    /// Fills a place.
    pub(crate) fn put(&self, ino: Ino, place: Place<'_>) {
        self.change(|list| list.inos.insert(ino));
        drop(place);
    }
    /// Lists an inode that should have been freed at once, which failed.
    pub(crate) fn keep(&self, ino: Ino) {
        self.change(|list| list.inos.insert(ino));
    }
    /// Takes an orphan off the list and keeps its place; `None` if it is not listed.
    pub(crate) fn take(&self, ino: Ino) -> Option<Place<'_>> {
        self.change(|list| {
            list.inos.remove(&ino).then(|| {
                list.promised += 1;
                Place(self)
            })
        })
    }
    /// Takes an orphan off the list, if it is listed.
    pub(crate) fn remove(&self, ino: Ino) {
        self.change(|list| list.inos.remove(&ino));
    }
    /// True if it is in the list.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.listed.load(Ordering::Acquire) > 0 && self.list.lock().inos.contains(&ino)
    }
    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().inos.is_empty()
    }
    /// Locks the list.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.list.lock()
    }
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Ino> {
        self.list.lock().inos.iter().copied().collect()
    }
}
