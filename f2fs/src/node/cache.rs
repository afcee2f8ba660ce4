//! Which nodes are in memory?
//!
//! A node is shared (`Arc`) and guards its bytes with its own lock. The cache drops a node only if it is clean and has
//! no other user, so two copies of one node never exist. The cache's size is bounded by the capacity given to
//! [`NodeCache::new`], plus the nodes that are dirty or in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use format::inode::RawInode;
use format::{Block, Ino, Nid, node};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::index::Index;
use crate::error::Result;
use crate::replacement::Cache;
use crate::segment::Pressure;

const SHARDS: usize = 16;
/// Buffers of dropped nodes that a shard keeps for reuse.
const SPARE: usize = 4;

/// One node in memory.
pub struct Node {
    /// Its number.
    pub nid: Nid,
    /// The inode it belongs to.
    pub ino: Ino,
    bytes: RwLock<Box<Block>>,
    dirty: AtomicBool,
    /// True if something else than cleaning changed it since it was last written.
    changed: AtomicBool,
    /// How often cleaning moved blocks whose addresses are in this node.
    moves: AtomicU32,
    /// In an inode: the live entries of its delta nodes, cached until one of them changes.
    deltas: Mutex<Option<Arc<Index>>>,
    /// In an inode: deltas applied to read its file, not on its account yet.
    applied: AtomicU32,
}

impl Node {
    fn new(nid: Nid, ino: Ino, bytes: Box<Block>) -> Self {
        Node {
            nid,
            ino,
            bytes: RwLock::new(bytes),
            dirty: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            moves: AtomicU32::new(0),
            deltas: Mutex::default(),
            applied: AtomicU32::new(0),
        }
    }
    /// Counts a delta that was applied to read the file of this inode.
    pub(crate) fn applied(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
    }
    /// Those counted since the last call.
    pub(crate) fn take_applied(&self) -> u32 {
        self.applied.swap(0, Ordering::Relaxed)
    }
    /// Its bytes.
    pub fn read(&self) -> RwLockReadGuard<'_, Box<Block>> {
        self.bytes.read()
    }
    /// Its bytes, for changes; call [`NodeCache::mark_dirty`] too.
    pub fn write(&self) -> RwLockWriteGuard<'_, Box<Block>> {
        self.bytes.write()
    }
    /// Reads the node as an inode.
    pub fn inode<T>(&self, f: impl FnOnce(&RawInode) -> T) -> T {
        f(RawInode::of(&self.read()))
    }
    /// Notes that cleaning moved a block whose address is in this node. Call it with the bytes locked.
    pub(crate) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }
    /// How often cleaning moved blocks whose addresses are in this node, since it was loaded.
    pub(crate) fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }
    /// Repeats a read of blocks whose addresses are in this node until cleaning moved none of them during it: an
    /// address looked up before a move may point at a reused block afterwards. The caller's reference keeps the node in
    /// memory, so the counts before and after are comparable.
    pub(crate) fn steady<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let before = self.moves();
            let out = read();
            if self.moves() == before {
                return out;
            }
            // A reader must not wait for cleaning under an inode lock, because checkpoints take inode locks. The loop
            // ends: a round of cleaning moves a bounded number of blocks.
            std::thread::yield_now();
        }
    }
    /// In an inode: the live entries of its delta nodes.
    pub(crate) fn known_deltas(&self) -> Option<Arc<Index>> {
        self.deltas.lock().clone()
    }
    /// Sets the cached live entries of its delta nodes, or clears them.
    pub(crate) fn set_known_deltas(&self, index: Option<Arc<Index>>) {
        *self.deltas.lock() = index;
    }
    /// True if nothing but cleaning changed the node since it was last written.
    pub(crate) fn is_only_moved(&self) -> bool {
        self.is_dirty() && !self.changed.load(Ordering::Relaxed)
    }
    /// True if the node must be written.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }
}

type DirtyShard = Mutex<BTreeMap<(Ino, Nid), Arc<Node>>>;

struct Shard {
    nodes: RwLock<Cache<Nid, Arc<Node>>>,
    /// Buffers of dropped nodes, for reuse.
    spare: Mutex<Vec<Box<Block>>>,
}

/// All nodes in memory.
pub struct NodeCache {
    shards: [Shard; SHARDS],
    dirty: [DirtyShard; SHARDS],
    pressure: Arc<Pressure>,
}

impl NodeCache {
    /// A cache that keeps about `capacity` clean nodes.
    pub fn new(capacity: usize, pressure: Arc<Pressure>) -> Self {
        let each = (capacity / SHARDS).max(1);
        // A new inode's node is added before an idle inode releases its node, so without a margin the eviction
        // candidate would always be in use; for the same reason more nodes than inodes may be young.
        let shard = || Shard { nodes: RwLock::new(Cache::new(each + each / 16, each / 16)), spare: Mutex::default() };
        NodeCache {
            shards: std::array::from_fn(|_| shard()),
            dirty: std::array::from_fn(|_| Mutex::default()),
            pressure,
        }
    }

