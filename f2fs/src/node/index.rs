//! Which entry in a file's delta nodes is live for a block?
//!
//! The entry in the node with the highest age. Reading a file needs this for each block, so the index is cached with
//! the inode's node until one of the file's delta nodes changes ([`crate::delta::nodes`]). It stores node numbers,
//! because nodes may be dropped from memory meanwhile.

use std::ops::Deref;

use format::node::delta as in_node;
use format::node::kept::{self, KEPT};
use format::{Block, Nid};
use rustc_hash::FxHashMap;

/// Most nodes for the packed pages of a small file.
const FEW: usize = 16;

/// The live entries in the delta nodes of one file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Number and node; the first is the root.
    nodes: Vec<(usize, Nid)>,
    /// For each block and each kept page, the index in `nodes` of its entry.
    at: FxHashMap<u32, usize>,
    /// The file's blocks that have entries, in order.
    blocks: Vec<u32>,
    /// The kept pages: key, and the page that each depends on.
    kept: FxHashMap<u32, (u32, Option<u32>)>,
}

impl Index {
    /// The index of these nodes: number, node, bytes.
    pub(crate) fn of<B: Deref<Target = Box<Block>>>(nodes: impl Iterator<Item = (usize, Nid, B)>) -> Self {
        let mut index = Index::default();
        let mut ages: Vec<u32> = Vec::new();
        for (number, nid, bytes) in nodes {
            let here = index.nodes.len();
            index.nodes.push((number, nid));
            ages.push(in_node::age(&bytes));
            for e in in_node::entries(&bytes) {
                let best = index.at.entry(e.block).or_insert(here);
                if ages[*best] < ages[here] {
                    *best = here;
                }
                if *best == here
                    && let (Some(id), Some(head)) = (kept::id(&e), kept::head(&e))
                {
                    index.kept.insert(id, head);
                }
            }
        }
        index.blocks = index.at.keys().copied().filter(|b| *b < KEPT).collect();
        index.blocks.sort_unstable();
        index
    }

    /// True if the file has no delta node.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The file's blocks that have entries, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().map(|b| u64::from(*b))
    }

    /// True if a block has an entry.
    pub(crate) fn has(&self, block: u64) -> bool {
        u32::try_from(block).is_ok_and(|b| b < KEPT && self.at.contains_key(&b))
    }

    /// The first block from `from` on that has an entry.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let first = self.blocks.partition_point(|b| u64::from(*b) < from);
        self.blocks.get(first).map(|b| u64::from(*b))
    }

    /// The node that has the entry of a block or a kept page, and its number.
    pub(crate) fn node_of(&self, block: u32) -> Option<(usize, Nid)> {
        self.nodes.get(*self.at.get(&block)?).copied()
    }

    /// Whether the file will use its nodes again after truncation to zero: they hold kept pages, as in a journal, or
    /// are few, as in a document that is rewritten each time. Freeing them would make the next fsync a checkpoint.
    pub(crate) fn serve_again(&self) -> bool {
        !self.kept.is_empty() || self.nodes.len() <= FEW
    }

    /// Ids of the existing kept pages, with their keys.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.kept.iter().map(|(id, (key, _))| (*id, *key))
    }

    /// The root of a kept page's chain, and the number of steps to it. `None` if a page of the chain does not exist.
    pub(crate) fn root(&self, id: u32) -> Option<(u32, usize)> {
        let mut at = id;
        for depth in 0..=kept::DEEPEST {
            match self.kept.get(&at)?.1 {
                None => return Some((at, depth)),
                Some(base) => at = base,
            }
        }
        None
    }
}
