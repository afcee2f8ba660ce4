//! When are orphans (inodes without a name) freed, and what happens if a checkpoint's list of them is full?
//!
//! An orphan is freed when its last user is gone, at the latest by the next mount. A checkpoint lists all orphans; its
//! pack has room for about half a million. So an operation that will remove an inode's last name first reserves a place
//! in the list ([`Orphans::place`]), and fails if there is none (kernel `f2fs_acquire_orphan_inode`). No checkpoint
//! fails because of the list's length.
//!
//! An orphan that cannot be freed, because its nodes are unreadable or damaged, stays in the list. It prevents neither
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
/// Blocks of a pack written by unmount besides payload and orphans: head, six summaries, tail.
const OTHER_BLOCKS: u32 = 8;

/// The list of orphans.
#[derive(Debug)]
pub(crate) struct Orphans {
    most: usize,
    /// Number of listed orphans, for the many checks that find none. It changes under the list's lock. A thread that
    /// drops an inode's last reference reads it after releasing that reference's lock: if the thread that listed the
    /// inode saw the reference, this thread sees the count.
    listed: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Debug)]
struct List {
    inos: BTreeSet<Ino>,
    /// Reserved places that no orphan fills yet.
    promised: usize,
}

/// A reserved place in the list for one more orphan; released when dropped.
pub(crate) struct Place<'o>(&'o Orphans);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.list.lock().promised -= 1;
    }
}

impl Orphans {
    /// A checkpoint's orphans, with places up to the limit of this volume's packs.
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
    /// Reserves a place for one more.
    pub(crate) fn place(&self) -> Result<Place<'_>> {
        let mut list = self.list.lock();
        if list.inos.len() + list.promised >= self.most {
            return Err(Error::no_space());
        }
        list.promised += 1;
        Ok(Place(self))
    }
    /// Fills a reserved place.
    pub(crate) fn put(&self, ino: Ino, place: Place<'_>) {
        self.change(|list| list.inos.insert(ino));
        drop(place);
    }
    /// Lists an inode that could not be freed.
    pub(crate) fn keep(&self, ino: Ino) {
        self.change(|list| list.inos.insert(ino));
    }
    /// Removes an orphan from the list and keeps its place reserved; `None` if it is not listed.
    pub(crate) fn take(&self, ino: Ino) -> Option<Place<'_>> {
        self.change(|list| {
            list.inos.remove(&ino).then(|| {
                list.promised += 1;
                Place(self)
            })
        })
    }
    /// Removes an orphan from the list, if it is listed.
    pub(crate) fn remove(&self, ino: Ino) {
        self.change(|list| list.inos.remove(&ino));
    }
    /// True if the inode is in the list.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.listed.load(Ordering::Acquire) > 0 && self.list.lock().inos.contains(&ino)
    }
    /// True if there are no orphans.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().inos.is_empty()
    }
    /// Locks the list.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.list.lock()
    }
    /// All orphans.
    pub(crate) fn all(&self) -> Vec<Ino> {
        self.list.lock().inos.iter().copied().collect()
    }
}
