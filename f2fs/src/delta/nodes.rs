//! Where are the deltas of a file that do not fit in its inode?
//!
//! In its *delta nodes* ([`format::node::delta`]): the inode points to a root, and the root to the others. An fsync
//! puts the deltas of all changed pages into one node and writes only that node. Older deltas of these pages stay in
//! other nodes: of two entries for one page, the one in the node with the higher age is live. Rewriting a node drops
//! its dead entries. Writing a page as a whole block drops all its entries.
//!
//! Some entries are not pages of the file but *kept pages*, on which other entries depend ([`super::kept`]). Their
//! numbers start at [`KEPT`] and stand in place of a file block.
//!
//! Delta nodes change only under the inode's lock, held exclusively, with `cp` shared. [`super::choose::choose_node`]
//! chooses which nodes get the deltas of a writeback.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use format::delta::{self, Codec};
use format::node::delta::{self as in_node, Entry, FIRST_OFFSET, MOST_NODES};
use format::node::kept::{self, KEPT};
use format::{Block, Nid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::choose::{Occupancy, Target, choose_node};
use super::encoded::{Delta, Encoded};
use super::study::Beside;
use crate::delta::Deltas;
use crate::error::{Error, Result};
use crate::inode::known::PINNED;
use crate::node::cache::Node;
use crate::node::index::Index;

/// At this age a file's nodes get no more deltas; the next age would be invalid ([`in_node::verify`]). In normal use no
/// file reaches it.
const OLDEST: u32 = u32::MAX - 1;

/// The delta nodes of one file, with their numbers, for a change. The first is the root.
pub(crate) struct DeltaNodes {
    inode: Arc<Node>,
    nodes: Vec<(usize, Arc<Node>)>,
    /// The root holds no deltas.
    bare_root: bool,
}

/// A live entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) block: u64,
    /// Index of its node in the list.
    at: usize,
    pub(crate) bytes: usize,
}

impl DeltaNodes {
    /// The live entries, one for each page: the file's pages, the kept pages that these depend on, those in `also`, and
    /// those that the next pages may resemble.
    pub(super) fn live(&self, also: &[u32]) -> Vec<Live> {
        /// The age of its node, the entry, the entries it depends on, and the key of a kept page.
        type Found = (u32, Live, Vec<u32>, Option<u32>);
        let mut best: FxHashMap<u32, Found> = FxHashMap::default();
        let mut open: Vec<u32> = Vec::new();
        for (at, (_, node)) in self.nodes.iter().enumerate() {
            let bytes = node.read();
            let age = in_node::age(&bytes);
            for e in in_node::entries(&bytes) {
                let live = Live { block: e.block.into(), at, bytes: e.bytes() };
                let found = || (age, live, kept::pages_used(&e), kept::head(&e).map(|(key, _)| key));
                let known = best.entry(e.block).or_insert_with(found);
                if known.0 < age {
                    *known = found();
                }
            }
        }
        // The newest version of each page, the newest page first.
        let mut newest: FxHashMap<u32, u32> = FxHashMap::default();
        for (block, (.., key)) in &best {
            let Some(key) = key else { continue };
            let id = newest.entry(*key).or_default();
            *id = (*id).max(block - KEPT);
        }
        let mut newest: Vec<u32> = newest.into_values().collect();
        newest.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        open.extend(newest.iter().take(PINNED));
        open.extend(also);
        let mut all: Vec<Live> = Vec::new();
        for (block, (_, live, made_of, _)) in &best {
            if *block < KEPT {
                all.push(*live);
                open.extend(made_of);
            }
        }
        let mut seen = FxHashSet::default();
        while let Some(id) = open.pop() {
            if let Some((_, live, made_of, _)) = id.checked_add(KEPT).and_then(|block| best.get(&block))
                && seen.insert(id)
            {
                all.push(*live);
                open.extend(made_of);
            }
        }
        all.sort_unstable_by_key(|l| l.block);
        all
    }

    /// The highest age of the nodes.
    fn age(&self) -> u32 {
        self.nodes.iter().map(|(_, node)| in_node::age(&node.read())).max().unwrap_or(0)
    }

    /// How many of these deltas fit in a node if they replace its entries for the same pages and all else stays.
    fn fitting(&self, live: &[Live], at: usize, wanted: &[usize], deltas: &[(u64, Encoded)]) -> usize {
        let here: FxHashMap<u64, usize> = live.iter().filter(|l| l.at == at).map(|l| (l.block, l.bytes)).collect();
        let old = |block: &u64| here.get(block).copied().unwrap_or(0);
        let mut used: usize = here.values().sum();
        let capacity = self.capacity(at);
        // All of them are added together, so the space of all entries that they replace is free.
        let after = used + wanted.iter().sum::<usize>() - deltas.iter().map(|(block, _)| old(block)).sum::<usize>();
        if after <= capacity {
            return deltas.len();
        }
        let fits = deltas.iter().zip(wanted).take_while(|((block, _), bytes)| {
            used = used - old(block) + **bytes;
            used <= capacity
        });
        fits.count()
    }

