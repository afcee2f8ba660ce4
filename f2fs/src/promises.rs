//! What must fsync know about each inode since the last checkpoint?

pub(crate) mod flush_gate;
pub(crate) mod replayed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use format::inode::{Advise, RawInode, extra_end};
use format::node::delta::Stamp;
use format::node::{self, Footer};
use format::{Block, BlockAddr, Ino};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::fields::{put_stamp, stamp_of};
use replayed::ReplayedNames;

/// An inode as it is, or will soon be, durable: in the checkpoint, or in the chain after it.
#[derive(Debug)]
struct Written {
    /// Its block without the fields of a [`Stamp`] and those that roll-forward computes ([`unstamped`]).
    block: Box<Block>,
    /// Its size when the block was written.
    size: u64,
    /// The last recorded stamp, in the block or in a delta node.
    stamp: Stamp,
    /// Since then the block was written without an fsync mark, perhaps with other contents.
    stray: bool,
}

impl Written {
    fn of(bytes: &Block) -> Written {
        let stamp = stamp_of(RawInode::of(bytes));
        Written { block: unstamped(bytes), size: stamp.size, stamp, stray: false }
    }
}

/// How an inode differs from its state after roll-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// Not at all, or only in times that `fdatasync` may lose.
    Same,
    /// In fields that a delta node can record.
    Stamp,
    /// In other fields, or unknown.
    More,
}

/// A copy of an inode block without the fields of a [`Stamp`], those that change with every write of the block, and
/// those that roll-forward computes: block count, node numbers, first delta node, cached extent.
fn unstamped(bytes: &Block) -> Box<Block> {
    let mut b = Box::new(*bytes);
    let footer = node::footer(&b);
    node::set_footer(&mut b, &Footer { fsync: false, dentry: false, cp_ver: 0, next: BlockAddr::NULL, ..footer });
    let r = RawInode::of_mut(&mut b);
    put_stamp(r, &Stamp::default());
    (r.i_atime, r.i_atime_nsec) = (0.into(), 0.into());
    r.i_blocks = 0.into();
    r.i_nid = [0.into(); 5];
    r.i_ext = [0.into(); 3];
    let checksum = r.extra_isize() >= extra_end::CHECKSUM;
    if let Some(e) = r.extra_mut().filter(|_| checksum) {
        e.i_inode_checksum = 0.into();
    }
    b
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) dir: Ino,
    pub(crate) name: Box<[u8]>,
}

impl Sighting {
    /// The name recorded in an inode.
    pub(crate) fn recorded(r: &RawInode) -> Self {
        Sighting { dir: Ino(r.i_pino.get()), name: r.name().into() }
    }
}

/// True if an inode has one name, but may not record it correctly.
pub(crate) fn is_unsure(r: &RawInode) -> bool {
    r.advise().contains(Advise::LOST_PINO) && r.i_links.get() == 1
}

/// State from which fsync decides whether nodes suffice or a checkpoint is needed.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Inodes with contents or nodes written after the last fsync mark in the inode block. A flush alone does not make
    /// such an inode recoverable: its next fsync must write the inode block again.
    pub(crate) strays: Mutex<FxHashSet<Ino>>,
    /// Inodes renamed since a checkpoint last confirmed their recorded parent and name.
    pub(crate) renamed: Mutex<FxHashSet<Ino>>,
    /// Inodes that lost nodes.
    pub(crate) reshaped: Mutex<FxHashSet<Ino>>,
    /// Inodes recently written by an fsync, as roll-forward would restore them.
    written: Mutex<FxHashMap<Ino, Written>>,
    /// Inodes with the mark of an unknown parent (`LOST_PINO`) whose recorded parent and name are nevertheless correct
    /// and durable: a checkpoint followed their last rename, or has the name (`fsync::place`).
    pub(crate) vouched: Mutex<FxHashSet<Ino>>,
    /// Where inodes with that mark were found under a name that they do not record.
    sightings: Mutex<FxHashMap<Ino, Sighting>>,
    /// On a volume with deltas: inodes with blocks overwritten in place since the last flush, each with the number of
    /// its last overwrite. A delta relative to such a block may become durable before the block does.
    pub(crate) overwritten: Mutex<FxHashMap<Ino, u64>>,
    /// Inodes with blocks written by an fsync and not flushed yet, each with the number of its last such write.
    unflushed: Mutex<FxHashMap<Ino, u64>>,
    /// The next number for `overwritten` and `unflushed`.
    numbers: AtomicU64,
    /// Whether the device was flushed since the mount.
    flushed: AtomicBool,
    /// The names that roll-forward leaves.
    pub(crate) names: Mutex<ReplayedNames>,
}

