//! How is a section emptied? Cleaning moves its valid blocks elsewhere, and the next checkpoint frees it.
//!
//! The summary has the owner of each block; cleaning checks that the owner still points at the block. If a block is
//! valid in the segment table but its owner does not point at it, the volume is damaged: the block stays, and no policy
//! chooses the section again. Cleaning changes addresses without inode locks; the node with the address counts the
//! change, so that readers notice it.
//!
//! Blocks of a pinned file stay, even if a writer waits for space: swap, loop devices and device-mapper tables rely on
//! their addresses. The other blocks of the section move, and no policy chooses the section again until one of the
//! pinned blocks is gone. (Linux unpins a file after 2,048 futile foreground cleanings, without notice to the user of
//! the addresses. JouleFS keeps the pin.)
//!
//! A section is emptied in steps ([`Work`]), so that background cleaning can let other operations run in between.
//! Between two steps nothing is half done: some blocks have moved, the others have not.

use std::sync::Arc;

use device::Lba;
use format::inode::{Inline, RawInode};
use format::node::{self, ADDRS_PER_BLOCK, NodeKind};
use format::sit::LogType;
use format::summary::{self, Summary};
use format::{BLOCK, Block, BlockAddr, Ino, SegNo, bits};

use super::work::{Into, When, Work};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::gc::Cleaning;
use crate::node::cache::Node;
use crate::node::map::{addr_in, move_addr_in};
use crate::node::write::Mark;
use crate::pack::PackState;

/// A data block that moves: its address, and the slot that points at it.
struct Live {
    from: BlockAddr,
    node: Arc<Node>,
    slot: u16,
}

/// Address slots in a node that maps file blocks; `None` for other nodes.
fn slots_of(ctx: &Context, bytes: &Block) -> Option<u32> {
    match node::kind_of(node::footer(bytes).offset) {
        NodeKind::Inode => {
            let raw = RawInode::of(bytes);
            if raw.inline().intersects(Inline::DATA | Inline::DENTRY) {
                return None;
            }
            raw.divide(ctx.sb.features).ok().map(|d| d.direct_slots())
        }
        NodeKind::Direct { .. } => Some(ADDRS_PER_BLOCK),
        _ => None,
    }
}

impl Cleaning {
    /// Starts to empty a section: no log may fill its holes until [`Cleaning::clean_step`] is done.
    pub(super) fn begin_cleaning(&self, _alone: &mut PackState, work: Work) -> Work {
        let mut seg = self.logs.seg.lock();
        let first = seg.table.section(work.section).next();
        seg.set_victim(first);
        work
    }

    /// Moves at most `most` blocks of a section, fewer at a segment's end, while no other thread makes changes. `None`
    /// when the section is done; if space runs out, it ends early without an error.
    pub(super) fn clean_step(&self, alone: &mut PackState, mut work: Work, most: usize) -> Result<Option<Work>> {
        let done = match self.clean_blocks(alone, &mut work, most) {
            Ok(()) => work.next >= self.ctx.sb.segs_per_sec * 512,
            Err(Error::Fs(vfs::Error::NoSpace)) => true,
            Err(e) => {
                let mut seg = self.logs.seg.lock();
                seg.set_victim(None);
                if matches!(e, Error::Device(_)) {
                    // A policy that chose the section again would fail again, and a writer that needs space would wait
                    // forever.
                    seg.give_up(work.section);
                    seg.table.section(work.section).for_each(|s| seg.table.touch(s));
                }
                return Err(e);
            }
        };
        if !done {
            return Ok(Some(work));
        }
        let mut seg = self.logs.seg.lock();
        seg.set_victim(None);
        let of_nodes = seg.table.section(work.section).next().is_some_and(|s| seg.table.segment(s).log.is_node());
        if !work.clean {
            log::warn!("section {}: has valid blocks without an owner; run joulefs fsck", work.section);
            seg.give_up(work.section);
        }
        if work.pinned {
            seg.leave_pinned(work.section);
        }
        if !work.clean || work.pinned {
            let segs: Vec<SegNo> = seg.table.section(work.section).collect();
            segs.into_iter().for_each(|s| seg.table.touch(s));
        }
        drop(seg);
        self.ctx.counters.cleaned(work.when == When::Foreground, of_nodes);
        Ok(None)
    }

