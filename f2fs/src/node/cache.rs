//! Nodes in memory.
//!
//! A node is shared (`Arc`) and guards its bytes with its own lock. The cache drops a node only if it is clean and has
//! no other user, so two copies of one node never exist. The cache's size is bounded by the capacity given to
//! [`NodeCache::new`], plus the nodes that are dirty or in use.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use format::inode::RawInode;
use format::{Block, Ino, Nid};
use lru::LruCache;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxBuildHasher;

use crate::segment::Pressure;

const SHARDS: usize = 16;

/// One node in memory.
pub struct Node {
    /// Its number.
    pub nid: Nid,
    /// The inode it belongs to.
    pub ino: Ino,
    bytes: RwLock<Box<Block>>,
    dirty: AtomicBool,
    /// How often cleaning moved blocks whose addresses are here.
    moves: AtomicU32,
}

impl Node {
    fn new(nid: Nid, ino: Ino, bytes: Box<Block>) -> Self {
        Node { nid, ino, bytes: RwLock::new(bytes), dirty: AtomicBool::new(false), moves: AtomicU32::new(0) }
    }
    /// Its bytes.
    pub fn read(&self) -> RwLockReadGuard<'_, Box<Block>> {
        self.bytes.read()
    }
    /// Its bytes, to be changed; call [`NodeCache::mark_dirty`] too.
    pub fn write(&self) -> RwLockWriteGuard<'_, Box<Block>> {
        self.bytes.write()
    }
    /// Reads it as an inode.
    pub fn inode<T>(&self, f: impl FnOnce(&RawInode) -> T) -> T {
        f(RawInode::of(&self.read()))
    }
    /// Notes that cleaning moved a block whose address is here. Call it with the bytes locked.
    pub(crate) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }
    /// How often cleaning moved blocks whose addresses are here, while it was in memory.
    pub(crate) fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }
    /// True if it must be written.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }
}

type Shard = Mutex<LruCache<Nid, Arc<Node>, FxBuildHasher>>;
type DirtyShard = Mutex<BTreeMap<(Ino, Nid), Arc<Node>>>;

/// All nodes in memory.
pub struct NodeCache {
    shards: [Shard; SHARDS],
    dirty: [DirtyShard; SHARDS],
    per_shard: usize,
    pressure: Arc<Pressure>,
}

impl NodeCache {
    /// A cache that keeps about `capacity` clean nodes.
    pub fn new(capacity: usize, pressure: Arc<Pressure>) -> Self {
        NodeCache {
            shards: std::array::from_fn(|_| Mutex::new(LruCache::unbounded_with_hasher(FxBuildHasher))),
            dirty: std::array::from_fn(|_| Mutex::default()),
            per_shard: NonZeroUsize::new(capacity / SHARDS).map_or(1, NonZeroUsize::get),
            pressure,
        }
    }

    fn shard(&self, nid: Nid) -> &Shard {
        &self.shards[nid.0 as usize % SHARDS]
    }
    fn dirty_shard(&self, ino: Ino) -> &DirtyShard {
        &self.dirty[ino.0 as usize % SHARDS]
    }

    /// A node that is in memory.
    pub fn get(&self, nid: Nid) -> Option<Arc<Node>> {
        self.shard(nid).lock().get(&nid).cloned()
    }

    /// Puts a new node into memory; if it is there already, returns that one.
    pub fn insert(&self, nid: Nid, ino: Ino, bytes: Box<Block>) -> Arc<Node> {
        let mut shard = self.shard(nid).lock();
        match shard.get(&nid) {
            Some(n) => n.clone(),
            None => self.put(&mut shard, nid, ino, bytes),
        }
    }

    /// Puts a node read from the device into memory; if it is there already, returns that one. `current` says whether
    /// the bytes are still the node's: since the read, another thread may have loaded, changed, written and dropped the
    /// node. In that case the cache stays as it is, and the answer is `None`.
    pub fn insert_read(
        &self,
        nid: Nid,
        ino: Ino,
        bytes: Box<Block>,
        current: impl FnOnce() -> bool,
    ) -> Option<Arc<Node>> {
        let mut shard = self.shard(nid).lock();
        if let Some(n) = shard.get(&nid) {
            return Some(n.clone());
        }
        // Under the shard's lock: a node's address changes only while the node is in memory.
        current().then(|| self.put(&mut shard, nid, ino, bytes))
    }

    fn put(
        &self,
        shard: &mut LruCache<Nid, Arc<Node>, FxBuildHasher>,
        nid: Nid,
        ino: Ino,
        bytes: Box<Block>,
    ) -> Arc<Node> {
        let node = Arc::new(Node::new(nid, ino, bytes));
        shard.put(nid, node.clone());
        // Makes room by looking at a few of the oldest nodes; those in use or dirty become young again. A new inode's
        // node comes before an idle inode releases its own, so without a margin the oldest would always be in use.
        for _ in 0..4 {
            if shard.len() <= self.per_shard + self.per_shard / 16 {
                break;
            }
            if let Some((nid, old)) = shard.pop_lru()
                && (Arc::strong_count(&old) > 1 || old.is_dirty())
            {
                shard.put(nid, old);
            }
        }
        node
    }

    /// Notes that a node's bytes changed.
    pub fn mark_dirty(&self, node: &Arc<Node>) {
        if !node.dirty.swap(true, Ordering::AcqRel) {
            self.pressure.nodes.fetch_add(1, Ordering::Relaxed);
            self.dirty_shard(node.ino).lock().insert((node.ino, node.nid), node.clone());
        }
    }

    /// Notes that a node's bytes are being written as they are; a later change marks it dirty again. Call it with the
    /// bytes locked.
    pub fn mark_clean(&self, node: &Node) {
        if node.dirty.swap(false, Ordering::AcqRel) {
            self.pressure.nodes.fetch_sub(1, Ordering::Relaxed);
            self.dirty_shard(node.ino).lock().remove(&(node.ino, node.nid));
        }
    }

    /// Forgets a node that no longer exists. Call it with the node's bytes locked.
    pub fn drop_node(&self, node: &Node) {
        self.mark_clean(node);
        self.shard(node.nid).lock().pop(&node.nid);
    }

    /// Every dirty node, in order of number, as Linux writes them (the index of the node mapping): nodes made at about
    /// the same time become neighbours in the log.
    pub fn dirty(&self) -> Vec<Arc<Node>> {
        let mut all: Vec<_> = self.dirty.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect();
        all.sort_unstable_by_key(|n| n.nid);
        all
    }

    /// The dirty nodes of one inode.
    pub fn dirty_of(&self, ino: Ino) -> Vec<Arc<Node>> {
        let range = (ino, Nid(0))..=(ino, Nid(u32::MAX));
        self.dirty_shard(ino).lock().range(range).map(|(_, n)| n.clone()).collect()
    }

    /// How many are dirty.
    pub fn dirty_count(&self) -> u64 {
        self.pressure.nodes.load(Ordering::Relaxed)
    }
}
