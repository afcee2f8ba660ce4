//! What does fsync write?
//!
//! Of a regular file with one settled name, only its nodes: roll-forward replays them after a power
//! cut. Everything else takes a checkpoint (kernel `need_do_checkpoint`, fsync mode posix), and so do
//! two cases in which a replay would lose something: a new file under a name that a directory, or a file
//! that lives on, gave up since the checkpoint, and a file that lost nodes since then.
//!
//! The order that makes a replay whole: data and nodes below the inode, then a flush, then the inode
//! with the mark that makes it count, then a flush. Where only blocks already mapped were
//! overwritten in place, the first flush is not needed, and `fdatasync` writes no inode.

pub(crate) mod flush_gate;
pub(crate) mod promises;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::inode::{Advise, InodeFlags, RawInode, extra_end};
use format::node::{self, Footer, NodeKind};
use format::{Block, BlockAddr, Ino, Nid};
use vfs::FileKind;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::file::temperature::{Writeback, in_place};
use crate::inode::{Content, Inode, put_advise};
use crate::node::cache::Node;
use crate::node::write::Mark;
use crate::pack::Reason;
use crate::volume::Volume;
use promises::MOST_WRITTEN;

/// An inode block without what `fdatasync` may leave unwritten: times, and what every write of the
/// block changes.
fn without_times(node: &Node) -> Box<Block> {
    let mut b = node.read().clone();
    let footer = node::footer(&b);
    node::set_footer(&mut b, &Footer { fsync: false, dentry: false, cp_ver: 0, next: BlockAddr::NULL, ..footer });
    let r = RawInode::of_mut(&mut b);
    (r.i_atime, r.i_atime_nsec) = (0.into(), 0.into());
    (r.i_mtime, r.i_mtime_nsec) = (0.into(), 0.into());
    (r.i_ctime, r.i_ctime_nsec) = (0.into(), 0.into());
    let checksum = r.extra_isize() >= extra_end::CHECKSUM;
    if let Some(e) = r.extra_mut().filter(|_| checksum) {
        e.i_inode_checksum = 0.into();
    }
    b
}

impl Volume {
    /// A checkpoint made everything durable.
    pub(crate) fn keep_promises(&self) {
        let settled = std::mem::take(&mut *self.renamed.lock());
        self.promises.kept(settled);
    }

    /// Makes a file or directory durable. The caller holds no lock.
    pub(crate) fn fsync_inode(&self, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.check_writable()?;
        if inode.kind == FileKind::Regular {
            if self.is_settled(inode) {
                // Blocks overwritten in place may still be on their way.
                return self.flush_for(inode.ino);
            }
            let _change = self.begin()?;
            let content = inode.content.write();
            if self.nodes_suffice(inode)? {
                match self.promise(inode, content, data_only) {
                    // Others took the room since this began: a checkpoint makes some.
                    Err(Error::Fs(vfs::Error::NoSpace)) => {}
                    out => return out,
                }
            }
        }
        self.counters.slow_fsyncs.fetch_add(1, Ordering::Relaxed);
        self.checkpoint(Reason::Running)
    }

    /// True if nothing of the inode changed since it was last written to be made durable, and all that was written
    /// has reached the device, which may not have flushed it. The caller holds no lock.
    fn is_settled(&self, inode: &Inode) -> bool {
        // Whoever writes contents or makes a promise holds this lock until the device has everything. Nodes that
        // others write, a checkpoint among them, are noted before they are clean.
        let _content = inode.content.read();
        let since = self.nat.since_checkpoint(inode.ino.nid());
        (since.checkpointed || since.fsynced)
            && inode.dirty.load(Ordering::Acquire) == 0
            && self.nodes.dirty_of(inode.ino).is_empty()
            && !self.promises.strays.lock().contains(&inode.ino)
    }

