//! How does a file's size change?
//!
//! A file is truncated in steps, from its end towards the new end. Other operations run between the steps; a power cut
//! or an error may leave any size between old and new. Linux truncates in one piece, and every writer waits.

use std::sync::Arc;

use format::inode::Advise;
use vfs::FileKind;

use super::BLOCK;
use super::free::KeptPages;
use crate::context::Begin;
use crate::error::Result;
use crate::fields::{Touch, put_advise, touch};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::free::STEP;
use crate::pack::PackState;

impl Files {
    /// `truncate`, including the times.
    pub(crate) fn set_size(&self, volume: &dyn Begin, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let check = || {
            if inode.kind == FileKind::Symlink {
                return Err(vfs::Error::Invalid("a symlink's size is its target's").into());
            }
            self.check_not_sealed(inode)?;
            self.check_plain(inode)?;
            if let Some(method) = self.clusters(inode)?
                && !size.is_multiple_of(method.cluster_bytes() as u64)
            {
                self.check_has_room(inode)?;
            }
            inode.check_unsealed()
        };
        check()?;
        self.checked_end(inode, 0, size)?;
        let _turn = inode.steps.turn.lock();
        loop {
            let change = volume.begin_modest()?;
            let mut content = inode.content.write();
            self.inodes.check_there(inode)?;
            check()?;
            content.check_no_set()?;
            let done = self.truncate_some(&change, inode, &mut content, size)?;
            let now = self.ctx.now();
            self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Modified, now));
            if done {
                return Ok(());
            }
        }
    }

    /// One step towards a size; true if it was the last. Growing takes one step. Truncation frees blocks at the end,
    /// and reserved blocks behind it. The caller holds the inode's lock exclusively.
    pub(super) fn truncate_some(
        &self,
        _held: &PackState,
        inode: &Arc<Inode>,
        content: &mut Content,
        size: u64,
    ) -> Result<bool> {
        let old = inode.size();
        if let Some(room) = self.inline_room(inode)? {
            if size <= room {
                if size < old.min(room) {
                    let gone = vec![0; (old.min(room) - size) as usize];
                    self.write_inline(inode, size, &gone)?;
                }
                self.nodes.edit_inode(&inode.node, |r| r.i_size = size.into());
                return Ok(true);
            }
            self.leave_inline(inode, content)?;
        }
        if size > old {
            // Blocks reserved behind the end stay, even those behind the new end.
            self.clear_tail(inode, content, old)?;
            self.nodes.edit_inode(&inode.node, |r| r.i_size = size.into());
            return Ok(true);
        }
        let last = self.needed_blocks(inode, size)?;
        let first = self.tail(&inode.node, last, STEP)?;
        let done = first == last;
        if done && size < old {
            self.clear_tail(inode, content, size)?;
        }
        content.frames.take_ahead();
        let gone = content.pages.split_off(&first).len();
        inode.lost_dirty(&self.inodes, gone);
        let kept = if self.has_room_ahead() { KeptPages::Stay } else { KeptPages::Go };
        self.free_from(&inode.node, first, kept)?;
        self.nodes.edit_inode(&inode.node, |r| match done {
            true => {
                r.i_size = size.into();
                put_advise(r, Advise::KEEP_SIZE, false);
            }
            false => r.i_size = old.min(first * BLOCK).into(),
        });
        Ok(done)
    }
}
