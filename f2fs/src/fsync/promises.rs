//! What must fsync know of inodes since the last checkpoint?

use std::hash::BuildHasher;

use format::{Block, Ino};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

/// What fsync must know of inodes since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Something of theirs was written that no fsync of theirs vouched for.
    pub(super) strays: Mutex<FxHashSet<Ino>>,
    /// They lost nodes.
    pub(super) reshaped: Mutex<FxHashSet<Ino>>,
    /// What their inode blocks held, times aside, when an fsync last wrote them.
    pub(super) written: Mutex<FxHashMap<Ino, Box<Block>>>,
    /// Inodes marked as of unknown parent whose parent and name are right and durable.
    pub(super) vouched: Mutex<FxHashSet<Ino>>,
    pub(super) vacated: Mutex<Vacated>,
}

/// Names that lead, in the tree of the last checkpoint, to a directory or to what lives on elsewhere, and do so no
/// more. Roll-forward looks at no name but the one it restores, so no other name matters.
#[derive(Debug, Default)]
pub(super) struct Vacated {
    /// Hashes of directory and name; two that agree cost a checkpoint, no more.
    names: FxHashSet<u64>,
    /// There are more than are remembered: every name is taken for one of them.
    any: bool,
}

impl Vacated {
    fn hash(dir: Ino, name: &[u8]) -> u64 {
        FxBuildHasher.hash_one((dir.0, name))
    }
    fn add(&mut self, dir: Ino, name: &[u8]) {
        if self.names.len() >= MOST_VACATED {
            self.any = true;
        } else {
            self.names.insert(Self::hash(dir, name));
        }
    }
    pub(super) fn contains(&self, dir: Ino, name: &[u8]) -> bool {
        self.any || self.names.contains(&Self::hash(dir, name))
    }
}

/// Vacated names remembered.
const MOST_VACATED: usize = 1 << 16;
/// Inodes vouched for that are remembered; the others' next fsyncs write checkpoints.
const MOST_VOUCHED: usize = 1 << 16;
/// Inode blocks remembered: 1 MiB.
pub(super) const MOST_WRITTEN: usize = 256;

impl Promises {
    /// Contents or nodes of an inode were written without an fsync.
    pub(crate) fn stray(&self, ino: Ino) {
        self.strays.lock().insert(ino);
    }
    /// An fsync writes the inode block, the last of what it writes. The caller orders the writes of nodes, so that
    /// what is written of the inode later is noted later.
    pub(crate) fn vouch_for(&self, ino: Ino) {
        self.strays.lock().remove(&ino);
    }
    /// The name an inode records may not be its own any more.
    pub(crate) fn doubt(&self, ino: Ino) {
        self.vouched.lock().remove(&ino);
    }
    /// A directory lost a name, or a file that lives on under another. Who is synced under that name before
    /// the next checkpoint would displace it if roll-forward replayed the name.
    pub(crate) fn vacated(&self, dir: Ino, name: &[u8]) {
        self.vacated.lock().add(dir, name);
    }
    /// A node of an inode is gone.
    pub(crate) fn reshaped(&self, ino: Ino) {
        self.reshaped.lock().insert(ino);
    }
    /// A checkpoint made everything durable; `settled` were renamed before it.
    pub(crate) fn kept(&self, settled: FxHashSet<Ino>) {
        self.strays.lock().clear();
        self.reshaped.lock().clear();
        self.written.lock().clear();
        *self.vacated.lock() = Vacated::default();
        let mut vouched = self.vouched.lock();
        if vouched.len() + settled.len() <= MOST_VOUCHED {
            vouched.extend(settled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_given_up_are_told_from_others_until_there_are_too_many() {
        let mut names = Vacated::default();
        names.add(Ino(3), b"a");
        assert!(names.contains(Ino(3), b"a"));
        assert!(!names.contains(Ino(4), b"a") && !names.contains(Ino(3), b"b"));
        for i in 0..MOST_VACATED {
            names.add(Ino(5), &i.to_le_bytes());
        }
        assert!(names.contains(Ino(4), b"a"), "none is forgotten");
        assert_eq!(names.names.len(), MOST_VACATED);
    }
}