    /// True if roll-forward can restore the inode from its nodes. May settle a pending doubt about
    /// its parent.
    fn nodes_suffice(&self, inode: &Arc<Inode>) -> Result<bool> {
        let ino = inode.ino;
        let (links, flags, advise, pino) =
            inode.node.inode(|r| (r.i_links.get(), r.flags(), r.advise(), Nid(r.i_pino.get())));
        if links != 1
            || flags.contains(InodeFlags::COMPRESS)
            || self.promises.reshaped.lock().contains(&ino)
            || self.renamed.lock().contains(&ino)
            || !self.space.fits_roll_forward()
        {
            return Ok(false);
        }
        let known_parent = pino.0 >= self.sb.root.0 && pino.0 < self.sb.max_nid();
        if !known_parent || !self.nat.since_checkpoint(pino).checkpointed {
            return Ok(false);
        }
        if self.needs_name(ino) {
            // Replaying the name would displace a file or directory whose own new name is not durable.
            let name = inode.node.inode(|r| r.name().to_vec());
            if self.promises.vacated.lock().contains(pino.as_ino(), &name) {
                return Ok(false);
            }
        }
        if advise.contains(Advise::LOST_PINO) {
            if !self.promises.vouched.lock().remove(&ino) {
                return Ok(false);
            }
            self.edit_inode(&inode.node, |r| put_advise(r, Advise::LOST_PINO, false));
        }
        Ok(true)
    }

    /// True if no checkpoint and no fsync recorded the inode yet (kernel `need_dentry_mark`).
    fn needs_name(&self, ino: Ino) -> bool {
        let since = self.nat.since_checkpoint(ino.nid());
        !since.checkpointed && !since.fsynced
    }

    /// Writes contents and nodes so that roll-forward finds them.
    fn promise(
        &self,
        inode: &Arc<Inode>,
        mut content: parking_lot::RwLockWriteGuard<'_, Content>,
        data_only: bool,
    ) -> Result<()> {
        self.write_promise(inode, &mut content, data_only).inspect_err(|_| self.promises.stray(inode.ino))?;
        drop(content);
        self.flush_for(inode.ino)?;
        self.counters.fast_fsyncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// [`Self::promise`] without the flush at its end.
    fn write_promise(&self, inode: &Arc<Inode>, content: &mut Content, data_only: bool) -> Result<()> {
        let ino = inode.ino;
        let mut in_order = self.stays_in_place(inode, content)?;
        self.write_back(inode, content, Writeback::Fsync)?;
        // Indirect nodes are not replayed: roll-forward makes them anew.
        let below: Vec<Arc<Node>> = self
            .nodes
            .dirty_of(ino)
            .into_iter()
            .filter(|n| n.nid != ino.nid())
            .filter(|n| {
                let kind = node::kind_of(node::footer(&n.read()).offset);
                matches!(kind, NodeKind::Direct { .. } | NodeKind::Xattr)
            })
            .collect();
        if !below.is_empty() {
            self.write_nodes(&below, Mark::Plain, Cause::FsyncNode)?;
            in_order = false;
        }
        // After the look at what is dirty: what others write of the inode meanwhile is noted before it is clean.
        in_order &= !self.promises.strays.lock().contains(&ino);
        let now = without_times(&inode.node);
        if data_only && in_order && self.promises.written.lock().get(&ino) == Some(&now) {
            // Only times changed beside blocks that kept their places.
            return Ok(());
        }
        if !in_order {
            self.flush_for(ino)?;
        }
        let dentry = self.needs_name(ino);
        self.write_nodes(std::slice::from_ref(&inode.node), Mark::Fsync { dentry }, Cause::FsyncNode)?;
        let mut written = self.promises.written.lock();
        if written.len() >= MOST_WRITTEN {
            written.clear();
        }
        written.insert(ino, now);
        Ok(())
    }

    fn flush_for(&self, ino: Ino) -> Result<()> {
        self.flushes.pass(|| {
            // One may have failed while this waited for it.
            self.check_writable()?;
            self.dev.flush(Cause::FsyncNode.of(ino)).map_err(|e| {
                // Nobody knows what is lost; a flush that works later would not bring it back.
                self.failed.store(true, Ordering::Release);
                e.into()
            })
        })
    }

    /// True if every dirty block will overwrite the place it has.
    fn stays_in_place(&self, inode: &Arc<Inode>, content: &Content) -> Result<bool> {
        if content.pages.is_empty() {
            return Ok(true);
        }
        if !inode.node.inode(|r| in_place(r, content.pages.len(), Writeback::Fsync)) {
            return Ok(false);
        }
        for index in content.pages.keys() {
            if !self.addr_of(&inode.node, *index)?.is_real() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
