//! How does a file get another size?

use std::sync::Arc;

use format::inode::Advise;
use vfs::FileKind;

use super::BLOCK;
use crate::error::Result;
use crate::inode::{Content, Inode, Touch, put_advise, touch};
use crate::volume::Volume;

impl Volume {
    /// `truncate`, with its times.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        if inode.kind == FileKind::Symlink {
            return Err(vfs::Error::Invalid("a symlink's size is its target's").into());
        }
        self.check_plain(inode)?;
        self.check_unsealed(inode)?;
        self.checked_end(inode, 0, size)?;
        let _change = self.begin()?;
        let mut content = inode.content.write();
        self.check_there(inode)?;
        self.truncate(inode, &mut content, size)?;
        let now = self.now();
        self.edit_inode(&inode.node, |r| touch(r, Touch::Modified, now));
        Ok(())
    }

    /// Sets the size and frees blocks past it. The caller holds `cp` shared and the inode's lock exclusively.
    pub(crate) fn truncate(&self, inode: &Arc<Inode>, content: &mut Content, size: u64) -> Result<()> {
        let old = inode.size();
        if let Some(room) = self.inline_room(inode)? {
            if size <= room {
                if size < old.min(room) {
                    let gone = vec![0; (old.min(room) - size) as usize];
                    self.write_inline(inode, size, &gone)?;
                }
                self.edit_inode(&inode.node, |r| r.i_size = size.into());
                return Ok(());
            }
            self.leave_inline(inode, content)?;
        }
        if size > old {
            // Blocks reserved behind the end stay; some of them may lie behind the new end too.
            self.clear_tail(inode, content, old)?;
            self.edit_inode(&inode.node, |r| r.i_size = size.into());
            return Ok(());
        }
        if size < old {
            self.clear_tail(inode, content, size)?;
        }
        let first = size.div_ceil(BLOCK);
        let gone = content.pages.split_off(&first).len();
        inode.lost_dirty(self, gone);
        self.free_from(&inode.node, first)?;
        self.edit_inode(&inode.node, |r| {
            r.i_size = size.into();
            put_advise(r, Advise::KEEP_SIZE, false);
        });
        Ok(())
    }
}
