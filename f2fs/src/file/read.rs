//! How are contents read from memory and from the log?

use std::ops::Range;
use std::sync::Arc;

use device::Lba;
use format::compress::Method;
use format::{Block, BlockAddr};
use vfs::{FileKind, Seek};

use super::BLOCK;
use super::compressed::mark_slot;
use crate::cause::Cause;
use crate::delta::read::Page;
use crate::error::Result;
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::free::LOOKED;
use crate::node::index::Index;
use crate::node::map::{Lookup, Place, addr_in};

impl Files {
    /// Reads at most `buf.len()` bytes; fewer only at the end of the file.
    pub(crate) fn read_file(&self, inode: &Arc<Inode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if inode.kind == FileKind::Directory {
            return Err(vfs::Error::IsDirectory.into());
        }
        inode.heat.read();
        let _shift = inode.steps.shift.read();
        self.read_locked(inode, &inode.content.read(), offset, buf)
    }

    /// [`Self::read_file`] under the inode's lock.
    pub(super) fn read_locked(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        match &content.set {
            Some(set) => self.read_with_set(inode, content, set, offset, buf),
            None => self.read_without_set(inode, content, offset, buf),
        }
    }

    /// [`Self::read_locked`] without uncommitted writes.
    pub(super) fn read_without_set(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let size = inode.size();
        if offset >= size {
            return Ok(0);
        }
        let n = (size - offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..n];
        if let Some(room) = self.inline_room(inode)? {
            self.check_inline_size(inode, room)?;
            self.read_inline(inode, offset, buf)?;
        } else if let Some(method) = self.clusters(inode)? {
            self.read_clusters(inode, content, method, offset, buf)?;
        } else {
            self.read_blocks(inode, content, offset, buf)?;
        }
        Ok(n)
    }

