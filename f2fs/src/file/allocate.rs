//! Holes and reservations: `fallocate`.

use std::ops::Range;
use std::sync::Arc;

use format::BlockAddr;
use format::inode::{Advise, Inline};
use format::node::ADDRS_PER_BLOCK;
use vfs::{Allocate, FileKind};

use super::BLOCK;
use crate::error::{Error, Result};
use crate::inode::{Content, Inode, Touch, put_advise, touch};
use crate::node::map::Lookup;
use crate::volume::Volume;

impl Volume {
    /// `fallocate`. If room runs out, what was reserved stays reserved and the size as it was.
    pub(crate) fn fallocate_file(&self, inode: &Arc<Inode>, what: Allocate, offset: u64, len: u64) -> Result<()> {
        if inode.kind != FileKind::Regular {
            return Err(vfs::Error::Invalid("fallocate wants a regular file").into());
        }
        self.check_plain(inode)?;
        if !matches!(what, Allocate::Reserve { .. }) {
            self.check_unsealed(inode)?;
        }
        if len == 0 {
            return Err(vfs::Error::Invalid("fallocate of no bytes").into());
        }
        let end = self.checked_end(inode, offset, len)?;
        if !matches!(what, Allocate::Reserve { .. }) && inode.node.inode(|r| r.inline().contains(Inline::PIN_FILE)) {
            // As in Linux: a user of a pinned file relies on the addresses of its blocks.
            return Err(vfs::Error::Unsupported("holes in a pinned file, and shifting its blocks".into()).into());
        }
        let _change = self.begin()?;
        let mut guard = inode.content.write();
        let content = &mut *guard;
        self.check_there(inode)?;
        let size = inode.size();
        self.leave_inline(inode, content)?;
        match what {
            Allocate::Reserve { keep_size } => {
                self.clear_before(inode, content, end, keep_size)?;
                self.reserve_range(inode, offset, end)?;
                self.grow(inode, end, keep_size);
            }
            Allocate::PunchHole => self.punch(inode, content, offset, end)?,
            Allocate::Zero { keep_size } => {
                self.clear_before(inode, content, end, keep_size)?;
                self.punch(inode, content, offset, end)?;
                self.reserve_range(inode, offset, end)?;
                self.grow(inode, end, keep_size);
            }
            Allocate::Collapse => {
                aligned(offset, len)?;
                if end >= size {
                    return Err(vfs::Error::Invalid("a collapse must end before the end of the file").into());
                }
                let blocks = offset / BLOCK..size.div_ceil(BLOCK) - len / BLOCK;
                self.check_room(inode, content, blocks.clone().map(|to| (to + len / BLOCK, to)))?;
                self.shift_down(inode, content, blocks, len / BLOCK)?;
                self.truncate(inode, content, size - len)?;
            }
            Allocate::Insert => {
                aligned(offset, len)?;
                if offset >= size {
                    return Err(vfs::Error::Invalid("an insert must begin before the end of the file").into());
                }
                let grown = self.checked_end(inode, size, len)?;
                self.clear_tail(inode, content, size)?;
                let blocks = offset / BLOCK..size.div_ceil(BLOCK);
                self.check_room(inode, content, blocks.clone().rev().map(|from| (from, from + len / BLOCK)))?;
                self.edit_inode(&inode.node, |r| r.i_size = grown.into());
                self.shift_up(inode, content, blocks, len / BLOCK)?;
            }
        }
        let now = self.now();
        self.edit_inode(&inode.node, |r| touch(r, Touch::Modified, now));
        self.limit_dirty(inode, content)
    }

    /// Reads what the file needs to grow to `end`, before anything is reserved behind its end.
    fn clear_before(&self, inode: &Arc<Inode>, content: &mut Content, end: u64, keep: bool) -> Result<()> {
        let size = inode.size();
        if end > size && !keep { self.clear_tail(inode, content, size) } else { Ok(()) }
    }

    /// Makes the file longer, after its last block was cleared; or notes that it has blocks behind its end.
    fn grow(&self, inode: &Inode, end: u64, keep: bool) {
        if end > inode.size() {
            self.edit_inode(&inode.node, |r| match keep {
                true => put_advise(r, Advise::KEEP_SIZE, true),
                false => r.i_size = end.into(),
            });
        }
    }

