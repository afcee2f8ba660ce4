//! How are blocks of a file and their deltas freed?
//!
//! The caller holds the locks that [`crate::node::map`] requires for changes. Left out: nodes and their slots
//! ([`crate::node::free`]), and dirty contents in memory.

use std::sync::Arc;

use format::{BlockAddr, Nid};

use crate::error::{Error, Result};
use crate::file::Files;
use crate::node::cache::Node;
use crate::node::map::{Lookup, Place, set_addr_in, span};

/// What happens to the kept pages of a file that loses all of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptPages {
    /// They are freed, and the delta nodes with them.
    Go,
    /// They stay. A journal truncated to zero will be written again, with similar contents.
    Stay,
}

impl Files {
    /// The first block from which at most `nodes` nodes hold the addresses up to the end; `floor` if that is later.
    pub(crate) fn tail(&self, inode: &Arc<Node>, floor: u64, nodes: u64) -> Result<u64> {
        let (mut at, mut left) = (inode.inode(|r| self.nodes.shape(r))?.max_blocks(), nodes);
        while at > floor {
            let (blocks, place) = self.nodes.stretch(inode, at - 1)?;
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

    /// Frees blocks from `from` to the end of their stretch, or to `to`; returns the first block behind them.
    pub(super) fn free_stretch(&self, inode: &Arc<Node>, from: u64, to: u64) -> Result<u64> {
        match self.nodes.find(inode, from)? {
            Lookup::Hole(blocks) => Ok(blocks.end.min(to)),
            Lookup::At(p) => {
                let n = p.run().min(to - from);
                let known = self.deltas.deltas(inode)?;
                self.counting_freed(inode, |freed| {
                    *freed += self.nodes.free_slots(&p.node, p.slot..p.slot + n as u32)?;
                    Ok(())
                })?;
                if known.next(from).is_some_and(|block| block < from + n) {
                    let nodes = self.deltas.delta_nodes(inode)?;
                    self.deltas.drop_noted(&nodes, |block| (from..from + n).contains(&block));
                }
                Ok(from + n)
            }
        }
    }

    /// Moves the reservation of an empty block from one slot to another: the block counts of volume and inode change
    /// only if the other slot already had a reservation.
    pub(super) fn move_room(&self, inode: &Arc<Node>, from: &Place, to: &Place) -> Result<()> {
        self.counting_freed(inode, |freed| {
            *freed += self.nodes.free_slots(&to.node, to.slot..to.slot + 1)?;
            Ok(())
        })?;
        let old = from.addr(&self.ctx, from.slot);
        if old.is_real() {
            // On a damaged volume this may fail; then nothing has changed.
            let age = self.ctx.mounted_seconds();
            self.logs.seg.lock().invalidate(old, age)?;
        }
        for (place, addr) in [(from, BlockAddr::NULL), (to, BlockAddr::NEW)] {
            let mut bytes = place.node.write();
            set_addr_in(&self.nodes, &place.node, &mut bytes, place.slot, addr);
            self.nodes.cache.mark_dirty(&place.node);
        }
        self.nodes.space.moved();
        self.nodes.forget_extent(inode);
        Ok(())
    }

    /// Subtracts the blocks counted by `free` from the inode's count, even on an error: blocks freed before an
    /// unreadable node are gone.
    fn counting_freed(&self, inode: &Arc<Node>, free: impl FnOnce(&mut u64) -> Result<()>) -> Result<()> {
        let mut freed = 0;
        let out = free(&mut freed);
        if freed > 0 {
            self.nodes.forget_extent(inode);
        }
        self.nodes.add_blocks(inode, -(freed as i64));
        out
    }

    /// Frees every block from `from` on, and every node that leads only to such blocks; also delta nodes, if the file
    /// has nothing else and no kept page must stay.
    pub(crate) fn free_from(&self, inode: &Arc<Node>, from: u64, kept: KeptPages) -> Result<()> {
        let (shape, nids) =
            inode.inode(|r| Ok::<_, Error>((self.nodes.shape(r)?, std::array::from_fn::<_, 5, _>(|k| r.nid(k)))))?;
        let direct = shape.direct_slots;
        let known = self.deltas.deltas(inode)?;
        let nodes = self.deltas.delta_nodes(inode)?;
        let out = self.counting_freed(inode, |freed| {
            let first = from.min(direct.into()) as u32;
            *freed += self.nodes.free_slots(inode, first..direct)?;
            let mut base = u64::from(direct);
            for (k, nid) in nids.into_iter().enumerate() {
                let level = [0, 0, 1, 1, 2][k];
                let width = span(shape, level + 1);
                if nid != Nid(0) && base + width > from {
                    let offset = shape.path(base).map_or(0, |p| p.offsets[0]);
                    if self.nodes.cut(inode.ino, shape, (nid, offset), (level, base), from, freed)? {
                        self.nodes.edit_inode(inode, |r| r.i_nid[k] = 0.into());
                    }
                }
                base += width;
            }
            Ok(())
        });
        if let Err(e) = out {
            // Pages that could not be freed keep their deltas. A page without a reservation must have none: it would
            // reappear with the next reservation there.
            let gone =
                |block| block >= from && self.nodes.addr_of(inode, block).is_ok_and(|addr| addr == BlockAddr::NULL);
            self.deltas.drop_noted(&nodes, gone);
            return Err(e);
        }
        if from == 0 && !(kept == KeptPages::Stay && known.serve_again()) {
            return self.deltas.free_delta_nodes(inode).map(drop);
        }
        self.deltas.drop_noted(&nodes, |block| block >= from);
        Ok(())
    }
}
