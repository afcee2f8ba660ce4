//! Which nodes were written since the checkpoint?
//!
//! The warm node log is a chain. It begins at the log's next free block, the footer of each node has the address of the
//! next one, and it ends at the first block without the checkpoint's version. An invalid block with that version (torn
//! by the power cut) ends it too. No fsync promised the rest: an fsync returns only when everything up to its last
//! block is complete. An inode's checksum shows whether it is torn; on a volume without inode checksums only a torn
//! start is noticed. A *withdrawn* inode, whose marks an fsync cleared in place, still has the checksum from before.

use format::checkpoint::{Checkpoint, CpFlags};
use format::inode::{self, Inline, RawInode};
use format::node::{self, ADDRS_PER_BLOCK, Footer, NodeKind};
use format::sit::LogType;
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, Nid};
use rustc_hash::FxHashSet;
use vfs::FileKind;

use crate::error::Result;
use crate::volume::Volume;

/// One node of the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) addr: BlockAddr,
    pub(super) nid: Nid,
    pub(super) ino: Ino,
    pub(super) is_inode: bool,
    pub(super) fsync: bool,
    pub(super) dentry: bool,
}

/// True if a node was written under this checkpoint (kernel `is_recoverable_dnode`).
fn is_of(cp: &Checkpoint, f: &Footer) -> bool {
    if cp.flags.contains(CpFlags::NOCRC_RECOVERY) {
        return f.cp_ver as u32 == cp.version as u32;
    }
    let crc = if cp.flags.contains(CpFlags::CRC_RECOVERY) { u64::from(cp.crc) << 32 } else { 0 };
    f.cp_ver == cp.version | crc
}

/// The address slots of a node that maps file blocks, with their numbers; none for other nodes.
pub(super) fn addresses(features: Features, block: &Block) -> Vec<(u32, BlockAddr)> {
    match node::kind_of(node::footer(block).offset) {
        NodeKind::Inode => {
            let raw = RawInode::of(block);
            if raw.inline().intersects(Inline::DATA | Inline::DENTRY) {
                return Vec::new();
            }
            let Ok(d) = raw.divide(features) else { return Vec::new() };
            (0..d.direct_slots()).map(|i| (i, raw.addr(d, i))).collect()
        }
        NodeKind::Direct { .. } => {
            (0..ADDRS_PER_BLOCK).map(|i| (i, BlockAddr(node::word(block, i as usize)))).collect()
        }
        _ => Vec::new(),
    }
}

impl Volume {
    /// The chain since the checkpoint.
    pub(super) fn chain(&self) -> Result<Vec<Link>> {
        let pack = self.ctx.cp.read();
        let cp = &pack.checkpoint;
        let mut at = {
            let seg = self.logs.seg.lock();
            let log = &seg.logs[LogType::WarmNode.index()];
            self.ctx.sb.seg_start(log.seg).plus(log.next.into())
        };
        let mut seen = FxHashSet::default();
        let mut out = Vec::new();
        while self.ctx.sb.locate(at).is_some() && seen.insert(at) {
            if self.logs.seg.lock().is_valid(at) {
                break; // part of the checkpoint: nothing can have been written here since
            }
            let block = self.read_link(at)?;
            let f = node::footer(&block);
            if !is_of(cp, &f) {
                break;
            }
            if !self.makes_sense(&block, &f) {
                log::warn!("node {} at block {at}: torn; later writes are not replayed", f.nid);
                break;
            }
            let is_inode = f.nid == f.ino.nid();
            out.push(Link { addr: at, nid: f.nid, ino: f.ino, is_inode, fsync: f.fsync, dentry: f.dentry });
            at = f.next;
        }
        Ok(out)
    }

    /// True if an inode's checksum is right, either now or before its withdrawal.
    fn is_whole(&self, block: &Block, f: &Footer) -> bool {
        let right = |b: &Block| inode::verify_checksum(self.ctx.sb.features, self.ctx.checksum_seed, b).is_ok();
        right(block) || {
            let mut marked = Box::new(*block);
            node::set_footer(&mut marked, &Footer { fsync: true, dentry: true, ..*f });
            !f.fsync && !f.dentry && right(&marked)
        }
    }

    fn makes_sense(&self, block: &Block, f: &Footer) -> bool {
        let max = self.ctx.sb.max_nid();
        let numbers = (1..max).contains(&f.nid.0) && (1..max).contains(&f.ino.0);
        let is_inode = f.nid == f.ino.nid();
        let place = match node::kind_of(f.offset) {
            NodeKind::Inode => {
                // If inodes have checksums, an inode without the bit for the checksum's area is torn: Linux and JouleFS
                // set it in every inode of such a volume.
                let bare = !RawInode::of(block).inline().contains(Inline::EXTRA_ATTR);
                is_inode
                    && !(bare && self.ctx.sb.features.contains(Features::INODE_CHECKSUM))
                    && self.is_whole(block, f)
                    && format::delta::verify(RawInode::of(block), self.ctx.sb.features).is_ok()
                    && FileKind::from_mode(RawInode::of(block).i_mode.get()).is_some()
            }
            NodeKind::Nothing => false,
            NodeKind::Delta => {
                !is_inode && self.ctx.may_hold_deltas() && node::delta::verify(self.ctx.checksum_seed, block).is_ok()
            }
            _ => !is_inode,
        };
        // Also for nodes without a mark: they are replayed if a marked node of the same inode follows.
        numbers
            && place
            && addresses(self.ctx.sb.features, block)
                .iter()
                .all(|(_, a)| !a.is_real() || self.ctx.sb.locate(*a).is_some())
    }
}
