//! Emptying a section: its valid blocks go elsewhere, and the next checkpoint frees it.
//!
//! The summary says who owns a block; the owner decides whether that is still so. A block valid in
//! the segment table whose owner does not point at it is damage: it stays, and the section is not
//! chosen again. Addresses change without inode locks; `Volume::moves` tells readers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Lba;
use format::addr::SecNo;
use format::inode::{Inline, RawInode};
use format::node::{self, ADDRS_PER_BLOCK, NodeKind};
use format::sit::LogType;
use format::summary::{self, Summary};
use format::{BLOCK, Block, BlockAddr, SegNo, bits};

use super::policy::{Candidate, View};
use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::node::cache::Node;
use crate::node::map::{addr_in, set_addr_in};
use crate::node::write::Mark;
use crate::segment::Segments;
use crate::volume::Volume;

/// A data block that moves: where it is, and the slot that says so.
struct Live {
    from: BlockAddr,
    node: Arc<Node>,
    slot: u16,
}

/// Sections as a policy sees them.
pub(super) struct Sections<'s> {
    pub(super) seg: &'s Segments,
    pub(super) hopeless: &'s rustc_hash::FxHashSet<SecNo>,
}

impl View for Sections<'_> {
    fn candidates(&self, each: &mut dyn FnMut(Candidate)) {
        let (sb, table) = (&self.seg.sb, &self.seg.table);
        let full = sb.segs_per_sec * 512;
        let logs = self.seg.logs.each_ref().map(|l| sb.section_of(l.seg));
        let mut last = None;
        for seg in table.dirty_segments() {
            let section = sb.section_of(seg);
            if last == Some(section) {
                continue;
            }
            last = Some(section);
            if logs.contains(&section) || self.hopeless.contains(&section) {
                continue;
            }
            let valid = table.section(section).map(|s| u32::from(table.segment(s).valid)).sum();
            if valid < full {
                each(Candidate { section, valid });
            }
        }
    }
}

/// Address slots in a node that maps file blocks; `None` for other nodes.
fn slots_of(vol: &Volume, bytes: &Block) -> Option<u32> {
    match node::kind_of(node::footer(bytes).offset) {
        NodeKind::Inode => {
            let raw = RawInode::of(bytes);
            if raw.inline().intersects(Inline::DATA | Inline::DENTRY) {
                return None;
            }
            raw.divide(vol.sb.features).ok().map(|d| d.direct_slots())
        }
        NodeKind::Direct { .. } => Some(ADDRS_PER_BLOCK),
        _ => None,
    }
}

