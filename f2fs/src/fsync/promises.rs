//! What must fsync know of each inode since the last checkpoint?

use std::hash::BuildHasher;

use format::{Block, Ino};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

/// Sets of inodes and names by which fsync decides whether nodes suffice or a checkpoint is needed.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Inodes of which contents or nodes were written and no fsync has marked the inode block since. A flush alone
    /// does not make such an inode recoverable: its next fsync must write the inode block again.
    pub(super) strays: Mutex<FxHashSet<Ino>>,
    /// Inodes that lost nodes.
    pub(super) reshaped: Mutex<FxHashSet<Ino>>,
    /// Inode blocks as an fsync last wrote them, without times.
    pub(super) written: Mutex<FxHashMap<Ino, Box<Block>>>,
    /// Inodes that carry the mark of an unknown parent (`LOST_PINO`), but whose recorded parent and name are right
    /// and durable: a checkpoint followed their last rename.
    pub(super) vouched: Mutex<FxHashSet<Ino>>,
    pub(super) vacated: Mutex<Vacated>,
}

/// *Vacated* names: in the tree of the last checkpoint each leads to a directory, or to a file that lives on elsewhere;
/// since then it does not. No other names matter, since roll-forward looks only at the name that it restores.
#[derive(Debug, Default)]
pub(super) struct Vacated {
    /// Hashes of directory and name. Two names with the same hash cost a checkpoint, nothing worse.
    names: FxHashSet<u64>,
    /// There are more vacated names than are remembered: every name counts as vacated.
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

/// How many vacated names are remembered.
const MOST_VACATED: usize = 1 << 16;
/// How many inodes in `vouched` are remembered. The next fsync of any other writes a checkpoint.
const MOST_VOUCHED: usize = 1 << 16;
/// How many inode blocks are remembered: 1 MiB.
pub(super) const MOST_WRITTEN: usize = 256;

impl Promises {
    /// Contents or nodes of an inode were written without an fsync's mark.
    pub(crate) fn stray(&self, ino: Ino) {
        self.strays.lock().insert(ino);
    }
    /// An fsync writes the inode block, the last of what it writes. The caller holds the lock that orders the writes of
    /// nodes, so a later write of the inode is also noted later.
    pub(crate) fn vouch_for(&self, ino: Ino) {
        self.strays.lock().remove(&ino);
    }
    /// The parent and name that an inode records may be wrong from now on.
    pub(crate) fn doubt(&self, ino: Ino) {
        self.vouched.lock().remove(&ino);
    }
    /// A name was taken from a directory, or from a file that lives on under another. A new file synced under that name
    /// before the next checkpoint would displace the old owner when roll-forward replays the name.
    pub(crate) fn vacated(&self, dir: Ino, name: &[u8]) {
        self.vacated.lock().add(dir, name);
    }
    /// An inode lost a node.
    pub(crate) fn reshaped(&self, ino: Ino) {
        self.reshaped.lock().insert(ino);
    }
    /// A checkpoint made everything durable. Inodes in `settled` were renamed before it, so it recorded their names.
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