    /// Whether all of these deltas fit if new nodes may be created. Ignores unused space at the ends of nodes.
    fn have_room(&self, live: &[Live], leaving: &FxHashSet<u64>, deltas: &[(u64, Encoded)]) -> bool {
        let wanted: usize = deltas.iter().map(|(_, e)| in_node::HEADER + e.payload.len()).sum();
        let old: usize = self.occupied(live, leaving).iter().map(|o| o.capacity.saturating_sub(o.live)).sum();
        old + (MOST_NODES - self.nodes.len()) * in_node::ROOT_CAPACITY >= wanted
    }

    fn capacity(&self, at: usize) -> usize {
        let (number, node) = &self.nodes[at];
        match *number {
            0 if self.bare_root => 0,
            0 => in_node::ROOT_CAPACITY,
            _ => in_node::capacity(&node.read()),
        }
    }

    /// Bytes of live entries in each node, without those of `leaving` pages.
    fn occupied(&self, live: &[Live], leaving: &FxHashSet<u64>) -> Vec<Occupancy> {
        let one = |at: usize| {
            let node = &self.nodes[at].1;
            let age = in_node::age(&node.read());
            Occupancy { live: 0, capacity: self.capacity(at), dirty: node.is_dirty(), age }
        };
        let mut all: Vec<Occupancy> = (0..self.nodes.len()).map(one).collect();
        for l in live.iter().filter(|l| !leaving.contains(&l.block)) {
            all[l.at].live += l.bytes;
        }
        all
    }
}

impl Deltas {
    /// The root of an inode's delta nodes.
    pub(crate) fn delta_root(&self, inode: &Node) -> Option<Nid> {
        if !self.ctx.may_hold_deltas() {
            return None;
        }
        inode.inode(|r| delta::root(r, self.ctx.sb.features))
    }

    /// A file's delta nodes. The caller holds the inode's lock.
    pub(crate) fn delta_nodes(&self, inode: &Arc<Node>) -> Result<DeltaNodes> {
        let mut out = DeltaNodes {
            inode: inode.clone(),
            nodes: Vec::new(),
            bare_root: self.ctx.options.delta_study.beside == Beside::MetaAndInode,
        };
        let Some(nid) = self.delta_root(inode) else { return Ok(out) };
        let root = self.nodes.child(inode.ino, nid, FIRST_OFFSET)?;
        let others: Vec<(usize, Nid)> = in_node::other_nodes(&root.read()).collect();
        out.nodes.push((0, root));
        for (number, nid) in others {
            out.nodes.push((number, self.nodes.child(inode.ino, nid, FIRST_OFFSET + number as u32)?));
        }
        Ok(out)
    }

    /// The live entries in a file's delta nodes. The caller holds the inode's lock.
    pub(crate) fn deltas(&self, inode: &Arc<Node>) -> Result<Arc<Index>> {
        if self.delta_root(inode).is_none() {
            return Ok(Arc::default());
        }
        if let Some(known) = inode.known_deltas() {
            return Ok(known);
        }
        let nodes = self.delta_nodes(inode)?;
        let index = Arc::new(Index::of(nodes.nodes.iter().map(|(number, node)| (*number, node.nid, node.read()))));
        inode.set_known_deltas(Some(index.clone()));
        Ok(index)
    }

    /// The entry of a block or a kept page.
    pub(super) fn noted_entry(&self, inode: &Node, index: &Index, block: u32) -> Result<Option<Delta>> {
        let Some((number, nid)) = index.node_of(block) else { return Ok(None) };
        let node = self.nodes.child(inode.ino, nid, FIRST_OFFSET + number as u32)?;
        let bytes = node.read();
        let found = in_node::find(&bytes, block);
        Ok(found.map(|e| Delta { block, codec: e.codec, check: e.check, payload: e.payload.to_vec() }))
    }

    /// The delta of a page in the delta nodes.
    pub(super) fn noted(&self, inode: &Node, index: &Index, block: u64) -> Result<Option<Delta>> {
        match u32::try_from(block) {
            Ok(block) if block < KEPT => self.noted_entry(inode, index, block),
            _ => Ok(None),
        }
    }