/// Limit of `vouched`. The next fsync of any other marked inode writes a checkpoint.
const MOST_VOUCHED: usize = 1 << 16;
/// Limit of `sightings`.
const MOST_SIGHTINGS: usize = 1 << 12;
/// Limit of remembered inode blocks: 1 MiB.
const MOST_WRITTEN: usize = 256;

impl Promises {
    /// Notes that contents or nodes of an inode were written without an fsync mark.
    pub(crate) fn stray(&self, ino: Ino) {
        self.strays.lock().insert(ino);
    }
    /// Notes that an fsync writes the inode block, its last write. The caller holds the lock that orders node writes,
    /// so a later write of the inode is also noted later.
    pub(crate) fn vouch_for(&self, ino: Ino) {
        self.strays.lock().remove(&ino);
    }
    /// Notes that the recorded parent and name of an inode may now be wrong.
    pub(crate) fn doubt(&self, ino: Ino) {
        self.vouched.lock().remove(&ino);
    }
    /// Notes that the recorded parent and name of an inode match the checkpoint. The caller holds the parent's lock.
    pub(crate) fn vouch_for_place(&self, ino: Ino) {
        self.sightings.lock().remove(&ino);
        let mut vouched = self.vouched.lock();
        if vouched.len() < MOST_VOUCHED {
            vouched.insert(ino);
        }
    }
    /// Notes that an inode was found under a name that it does not record.
    pub(crate) fn sighted(&self, ino: Ino, at: Sighting) {
        let mut sightings = self.sightings.lock();
        if sightings.len() >= MOST_SIGHTINGS
            && let Some(any) = sightings.keys().next().copied()
        {
            sightings.remove(&any);
        }
        sightings.insert(ino, at);
    }
    /// Where an inode was found.
    pub(crate) fn sighting(&self, ino: Ino) -> Option<Sighting> {
        self.sightings.lock().get(&ino).cloned()
    }
    /// True if a block with these bytes may restore its inode's name from the chain.
    pub(crate) fn may_put_name(&self, bytes: &Block) -> bool {
        let raw = RawInode::of(bytes);
        let ino = node::footer(bytes).ino;
        self.names.lock().allows(ino, Ino(raw.i_pino.get()), raw.name())
    }
    /// Notes that the chain has a block that names an inode.
    pub(crate) fn name_is_put(&self, bytes: &Block, addr: BlockAddr) {
        let raw = RawInode::of(bytes);
        let ino = node::footer(bytes).ino;
        self.names.lock().put(ino, Ino(raw.i_pino.get()), raw.name(), addr);
    }
    /// Notes that blocks of an inode were overwritten in place. The caller holds the inode's lock exclusively.
    pub(crate) fn overwrote(&self, ino: Ino) {
        self.overwritten.lock().insert(ino, self.next_number());
    }
    /// A number never used before: a flush must not count for a write that came while it ran.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
    /// Notes that an fsync of the inode wrote to the device. The caller holds the inode's lock since before the writes.
    pub(crate) fn wrote(&self, ino: Ino) {
        self.unflushed.lock().insert(ino, self.next_number());
    }
    /// The number of an inode's last write by an fsync that no flush has followed. A flush that begins now covers it.
    pub(crate) fn last_write(&self, ino: Ino) -> Option<u64> {
        self.unflushed.lock().get(&ino).copied()
    }
    /// True if a flush followed all that fsyncs of the inode wrote. What an earlier mount wrote is unknown until the
    /// first flush.
    pub(crate) fn is_flushed(&self, ino: Ino) -> bool {
        self.flushed.load(Ordering::Acquire) && !self.unflushed.lock().contains_key(&ino)
    }
    /// Notes a flush that began when the inode's last write had this number.
    pub(crate) fn flushed(&self, ino: Ino, last: Option<u64>) {
        self.flushed.store(true, Ordering::Release);
        let mut unflushed = self.unflushed.lock();
        if last.is_some() && unflushed.get(&ino).copied() == last {
            unflushed.remove(&ino);
        }
    }
    /// Notes that an inode lost a node.
    pub(crate) fn reshaped(&self, ino: Ino) {
        self.reshaped.lock().insert(ino);
    }
    /// Notes that an fsync writes the inode block with these bytes. The caller holds the node's lock and the lock that
    /// orders node writes.
    pub(crate) fn inode_synced(&self, ino: Ino, bytes: &Block) {
        let mut written = self.written.lock();
        if written.len() >= MOST_WRITTEN
            && !written.contains_key(&ino)
            && let Some(any) = written.keys().next().copied()
        {
            written.remove(&any);
        }
        written.insert(ino, Written::of(bytes));
    }
    /// Notes that an inode block is written without an fsync mark: a later mark would cause its replay. Locks as above.
    pub(crate) fn inode_strayed(&self, ino: Ino) {
        if let Some(w) = self.written.lock().get_mut(&ino) {
            w.stray = true;
        }
    }
    /// Notes that a delta node of the inode is written with an fsync mark and this stamp.
    pub(crate) fn stamped(&self, ino: Ino, stamp: &Stamp) {
        if let Some(w) = self.written.lock().get_mut(&ino) {
            w.stamp = *stamp;
        }
    }
    /// Whether a remembered fsync wrote the inode.
    pub(crate) fn has_written(&self, ino: Ino) -> bool {
        self.written.lock().contains_key(&ino)
    }
    /// How an inode with these bytes differs from its state after roll-forward. The caller holds the inode's lock and
    /// its node's lock, as writers of the node do.
    pub(crate) fn since(&self, ino: Ino, bytes: &Block, data_only: bool) -> Since {
        let written = self.written.lock();
        let Some(w) = written.get(&ino) else { return Since::More };
        let stamp = stamp_of(RawInode::of(bytes));
        // Roll-forward frees blocks behind a smaller size only if it replays the inode block.
        if w.stray || stamp.size < w.size || unstamped(bytes) != w.block {
            return Since::More;
        }
        let same = if data_only { stamp.size == w.stamp.size } else { stamp == w.stamp };
        if same { Since::Same } else { Since::Stamp }
    }
    /// Called after a checkpoint made everything durable, including the names of renamed inodes: no earlier promise is
    /// left to keep. `read` passes on the block of an inode in memory; the caller prevents all changes.
    pub(crate) fn kept(&self, read: impl Fn(Ino, &dyn Fn(Ino, &Block))) {
        let settled = std::mem::take(&mut *self.renamed.lock());
        self.strays.lock().clear();
        self.reshaped.lock().clear();
        let known = std::mem::take(&mut *self.written.lock());
        for ino in known.into_keys() {
            read(ino, &|ino, bytes| self.inode_synced(ino, bytes));
        }
        self.overwritten.lock().clear();
        self.unflushed.lock().clear();
        self.flushed.store(true, Ordering::Release);
        self.names.lock().clear();
        let mut vouched = self.vouched.lock();
        if vouched.len() + settled.len() <= MOST_VOUCHED {
            vouched.extend(settled);
        }
    }
}