    fn read_blocks(&self, inode: &Inode, content: &Content, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (index, inside) = (at / BLOCK, (at % BLOCK) as usize);
            if let Some(page) = content.pages.get(&index) {
                let n = (4096 - inside).min(buf.len() - done);
                buf[done..done + n].copy_from_slice(&page[inside..inside + n]);
                done += n;
                continue;
            }
            // Blocks before the next page in memory are on the device or holes.
            let last = (offset + buf.len() as u64 - 1) / BLOCK + 1;
            let end = match content.pages.is_empty() {
                true => last,
                false => content.pages.range(index..last).next().map_or(last, |(i, _)| *i),
            };
            done += self.read_mapped(inode, index, end, inside, &mut buf[done..])?;
        }
        Ok(())
    }

    /// Reads blocks `[index, end)`, starting `inside` bytes into the first; returns how many bytes of `buf` were
    /// filled, at least one.
    pub(super) fn read_mapped(
        &self,
        inode: &Inode,
        index: u64,
        end: u64,
        inside: usize,
        buf: &mut [u8],
    ) -> Result<usize> {
        let place = match self.nodes.find(&inode.node, index)? {
            Lookup::Hole(hole) => {
                let blocks = hole.end.min(end) - index;
                let n = ((blocks * BLOCK) as usize - inside).min(buf.len());
                buf[..n].fill(0);
                return Ok(n);
            }
            Lookup::At(p) => p,
        };
        let known = self.deltas.deltas(&inode.node)?;
        let page = Page { inode: &inode.node, block: index, place: &place, index: &known };
        place.node.steady(|| self.read_run(page, end, inside, buf))
    }

    /// [`Self::read_mapped`] for blocks whose addresses are in one node.
    fn read_run(&self, page: Page<'_>, end: u64, inside: usize, buf: &mut [u8]) -> Result<usize> {
        let Page { inode, block: index, place, index: known } = page;
        let mut run = 1;
        let noted = known.next(index);
        let first = {
            let bytes = place.node.read();
            let first = addr_in(&self.ctx, &place.node, &bytes, place.slot);
            let in_zone = self.deltas.next_in_zone(&place.node, &bytes, place.slot);
            let delta = in_zone.map(|slot| index + u64::from(slot - place.slot)).into_iter().chain(noted).min();
            if first != BlockAddr::NULL && delta == Some(index) {
                drop(bytes);
                return self.read_stored(page, inside, buf);
            }
            let whole = delta.map_or(u64::MAX, |block| (block - index).max(1));
            let most = place.run().min(end - index).min(whole);
            while run < most {
                let a = addr_in(&self.ctx, &place.node, &bytes, place.slot + run as u32);
                let follows = if first.is_real() { a == first.plus(run as u32) } else { !a.is_real() };
                if !follows {
                    break;
                }
                run += 1;
            }
            first
        };
        let n = ((run * BLOCK) as usize - inside).min(buf.len());
        if !first.is_real() {
            buf[..n].fill(0);
            return Ok(n);
        }
        self.ctx.check_data_addr(first.plus(run as u32 - 1), inode.ino, index)?;
        self.ctx.check_data_addr(first, inode.ino, index)?;
        let tag = Cause::UserData.of(inode.ino);
        if inside == 0 && n >= 4096 {
            let whole = n / 4096 * 4096;
            self.ctx.dev.read(Lba(first.0.into()), &mut buf[..whole], tag)?;
            return Ok(whole);
        }
        let block = self.ctx.read_block(first, tag)?;
        let n = n.min(4096 - inside);
        buf[..n].copy_from_slice(&block[inside..inside + n]);
        Ok(n)
    }

    /// Reads from one page that has a delta.
    fn read_stored(&self, page: Page<'_>, inside: usize, buf: &mut [u8]) -> Result<usize> {
        let page = self.deltas.stored_page(page, Cause::UserData)?.unwrap_or_else(|| Box::new([0; 4096]));
        let n = buf.len().min(4096 - inside);
        buf[..n].copy_from_slice(&page[inside..inside + n]);
        Ok(n)
    }

    /// One block's contents: from memory, the device, or zeroes. `None` for a hole.
    pub(super) fn load_page(&self, inode: &Inode, content: &Content, index: u64) -> Result<Option<Box<Block>>> {
        if let Some(p) = content.pages.get(&index) {
            return Ok(Some(p.clone()));
        }
        self.deltas.load_stored(inode, index)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`. Reserved blocks are holes. A long search releases the inode's lock now and then;
    /// writes behind its position then count as later writes.
    pub(crate) fn seek_file(&self, inode: &Arc<Inode>, offset: u64, what: Seek) -> Result<u64> {
        let _shift = inode.steps.shift.read();
        let mut at = offset / BLOCK;
        loop {
            let content = inode.content.read();
            let size = inode.shown_size();
            if offset >= size {
                return Err(vfs::Error::PastEnd.into());
            }
            if content.set.is_some() {
                // Allowed, and true for the pages of a database.
                return Ok(if what == Seek::Data { offset } else { size });
            }
            let clusters = self.clusters(inode)?;
            let noted = self.deltas.deltas(&inode.node)?;
            if let Some(room) = self.inline_room(inode)? {
                self.check_inline_size(inode, room)?;
                return Ok(if what == Seek::Data { offset } else { size });
            }
            if inode.kind != FileKind::Regular {
                return Ok(if what == Seek::Data { offset } else { size });
            }
            let end = size.div_ceil(BLOCK);
            for _ in 0..LOOKED {
                if at >= end {
                    return match what {
                        Seek::Data => Err(vfs::Error::PastEnd.into()),
                        Seek::Hole => Ok(size),
                    };
                }
                let (stretch, place) = self.nodes.stretch(&inode.node, at)?;
                let here = at..end.min(stretch.end);
                at = here.end;
                let place = place.as_ref().map(|p| (p, stretch.start));
                if let Some(found) = self.seek_in(&content, (clusters, &noted), here, place, what) {
                    return Ok(offset.max(found * BLOCK).min(size));
                }
            }
        }
    }

    /// The first data block, or the first hole, in a part of one stretch. `place` is the place of the stretch's first
    /// block, whose number follows it.
    fn seek_in(
        &self,
        content: &Content,
        (clusters, noted): (Option<Method>, &Index),
        here: Range<u64>,
        place: Option<(&Place, u64)>,
        what: Seek,
    ) -> Option<u64> {
        let mut here = here;
        let Some((place, first)) = place else {
            return match what {
                Seek::Data => content.pages.range(here).next().map(|(block, _)| *block),
                Seek::Hole => here.find(|block| !content.pages.contains_key(block)),
            };
        };
        let bytes = place.node.read();
        let addr = |slot| addr_in(&self.ctx, &place.node, &bytes, slot);
        let is_data = |block: u64| {
            let slot = place.slot + (block - first) as u32;
            addr(slot).is_real()
                || content.pages.contains_key(&block)
                || noted.has(block)
                || clusters.is_some_and(|method| addr(mark_slot(slot, method)) == BlockAddr::COMPRESS)
        };
        here.find(|block| is_data(*block) == (what == Seek::Data))
    }
}
