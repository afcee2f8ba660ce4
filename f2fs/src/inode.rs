//! Which inodes are in use, which references do they have, and which locks?
//!
//! An [`Inode`] without dirty contents and without a user can be dropped and loaded again at any time. References
//! (`lookup`, `open`) are counted separately, in a few bytes each: if a kernel caches a million inodes, this process
//! does not keep a million in memory.
//!
//! State of an inode in memory: [`dir_block`], a directory's blocks; `balance`, `heat`, `luck`, `known`, `frames`, the
//! input for delta decisions; `overwrite`, whether an fsync overwrites in place; `set`, uncommitted writes. `gone`: names of
//! deleted files.

pub(crate) mod balance;
pub mod dir_block;
mod find;
pub(crate) mod frames;
pub(crate) mod gone;
pub(crate) mod heat;
pub(crate) mod known;
pub(crate) mod luck;
pub(crate) mod overwrite;
pub(crate) mod set;

use crate::context::Context;
use crate::node::Nodes;
use crate::orphan::Orphans;
use crate::segment::Logs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use format::inode::InodeFlags;
use format::{Block, Ino};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use vfs::FileKind;

use crate::error::Result;
use crate::node::cache::Node;
use crate::replacement::Cache;
use balance::{Balance, Made};
use dir_block::DirBlock;
use heat::Heat;
use known::Frames;
use luck::Luck;
use set::WriteSet;

/// The inodes of a mounted volume that are in use, and those without a name.
pub struct Inodes {
    ctx: Arc<Context>,
    logs: Arc<Logs>,
    nodes: Arc<Nodes>,
    pub(crate) table: InodeTable,
    pub(crate) orphans: Orphans,
}

impl Inodes {
    pub(crate) fn new(ctx: &Arc<Context>, logs: &Arc<Logs>, nodes: &Arc<Nodes>, orphans: Orphans) -> Arc<Self> {
        Arc::new(Inodes {
            ctx: ctx.clone(),
            logs: logs.clone(),
            nodes: nodes.clone(),
            table: InodeTable::new(ctx.options.node_cache),
            orphans,
        })
    }
}

const SHARDS: usize = 16;
/// Minimum of idle inodes kept.
const CACHED: usize = 8192;

/// Data guarded by an inode's lock.
#[derive(Default)]
pub struct Content {
    /// Dirty blocks of a regular file or symlink, by file block.
    pub pages: BTreeMap<u64, Box<Block>>,
    /// Blocks of a directory, clean and dirty.
    pub dir: FxHashMap<u64, DirBlock>,
    /// How often pages of a regular file recently became deltas.
    pub(crate) luck: Luck,
    /// What deltas of the file saved.
    pub(crate) balance: Balance,
    /// What the running fsync wrote.
    pub(crate) made: Made,
    /// Known database pages in a journal or log.
    pub(crate) frames: Frames,
    /// Writes that become durable at once or not at all.
    pub(crate) set: Option<Box<WriteSet>>,
}

/// An inode in use.
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Its file kind.
    pub kind: FileKind,
    /// Its node.
    pub node: Arc<Node>,
    /// Guards contents, size and block map: shared for reading, exclusive for changes.
    pub content: RwLock<Content>,
    /// Number of dirty blocks in `content`.
    pub dirty: AtomicUsize,
    /// Size in bytes that programs see while `content` has a set; 0 otherwise. Never less than the size.
    pub(crate) size_in_set: AtomicU64,
    /// Locks for operations of several steps on the file.
    pub(crate) steps: Steps,
    /// How often it is read and written.
    pub(crate) heat: Heat,
}

/// Locks for operations of several steps, between which `cp` and [`Inode::content`] are released. They are taken before
/// all others, in this order.
#[derive(Default)]
pub(crate) struct Steps {
    /// Held by the one operation that sets the size or changes the map of a file (`truncate`, `fallocate`).
    pub(crate) turn: Mutex<()>,
    /// Exclusive while blocks move inside the file, shared to read and write contents: no reader sees a file with half
    /// of its blocks moved.
    pub(crate) shift: RwLock<()>,
}

impl Inode {
    pub(crate) fn new(ino: Ino, kind: FileKind, node: Arc<Node>) -> Self {
        let (content, dirty, steps) = (RwLock::default(), AtomicUsize::new(0), Steps::default());
        let size_in_set = AtomicU64::new(0);
        Inode { ino, kind, node, content, dirty, size_in_set, steps, heat: Heat::default() }
    }
}

#[derive(Default, Clone, Copy)]
struct Refs {
    lookups: u64,
    opens: u64,
}