    /// Creates an empty delta node with this number.
    fn new_delta_node(&self, inode: &Arc<Node>, nodes: &mut DeltaNodes, number: usize) -> Result<usize> {
        let node = self.nodes.new_node(inode, FIRST_OFFSET + number as u32)?;
        inode.set_known_deltas(None);
        match nodes.nodes.first() {
            None => self.nodes.edit_inode(inode, |r| delta::set_root(r, Some(node.nid))),
            Some((_, root)) => {
                if !self.nodes.edit(root, |b| in_node::set_other(b, number, node.nid)) {
                    return Err(Error::corrupt(format_args!("inode {}: its root of deltas is full", inode.ino)));
                }
            }
        }
        nodes.nodes.push((number, node));
        Ok(nodes.nodes.len() - 1)
    }

    /// Moves deltas from the zone into delta nodes; returns how many fitted. They are not counted as new deltas.
    pub(crate) fn move_deltas(&self, inode: &Arc<Node>, deltas: &[(u64, Encoded)]) -> Result<usize> {
        let moved = self.note_deltas(inode, deltas)?;
        let of = |sum: u64, (block, e): &(u64, Encoded)| match moved.contains(block) {
            true => sum + (in_node::HEADER + e.payload.len()) as u64,
            false => sum,
        };
        self.ctx.counters.deltas.fetch_sub(moved.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.ctx.counters.delta_bytes.fetch_sub(deltas.iter().fold(0, of), std::sync::atomic::Ordering::Relaxed);
        Ok(moved.len())
    }

    /// Puts deltas into as few delta nodes as possible. Returns the pages whose deltas were stored; the others did not
    /// fit. A stored delta replaces the page's delta in the zone.
    pub(crate) fn note_deltas(&self, inode: &Arc<Node>, deltas: &[(u64, Encoded)]) -> Result<FxHashSet<u64>> {
        let mut done = FxHashSet::default();
        if deltas.is_empty() {
            return Ok(done);
        }
        let mut nodes = self.delta_nodes(inode)?;
        if nodes.age() >= OLDEST {
            return Ok(done);
        }
        let mut leaving: FxHashSet<u64> = deltas.iter().map(|(block, _)| *block).collect();
        let (mut rest, mut most) = (deltas, MOST_NODES);
        let made_of: Vec<u32> =
            deltas.iter().flat_map(|(block, e)| kept::pages_used(&e.node_entry(*block as u32))).collect();
        let mut live = nodes.live(&made_of);
        if !made_of.is_empty() && !nodes.have_room(&live, &leaving, deltas) {
            // A kept page is useless without the blocks that depend on it.
            return Ok(done);
        }
        if nodes.bare_root && nodes.nodes.is_empty() {
            match self.new_delta_node(inode, &mut nodes, 0) {
                Err(Error::Fs(vfs::Error::NoSpace)) => return Ok(done),
                made => made?,
            };
        }
        while !rest.is_empty() {
            let wanted: Vec<usize> = rest.iter().map(|(_, e)| in_node::HEADER + e.payload.len()).collect();
            let at = match choose_node(&nodes.occupied(&live, &leaving), &wanted, most) {
                Target::Node(at) => at,
                // A root without room for the list of other nodes; no valid writer creates one.
                Target::New
                    if !nodes.nodes.is_empty() && in_node::used(&nodes.nodes[0].1.read()) > in_node::ROOT_CAPACITY =>
                {
                    most = nodes.nodes.len();
                    continue;
                }
                Target::New => {
                    // OK to unwrap: `choose_node` requests a new node only below the limit.
                    let number = (0..MOST_NODES).find(|n| nodes.nodes.iter().all(|(known, _)| known != n)).unwrap();
                    match self.new_delta_node(inode, &mut nodes, number) {
                        Ok(at) => at,
                        Err(Error::Fs(vfs::Error::NoSpace)) => {
                            most = nodes.nodes.len();
                            continue;
                        }
                        Err(e) => return Err(e),
                    }
                }
                Target::None => break,
            };
            let (now, later) = rest.split_at(nodes.fitting(&live, at, &wanted, rest));
            if now.is_empty() {
                break;
            }
            rest = later;
            self.put_into(&nodes, &live, at, now)?;
            if !rest.is_empty() {
                live = nodes.live(&made_of);
            }
            for (block, _) in now {
                leaving.remove(block);
                done.insert(*block);
            }
        }
        match self.ctx.options.delta_study.beside {
            _ if done.is_empty() => {}
            Beside::Nothing => {}
            Beside::Inode => self.nodes.edit_inode(inode, |_| ()),
            Beside::MetaAndInode => {
                // A compact page gets another address, so its meta page changes, too.
                self.nodes.edit(&nodes.nodes[0].1, |_| ());
                self.nodes.edit_inode(inode, |_| ());
            }
        }
        let in_zone: Vec<u32> = (self.blocks_in_zone(inode).into_iter())
            .filter(|block| done.contains(block))
            .map(|block| block as u32)
            .collect();
        if !in_zone.is_empty() {
            self.nodes.edit_inode(inode, |r| {
                for slot in in_zone {
                    if let Ok(d) = r.divide(self.ctx.sb.features) {
                        delta::drop_slots(r, d, slot..slot + 1);
                    }
                }
            });
        }
        Ok(done)
    }

    /// Puts deltas into one node and drops its dead entries. The deltas of other pages stay, even if new ones for them
    /// follow: these may not fit.
    fn put_into(&self, nodes: &DeltaNodes, live: &[Live], at: usize, deltas: &[(u64, Encoded)]) -> Result<()> {
        let gone: FxHashSet<u64> = deltas.iter().map(|(block, _)| *block).collect();
        let keep: FxHashSet<u64> =
            (live.iter()).filter(|l| l.at == at && !gone.contains(&l.block)).map(|l| l.block).collect();
        let age = nodes.age() + 1;
        let new: Vec<Entry<'_>> = deltas.iter().map(|(block, e)| e.node_entry(*block as u32)).collect();
        let node = &nodes.nodes[at].1;
        nodes.inode.set_known_deltas(None);
        let fits = self.nodes.edit(node, |b: &mut Block| {
            let fits = in_node::rewrite(b, |e| keep.contains(&u64::from(e.block)), &new);
            if fits {
                in_node::set_age(b, age);
            }
            fits
        });
        if !fits {
            return Err(Error::corrupt(format_args!("delta node {}: fuller than its entries say", node.nid)));
        }
        for e in &new {
            let counter = match e.codec {
                _ if e.block >= KEPT => &self.ctx.counters.kept,
                Codec::Alone => &self.ctx.counters.packed,
                _ => &self.ctx.counters.deltas,
            };
            counter.fetch_add(1, Relaxed);
        }
        let packed = |e: &&Entry<'_>| e.codec == Codec::Alone && e.block < KEPT;
        let bytes: usize = new.iter().filter(|e| !packed(e)).map(Entry::bytes).sum();
        self.ctx.counters.delta_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(())
    }

    /// Drops the entries of pages selected by `gone`: written as whole blocks, or removed. Kept pages stay.
    pub(crate) fn drop_noted(&self, nodes: &DeltaNodes, gone: impl Fn(u64) -> bool) {
        for (_, node) in &nodes.nodes {
            let stays = |e: &Entry<'_>| e.block >= KEPT || !gone(e.block.into());
            if in_node::entries(&node.read()).any(|e| !stays(&e)) {
                nodes.inode.set_known_deltas(None);
                // OK to ignore: fewer entries than before always fit.
                let _ = self.nodes.edit(node, |b| in_node::rewrite(b, stays, &[]));
            }
        }
    }

    /// Frees an inode's delta nodes with their deltas. Returns the number of nodes.
    pub(crate) fn free_delta_nodes(&self, inode: &Arc<Node>) -> Result<u64> {
        let nodes = self.delta_nodes(inode)?;
        inode.set_known_deltas(None);
        // The root last: it leads to the others.
        for (number, node) in nodes.nodes.iter().rev() {
            self.nodes.free_node(node, false)?;
            if *number > 0 {
                self.nodes.edit(&nodes.nodes[0].1, |b| in_node::set_other(b, *number, Nid(0)));
            }
            self.nodes.edit_inode(inode, |r| r.i_blocks = r.i_blocks.get().saturating_sub(1).into());
        }
        if !nodes.nodes.is_empty() {
            self.nodes.edit_inode(inode, |r| delta::set_root(r, None));
        }
        Ok(nodes.nodes.len() as u64)
    }

    /// Brings one delta node of a file to the state recorded in the chain.
    pub(crate) fn replay_delta_node(&self, inode: &Arc<Node>, src: &Block) -> Result<()> {
        let Some((_, number)) = in_node::owner(src) else { return Ok(()) };
        let mut nodes = self.delta_nodes(inode)?;
        if nodes.nodes.is_empty() && number != 0 {
            self.new_delta_node(inode, &mut nodes, 0)?;
        }
        let at = match nodes.nodes.iter().position(|(known, _)| *known == number) {
            Some(at) => at,
            None => self.new_delta_node(inode, &mut nodes, number)?,
        };
        inode.set_known_deltas(None);
        if !self.nodes.edit(&nodes.nodes[at].1, |b| in_node::copy(b, src)) {
            return Err(Error::corrupt(format_args!(
                "inode {}: delta node {number} has more than it has room for",
                inode.ino
            )));
        }
        Ok(())
    }
}
