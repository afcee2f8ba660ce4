//! How are contents of files stored?
//!
//! Written contents stay in memory, one block a page, until an fsync, a checkpoint, the clock or the limit writes them
//! to the log. A block is reserved when it is first written, so that every accepted byte can be stored.
//!
//! * [`read`], [`mod@write`]: reading and writing through memory and log. [`admission`]: how much may be written at the
//!   same time.
//! * [`writeback`]: from memory to the log; [`run`]: in which requests.
//! * [`truncate`], [`allocate`]: size, holes, reservations; [`shift`]: moving blocks inside the file. [`inline`]:
//!   contents inside the inode; [`prealloc`]: blocks preallocated for growth.
//! * [`extents`]: where its blocks lie; [`defragment`]: making them contiguous.
//! * [`free`]: freeing blocks and their deltas. `fold`: writing a page with a delta as a whole block.
//! * [`set`]: writes that become durable together.
//! * [`compressed`]: files whose blocks are compressed in clusters.

pub mod admission;
pub mod allocate;
pub mod compressed;
pub mod defragment;
pub mod extents;
mod fold;
pub(crate) mod free;
pub mod inline;
pub mod prealloc;
pub mod read;
mod run;
pub(crate) mod set;
pub(crate) mod shift;
pub mod truncate;
pub mod write;
pub mod writeback;
pub(crate) mod writers;

use crate::context::Context;
use crate::delta::Deltas;
use crate::inode::Inodes;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::segment::Logs;
use set::Sets;
use std::sync::Arc;
use writers::Writers;

use format::BlockAddr;
use format::inode::{Advise, InodeFlags};
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::node::cache::Node;
use crate::node::map::set_addr_in;

/// Contents of files.
pub struct Files {
    pub(crate) ctx: Arc<Context>,
    pub(crate) logs: Arc<Logs>,
    promises: Arc<Promises>,
    pub(crate) nodes: Arc<Nodes>,
    inodes: Arc<Inodes>,
    deltas: Arc<Deltas>,
    pub(crate) writers: Writers,
    pub(crate) sets: Sets,
}

impl Files {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        logs: &Arc<Logs>,
        promises: &Arc<Promises>,
        nodes: &Arc<Nodes>,
        inodes: &Arc<Inodes>,
        deltas: &Arc<Deltas>,
    ) -> Arc<Self> {
        Arc::new(Files {
            ctx: ctx.clone(),
            logs: logs.clone(),
            promises: promises.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            deltas: deltas.clone(),
            writers: Writers::default(),
            sets: Sets::default(),
        })
    }
}

/// Bytes in a block, as a file offset.
pub(crate) const BLOCK: u64 = 4096;

impl Files {
    /// Reserves a file block if it is a hole.
    pub(crate) fn reserve(&self, node: &Arc<Node>, index: u64) -> Result<()> {
        self.reserve_run(node, index, 1).map(drop)
    }

    /// Reserves the holes among `count` blocks, as far as one node holds their addresses; returns how many blocks it
    /// checked, at least one.
    pub(in crate::file) fn reserve_run(&self, node: &Arc<Node>, index: u64, count: u64) -> Result<u64> {
        let p = self.nodes.make(node, index)?;
        let n = p.run().min(count);
        if Arc::ptr_eq(&p.node, node) {
            self.make_way(node, p.slot + n as u32)?;
        }
        let mut taken = 0;
        let mut out = Ok(n);
        {
            let mut bytes = p.node.write();
            for k in 0..n as u32 {
                if crate::node::map::addr_in(&self.ctx, &p.node, &bytes, p.slot + k) != BlockAddr::NULL {
                    continue;
                }
                if let Err(e) = self.nodes.space.take(1) {
                    out = if k == 0 { Err(e) } else { Ok(k.into()) };
                    break;
                }
                set_addr_in(&self.nodes, &p.node, &mut bytes, p.slot + k, BlockAddr::NEW);
                taken += 1;
            }
            if taken > 0 {
                self.nodes.cache.mark_dirty(&p.node);
            }
        }
        self.nodes.add_blocks(node, taken);
        out
    }

    /// Refuses an inode without plain contents that can be changed.
    pub(crate) fn check_plain(&self, inode: &Inode) -> Result<()> {
        match inode.kind {
            FileKind::Directory => return Err(vfs::Error::IsDirectory.into()),
            FileKind::Regular | FileKind::Symlink => {}
            _ => return Err(vfs::Error::Invalid("not a regular file").into()),
        }
        self.check_decrypted(inode)?;
        self.check_not_sealed(inode)?;
        if inode.node.inode(|r| r.flags()).contains(InodeFlags::IMMUTABLE) {
            return Err(vfs::Error::NotPermitted("the file is immutable").into());
        }
        Ok(())
    }

    /// Refuses to open or read a regular file whose key is missing, as Linux does on open: ciphertext is no usable
    /// contents. A symlink's target has its own encoding for this case.
    pub(crate) fn check_contents_have_key(&self, inode: &Inode) -> Result<()> {
        if inode.kind == FileKind::Regular { self.check_decrypted(inode) } else { Ok(()) }
    }

    fn check_decrypted(&self, inode: &Inode) -> Result<()> {
        match inode.node.inode(|r| r.advise().contains(Advise::ENCRYPT)) {
            true => Err(vfs::Error::NoKey.into()),
            false => Ok(()),
        }
    }

    /// Refuses a file sealed by fs-verity.
    pub(crate) fn check_not_sealed(&self, inode: &Inode) -> Result<()> {
        match inode.node.inode(|r| r.advise().contains(Advise::VERITY)) {
            true => Err(vfs::Error::NotPermitted("the file is sealed by fs-verity").into()),
            false => Ok(()),
        }
    }

    /// Largest size of a file, in bytes.
    fn max_size(&self, inode: &Inode) -> Result<u64> {
        Ok(inode.node.inode(|r| self.nodes.shape(r))?.max_blocks() * BLOCK)
    }

    pub(in crate::file) fn checked_end(&self, inode: &Inode, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).ok_or(vfs::Error::TooBig)?;
        if end > self.max_size(inode)? { Err(Error::Fs(vfs::Error::TooBig)) } else { Ok(end) }
    }
}
