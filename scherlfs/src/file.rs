//! File contents: read, write, truncate, reserve, punch, shift.
//!
//! Written bytes wait in whole blocks; reads check those first and then the extents. A log assigns a block's place
//! only when it writes the block, so reserved room is a promise without a place, and shifting moves extents, not
//! blocks.

use std::ops::Range;

use device::{Lba, Tag};
use scherlfs_format::extent::HOLE_MAX;
use scherlfs_format::inode::{EXTENTS_LIMIT, Time};
use scherlfs_format::{Addr, BLOCK, Block, Ino};
use vfs::{Allocate, Error, Result, Seek, WriteFlags};

use crate::attributes::check_appendable;
use crate::cause::Cause;
use crate::extents::Place;
use crate::inode::Inode;
use crate::page::Page;
use crate::volume::State;

const B: u64 = BLOCK as u64;
/// The largest file: 2^63 - 1 bytes.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// Rejects inodes that are not regular files.
pub(crate) fn check_file(inode: &Inode) -> Result<()> {
    match inode.is_file() {
        true => Ok(()),
        false if inode.is_dir() => Err(Error::IsDirectory),
        false => Err(Error::Invalid("not a regular file")),
    }
}

/// The parts of a range of blocks that have no room: blocks that wait, are stored or were promised have theirs.
fn without_room(inode: &Inode, range: Range<u64>) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let (place, blocks) = inode.extents.at(at);
        let until = at.saturating_add(blocks).min(range.end);
        if place.is_none() {
            let mut from = at;
            for (n, _) in inode.pages.range(at..until) {
                holes.push(from..*n);
                from = n + 1;
            }
            holes.push(from..until);
        }
        at = until;
    }
    holes.retain(|h| !h.is_empty());
    holes
}

/// How many blocks at the beginning of a range were promised.
fn promised_first(inode: &Inode, range: Range<u64>) -> u64 {
    let mut at = range.start;
    while at < range.end
        && let (Some(Place::Reserved), blocks) = inode.extents.at(at)
    {
        at = at.saturating_add(blocks).min(range.end);
    }
    at - range.start
}

impl State {
    /// Reads blocks from the disk.
    pub fn read_blocks(&self, inode: &Inode, at: Addr, buf: &mut [u8]) -> Result<()> {
        let tag = Tag { cause: Cause::Contents as u8, owner: inode.ino.0.into() };
        self.dev.read(Lba(at.0), buf, tag).map_err(Error::device)
    }

