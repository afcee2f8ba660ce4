//! How are addresses and nodes freed, and how far does one step of that go?
//!
//! The caller holds the locks that [`super::map`] requires to change. A file may have a million nodes, and a hole may
//! be as long as a file can be: a step looks at a given number of *stretches*, blocks whose addresses are in one node or
//! for which there is none. Between steps the caller gives its locks up, so that others get on.

use std::ops::Range;
use std::sync::Arc;

use format::inode::Inline;
use format::node::{self, ADDRS_PER_BLOCK, Shape};
use format::{BlockAddr, Ino, Nid};

use super::cache::Node;
use super::map::{Lookup, Place, addr_in, set_addr_in, span};
use crate::error::{Error, Result};
use crate::volume::Volume;

/// How many stretches one step looks at. A step dirties or frees about as many nodes.
pub(crate) const STEP: u64 = 64;
/// How many stretches are looked at under one lock where nothing changes.
pub(crate) const LOOKED: u64 = 1024;

/// What becomes of the kept pages of a file that loses all of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptPages {
    /// They go, and the delta nodes with them.
    Go,
    /// They stay. A journal that is cut to nothing will be written again, and resemble what was kept of it.
    Stay,
}

impl Volume {
    /// The blocks around `index` whose addresses are in one node, and the place of the first of them; or those for
    /// which there is no node.
    pub(crate) fn stretch(&self, inode: &Arc<Node>, index: u64) -> Result<(Range<u64>, Option<Place>)> {
        Ok(match self.find(inode, index)? {
            Lookup::Hole(blocks) => (blocks, None),
            Lookup::At(p) => (index - u64::from(p.slot)..index + p.run(), Some(Place { slot: 0, ..p })),
        })
    }

    /// The first block such that at most `nodes` nodes hold addresses of it and of those behind it; `floor` if that is
    /// a later one.
    pub(crate) fn tail(&self, inode: &Arc<Node>, floor: u64, nodes: u64) -> Result<u64> {
        let (mut at, mut left) = (inode.inode(|r| self.shape(r))?.max_blocks(), nodes);
        while at > floor {
            let (blocks, place) = self.stretch(inode, at - 1)?;
            if place.is_some() {
                if left == 0 {
                    return Ok(at);
                }
                left -= 1;
            }
            at = blocks.start;
        }
        Ok(floor)
    }

