//! What does a page with a delta hold?

use std::sync::Arc;

use format::delta::{self, Codec};
use format::inode::RawInode;
use format::{Block, BlockAddr, Ino};

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::node::cache::Node;
use crate::node::map::addr_in;
use crate::volume::Volume;

/// A delta taken out of its inode.
pub(crate) struct Delta {
    slot: u32,
    codec: Codec,
    check: u32,
    payload: Vec<u8>,
    generation: u32,
}

impl Volume {
    /// The delta of a slot in a node's bytes.
    pub(crate) fn delta_in(&self, node: &Node, bytes: &Block, slot: u32) -> Option<Delta> {
        if !self.may_hold_deltas() || node.nid != node.ino.nid() {
            return None;
        }
        let raw = RawInode::of(bytes);
        let d = raw.divide(self.sb.features).ok()?;
        let e = delta::find(raw, d, slot)?;
        let (codec, check, payload) = (e.codec, e.check, e.payload.to_vec());
        Some(Delta { slot, codec, check, payload, generation: raw.i_generation.get() })
    }

    /// The first slot from `slot` on that has a delta, in a node's bytes.
    pub(crate) fn next_delta(&self, node: &Node, bytes: &Block, slot: u32) -> Option<u32> {
        if !self.may_hold_deltas() || node.nid != node.ino.nid() {
            return None;
        }
        let raw = RawInode::of(bytes);
        let d = raw.divide(self.sb.features).ok()?;
        delta::entries(raw, d).map(|e| e.slot).filter(|s| *s >= slot).min()
    }

    /// What a delta makes of its base.
    pub(crate) fn apply_delta(&self, node: &Node, delta: &Delta, base: &Block) -> Result<Box<Block>> {
        let page = delta::codec::decode(delta.codec, &delta.payload, base)
            .filter(|page| self.page_check(node, delta.generation, delta.slot, page) == delta.check);
        page.ok_or_else(|| {
            Error::corrupt(format_args!("inode {}: the delta of block {} does not fit its base", node.ino, delta.slot))
        })
    }

    pub(super) fn page_check(&self, node: &Node, generation: u32, slot: u32, page: &Block) -> u32 {
        delta::check(self.checksum_seed, node.ino, generation, slot, page)
    }

    /// The block at a slot's address, and the slot's delta. `None` if the slot has no block.
    fn base_and_delta(&self, node: &Node, slot: u32, cause: Cause) -> Result<Option<(Box<Block>, Option<Delta>)>> {
        let (addr, delta) = {
            let bytes = node.read();
            (addr_in(self, node, &bytes, slot), self.delta_in(node, &bytes, slot))
        };
        if !addr.is_real() {
            return Ok(None);
        }
        self.check_data_addr(addr, node.ino, slot.into())?;
        Ok(Some((self.read_block(addr, cause.of(node.ino))?, delta)))
    }

    /// The base of a slot of an inode. `None` if the slot has no block.
    pub(super) fn base_of(&self, node: &Arc<Node>, slot: u32) -> Result<Option<Box<Block>>> {
        let read = self.read_steady(node, || self.base_and_delta(node, slot, Cause::DeltaBase))?;
        Ok(read.map(|(base, _)| base))
    }

    /// What the device has of a slot's page, a delta applied. `None` if the slot has no block.
    pub(crate) fn stored_page(&self, node: &Node, slot: u32) -> Result<Option<Box<Block>>> {
        match self.base_and_delta(node, slot, Cause::UserData)? {
            Some((base, Some(delta))) => self.apply_delta(node, &delta, &base).map(Some),
            other => Ok(other.map(|(base, _)| base)),
        }
    }

    /// How many deltas an inode has.
    ///
    /// # Errors
    /// If there is no such inode, or it cannot be read.
    pub fn deltas_in(&self, ino: Ino) -> Result<usize> {
        Ok(self.deltas_of(&self.inode(ino)?.node))
    }

    pub(crate) fn deltas_of(&self, node: &Node) -> usize {
        let count = |raw: &RawInode| raw.divide(self.sb.features).map_or(0, |d| delta::entries(raw, d).count());
        if self.may_hold_deltas() && node.nid == node.ino.nid() { node.inode(count) } else { 0 }
    }

    /// The address in a slot, and whether the slot's page is more than the block there.
    pub(crate) fn has_delta(&self, node: &Node, slot: u32) -> (BlockAddr, bool) {
        let bytes = node.read();
        (addr_in(self, node, &bytes, slot), self.delta_in(node, &bytes, slot).is_some())
    }
}
