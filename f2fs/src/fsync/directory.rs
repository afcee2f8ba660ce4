//! What does fsync of a directory write instead of a checkpoint?
//!
//! Often nothing: roll-forward already restores its names ([`crate::promises::replayed`] has the rule and its proof).
//! Otherwise a few steps: an fsync of a new file under its present name, or a *withdrawal*, which clears the fsync mark
//! and the dentry mark in a deleted file's inode block in the chain. Then one flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Lba;
use format::Ino;
use format::node::{self, Footer};
use vfs::FileKind;

use super::How;
use crate::cause::Cause;
use crate::context::{Begin, Change};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::options::FsyncMode;
use crate::promises::replayed::{MOST_STEPS, Step};
use crate::segment::temperature::Mode;
use crate::volume::Volume;

impl Volume {
    /// A directory's own attributes will change: only a checkpoint makes them durable.
    pub(crate) fn note_altered(&self, inode: &Inode) {
        if inode.kind == FileKind::Directory {
            self.promises.names.lock().altered(inode.ino);
        }
    }

    /// Makes a directory's names durable without a checkpoint; false if it needs one. The caller holds no lock.
    pub(super) fn sync_names(&self, dir: &Arc<Inode>) -> Result<bool> {
        if self.is_as_promised(dir) {
            return Ok(true);
        }
        {
            let change = self.begin_modest()?;
            // No name in the directory changes meanwhile.
            let _content = dir.content.read();
            if !self.nodes.nat.since_checkpoint(dir.ino.nid()).checkpointed || !self.take_steps(&change, dir.ino)? {
                return Ok(false);
            }
        }
        if !self.promises.names.lock().is_durable(dir.ino) {
            // A writer to the chain holds `node_io` until the device has the node: the flush must not run earlier.
            drop(self.nodes.node_io.lock());
            match self.ctx.options.fsync_mode {
                FsyncMode::NoBarrier => self.ctx.check_writable()?,
                FsyncMode::Strict | FsyncMode::Posix => self.flush_for(dir.ino)?,
            }
        }
        Ok(true)
    }

    /// True if the checkpoint has the directory, and roll-forward restores its names from durable state.
    fn is_as_promised(&self, dir: &Inode) -> bool {
        // A checkpoint in progress counts as written before it is durable.
        let _cp = self.ctx.cp.read();
        let names = self.promises.names.lock();
        let agrees = names.next(dir.ino) == Step::Nothing && names.is_durable(dir.ino);
        drop(names);
        agrees && self.nodes.nat.since_checkpoint(dir.ino.nid()).checkpointed
    }

    fn take_steps(&self, change: &Change<'_>, dir: Ino) -> Result<bool> {
        for _ in 0..=MOST_STEPS {
            let step = self.promises.names.lock().next(dir);
            let taken = match step {
                Step::Nothing => return Ok(true),
                Step::Put(ino) => self.put_name(change, ino)?,
                Step::Withdraw(ino) => self.withdraw(ino)?,
                Step::Checkpoint => false,
            };
            if !taken {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Writes a new file as its fsync would, so that the chain has its present name; false if only a checkpoint makes
    /// that durable. The device is not flushed. The caller may hold locks of directories.
    pub(super) fn put_name(&self, change: &Change<'_>, ino: Ino) -> Result<bool> {
        let inode = self.inodes.inode(ino)?;
        if inode.kind != FileKind::Regular {
            return Ok(false);
        }
        let mut content = inode.content.write();
        if !self.is_new(ino) || !self.nodes_suffice(&inode)? {
            return Ok(false);
        }
        match self.write_promise(change, &inode, &mut content, How::Everything) {
            Ok(()) => {
                self.counters.names_put.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
            Err(e) => {
                self.promises.stray(ino);
                match e {
                    Error::Fs(vfs::Error::NoSpace) => Ok(false),
                    e => Err(e),
                }
            }
        }
    }

    /// Clears the marks in a deleted file's inode block, so that roll-forward skips it; false if the block is not as it
    /// was written. The device is not flushed.
    ///
    /// The checksum stays valid for the block with its marks; by it, JouleFS's roll-forward distinguishes the block
    /// from a torn one (Linux does not check it there). So only the last sector changes.
    fn withdraw(&self, ino: Ino) -> Result<bool> {
        let _order = self.nodes.node_io.lock();
        let addr = self.promises.names.lock().withdrawable(ino);
        // Another thread was first.
        let Some(addr) = addr else { return Ok(true) };
        if self.ctx.options.mode == Mode::Lfs {
            return Ok(false);
        }
        let tag = Cause::FsyncNode.of(ino);
        let Ok(mut block) = self.ctx.read_block(addr, tag) else { return Ok(false) };
        let f = node::footer(&block);
        let written = Footer { fsync: true, dentry: true, cp_ver: self.ctx.cp_ver(), ..f };
        if (f.nid, f) != (ino.nid(), written) {
            return Ok(false);
        }
        node::set_footer(&mut block, &Footer { fsync: false, dentry: false, ..f });
        self.logs.place(addr, 1, tag.cause);
        self.ctx.dev.write(Lba(addr.0.into()), &*block, tag)?;
        let mut names = self.promises.names.lock();
        names.withdrawn(ino);
        names.landed();
        self.counters.names_withdrawn.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// True if the checkpoint does not contain an inode. Only then may the chain name it.
    pub(super) fn is_new(&self, ino: Ino) -> bool {
        !self.nodes.nat.since_checkpoint(ino.nid()).checkpointed
    }
}