    /// Frees the addresses in `slots` of a node; returns how many counted blocks that were. Compressed clusters must be
    /// freed whole.
    pub(super) fn free_slots(&self, node: &Arc<Node>, slots: Range<u32>) -> Result<u64> {
        let mut gone: Vec<(u32, BlockAddr)> = Vec::new();
        {
            let mut bytes = node.write();
            for slot in slots {
                let a = addr_in(self, node, &bytes, slot);
                if a != BlockAddr::NULL {
                    gone.push((slot, a));
                    set_addr_in(self, node, &mut bytes, slot, BlockAddr::NULL);
                }
            }
            if !gone.is_empty() {
                self.nodes.mark_dirty(node);
            }
        }
        let age = self.mounted_seconds();
        let mut seg = self.seg.lock();
        for (n, (_, a)) in gone.iter().enumerate().filter(|(_, (_, a))| a.is_real()) {
            if let Err(e) = seg.invalidate(*a, age) {
                // A damaged volume. What is gone by now stays counted as used, though nothing holds it.
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

    /// Subtracts what the freed clusters of a node had saved from what its inode says was saved. Returns how many of the
    /// freed slots did not count as used: the marks of clusters whose room was released.
    fn forget_clusters(&self, node: &Arc<Node>, gone: &[(u32, BlockAddr)]) -> Result<u64> {
        let marks = gone.iter().filter(|(_, a)| *a == BlockAddr::COMPRESS).count() as u64;
        if marks == 0 {
            return Ok(0);
        }
        let inode = self.node(node.ino.nid())?;
        let (released, log) =
            inode.inode(|r| (r.inline().contains(Inline::COMPRESS_RELEASED), r.log_cluster(self.sb.features)));
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

    /// Frees every block of `[from, to)`; nodes stay.
    pub(crate) fn free_range(&self, inode: &Arc<Node>, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        while at < to {
            at = self.free_stretch(inode, at, to)?;
        }
        Ok(())
    }

    /// Frees blocks from `from` on to the end of their stretch, or to `to`; returns the first behind them.
    pub(crate) fn free_stretch(&self, inode: &Arc<Node>, from: u64, to: u64) -> Result<u64> {
        match self.find(inode, from)? {
            Lookup::Hole(blocks) => Ok(blocks.end.min(to)),
            Lookup::At(p) => {
                let n = p.run().min(to - from);
                let known = self.deltas(inode)?;
                self.counting_freed(inode, |freed| {
                    *freed += self.free_slots(&p.node, p.slot..p.slot + n as u32)?;
                    Ok(())
                })?;
                if known.next(from).is_some_and(|block| block < from + n) {
                    let nodes = self.delta_nodes(inode)?;
                    self.drop_noted(&nodes, |block| (from..from + n).contains(&block));
                }
                Ok(from + n)
            }
        }
    }

    /// The room of a block, with nothing in it, passes from one slot to another: neither the volume's nor the inode's
    /// count of blocks changes unless the other slot had room of its own.
    pub(crate) fn move_room(&self, inode: &Arc<Node>, from: &Place, to: &Place) -> Result<()> {
        self.counting_freed(inode, |freed| {
            *freed += self.free_slots(&to.node, to.slot..to.slot + 1)?;
            Ok(())
        })?;
        let old = from.addr(self, from.slot);
        if old.is_real() {
            // On a damaged volume this may fail; then nothing has changed.
            let age = self.mounted_seconds();
            self.seg.lock().invalidate(old, age)?;
        }
        for (place, addr) in [(from, BlockAddr::NULL), (to, BlockAddr::NEW)] {
            let mut bytes = place.node.write();
            set_addr_in(self, &place.node, &mut bytes, place.slot, addr);
            self.nodes.mark_dirty(&place.node);
        }
        self.space.moved();
        self.forget_extent(inode);
        Ok(())
    }

    /// Subtracts the blocks that `free` counts from the inode's, even if it ends with an error: blocks freed before a
    /// node that cannot be read are gone.
    fn counting_freed(&self, inode: &Arc<Node>, free: impl FnOnce(&mut u64) -> Result<()>) -> Result<()> {
        let mut freed = 0;
        let out = free(&mut freed);
        if freed > 0 {
            self.forget_extent(inode);
        }
        self.add_blocks(inode, -(freed as i64));
        out
    }

    /// Frees every block from `from` on, and every node that only led to such blocks; delta nodes too, if that is all
    /// that the file has, and nothing in them is to be kept.
    pub(crate) fn free_from(&self, inode: &Arc<Node>, from: u64, kept: KeptPages) -> Result<()> {
        let (shape, nids) =
            inode.inode(|r| Ok::<_, Error>((self.shape(r)?, std::array::from_fn::<_, 5, _>(|k| r.nid(k)))))?;
        let direct = shape.direct_slots;
        let known = self.deltas(inode)?;
        let nodes = self.delta_nodes(inode)?;
        let out = self.counting_freed(inode, |freed| {
            let first = from.min(direct.into()) as u32;
            *freed += self.free_slots(inode, first..direct)?;
            let mut base = u64::from(direct);
            for (k, nid) in nids.into_iter().enumerate() {
                let level = [0, 0, 1, 1, 2][k];
                let width = span(shape, level + 1);
                if nid != Nid(0) && base + width > from {
                    let offset = shape.path(base).map_or(0, |p| p.offsets[0]);
                    if self.cut(inode.ino, shape, (nid, offset), (level, base), from, freed)? {
                        self.edit_inode(inode, |r| r.i_nid[k] = 0.into());
                    }
                }
                base += width;
            }
            Ok(())
        });
        if let Err(e) = out {
            // Pages that could not be freed keep their deltas. One without room must not have any: it would come back
            // with the next room there.
            let gone = |block| block >= from && self.addr_of(inode, block).is_ok_and(|addr| addr == BlockAddr::NULL);
            self.drop_noted(&nodes, gone);
            return Err(e);
        }
        if from == 0 && !(kept == KeptPages::Stay && known.serve_again()) {
            return self.free_delta_nodes(inode).map(drop);
        }
        self.drop_noted(&nodes, |block| block >= from);
        Ok(())
    }

    /// Frees the blocks at or past `from` under a node `level` levels above the direct ones, whose first block is
    /// `base`. If no block lies before `from`, frees the node too and returns true.
    fn cut(
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
            // `free_node` gave the node's block back to the volume; here it leaves the inode's count.
            *freed += 1;
        }
        Ok(whole)
    }
}