impl Volume {
    /// Empties a section as far as its blocks have owners. The caller holds `cp` exclusive. Running
    /// out of room ends it early; that is no error.
    pub(super) fn clean_section(&self, section: SecNo) -> Result<()> {
        let segs: Vec<SegNo> = {
            let mut seg = self.seg.lock();
            let segs: Vec<SegNo> = seg.table.section(section).collect();
            seg.victim = segs.first().copied();
            segs
        };
        let out = segs.into_iter().try_fold(true, |clean, s| Ok(self.clean_segment(s)? && clean));
        self.seg.lock().victim = None;
        self.counters.foreground_gc.fetch_add(1, Ordering::Relaxed);
        match out {
            Ok(clean) => {
                if !clean {
                    log::warn!("section {section}: holds valid blocks nobody owns; run joulefs fsck");
                    self.cleaner.hopeless.lock().insert(section);
                }
                Ok(())
            }
            Err(Error::Fs(vfs::Error::NoSpace)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Empties a segment; false if some valid blocks have no owner.
    fn clean_segment(&self, s: SegNo) -> Result<bool> {
        let (map, is_node, owners) = {
            let seg = self.seg.lock();
            let of = seg.table.segment(s);
            if of.valid == 0 || seg.table.is_log(s) {
                return Ok(true);
            }
            (seg.table.valid_map(s), of.log.is_node(), seg.summaries.load(&*self.dev, &self.sb, s)?)
        };
        let start = self.sb.seg_start(s);
        let valid = (0..512u16)
            .filter(|&off| bits::msb_test(&map, off.into()))
            .map(|off| (start.plus(off.into()), summary::get(&owners, off.into())));
        if is_node { self.move_nodes(valid) } else { self.move_data(valid) }
    }

    fn move_nodes(&self, valid: impl Iterator<Item = (BlockAddr, Summary)>) -> Result<bool> {
        let mut clean = true;
        let mut live = Vec::new();
        for (addr, owner) in valid {
            let here = self.nat.get(owner.nid).is_ok_and(|e| e.addr == addr);
            match self.node(owner.nid) {
                Ok(n) if here => {
                    self.nodes.mark_dirty(&n);
                    live.push(n);
                }
                Err(Error::Device(e)) => return Err(e.into()),
                _ => clean = false,
            }
        }
        self.write_nodes(&live, Mark::Plain, Cause::ForegroundGcNode)?;
        self.counters.moved_blocks.fetch_add(live.len() as u64, Ordering::Relaxed);
        Ok(clean)
    }

    fn move_data(&self, valid: impl Iterator<Item = (BlockAddr, Summary)>) -> Result<bool> {
        let mut clean = true;
        let mut live: Vec<Live> = Vec::new();
        for (from, owner) in valid {
            let node = match self.node(owner.nid) {
                Ok(n) => n,
                Err(Error::Device(e)) => return Err(e.into()),
                Err(_) => {
                    clean = false;
                    continue;
                }
            };
            let points_here = {
                let bytes = node.read();
                slots_of(self, &bytes).is_some_and(|n| u32::from(owner.slot) < n)
                    && addr_in(self, &node, &bytes, owner.slot.into()) == from
            };
            match points_here {
                true => live.push(Live { from, node, slot: owner.slot }),
                false => clean = false,
            }
        }
        self.copy(&live)?;
        Ok(clean)
    }

    /// Copies blocks to the cold log, then turns their owners' slots.
    fn copy(&self, live: &[Live]) -> Result<()> {
        let mut bytes = vec![[0u8; BLOCK]; live.len()];
        let mut done = 0;
        for run in live.chunk_by(|a, b| a.from.plus(1) == b.from) {
            let tag = Cause::ForegroundGcData.of(run[0].node.ino);
            let into = bytes[done..done + run.len()].as_flattened_mut();
            self.dev.read(Lba(run[0].from.0.into()), into, tag)?;
            done += run.len();
        }
        let mut owners = Vec::with_capacity(live.len());
        for l in live {
            let version = self.nat.get(l.node.nid)?.version;
            owners.push(Summary { nid: l.node.nid, version, slot: l.slot });
        }
        let age = self.mounted_seconds();
        let mut to = Vec::with_capacity(live.len());
        let mut out = Ok(());
        {
            let mut seg = self.seg.lock();
            for (l, owner) in live.iter().zip(owners) {
                match seg.allocate(LogType::ColdData, owner, l.from, age) {
                    Ok(p) => to.push(p.addr),
                    Err(e) => {
                        out = Err(e);
                        break;
                    }
                }
            }
        }
        let mut done = 0;
        for run in to.chunk_by(|a, b| a.plus(1) == *b) {
            let tag = Cause::ForegroundGcData.of(live[done].node.ino);
            self.dev.write(Lba(run[0].0.into()), bytes[done..done + run.len()].as_flattened(), tag)?;
            done += run.len();
        }
        for (l, addr) in live.iter().zip(&to) {
            let mut bytes = l.node.write();
            set_addr_in(self, &l.node, &mut bytes, l.slot.into(), *addr);
            self.nodes.mark_dirty(&l.node);
        }
        // The old places stay readable until the checkpoint that follows.
        self.moves.fetch_add(1, Ordering::AcqRel);
        self.counters.moved_blocks.fetch_add(to.len() as u64, Ordering::Relaxed);
        out
    }
}