    /// Fills `buf` from `offset` on from waiting blocks and extents; the range lies within the file.
    pub fn read_contents(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let (block, within) = (at / B, (at % B) as usize);
            let out = (at - offset) as usize;
            if let Some(page) = inode.pages.get(&block) {
                let n = (BLOCK - within).min((end - at) as usize);
                buf[out..out + n].copy_from_slice(&page[within..within + n]);
                at += n as u64;
                continue;
            }
            let (place, blocks) = inode.extents.at(block);
            let next = inode.pages.range(block..).next().map_or(u64::MAX, |(n, _)| *n);
            // Up to the end of a contiguous run without waiting blocks.
            let until = block.saturating_add(blocks).min(next).saturating_mul(B).min(end);
            let n = (until - at) as usize;
            match place {
                Some(Place::At(start)) => {
                    let into = &mut buf[out..out + n];
                    if within == 0 && n >= BLOCK {
                        let whole = n - n % BLOCK;
                        self.read_blocks(inode, start, &mut into[..whole])?;
                        at += whole as u64;
                    } else {
                        let mut page = [0; BLOCK];
                        self.read_blocks(inode, start, &mut page)?;
                        let n = n.min(BLOCK - within);
                        into[..n].copy_from_slice(&page[within..within + n]);
                        at += n as u64;
                    }
                }
                _ => {
                    buf[out..out + n].fill(0);
                    at = until;
                }
            }
        }
        Ok(())
    }

    /// A block of a file, waiting or stored.
    fn read_page(&self, inode: &Inode, block: u64) -> Result<Page> {
        let mut page = [0; BLOCK];
        if let (Some(Place::At(at)), _) = inode.extents.at(block) {
            self.read_blocks(inode, at, &mut page)?;
        }
        Ok(Page::new(page))
    }

    /// A block of a file for changing in memory.
    fn page<'i>(&self, inode: &'i mut Inode, block: u64) -> Result<&'i mut Block> {
        if !inode.pages.contains_key(&block) {
            let page = self.read_page(inode, block)?;
            inode.pages.insert(block, page);
        }
        inode.pages.get_mut(&block).map(Page::make_mut).ok_or(Error::NotFound)
    }

    /// Number of bytes of a write for which there is room.
    pub fn admit_write(&mut self, ino: Ino, offset: u64, len: usize) -> Result<usize> {
        let inode = self.inode(ino)?;
        check_file(inode)?;
        let end = offset.checked_add(len as u64).filter(|e| *e <= SIZE_MAX).ok_or(Error::TooBig)?;
        if len == 0 {
            return Ok(0);
        }
        let blocks = end.div_ceil(B) - offset / B;
        if inode.extents.listed() + 2 * inode.pages.len() + 2 * blocks as usize > EXTENTS_LIMIT {
            return Err(Error::NoSpace);
        }
        let promised = promised_first(inode, offset / B..end.div_ceil(B));
        let taken = self.admit_blocks(ino, blocks, promised)?;
        Ok((end.min((offset / B + taken) * B) - offset) as usize)
    }

    /// Writes; there must be room. `whole` has at least the whole blocks of `data`.
    fn write_contents(&mut self, inode: &mut Inode, offset: u64, data: &[u8], whole: Vec<Page>) -> Result<()> {
        let end = offset + data.len() as u64;
        // Read the kept parts of the first and the last block before any change, so that a failed read leaves no
        // partial write.
        let mut ends = Vec::new();
        for block in [offset / B, (end - 1) / B] {
            let whole = block * B >= offset && (block + 1) * B <= end;
            if !whole && !inode.pages.contains_key(&block) {
                ends.push((block, self.read_page(inode, block)?));
            }
        }
        inode.pages.extend(ends);
        let mut at = offset;
        let mut whole = whole.into_iter();
        while at < end {
            let (block, within) = (at / B, (at % B) as usize);
            let n = (BLOCK - within).min((end - at) as usize);
            if n == BLOCK
                && let Some(page) = whole.next()
            {
                inode.pages.insert(block, page);
            } else {
                self.page(inode, block)?[within..within + n].copy_from_slice(&data[(at - offset) as usize..][..n]);
            }
            at += n as u64;
        }
        inode.a.size = inode.a.size.max(end);
        Ok(())
    }

    /// Zeroes part of a block unless it is already zero.
    fn zero_part(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        let block = range.start / B;
        let stored = matches!(inode.extents.at(block).0, Some(Place::At(_)));
        if range.is_empty() || (!stored && !inode.pages.contains_key(&block)) {
            return Ok(());
        }
        let within = (range.start % B) as usize;
        let n = (range.end - range.start) as usize;
        self.page(inode, block)?[within..within + n].fill(0);
        Ok(())
    }

    /// Makes blocks a hole, and drops waiting ones.
    fn drop_blocks(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let gone: Vec<u64> = inode.pages.range(range.clone()).map(|(n, _)| *n).collect();
        gone.into_iter().for_each(|n| _ = inode.pages.remove(&n));
        let freed = inode.extents.clear(range);
        self.free_blocks(freed)
    }

    /// Sets the size of a file. There must be room for its inode and a block.
    pub fn set_size(&mut self, inode: &mut Inode, size: u64, now: Time) -> Result<()> {
        check_file(inode)?;
        if size > SIZE_MAX {
            return Err(Error::TooBig);
        }
        if size < inode.a.size {
            let last = (size / B + 1) * B;
            if !size.is_multiple_of(B) {
                self.zero_part(inode, size..last)?;
            }
        }
        // Blocks past the size may be reserved.
        let end = inode.extents.end().max(inode.pages.last_key_value().map_or(0, |(n, _)| n + 1));
        if size <= inode.a.size {
            self.drop_blocks(inode, size.div_ceil(B)..end)?;
        }
        inode.a.size = size;
        inode.modified(now);
        Ok(())
    }

    /// Zeroes a range; whole blocks become a hole.
    fn punch(&mut self, inode: &mut Inode, offset: u64, end: u64) -> Result<()> {
        let (first, last) = (offset.div_ceil(B), end / B);
        if first > last {
            // Within one block.
            return self.zero_part(inode, offset..end);
        }
        self.zero_part(inode, offset..(first * B).min(end))?;
        self.zero_part(inode, (last * B).max(offset)..end)?;
        let stored = inode.extents.end().max(inode.pages.last_key_value().map_or(0, |(n, _)| n + 1));
        self.drop_blocks(inode, first..last.min(stored.max(first)))
    }

    /// Reserves room for every hole in a range.
    fn reserve(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        let holes = without_room(inode, range);
        let blocks = holes.iter().map(|h| h.end - h.start).sum::<u64>();
        if blocks > u64::from(u32::MAX) || inode.extents.listed() + 2 * holes.len() > EXTENTS_LIMIT {
            return Err(Error::NoSpace);
        }
        if self.unclaimed() < blocks {
            return Err(Error::NoSpace);
        }
        for hole in holes {
            inode.extents.set(hole.start, hole.end - hole.start, Place::Reserved);
        }
        self.promised += blocks;
        Ok(())
    }

    /// Makes sure that there is room for `fallocate`.
    pub fn admit_allocation(&mut self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        match what {
            Allocate::Reserve { .. } => {
                let range = offset / B..offset.saturating_add(len).div_ceil(B);
                let holes = without_room(self.inode(ino)?, range);
                self.admit_promise(ino, holes.iter().map(|h| h.end - h.start).sum())
            }
            // The blocks that it makes a hole are free with the next checkpoint, too late for this range.
            Allocate::Zero { .. } => self.admit_promise(ino, (len / B).saturating_add(2)),
            _ => self.admit_inode(ino, 3, what == Allocate::PunchHole),
        }
    }

    /// `fallocate`. There must be room for the inode and two blocks, and for the whole range when reserving.
    pub fn allocate(&mut self, inode: &mut Inode, what: Allocate, offset: u64, len: u64, now: Time) -> Result<()> {
        check_file(inode)?;
        if len == 0 {
            return Err(Error::Invalid("no bytes"));
        }
        let end = offset.checked_add(len).filter(|e| *e <= SIZE_MAX).ok_or(Error::TooBig)?;
        let aligned = offset.is_multiple_of(B) && len.is_multiple_of(B);
        let (blocks, size) = (offset / B..end / B, inode.a.size);
        match what {
            Allocate::Collapse | Allocate::Insert if !aligned => return Err(Error::Invalid("not whole blocks")),
            Allocate::Collapse if end >= size => return Err(Error::Invalid("nothing is left behind the range")),
            Allocate::Insert if offset >= size => return Err(Error::Invalid("nothing is moved")),
            Allocate::Insert if size > SIZE_MAX - len => return Err(Error::TooBig),
            _ => {}
        }
        match what {
            Allocate::Reserve { .. } => self.reserve(inode, offset / B..end.div_ceil(B))?,
            Allocate::PunchHole => self.punch(inode, offset, end)?,
            Allocate::Zero { .. } => {
                self.punch(inode, offset, end)?;
                self.reserve(inode, offset / B..end.div_ceil(B))?;
            }
            Allocate::Collapse => {
                self.drop_blocks(inode, blocks.clone())?;
                inode.extents.collapse(blocks.clone());
                let by = blocks.end - blocks.start;
                shift_pages(inode, blocks.end, |n| n - by);
                inode.a.size -= len;
            }
            Allocate::Insert => {
                // Blocks reserved past the size could exceed the last possible block of a file.
                let most = HOLE_MAX - len / B;
                let stored = inode.extents.end();
                if stored > most {
                    self.drop_blocks(inode, most.max(size.div_ceil(B))..stored)?;
                }
                inode.extents.insert(blocks.start, len / B);
                shift_pages(inode, blocks.start, |n| n + len / B);
                inode.a.size += len;
            }
        }
        if let Allocate::Reserve { keep_size: false } | Allocate::Zero { keep_size: false } = what {
            inode.a.size = inode.a.size.max(end);
        }
        inode.modified(now);
        Ok(())
    }

    /// `SEEK_DATA`, `SEEK_HOLE`.
    pub fn seek_in(&self, inode: &Inode, offset: u64, what: Seek) -> Result<u64> {
        check_file(inode)?;
        if offset >= inode.a.size {
            return Err(Error::PastEnd);
        }
        let data =
            |block: u64| inode.pages.contains_key(&block) || matches!(inode.extents.at(block).0, Some(Place::At(_)));
        let mut block = offset / B;
        let last = inode.size_blocks();
        match what {
            Seek::Data => {
                if data(block) {
                    return Ok(offset);
                }
                let page = inode.pages.range(block..).next().map(|(n, _)| *n);
                let stored = inode.extents.stored(block).next().map(|(n, ..)| n);
                let next = page.into_iter().chain(stored).min().filter(|n| *n < last);
                next.map(|n| n * B).ok_or(Error::PastEnd)
            }
            Seek::Hole => {
                while block < last && data(block) {
                    // Run by run where no blocks wait.
                    let (place, blocks) = inode.extents.at(block);
                    block += if matches!(place, Some(Place::At(_))) { blocks } else { 1 };
                }
                Ok((block * B).max(offset).min(inode.a.size))
            }
        }
    }

    /// Number of bytes at `offset` that an append-only file already has: a cache above writes whole pages and so
    /// repeats old data. A write that would change a byte is rejected, as is every write to an immutable file.
    pub fn already_appended(&self, inode: &Inode, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        check_appendable(inode)?;
        let there = inode.a.size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut found = vec![0; there];
        if there > 0 && flags.contains(WriteFlags::FROM_CACHE) {
            self.read_contents(inode, offset, &mut found)?;
        }
        if there > 0 && !(flags.contains(WriteFlags::FROM_CACHE) && found == data[..there]) {
            return Err(Error::NotPermitted("the file is append-only"));
        }
        Ok(there)
    }

    /// `write` with its effects on times and mode. `whole` has at least the [`whole_blocks`] of the data.
    pub fn write_file(
        &mut self,
        inode: &mut Inode,
        at: u64,
        (data, whole): (&[u8], Vec<Page>),
        flags: WriteFlags,
        now: Time,
    ) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.write_contents(inode, at, data, whole)?;
        if flags.contains(WriteFlags::KILL_SUID_SGID) {
            inode.kill_suid_sgid();
        }
        if !flags.contains(WriteFlags::FROM_CACHE) {
            inode.modified(now);
        }
        Ok(data.len())
    }
}

/// The whole blocks of a write, in order, prepared before taking the lock.
pub(crate) fn whole_blocks(offset: u64, data: &[u8]) -> Vec<Page> {
    if offset > SIZE_MAX {
        // The write will be rejected.
        return Vec::new();
    }
    let skip = (offset.next_multiple_of(B) - offset) as usize;
    let (blocks, _) = data.get(skip..).unwrap_or(&[]).as_chunks::<BLOCK>();
    blocks.iter().map(|block| Page::new(*block)).collect()
}

fn shift_pages(inode: &mut Inode, from: u64, to: impl Fn(u64) -> u64) {
    let moved = inode.pages.split_off(&from);
    inode.pages.extend(moved.into_iter().map(|(n, page)| (to(n), page)));
}
