//! How is a page with a delta written as a whole block, so that the delta can be dropped?
//!
//! The caller holds the inode's lock exclusively and `cp` shared. The page goes to a new place like any overwritten
//! page; its slot gets the address and loses the delta in one change of the inode. If the log has no space, the delta
//! stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::Block;
use format::delta;
use format::inode::RawInode;

use crate::cause::Cause;
use crate::delta::encoded::{Delta, Encoded};
use crate::delta::places::Places;
use crate::delta::read::Page;
use crate::error::{Error, Result};
use crate::file::Files;
use crate::node::cache::Node;
use crate::node::map::Lookup;
use crate::segment::temperature::Writeback;

/// Pages rebuilt at a time.
const BATCH: usize = 64;

impl Files {
    /// Writes these pages of a file as whole blocks. A page that cannot be rebuilt is skipped, and returned with the
    /// reason.
    fn fold_what_can_be_read(&self, inode: &Arc<Node>, blocks: &[u64]) -> Result<Vec<(u64, Error)>> {
        let (mut pages, mut left): (Vec<(u64, Box<Block>)>, Vec<(u64, Error)>) = Default::default();
        let known = self.deltas.deltas(inode)?;
        for &block in blocks {
            let Lookup::At(place) = self.nodes.find(inode, block)? else { continue };
            let page = Page { inode, block, place: &place, index: &known };
            match place.node.steady(|| self.deltas.stored_page(page, Cause::DeltaFold)) {
                Ok(Some(page)) => pages.push((block, page)),
                Ok(None) => {}
                Err(e) => left.push((block, e)),
            }
        }
        if pages.is_empty() {
            return Ok(left);
        }
        pages.sort_unstable_by_key(|(index, _)| *index);
        let blocks: Vec<(u64, &Block)> = pages.iter().map(|(index, page)| (*index, &**page)).collect();
        self.promises.stray(inode.ino);
        self.write_whole(inode, &blocks, Writeback::Background, Cause::DeltaFold).inspect_err(|e| {
            if !matches!(e, Error::Fs(vfs::Error::NoSpace)) {
                // Some slots may point at blocks that were not written, and their pages exist nowhere else.
                self.ctx.health.fail_for_good(e);
            }
        })?;
        self.ctx.counters.folded.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        Ok(left)
    }

    /// Makes room in the zone for the coming writeback. A delta whose page cannot be read stays; deltas that then do
    /// not fit are written as whole blocks.
    pub(crate) fn fold(&self, inode: &Arc<Node>, blocks: &[u64]) -> Result<()> {
        for (block, e) in self.fold_what_can_be_read(inode, blocks)? {
            log::warn!("inode {}: the delta of block {block} stays: {e}", inode.ino);
        }
        Ok(())
    }

    /// Folds all deltas of an inode. Delta nodes stay, empty.
    pub(crate) fn fold_all(&self, inode: &Arc<Node>) -> Result<()> {
        self.fold_until(inode, u32::MAX)?;
        let all: Vec<u64> = self.deltas.deltas(inode)?.blocks().collect();
        for some in all.chunks(BATCH) {
            if let Some((_, e)) = self.fold_what_can_be_read(inode, some)?.pop() {
                return Err(e);
            }
        }
        Ok(())
    }

    /// The oldest deltas of an inode that must be removed to leave room in the zone for addresses in the slots before
    /// `end` (MedFS FAST'25, section 4.1.3, case 1).
    fn in_the_way(&self, node: &Node, end: u32) -> Vec<Delta> {
        let bytes = node.read();
        let raw = RawInode::of(&bytes);
        let Some(d) = raw.divide(self.ctx.sb.features).ok().filter(|d| d.zone > 0 && d.addressed() < end) else {
            return Vec::new();
        };
        let mut lacks = 4 * (end - d.addressed()) as usize;
        let enough = delta::entries(raw, d).take_while(|e| {
            let more = lacks > 0;
            lacks = lacks.saturating_sub(delta::HEADER + e.payload.len());
            more
        });
        enough.map(|e| Delta { block: e.slot, codec: e.codec, check: e.check, payload: e.payload.to_vec() }).collect()
    }

    /// Makes room in the zone for addresses in the slots before `end`. Deltas in the way move into delta nodes if that
    /// takes fewer blocks than writing their pages: no base is read, and no operation waits for the device. Other
    /// deltas are folded.
    pub(super) fn make_way(&self, node: &Arc<Node>, end: u32) -> Result<()> {
        if !self.ctx.may_hold_deltas() {
            return Ok(());
        }
        if self.ctx.options.delta
            && self.ctx.options.delta_places == Places::Both
            && !self.ctx.options.delta_study.is_of_others()
        {
            let leaving = self.in_the_way(node, end);
            // A first delta node costs two blocks: its own, and one with each fsync that changes only deltas.
            let worth = if self.deltas.delta_root(node).is_some() { 1 } else { 3 };
            if leaving.len() >= worth {
                let moved: Vec<(u64, Encoded)> = leaving.into_iter().map(|d| (d.block.into(), d.again())).collect();
                let moved = self.deltas.move_deltas(node, &moved)?;
                self.ctx.counters.deltas_moved.fetch_add(moved as u64, Ordering::Relaxed);
            }
        }
        self.fold_until(node, end)
    }

    /// Folds deltas of an inode, the oldest first (MedFS FAST'25, section 4.1.3, case 1), until the zone has room for
    /// addresses in the slots before `end`. A delta whose page cannot be read stays if the others free enough room.
    fn fold_until(&self, node: &Arc<Node>, end: u32) -> Result<()> {
        if !self.ctx.may_hold_deltas() {
            return Ok(());
        }
        let mut unread: Vec<(u64, Error)> = Vec::new();
        loop {
            let oldest = node.inode(|r: &RawInode| {
                let d = r.divide(self.ctx.sb.features).ok().filter(|d| d.zone > 0 && d.addressed() < end)?;
                let left = |block: &u64| unread.iter().all(|(known, _)| known != block);
                let entries = delta::entries(r, d).map(|e| (u64::from(e.slot), delta::HEADER + e.payload.len()));
                let mut lacks = 4 * (end - d.addressed()) as usize;
                let enough = entries.filter(|(block, _)| left(block)).take_while(|(_, bytes)| {
                    let more = lacks > 0;
                    lacks = lacks.saturating_sub(*bytes);
                    more
                });
                Some(enough.map(|(block, _)| block).take(BATCH).collect::<Vec<u64>>())
            });
            match oldest {
                None => return Ok(()),
                Some(some) if !some.is_empty() => unread.extend(self.fold_what_can_be_read(node, &some)?),
                Some(_) => {
                    return Err(unread.pop().map_or_else(|| Error::corrupt("a zone without deltas"), |(_, e)| e));
                }
            }
        }
    }
}
