//! How do blocks of a file go, and their deltas with them?
//!
//! The caller holds the locks that [`crate::node::map`] requires to change. Left out: nodes and their slots
//! ([`crate::node::free`]), and what is dirty in memory.

use std::sync::Arc;

use format::{BlockAddr, Nid};

use crate::error::{Error, Result};
use crate::node::cache::Node;
use crate::node::map::{Lookup, Place, set_addr_in, span};
use crate::volume::Volume;

/// What becomes of the kept pages of a file that loses all of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptPages {
    /// They go, and the delta nodes with them.
    Go,
    /// They stay. A journal that is cut to nothing will be written again, and resemble what was kept of it.
    Stay,
}

impl Volume {
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
}