    fn shard(&self, nid: Nid) -> &Shard {
        &self.shards[nid.0 as usize % SHARDS]
    }
    fn dirty_shard(&self, ino: Ino) -> &DirtyShard {
        &self.dirty[ino.0 as usize % SHARDS]
    }

    /// A node, if it is in memory.
    pub fn get(&self, nid: Nid) -> Option<Arc<Node>> {
        self.shard(nid).nodes.read().get(&nid).cloned()
    }

    /// A buffer to read a node into. Its contents are arbitrary.
    pub fn block(&self, nid: Nid) -> Box<Block> {
        let spare = self.shard(nid).spare.lock().pop();
        spare.unwrap_or_else(|| Box::new([0; 4096]))
    }

    /// Adds a new node; if it is already in memory, returns that one.
    pub fn insert(&self, nid: Nid, ino: Ino, bytes: Box<Block>) -> Arc<Node> {
        // OK to unwrap: only outdated bytes are refused.
        self.insert_read(nid, ino, bytes, || true).unwrap()
    }

    /// Adds a node read from the device; if it is already in memory, returns that one. `current` checks whether the
    /// bytes are still the node's: since the read, another thread may have loaded, changed, written and dropped the
    /// node. In that case the cache is unchanged, and the result is `None`.
    pub fn insert_read(
        &self,
        nid: Nid,
        ino: Ino,
        bytes: Box<Block>,
        current: impl FnOnce() -> bool,
    ) -> Option<Arc<Node>> {
        let shard = self.shard(nid);
        let mut nodes = shard.nodes.write();
        if let Some(n) = nodes.get(&nid) {
            return Some(n.clone());
        }
        // Under the shard's lock: a node's address changes only while the node is in memory.
        if !current() {
            return None;
        }
        let node = Arc::new(Node::new(nid, ino, bytes));
        nodes.insert(nid, node.clone());
        let dropped = nodes.make_room(|n| Arc::strong_count(n) > 1 || n.is_dirty());
        drop(nodes);
        // They had no other user at the time of eviction and cannot get one.
        let mut blocks = dropped.into_iter().flatten().filter_map(Arc::into_inner).map(|n| n.bytes.into_inner());
        if let Some(block) = blocks.next() {
            let mut spare = shard.spare.lock();
            spare.extend(std::iter::once(block).chain(blocks));
            spare.truncate(SPARE);
        }
        Some(node)
    }

    /// Notes that a node's bytes changed.
    pub fn mark_dirty(&self, node: &Arc<Node>) {
        node.changed.store(true, Ordering::Relaxed);
        self.mark_moved(node);
    }

    /// Notes that cleaning moved a node, or blocks whose addresses are in it.
    pub(crate) fn mark_moved(&self, node: &Arc<Node>) {
        if !node.dirty.swap(true, Ordering::AcqRel) {
            self.pressure.nodes.fetch_add(1, Ordering::Relaxed);
            self.dirty_shard(node.ino).lock().insert((node.ino, node.nid), node.clone());
        }
    }

    /// Notes that a node's bytes are being written in their current state; a later change marks it dirty again. Call it
    /// with the bytes locked.
    pub fn mark_clean(&self, node: &Node) {
        node.changed.store(false, Ordering::Relaxed);
        if node.dirty.swap(false, Ordering::AcqRel) {
            self.pressure.nodes.fetch_sub(1, Ordering::Relaxed);
            self.dirty_shard(node.ino).lock().remove(&(node.ino, node.nid));
        }
    }

    /// Forgets a node that no longer exists. Call it with the node's bytes locked.
    pub fn drop_node(&self, node: &Node) {
        self.mark_clean(node);
        self.shard(node.nid).nodes.write().remove(&node.nid);
    }

    /// Every dirty node, ordered by number, as Linux writes them (the index of the node mapping): nodes created at
    /// about the same time become adjacent in the log.
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

    /// The number of nodes in memory, and how many of them hold deltas. Visits each node.
    pub fn count(&self) -> (usize, usize) {
        let of = |shard: &Shard| {
            let nodes = shard.nodes.read();
            let holds = |n: &&Arc<Node>| node::delta::number(node::footer(&n.read()).offset).is_some();
            (nodes.values().count(), nodes.values().filter(holds).count())
        };
        self.shards.iter().map(of).fold((0, 0), |(all, deltas), (a, d)| (all + a, deltas + d))
    }

    /// Number of dirty nodes.
    pub fn dirty_count(&self) -> u64 {
        self.pressure.nodes.load(Ordering::Relaxed)
    }
}