/// All inodes in use and all references.
pub struct InodeTable {
    shards: [RwLock<Cache<Ino, Arc<Inode>>>; SHARDS],
    refs: [Mutex<FxHashMap<Ino, Refs>>; SHARDS],
    /// Inodes with dirty contents.
    pub dirty: Mutex<BTreeMap<Ino, Arc<Inode>>>,
    /// Directory blocks in memory.
    pub(crate) dir_blocks: AtomicU64,
    /// Names of deleted inodes.
    pub(crate) gone: gone::Gone,
}

impl InodeTable {
    /// A table that keeps at least as many idle inodes as there are clean nodes in the cache.
    pub(crate) fn new(nodes: usize) -> Self {
        let each = nodes.max(CACHED) / SHARDS;
        InodeTable {
            shards: std::array::from_fn(|_| RwLock::new(Cache::new(each, each / 64))),
            refs: std::array::from_fn(|_| Mutex::default()),
            dirty: Mutex::default(),
            dir_blocks: AtomicU64::new(0),
            gone: gone::Gone::default(),
        }
    }
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shards[ino.0 as usize % SHARDS].read().get(&ino).cloned()
    }
    /// Directories in use.
    pub(crate) fn directories(&self) -> Vec<Arc<Inode>> {
        self.of_kind(FileKind::Directory)
    }
    /// Inodes of one kind in memory.
    pub(crate) fn of_kind(&self, kind: FileKind) -> Vec<Arc<Inode>> {
        let of = |s: &RwLock<Cache<Ino, Arc<Inode>>>| -> Vec<_> {
            s.read().values().filter(|i| i.kind == kind).cloned().collect()
        };
        self.shards.iter().flat_map(of).collect()
    }
    /// Adds an inode to the table. This may drop idle inodes with their directory blocks.
    pub(crate) fn insert(&self, inode: Inode) -> Arc<Inode> {
        let ino = inode.ino;
        let mut shard = self.shards[ino.0 as usize % SHARDS].write();
        if let Some(i) = shard.get(&ino) {
            return i.clone();
        }
        let inode = Arc::new(inode);
        shard.insert(ino, inode.clone());
        let dropped = shard.make_room(|i| Arc::strong_count(i) > 1 || i.dirty.load(Ordering::Acquire) > 0);
        drop(shard);
        for old in dropped.iter().flatten().filter(|i| i.kind == FileKind::Directory) {
            let gone = old.content.try_read().map_or(0, |c| c.dir.len());
            self.dir_blocks.fetch_sub(gone as u64, Ordering::Relaxed);
        }
        inode
    }
    pub(crate) fn drop_inode(&self, ino: Ino) {
        self.shards[ino.0 as usize % SHARDS].write().remove(&ino);
        self.dirty.lock().remove(&ino);
    }
    fn count(&self, ino: Ino, f: impl FnOnce(&mut Refs)) -> bool {
        let mut refs = self.refs[ino.0 as usize % SHARDS].lock();
        let r = refs.entry(ino).or_default();
        f(r);
        let none = r.lookups == 0 && r.opens == 0;
        if none {
            refs.remove(&ino);
        }
        none
    }
    /// Takes a lookup reference.
    pub fn hold(&self, ino: Ino) {
        self.count(ino, |r| r.lookups += 1);
    }
    /// Drops lookup references; true if no reference of any kind is left.
    pub fn unhold(&self, ino: Ino, n: u64) -> bool {
        self.count(ino, |r| r.lookups = r.lookups.saturating_sub(n))
    }
    /// Counts a handle.
    pub fn open(&self, ino: Ino) {
        self.count(ino, |r| r.opens += 1);
    }
    /// Drops a handle; true if no reference of any kind is left.
    pub fn close(&self, ino: Ino) -> bool {
        self.count(ino, |r| r.opens = r.opens.saturating_sub(1))
    }
    /// True if the inode has any reference.
    pub fn is_held(&self, ino: Ino) -> bool {
        self.refs[ino.0 as usize % SHARDS].lock().contains_key(&ino)
    }
}

impl Inode {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.node.inode(|r| r.i_size.get())
    }

    /// Size in bytes that programs see: with uncommitted writes.
    pub(crate) fn shown_size(&self) -> u64 {
        self.size().max(self.size_in_set.load(Ordering::Acquire))
    }

    /// Refuses changes that both immutable and append-only inodes forbid.
    pub(crate) fn check_unsealed(&self) -> Result<()> {
        if self.node.inode(|r| r.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        Ok(())
    }
}