    /// Moves the valid blocks among the next blocks of a section's segment.
    fn clean_blocks(&self, alone: &mut PackState, work: &mut Work, most: usize) -> Result<()> {
        let s = SegNo(work.section.0 * self.ctx.sb.segs_per_sec + work.next / 512);
        let off = (work.next % 512) as u16;
        let (valid, is_node, owners) = {
            let seg = self.logs.seg.lock();
            let of = seg.table.segment(s);
            if of.valid == 0 || seg.table.is_log(s) {
                work.next = (work.next / 512 + 1) * 512;
                return Ok(());
            }
            let map = seg.table.map(s);
            let valid: Vec<u16> = (off..512).filter(|&o| bits::msb_test(map, o.into())).take(most).collect();
            (valid, of.log.is_node(), seg.summaries.load(&*self.ctx.dev, &self.ctx.sb, s)?)
        };
        let start = self.ctx.sb.seg_start(s);
        let blocks = valid.iter().map(|&o| (start.plus(o.into()), summary::get(&owners, o.into())));
        if is_node {
            work.clean &= self.move_nodes(alone, *work, blocks)?;
        } else {
            self.move_data(alone, work, blocks)?;
        }
        // If the batch is full, this segment may have more valid blocks behind it.
        work.next = match valid.last() {
            Some(&last) if valid.len() == most => work.next - u32::from(off) + u32::from(last) + 1,
            _ => (work.next / 512 + 1) * 512,
        };
        Ok(())
    }

    fn move_nodes(
        &self,
        alone: &mut PackState,
        work: Work,
        valid: impl Iterator<Item = (BlockAddr, Summary)>,
    ) -> Result<bool> {
        let mut clean = true;
        let mut live = Vec::new();
        for (addr, owner) in valid {
            let here = self.nodes.nat.get(owner.nid).is_ok_and(|e| e.addr == addr);
            match self.nodes.node(owner.nid) {
                Ok(n) if here => {
                    self.nodes.cache.mark_moved(&n);
                    live.push(n);
                }
                Err(Error::Device(e)) => return Err(e.into()),
                _ => clean = false,
            }
        }
        self.nodes.write_nodes(alone, &live, Mark::Plain, work.node_cause())?;
        self.ctx.counters.moved(work.when == When::Foreground, live.len() as u64, 0);
        Ok(clean)
    }

    fn move_data(
        &self,
        alone: &mut PackState,
        work: &mut Work,
        valid: impl Iterator<Item = (BlockAddr, Summary)>,
    ) -> Result<()> {
        let mut live: Vec<Live> = Vec::new();
        let mut asked: Option<(Ino, bool)> = None;
        for (from, owner) in valid {
            let node = match self.nodes.node(owner.nid) {
                Ok(n) => n,
                Err(Error::Device(e)) => return Err(e.into()),
                Err(_) => {
                    work.clean = false;
                    continue;
                }
            };
            let points_here = {
                let bytes = node.read();
                slots_of(&self.ctx, &bytes).is_some_and(|n| u32::from(owner.slot) < n)
                    && addr_in(&self.ctx, &node, &bytes, owner.slot.into()) == from
            };
            if !points_here {
                work.clean = false;
                continue;
            }
            let may = match asked {
                Some((ino, may)) if ino == node.ino => may,
                _ => match self.may_move(&node) {
                    Ok(may) => may,
                    Err(Error::Device(e)) => return Err(e.into()),
                    Err(_) => {
                        work.clean = false;
                        continue;
                    }
                },
            };
            asked = Some((node.ino, may));
            match may {
                true => live.push(Live { from, node, slot: owner.slot }),
                false => work.pinned = true,
            }
        }
        self.copy(alone, *work, &live)
    }

