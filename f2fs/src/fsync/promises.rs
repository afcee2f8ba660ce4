//! What must fsync know of each inode since the last checkpoint?

use format::{Block, Ino};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::replayed::ReplayedNames;

/// What fsync decides by, whether nodes suffice or a checkpoint is needed.
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
    /// On a volume with deltas, inodes of which blocks were overwritten in place that no flush has followed yet, each with
    /// the number of the last overwriting. A delta over such a block may become durable before the block does.
    pub(super) overwritten: Mutex<FxHashMap<Ino, u64>>,
    /// Which names roll-forward leaves.
    pub(crate) names: Mutex<ReplayedNames>,
}

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
    /// Blocks of an inode were overwritten in place. The caller holds the inode's lock exclusively.
    pub(crate) fn overwrote(&self, ino: Ino) {
        *self.overwritten.lock().entry(ino).or_default() += 1;
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
        self.overwritten.lock().clear();
        self.names.lock().clear();
        let mut vouched = self.vouched.lock();
        if vouched.len() + settled.len() <= MOST_VOUCHED {
            vouched.extend(settled);
        }
    }
}
