//! How does a node of the chain restore an inode and its contents?
//!
//! The replay copies the inode's fields and compares its address slots. If the chain has another address, the replay
//! adopts the block at that address and invalidates the checkpoint's block. It does not adopt the chain's node blocks:
//! it changes the nodes in memory, and they are written again.

use std::sync::Arc;

use format::delta;
use format::inode::{Division, Inline, RawInode};
use format::node::{self, FOOTER, NodeKind, XATTR_NODE_OFFSET};
use format::sit::LogType;
use format::summary::Summary;
use format::{Block, BlockAddr};

use super::chain::{Link, addresses};
use crate::error::{Error, Result};
use crate::fields::{put_inline, put_stamp};
use crate::file::free::KeptPages;
use crate::inode::Inode;
use crate::node::map::{Lookup, Place, addr_in, set_addr_in};
use crate::volume::Volume;

const BLOCK: u64 = 4096;

impl Volume {
    /// Creates an empty inode that is not in the checkpoint, with its number.
    pub(super) fn recover_new(&self, link: &Link, src: &Block) -> Result<()> {
        self.nodes.nat.claim(link.nid, link.ino)?;
        self.nodes.space.take_node(true)?;
        let mut bytes = Box::new(*src);
        {
            let raw = RawInode::of_mut(&mut bytes);
            let d = self.nodes.division(raw)?;
            raw.i_size = 0.into();
            raw.i_blocks = 1.into();
            raw.i_links = 1.into();
            raw.i_xattr_nid = 0.into();
            raw.i_nid = [0.into(); 5];
            delta::clear(raw, d);
            delta::set_root(raw, None);
            raw.forget_extent();
            let d = self.nodes.division(raw)?;
            raw.i_inline &= !(Inline::DATA | Inline::DATA_EXIST).bits();
            for slot in 0..d.direct_slots() {
                raw.set_addr(d, slot, BlockAddr::NULL);
            }
        }
        let node = self.nodes.cache.insert(link.nid, link.ino, bytes);
        self.nodes.edit(&node, |_| ());
        Ok(())
    }

    /// Brings an inode to the state recorded in one of its nodes in the chain.
    pub(super) fn replay_link(&self, inode: &Arc<Inode>, link: &Link, src: &Block) -> Result<()> {
        let shape = inode.node.inode(|r| self.nodes.shape(r))?;
        let base = match shape.kind_of(node::footer(src).offset) {
            NodeKind::Inode => {
                self.replay_inode(inode, src)?;
                0
            }
            NodeKind::Xattr => return self.replay_xattr(inode, src),
            NodeKind::Delta => {
                self.deltas.replay_delta_node(&inode.node, src)?;
                if link.fsync {
                    self.nodes.edit_inode(&inode.node, |r| put_stamp(r, &node::delta::stamp(src)));
                }
                return Ok(());
            }
            NodeKind::Direct { first } => u64::from(shape.direct_slots) + first,
            _ => return Ok(()),
        };
        let slots = addresses(self.ctx.sb.features, src);
        if slots.is_empty() {
            return Ok(());
        }
        let zone = node::kind_of(node::footer(src).offset) == NodeKind::Inode && self.ctx.may_hold_deltas();
        if inode.node.inode(|r| r.inline().contains(Inline::DATA)) {
            // The contents had moved out of the inode when this node was written; the inode block that records this
            // comes later.
            self.empty_inline(inode)?;
        }
        self.replay_slots(inode, base, &slots)?;
        if zone {
            let from = RawInode::of(src);
            let from_d = self.nodes.division(from)?;
            let d = inode.node.inode(|r| self.nodes.division(r))?;
            self.nodes.edit_inode(&inode.node, |r| delta::copy_zone(r, d, from, from_d));
        }
        Ok(())
    }

    fn empty_inline(&self, inode: &Arc<Inode>) -> Result<()> {
        self.nodes.edit(&inode.node, |b| {
            let area = self.nodes.division(RawInode::of(b))?.inline_area();
            b[area].fill(0);
            put_inline(RawInode::of_mut(b), Inline::DATA | Inline::DATA_EXIST, false);
            Ok(())
        })
    }

    fn replay_inode(&self, inode: &Arc<Inode>, src: &Block) -> Result<()> {
        let new = RawInode::of(src);
        let d = self.nodes.division(new)?;
        let (had, inline, size) =
            inode.node.inode(|r| Ok::<_, Error>((self.nodes.division(r)?, r.inline(), r.i_size.get())))?;
        if (Division { zone: 0, ..had }) != (Division { zone: 0, ..d }) {
            return Err(Error::corrupt(format_args!(
                "inode {}: synced with its address words divided as {d:?}, the checkpoint has {had:?}",
                inode.ino
            )));
        }
        // The slots of the old zone may hold addresses now; the new zone is written after all addresses are in their
        // slots.
        self.nodes.edit_inode(&inode.node, |r| {
            delta::drop_slots(r, had, 0..u32::MAX);
        });
        let (was_inline, is_inline) = (inline.contains(Inline::DATA), new.inline().contains(Inline::DATA));
        let shrunk = new.i_size.get() < size && !new.has_blocks_behind_end();
        if !was_inline && is_inline {
            self.files.free_from(&inode.node, 0, KeptPages::Go)?;
        } else if !was_inline && shrunk {
            self.files.free_from(&inode.node, new.i_size.get().div_ceil(BLOCK), KeptPages::Stay)?;
        }
        if new.i_xattr_nid.get() == 0
            && let Some(node) = self.xattrs.xattr_node(inode)?
        {
            self.nodes.free_node(&node, false)?;
            self.nodes.edit_inode(&inode.node, |r| {
                r.i_xattr_nid = 0.into();
                r.i_blocks = r.i_blocks.get().saturating_sub(1).into();
            });
        }
        self.nodes.edit(&inode.node, |b| {
            if is_inline {
                b[d.inline_area()].copy_from_slice(&src[d.inline_area()]);
            } else if was_inline {
                b[d.inline_area()].fill(0);
            }
            b[d.xattr_area()].copy_from_slice(&src[d.xattr_area()]);
            let r = RawInode::of_mut(b);
            r.i_mode = new.i_mode;
            r.i_advise = new.i_advise;
            r.i_inline = new.i_inline;
            r.i_uid = new.i_uid;
            r.i_gid = new.i_gid;
            r.i_size = new.i_size;
            (r.i_atime, r.i_atime_nsec) = (new.i_atime, new.i_atime_nsec);
            (r.i_ctime, r.i_ctime_nsec) = (new.i_ctime, new.i_ctime_nsec);
            (r.i_mtime, r.i_mtime_nsec) = (new.i_mtime, new.i_mtime_nsec);
            r.i_flags = new.i_flags;
            r.i_current_depth = new.i_current_depth;
            // Extra attributes occupy the first words of the address area.
            let extra = d.extra as usize;
            r.i_addr[..extra].copy_from_slice(&new.i_addr[..extra]);
            r.forget_extent();
        });
        Ok(())
    }