    fn reserve_range(&self, inode: &Arc<Inode>, from: u64, to: u64) -> Result<()> {
        let (mut i, end) = (from / BLOCK, to.div_ceil(BLOCK));
        while i < end {
            match self.reserve_run(&inode.node, i, end - i) {
                Ok(n) => i += n,
                Err(e) => {
                    if to > inode.size() {
                        // Otherwise roll-forward would take blocks reserved behind the end for a longer file.
                        self.edit_inode(&inode.node, |r| put_advise(r, Advise::KEEP_SIZE, true));
                    }
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Makes sure there is room to copy blocks from one place of the file to another, one after the other: copying a
    /// block over a hole takes a block, copying a hole over a block frees one. Changes nothing.
    fn check_room(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        copies: impl Iterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let (mut taken, mut most, mut nodes, mut last, mut copied_blocks) = (0i64, 0i64, 0, None, 0u64);
        for (from, to) in copies {
            let is_hole = |i: u64| Ok::<_, Error>(self.addr_of(&inode.node, i)? == BlockAddr::NULL);
            let copied = content.pages.contains_key(&from) || !is_hole(from)?;
            if copied && matches!(self.find(&inode.node, to)?, Lookup::HoleUntil(_)) {
                let node = Some(to / u64::from(ADDRS_PER_BLOCK));
                nodes += i64::from(node != last);
                last = node;
            }
            copied_blocks += u64::from(copied);
            match (copied, is_hole(to)?) {
                (true, true) => taken += 1,
                (false, false) => taken -= 1,
                _ => {}
            }
            most = most.max(taken);
        }
        // Nodes begin at other multiples than this counts from, which is one node more at most; above them up to three
        // indirect nodes may have to be made.
        let need = (most + nodes + if nodes > 0 { 4 } else { 0 }) as u64;
        if self.space.valid_blocks() + need > self.space.user_blocks() {
            return Err(Error::no_space());
        }
        // All copies are made under one guard. The blocks they replace stay held, since no checkpoint can come
        // meanwhile. If the log ended within them, it would end for a checkpoint too.
        let free = u64::from(self.seg.lock().table.free_sections());
        let free = free.saturating_sub(2) * u64::from(self.sb.segs_per_sec) * 512;
        if copied_blocks > free.max(self.options.dirty_limit as u64) {
            return Err(Error::no_space());
        }
        Ok(())
    }

    /// Makes a byte range read as zeroes and gives its whole blocks back.
    fn punch(&self, inode: &Arc<Inode>, content: &mut Content, from: u64, to: u64) -> Result<()> {
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        if first > last {
            // The range lies inside one block.
            return self.zero_part(inode, content, from / BLOCK, from % BLOCK, to % BLOCK);
        }
        if !from.is_multiple_of(BLOCK) {
            self.zero_part(inode, content, from / BLOCK, from % BLOCK, BLOCK)?;
        }
        if !to.is_multiple_of(BLOCK) {
            self.zero_part(inode, content, last, 0, to % BLOCK)?;
        }
        self.drop_pages(inode, content, first, last);
        self.free_range(&inode.node, first, last)
    }

    fn drop_pages(&self, inode: &Arc<Inode>, content: &mut Content, first: u64, last: u64) {
        let gone: Vec<u64> = content.pages.range(first..last.max(first)).map(|(i, _)| *i).collect();
        for i in &gone {
            content.pages.remove(i);
        }
        inode.lost_dirty(self, gone.len());
    }

    fn zero_part(&self, inode: &Arc<Inode>, content: &mut Content, index: u64, from: u64, to: u64) -> Result<()> {
        let Some(mut page) = self.load_page(inode, content, index)? else { return Ok(()) };
        page[from as usize..to as usize].fill(0);
        if content.pages.insert(index, page).is_none() {
            inode.gained_dirty(self, 1);
        }
        Ok(())
    }

    /// Copies block `from` over block `to`; a hole makes a hole.
    fn move_block(&self, inode: &Arc<Inode>, content: &mut Content, from: u64, to: u64) -> Result<()> {
        match self.load_page(inode, content, from)? {
            None => {
                self.drop_pages(inode, content, to, to + 1);
                self.free_range(&inode.node, to, to + 1)
            }
            Some(page) => {
                // Never in place: until the new map is durable, the old map must find the old contents.
                self.free_range(&inode.node, to, to + 1)?;
                self.reserve(&inode.node, to)?;
                if content.pages.insert(to, page).is_none() {
                    inode.gained_dirty(self, 1);
                }
                self.limit_dirty(inode, content)
            }
        }
    }

    fn shift_down(&self, inode: &Arc<Inode>, content: &mut Content, to: Range<u64>, by: u64) -> Result<()> {
        for to in to {
            self.move_block(inode, content, to + by, to)?;
        }
        Ok(())
    }

    fn shift_up(&self, inode: &Arc<Inode>, content: &mut Content, from: Range<u64>, by: u64) -> Result<()> {
        let first = from.start;
        for from in from.rev() {
            self.move_block(inode, content, from, from + by)?;
        }
        self.drop_pages(inode, content, first, first + by);
        self.free_range(&inode.node, first, first + by)
    }
}

fn aligned(offset: u64, len: u64) -> Result<()> {
    if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
        return Err(vfs::Error::Invalid("collapse and insert want multiples of 4096").into());
    }
    Ok(())
}
