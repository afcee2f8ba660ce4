//! How are addresses and nodes freed, and how far does one step of that go?
//!
//! The caller holds the locks that [`super::map`] requires for changes. A file may have a million nodes, and a hole may
//! be as long as the longest file: a step visits a given number of *stretches*. A stretch is the blocks whose addresses
//! are in one node, or a run of blocks without a node. Between steps the caller releases its locks, so that other
//! operations run. Left out: deltas of freed pages ([`crate::file::free`]).

use std::ops::Range;
use std::sync::Arc;

use format::inode::Inline;
use format::node::{self, ADDRS_PER_BLOCK, Shape};
use format::{BlockAddr, Ino, Nid};

use super::cache::Node;
use super::map::{Lookup, Place, addr_in, set_addr_in, span};
use crate::error::Result;
use crate::node::Nodes;

/// Stretches visited in one step. A step dirties or frees about as many nodes.
pub(crate) const STEP: u64 = 64;
/// Stretches visited under one lock if nothing changes.
pub(crate) const LOOKED: u64 = 1024;

impl Nodes {
    /// The blocks around `index` whose addresses are in one node, and the place of the first of them; or the blocks
    /// around `index` without a node.
    pub(crate) fn stretch(&self, inode: &Arc<Node>, index: u64) -> Result<(Range<u64>, Option<Place>)> {
        Ok(match self.find(inode, index)? {
            Lookup::Hole(blocks) => (blocks, None),
            Lookup::At(p) => (index - u64::from(p.slot)..index + p.run(), Some(Place { slot: 0, ..p })),
        })
    }

    /// Frees the addresses in `slots` of a node; returns how many counted as used blocks. Compressed clusters must be
    /// freed whole.
    pub(crate) fn free_slots(&self, node: &Arc<Node>, slots: Range<u32>) -> Result<u64> {
        let mut gone: Vec<(u32, BlockAddr)> = Vec::new();
        {
            let mut bytes = node.write();
            for slot in slots {
                let a = addr_in(&self.ctx, node, &bytes, slot);
                if a != BlockAddr::NULL {
                    gone.push((slot, a));
                    set_addr_in(self, node, &mut bytes, slot, BlockAddr::NULL);
                }
            }
            if !gone.is_empty() {
                self.cache.mark_dirty(node);
            }
        }
        let age = self.ctx.mounted_seconds();
        let mut seg = self.logs.seg.lock();
        for (n, (_, a)) in gone.iter().enumerate().filter(|(_, (_, a))| a.is_real()) {
            if let Err(e) = seg.invalidate(*a, age) {
                // A damaged volume. Blocks already removed stay counted as used, although nothing refers to them.
                let rest = gone[n..].iter().filter(|(_, a)| a.is_real()).count();
                self.space.unwritten_by((gone.len() - rest) as i64);
                return Err(e);
            }
        }
        drop(seg);
        let given = self.forget_clusters(node, &gone)?;
        self.space.unwritten_by(given as i64);
        let counted = gone.len() as u64 - given;
        self.space.give(counted);
        Ok(counted)
    }

    /// Subtracts the saved blocks of the freed clusters from the inode's count. Returns how many of the freed slots did
    /// not count as used: the marks of clusters whose saved blocks were released.
    fn forget_clusters(&self, node: &Arc<Node>, gone: &[(u32, BlockAddr)]) -> Result<u64> {
        let marks = gone.iter().filter(|(_, a)| *a == BlockAddr::COMPRESS).count() as u64;
        if marks == 0 {
            return Ok(0);
        }
        let inode = self.node(node.ino.nid())?;
        let (released, log) =
            inode.inode(|r| (r.inline().contains(Inline::COMPRESS_RELEASED), r.log_cluster(self.ctx.sb.features)));
        if released {
            return Ok(marks);
        }
        if let Ok(Some(log)) = log {
            let (mut saved, mut packed) = (marks << log, None);
            for (slot, a) in gone {
                if *a == BlockAddr::COMPRESS {
                    packed = Some(slot >> log);
                } else if a.is_real() && packed == Some(slot >> log) {
                    saved -= 1;
                }
            }
            self.edit_inode(&inode, |r| r.add_saved_blocks(-(saved as i64)));
        }
        Ok(0)
    }

    /// Frees the blocks at or past `from` under a node `level` levels above the direct ones, whose first block is
    /// `base`. If no block lies before `from`, frees the node too and returns true.
    pub(crate) fn cut(
        &self,
        ino: Ino,
        shape: Shape,
        (nid, offset): (Nid, u32),
        (level, base): (u32, u64),
        from: u64,
        freed: &mut u64,
    ) -> Result<bool> {
        let n = self.child(ino, nid, offset)?;
        if level == 0 {
            let first = from.saturating_sub(base).min(ADDRS_PER_BLOCK.into()) as u32;
            *freed += self.free_slots(&n, first..ADDRS_PER_BLOCK)?;
        } else {
            let width = span(shape, level);
            let first = from.saturating_sub(base) / width;
            for slot in first as u32..ADDRS_PER_BLOCK {
                let child = Nid(node::word(&n.read(), slot as usize));
                if child == Nid(0) {
                    continue;
                }
                let below = if level == 1 { offset + 1 + slot } else { offset + 1 + slot * (ADDRS_PER_BLOCK + 1) };
                let at = base + u64::from(slot) * width;
                if self.cut(ino, shape, (child, below), (level - 1, at), from, freed)? {
                    self.edit(&n, |b| node::set_word(b, slot as usize, 0));
                }
            }
        }
        let whole = from <= base;
        if whole {
            self.free_node(&n, false)?;
            // `free_node` returned the node's block to the volume; here it leaves the inode's count.
            *freed += 1;
        }
        Ok(whole)
    }
}
