//! How is a delta's page written whole, so that the delta can go?
//!
//! The caller holds the inode's lock exclusively and `cp` shared. The page goes to a new place like any overwritten one,
//! and its slot gets the address and loses the delta in one change of the inode. If the log has no place, the delta
//! stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::Block;
use format::delta;
use format::inode::RawInode;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::file::temperature::Writeback;
use crate::node::cache::Node;
use crate::volume::Volume;

impl Volume {
    /// Writes the pages of these slots whole. A page that cannot be put together is left as it is, and its slot
    /// returned with the reason.
    fn fold_what_can_be_read(&self, node: &Arc<Node>, slots: &[u32]) -> Result<Vec<(u32, Error)>> {
        let (mut pages, mut left): (Vec<(u64, Box<Block>)>, Vec<(u32, Error)>) = Default::default();
        for &slot in slots {
            match self.read_steady(node, || self.stored_page(node, slot)) {
                Ok(Some(page)) => pages.push((slot.into(), page)),
                Ok(None) => {}
                Err(e) => left.push((slot, e)),
            }
        }
        if pages.is_empty() {
            return Ok(left);
        }
        pages.sort_unstable_by_key(|(index, _)| *index);
        let blocks: Vec<(u64, &Block)> = pages.iter().map(|(index, page)| (*index, &**page)).collect();
        self.promises.stray(node.ino);
        self.write_whole(node, &blocks, Writeback::Background, Cause::DeltaFold)?;
        self.counters.folded.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        Ok(left)
    }

    /// Makes room in the zone for what is about to be written back. A delta whose page cannot be read stays, and what
    /// finds no room is written whole.
    pub(crate) fn fold(&self, node: &Arc<Node>, slots: &[u32]) -> Result<()> {
        for (slot, e) in self.fold_what_can_be_read(node, slots)? {
            log::warn!("inode {}: the delta of block {slot} stays: {e}", node.ino);
        }
        Ok(())
    }

    /// Folds all deltas of an inode.
    pub(crate) fn fold_all(&self, node: &Arc<Node>) -> Result<()> {
        self.fold_until(node, u32::MAX)
    }

    /// Folds deltas of an inode, the oldest first (MedFS FAST'25, section 4.1.3, case 1), until the zone leaves room
    /// for addresses in the slots before `end`. A delta whose page cannot be read stays if the others make enough room.
    pub(crate) fn fold_until(&self, node: &Arc<Node>, end: u32) -> Result<()> {
        if !self.may_hold_deltas() {
            return Ok(());
        }
        let mut unread: Vec<(u32, Error)> = Vec::new();
        loop {
            let (lacks, oldest) = node.inode(|r: &RawInode| {
                let Ok(d) = r.divide(self.sb.features) else { return (false, None) };
                let left = |slot: &u32| unread.iter().all(|(known, _)| known != slot);
                (d.zone > 0 && d.addressed() < end, delta::entries(r, d).map(|e| e.slot).find(left))
            });
            match oldest {
                _ if !lacks => return Ok(()),
                Some(slot) => unread.extend(self.fold_what_can_be_read(node, &[slot])?),
                None => return Err(unread.pop().map_or_else(|| Error::corrupt("a zone without deltas"), |(_, e)| e)),
            }
        }
    }
}
