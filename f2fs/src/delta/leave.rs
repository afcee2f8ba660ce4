//! Which pages of a file are written whole together when one leaves its delta?
//!
//! A page that leaves its delta gets a new place. Its neighbours that change with it go there too: if they stayed, each
//! later fsync would need a request for every piece. And when a file may have no more deltas, its other pages with deltas
//! leave with the next fsyncs, since each would cost a node and a flush more on its own.

use std::collections::BTreeSet;

use format::Block;
use format::node::delta::KEPT;
use rustc_hash::FxHashSet;

use super::plan::Plan;
use crate::delta::Deltas;
use crate::error::Result;
use crate::inode::Inode;
use crate::node::index::Index;
use crate::node::map::{Lookup, addr_in};

/// Most pages that leave in one fsync without being changed.
const MOST: usize = 64;

impl Deltas {
    fn has_delta(&self, inode: &Inode, known: &Index, index: u64) -> bool {
        known.has(index)
            || self
                .nodes
                .find(&inode.node, index)
                .is_ok_and(|found| matches!(found, Lookup::At(p) if self.is_in_zone(&p.node, &p.node.read(), p.slot)))
    }

    /// The changed pages next to one that leaves its delta, with that page; their own deltas are taken from the plan.
    pub(crate) fn leave_together(
        &self,
        inode: &Inode,
        dirty: &[(u64, &Block)],
        plan: &mut Plan,
    ) -> Result<FxHashSet<u64>> {
        let known = self.deltas(&inode.node)?;
        let mut out = FxHashSet::default();
        if known.is_empty() && self.blocks_in_zone(&inode.node).is_empty() {
            return Ok(out);
        }
        let planned: FxHashSet<u64> =
            plan.noted.iter().chain(&plan.packed).map(|(index, _)| *index).chain(plan.deltas.keys().copied()).collect();
        for run in dirty.chunk_by(|a, b| a.0 + 1 == b.0).filter(|run| run.len() > 1) {
            if run.iter().any(|(index, _)| !planned.contains(index) && self.has_delta(inode, &known, *index)) {
                out.extend(run.iter().map(|(index, _)| *index));
            }
        }
        plan.noted.retain(|(index, _)| !out.contains(index));
        if plan.noted.iter().all(|(index, _)| *index & u64::from(KEPT) != 0) {
            // Kept pages without a block that consists of them.
            plan.noted.clear();
        }
        plan.packed.retain(|(index, _)| !out.contains(index));
        plan.deltas.retain(|index, _| !out.contains(index));
        Ok(out)
    }

    /// Unchanged pages with deltas whose bases are in memory.
    pub(crate) fn that_may_leave(&self, inode: &Inode, dirty: &[(u64, &Block)]) -> Result<Vec<u64>> {
        let Some(bases) = &self.bases else { return Ok(Vec::new()) };
        let known = self.deltas(&inode.node)?;
        let changed = |index: u64| dirty.binary_search_by_key(&index, |(index, _)| *index).is_ok();
        let is_near = |index: &u64| {
            let Ok(Lookup::At(place)) = self.nodes.find(&inode.node, *index) else { return false };
            let addr = addr_in(&self.ctx, &place.node, &place.node.read(), place.slot);
            addr.is_real() && bases.lacking(std::iter::once(addr.0.into())).is_empty()
        };
        let all: BTreeSet<u64> = known.blocks().chain(self.blocks_in_zone(&inode.node)).collect();
        Ok(all.into_iter().filter(|index| !changed(*index)).filter(is_near).take(MOST).collect())
    }
}