    /// False if the node belongs to a pinned file; otherwise makes its inode ready for the move.
    fn may_move(&self, node: &Arc<Node>) -> Result<bool> {
        let own = node.nid == node.ino.nid();
        let inode = if own { node.clone() } else { self.nodes.node(node.ino.nid())? };
        if inode.inode(|r| r.inline().contains(Inline::PIN_FILE)) {
            return Ok(false);
        }
        self.nodes.forget_extent(&inode);
        Ok(true)
    }

    /// Reads the contents of blocks, which are in order. Small gaps are read too if that is cheaper than another
    /// request.
    fn read_live(&self, work: Work, live: &[Live]) -> Result<Vec<[u8; BLOCK]>> {
        let gap = self.logs.seg.lock().chooser.read_along();
        let mut bytes = Vec::with_capacity(live.len());
        for run in live.chunk_by(|a, b| b.from.0 - a.from.0 <= gap + 1) {
            let (first, last) = (run[0].from.0, run[run.len() - 1].from.0);
            let mut all = vec![[0u8; BLOCK]; (last - first + 1) as usize];
            let tag = work.data_cause().of(run[0].node.ino);
            self.ctx.dev.read(Lba(first.into()), all.as_flattened_mut(), tag)?;
            bytes.extend(run.iter().map(|l| all[(l.from.0 - first) as usize]));
        }
        Ok(bytes)
    }

    /// Copies blocks, then points their owners' slots at the copies.
    fn copy(&self, _alone: &mut PackState, work: Work, live: &[Live]) -> Result<()> {
        let bytes = self.read_live(work, live)?;
        let mut owners = Vec::with_capacity(live.len());
        for l in live {
            let version = self.nodes.nat.get(l.node.nid)?.version;
            owners.push(Summary { nid: l.node.nid, version, slot: l.slot });
        }
        let age = self.ctx.mounted_seconds();
        let mut to = Vec::with_capacity(live.len());
        let mut threaded = 0;
        let mut out = Ok(());
        {
            let mut seg = self.logs.seg.lock();
            seg.tally.begin_request();
            for (l, owner) in live.iter().zip(owners) {
                let placed = match work.into {
                    Into::ColdLog => seg.relocate(LogType::ColdData, owner, l.from, age),
                    Into::SimilarAge => seg.allocate_moved(owner, l.from),
                };
                match placed {
                    Ok(p) => {
                        threaded += u64::from(seg.is_threaded(p.addr));
                        to.push(p.addr);
                    }
                    Err(e) => {
                        out = Err(e);
                        break;
                    }
                }
            }
        }
        let mut done = 0;
        for run in to.chunk_by(|a, b| a.plus(1) == *b) {
            let tag = work.data_cause().of(live[done].node.ino);
            let data = bytes[done..done + run.len()].as_flattened();
            self.logs.place(run[0], run.len() as u32, tag.cause);
            if let Err(e) = self.ctx.dev.write(Lba(run[0].0.into()), data, tag) {
                // The segment table counts blocks as moved that no node points at.
                self.ctx.health.fail_for_good(&e);
                return Err(e.into());
            }
            done += run.len();
        }
        for (l, addr) in live.iter().zip(&to) {
            // The copy must be durable before an fsync marks an inode whose nodes point at it.
            self.promises.stray(l.node.ino);
            let mut bytes = l.node.write();
            move_addr_in(&self.ctx, &l.node, &mut bytes, l.slot.into(), *addr);
            // The old block stays intact until the next checkpoint.
            l.node.note_move();
            self.nodes.cache.mark_moved(&l.node);
        }
        self.ctx.counters.moved(work.when == When::Foreground, to.len() as u64, threaded);
        out
    }
}
