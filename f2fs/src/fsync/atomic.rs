//! How do all writes of a set become durable at once?
//!
//! A commit is an fsync that overwrites nothing in place: the blocks get new addresses, or become deltas, and one mark
//! in the last node makes all of them valid. Roll-forward, in Linux too, ignores nodes that no marked node of the same
//! inode follows. So before the mark is on the device the file is old, and after that it is new. If nodes do not
//! suffice, a checkpoint is the mark.
//!
//! Checkpoints are kept out until each page of the set has its place: one that found space for only a part of them
//! would make that part durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::How;
use crate::context::Begin;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::pack::Reason;
use crate::segment::temperature::Writeback;
use crate::volume::Volume;

impl Volume {
    /// Makes the owner's set durable; without one, the contents. The caller holds no lock.
    pub(crate) fn commit_set(&self, inode: &Arc<Inode>, owner: u64) -> Result<()> {
        match self.files.pages_of_set(inode, owner) {
            Ok(None) => self.fsync_inode(inode, true),
            Err(e @ Error::Fs(vfs::Error::Busy(_))) => Err(e),
            pages => {
                let out = pages.and_then(|pages| self.write_set(inode, pages.unwrap_or_default()));
                self.files.drop_set(inode, owner)?;
                out
            }
        }
    }

    fn write_set(&self, inode: &Arc<Inode>, pages: u64) -> Result<()> {
        let shift = inode.steps.shift.read();
        let admitted = match self.files.admit_set(pages) {
            Some(admitted) => admitted,
            None => {
                self.cleaning.room_for_blocks(pages, true)?;
                self.files.admit_set(pages).ok_or_else(Error::no_space)?
            }
        };
        let change = self.begin()?;
        self.clear_the_way(&change, inode)?;
        self.confirm_place(&change, inode);
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        let by_nodes = self.nodes_suffice(inode)?;
        self.files.adopt_set(&change, inode, &mut content)?;
        // From here on the file is new in memory.
        let mut written = match by_nodes {
            true => self.write_promise(&change, inode, &mut content, How::Atomic),
            false => self.files.write_back(&change, inode, &mut content, Writeback::Atomic).map(drop),
        };
        let is_placed = inode.dirty.load(Ordering::Acquire) == 0;
        let no_room = matches!(written, Err(Error::Fs(vfs::Error::NoSpace)));
        if no_room && is_placed {
            // Only nodes found no place: a checkpoint makes room for them.
            written = Ok(());
        }
        if let Err(e) = &written {
            // Admission rules out a full log, so this is a device error, or damage.
            self.promises.stray(inode.ino);
            self.ctx.health.fail(format_args!("inode {}: an atomic commit stopped halfway: {e}", inode.ino));
        }
        drop(content);
        written?;
        if by_nodes && !no_room {
            self.flush_written(inode.ino)?;
            self.counters.fast_fsyncs.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.promises.stray(inode.ino);
        drop((change, admitted, shift));
        self.counters.slow_fsyncs.fetch_add(1, Ordering::Relaxed);
        self.cleaning.checkpoint(Reason::Running)
    }
}
