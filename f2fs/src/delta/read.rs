//! What does the device have of a page, including pages with deltas?

use std::sync::Arc;

use device::energy::Work;
use format::delta::{self, Codec};
use format::inode::{Division, RawInode};
use format::node::kept::{self, KEPT};
use format::{Block, BlockAddr, Ino};
use rustc_hash::FxHashMap;

use super::encoded::Delta;
use crate::cause::Cause;
use crate::delta::Deltas;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::node::cache::Node;
use crate::node::index::Index;
use crate::node::map::{Lookup, Place, addr_in};

/// A page's base and its delta.
type Stored = (Option<Box<Block>>, Option<Delta>);

/// A page of a file: its number, the file's inode, and the place of its address.
#[derive(Clone, Copy)]
pub(crate) struct Page<'p> {
    pub(crate) inode: &'p Arc<Node>,
    pub(crate) block: u64,
    pub(crate) place: &'p Place,
    /// The live entries in the file's delta nodes. They change only under the inode's lock.
    pub(crate) index: &'p Index,
}

impl Deltas {
    /// The inode in a node's bytes and the position of its zone, if this inode may have one.
    fn with_zone<'b>(&self, node: &Node, bytes: &'b Block) -> Option<(&'b RawInode, Division)> {
        if !self.ctx.may_hold_deltas() || node.nid != node.ino.nid() {
            return None;
        }
        let raw = RawInode::of(bytes);
        Some((raw, raw.divide(self.ctx.sb.features).ok().filter(|d| d.zone > 0)?))
    }

    /// The delta of a slot in the zone, from a node's bytes.
    fn delta_in_zone(&self, node: &Node, bytes: &Block, slot: u32) -> Option<Delta> {
        let (raw, d) = self.with_zone(node, bytes)?;
        let e = delta::find(raw, d, slot)?;
        Some(Delta { block: slot, codec: e.codec, check: e.check, payload: e.payload.to_vec() })
    }

    /// Whether a slot has a delta in the zone, from a node's bytes.
    pub(crate) fn is_in_zone(&self, node: &Node, bytes: &Block, slot: u32) -> bool {
        self.with_zone(node, bytes).is_some_and(|(raw, d)| delta::find(raw, d, slot).is_some())
    }

    /// The first slot from `slot` on that has a delta in the zone, in a node's bytes.
    pub(crate) fn next_in_zone(&self, node: &Node, bytes: &Block, slot: u32) -> Option<u32> {
        let (raw, d) = self.with_zone(node, bytes)?;
        delta::entries(raw, d).map(|e| e.slot).filter(|s| *s >= slot).min()
    }

    /// Applies a delta to its base.
    fn apply_delta(&self, inode: &Arc<Node>, index: &Index, delta: &Delta, base: Option<&Block>) -> Result<Box<Block>> {
        self.ctx.compute(Work::DeltaDecode, self.ctx.options.delta_costs.decode, Cause::DeltaDecode.of(inode.ino));
        inode.applied();
        let row = match kept::parts(&delta.payload).filter(|_| delta.codec == Codec::Parts) {
            Some((parts, codec, data)) => {
                let mut pages: FxHashMap<u32, Option<Box<Block>>> = FxHashMap::default();
                for p in parts.iter().filter(|p| p.id != 0) {
                    pages.insert(p.id, self.kept_page(inode, index, p.id)?);
                }
                let row = kept::join_parts(|id| pages.get(&id)?.clone(), &parts);
                row.and_then(|row| delta::codec::decode(codec, data, &row))
            }
            None => kept::decode(&|_| None, delta.codec, &delta.payload, base),
        };
        let page = row.filter(|page| self.page_check(inode, delta.block, page) == delta.check);
        page.ok_or_else(|| {
            let (ino, block) = (inode.ino, delta.block);
            Error::corrupt(format_args!("inode {ino}: the delta of block {block} does not fit its base"))
        })
    }

    /// The checksum that an entry for a page must have.
    pub(super) fn page_check(&self, inode: &Node, block: u32, page: &Block) -> u32 {
        let generation = inode.inode(|r| r.i_generation.get());
        delta::check(self.ctx.checksum_seed, inode.ino, generation, block, page)
    }

    /// The block at a page's address (unless the page's delta needs none) and the delta. `None` if the page has
    /// neither.
    fn base_and_delta(&self, page: Page<'_>, cause: Cause) -> Result<Option<Stored>> {
        let Page { inode, block, place, index } = page;
        let noted = self.noted(inode, index, block)?;
        let (addr, delta) = {
            let bytes = place.node.read();
            let addr = addr_in(&self.ctx, &place.node, &bytes, place.slot);
            (addr, noted.or_else(|| self.delta_in_zone(&place.node, &bytes, place.slot)))
        };
        if addr != BlockAddr::NULL && delta.as_ref().is_some_and(|d| !d.codec.has_base()) {
            return Ok(Some((None, delta)));
        }
        if !addr.is_real() {
            return Ok(None);
        }
        self.ctx.check_data_addr(addr, inode.ino, block)?;
        Ok(Some((Some(self.ctx.read_block(addr, cause.of(inode.ino))?), delta)))
    }

    /// The actual or possible base of a page: the block at its address. `None` if it has no block, or its delta needs
    /// none: then the block is stale.
    pub(super) fn base_of(&self, page: Page<'_>) -> Result<Option<Box<Block>>> {
        let read = page.place.node.steady(|| self.base_and_delta(page, Cause::DeltaBase))?;
        Ok(read.and_then(|(base, _)| base))
    }

    /// A page as the device has it, with its delta applied. `None` if the device has nothing.
    pub(crate) fn stored_page(&self, page: Page<'_>, why: Cause) -> Result<Option<Box<Block>>> {
        match self.base_and_delta(page, why)? {
            Some((base, Some(delta))) => self.apply_delta(page.inode, page.index, &delta, base.as_deref()).map(Some),
            other => Ok(other.and_then(|(base, _)| base)),
        }
    }

    /// One block's contents as stored on the device. `None` for a hole.
    pub(crate) fn load_stored(&self, inode: &Inode, index: u64) -> Result<Option<Box<Block>>> {
        let Lookup::At(place) = self.nodes.find(&inode.node, index)? else { return Ok(None) };
        let known = self.deltas(&inode.node)?;
        let page = Page { inode: &inode.node, block: index, place: &place, index: &known };
        place.node.steady(|| match place.addr(&self.ctx, place.slot) {
            BlockAddr::NULL => Ok(None),
            a if a.is_real() => self.stored_page(page, Cause::UserData),
            // A reserved block reads as zeroes, unless it has a delta.
            _ => Ok(Some(self.stored_page(page, Cause::UserData)?.unwrap_or_else(|| Box::new([0; 4096])))),
        })
    }

    /// How many deltas an inode has.
    ///
    /// # Errors
    /// If there is no such inode, or it cannot be read.
    pub(crate) fn deltas_in(&self, ino: Ino) -> Result<usize> {
        Ok(self.deltas_of(&self.inodes.inode(ino)?.node)?.0)
    }

    /// The number of nodes in memory, and how many of them hold deltas.
    pub(crate) fn nodes_in_memory(&self) -> (usize, usize) {
        self.nodes.cache.count()
    }

    /// The number of deltas of an inode, and their total bytes.
    pub(crate) fn deltas_of(&self, inode: &Arc<Node>) -> Result<(usize, usize)> {
        let add = |(n, bytes), more| (n + 1, bytes + more);
        let in_zone = {
            let bytes = inode.read();
            let entries = self.with_zone(inode, &bytes).map(|(raw, d)| delta::entries(raw, d));
            entries.into_iter().flatten().fold((0, 0), |sum, e| add(sum, delta::HEADER + e.payload.len()))
        };
        let in_nodes = self.delta_nodes(inode)?.live(&[]).into_iter();
        Ok(in_nodes.fold(in_zone, |sum, e| (sum.0 + usize::from(e.block < KEPT.into()), sum.1 + e.bytes)))
    }

    /// The file blocks that have deltas in an inode's zone, the oldest delta first.
    pub(super) fn blocks_in_zone(&self, inode: &Node) -> Vec<u64> {
        let bytes = inode.read();
        let entries = self.with_zone(inode, &bytes).map(|(raw, d)| delta::entries(raw, d));
        entries.into_iter().flatten().map(|e| e.slot.into()).collect()
    }

    /// True if an inode has a place for deltas, even an empty one.
    pub(crate) fn holds_deltas(&self, inode: &Node) -> bool {
        self.delta_root(inode).is_some() || self.with_zone(inode, &inode.read()).is_some()
    }
}
