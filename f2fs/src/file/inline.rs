//! How are contents inside the inode read and written, and how do they move to blocks?

use std::sync::Arc;

use format::BlockAddr;
use format::inode::{Inline, RawInode};

use crate::error::{Error, Result};
use crate::fields::put_inline;
use crate::file::Files;
use crate::inode::{Content, Inode};

impl Files {
    /// Bytes of contents that the inode itself can hold; `None` if its contents are in blocks.
    pub(crate) fn inline_room(&self, inode: &Inode) -> Result<Option<u64>> {
        inode.node.inode(|r| {
            if !r.inline().contains(Inline::DATA) {
                return Ok(None);
            }
            Ok(Some(self.nodes.division(r)?.inline_area().len() as u64))
        })
    }

    /// Refuses inline contents longer than their area: the contents are unknown, and a copy would write that many
    /// zeroes.
    pub(super) fn check_inline_size(&self, inode: &Inode, room: u64) -> Result<()> {
        let size = inode.size();
        if size <= room {
            return Ok(());
        }
        Err(Error::corrupt(format_args!(
            "inode {}: i_size is {size}, but it is inline, with room for {room} bytes; run joulefs fsck --repair",
            inode.ino
        )))
    }

    /// Reads inline contents.
    pub(super) fn read_inline(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = inode.node.read();
        let area = &bytes[self.nodes.division(RawInode::of(&bytes))?.inline_area()];
        let from = area.get(offset.min(area.len() as u64) as usize..).unwrap_or(&[]);
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        buf[n..].fill(0);
        Ok(())
    }

    /// Changes inline contents. The range lies inside the area.
    pub(super) fn write_inline(&self, inode: &Inode, offset: u64, data: &[u8]) -> Result<()> {
        self.nodes.edit(&inode.node, |b| {
            let area = self.nodes.division(RawInode::of(b))?.inline_area();
            let at = area.start + offset as usize;
            b[at..at + data.len()].copy_from_slice(data);
            let any = b[area].iter().any(|&x| x != 0);
            put_inline(RawInode::of_mut(b), Inline::DATA_EXIST, any);
            Ok(())
        })
    }

    /// Moves inline contents to a dirty block in memory. An empty file gets no block.
    pub(crate) fn leave_inline(&self, inode: &Arc<Inode>, content: &mut Content) -> Result<()> {
        let Some(room) = self.inline_room(inode)? else { return Ok(()) };
        let used = inode.size().min(room) as usize;
        let mut page = Box::new([0u8; 4096]);
        self.read_inline(inode, 0, &mut page[..used])?;
        if used > 0 {
            self.nodes.space.take(1)?;
            self.nodes.space.unwritten_by(1);
        }
        self.nodes.edit(&inode.node, |b| -> Result<()> {
            let area = self.nodes.division(RawInode::of(b))?.inline_area();
            b[area].fill(0);
            let r = RawInode::of_mut(b);
            put_inline(r, Inline::DATA | Inline::DATA_EXIST, false);
            if used > 0 {
                let d = self.nodes.division(r)?;
                r.set_addr(d, 0, BlockAddr::NEW);
                r.i_blocks = (r.i_blocks.get() + 1).into();
            }
            Ok(())
        })?;
        if used > 0 && content.pages.insert(0, page).is_none() {
            inode.gained_dirty(&self.inodes, 1);
        }
        Ok(())
    }
}