    fn replay_xattr(&self, inode: &Arc<Inode>, src: &Block) -> Result<()> {
        let node = match self.xattrs.xattr_node(inode)? {
            Some(n) => n,
            None => {
                let n = self.nodes.new_node(&inode.node, XATTR_NODE_OFFSET)?;
                self.nodes.edit_inode(&inode.node, |r| r.i_xattr_nid = n.nid.0.into());
                n
            }
        };
        self.nodes.edit(&node, |b| b[..FOOTER].copy_from_slice(&src[..FOOTER]));
        Ok(())
    }

    /// Adopts the addresses recorded in one node for the file blocks from `base` on.
    fn replay_slots(&self, inode: &Arc<Inode>, base: u64, slots: &[(u32, BlockAddr)]) -> Result<()> {
        let any = slots.iter().any(|(_, a)| *a != BlockAddr::NULL);
        let place = match any {
            true => self.nodes.make(&inode.node, base)?,
            false => match self.nodes.find(&inode.node, base)? {
                Lookup::At(p) => p,
                Lookup::Hole(_) => return Ok(()),
            },
        };
        self.nodes.forget_extent(&inode.node);
        let keep_size = inode.node.inode(|r| r.has_blocks_behind_end());
        for &(slot, want) in slots {
            if place.addr(&self.ctx, slot) == want || want == BlockAddr::COMPRESS {
                continue;
            }
            let end = (base + u64::from(slot) + 1) * BLOCK;
            if want != BlockAddr::NULL && !keep_size && inode.size() <= end - BLOCK {
                self.nodes.edit_inode(&inode.node, |r| r.i_size = end.into());
            }
            self.replay_slot(inode, &place, slot, want)?;
        }
        Ok(())
    }

    fn replay_slot(&self, inode: &Arc<Inode>, place: &Place, slot: u32, want: BlockAddr) -> Result<()> {
        if want.is_real() && self.logs.seg.lock().is_valid(want) {
            // A slot of an earlier node in the chain has this block; a later node took it over.
            self.evict(want)?;
        }
        let have = place.addr(&self.ctx, slot);
        let age = self.ctx.mounted_seconds();
        if have.is_real() {
            self.logs.seg.lock().invalidate(have, age)?;
        }
        match (have == BlockAddr::NULL, want == BlockAddr::NULL) {
            (true, false) => {
                self.nodes.space.take(1)?;
                self.nodes.add_blocks(&inode.node, 1);
            }
            (false, true) => {
                self.nodes.space.give(1);
                self.nodes.add_blocks(&inode.node, -1);
            }
            _ => {}
        }
        if want.is_real() {
            let version = self.nodes.nat.get(place.node.nid)?.version;
            let owner = Summary { nid: place.node.nid, version, slot: slot as u16 };
            self.logs.seg.lock().adopt(want, LogType::WarmData, owner, age)?;
        }
        self.set_slot(place, slot, want);
        Ok(())
    }

    fn set_slot(&self, place: &Place, slot: u32, to: BlockAddr) {
        let mut bytes = place.node.write();
        set_addr_in(&self.nodes, &place.node, &mut bytes, slot, to);
        self.nodes.cache.mark_dirty(&place.node);
    }

    /// Removes a block from its present slot (kernel `check_index_in_prev_nodes`).
    fn evict(&self, addr: BlockAddr) -> Result<()> {
        let owner = self.logs.seg.lock().owner(addr)?;
        let nobody = || {
            Error::corrupt(format_args!(
                "block {addr}: synced contents, but the segment table has it for node {} slot {}",
                owner.nid, owner.slot
            ))
        };
        let node = self.nodes.node(owner.nid).map_err(|e| match e {
            Error::Device(_) => e,
            _ => nobody(),
        })?;
        let slot = u32::from(owner.slot);
        let here = {
            let bytes = node.read();
            addresses(self.ctx.sb.features, &bytes).get(slot as usize).is_some_and(|(_, a)| *a == addr)
                && addr_in(&self.ctx, &node, &bytes, slot) == addr
        };
        if !here {
            return Err(nobody());
        }
        let holder = self.nodes.node(node.ino.nid())?;
        self.set_slot(&Place { node, slot, slots: slot + 1 }, slot, BlockAddr::NULL);
        self.nodes.forget_extent(&holder);
        self.logs.seg.lock().invalidate(addr, self.ctx.mounted_seconds())?;
        self.nodes.space.give(1);
        self.nodes.add_blocks(&holder, -1);
        Ok(())
    }
}
