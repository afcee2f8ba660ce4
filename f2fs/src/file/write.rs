//! How do written bytes get into memory, or directly to the log?
//!
//! Contents from the kernel's writeback cache ([`WriteFlags::FROM_CACHE`]) have already waited in memory. Here they
//! wait only until they fill a large request; a contiguous large request is not copied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::inode::{Advise, InodeFlags, RawInode};
use format::{Block, BlockAddr};
use vfs::WriteFlags;

use super::BLOCK;
use super::run::BATCH;
use super::writeback::or_wait;
use crate::context::Begin;
use crate::error::{Error, Result};
use crate::fields::{Touch, put_advise, touch};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::map::{Lookup, addr_in};
use crate::pack::PackState;

/// Bytes accepted under one guard, so that checkpoints do not wait long.
pub(super) const CHUNK: usize = 1 << 20;
/// Blocks from a cache above that an inode gathers before it writes them: one request.
const GATHERED: usize = BATCH;

/// Blocks preallocated at a time for a growing log, if the volume has many more.
const AHEAD: u64 = 32;
const ROOMY: u64 = 64 * AHEAD;

/// Clears suid, and sgid if the group may execute.
pub(crate) fn kill_suid_sgid(r: &mut RawInode) {
    let mode = r.i_mode.get();
    let mut gone = 0o4000;
    if mode & 0o010 != 0 {
        gone |= 0o2000;
    }
    r.i_mode = (mode & !gone).into();
}

/// The number of the first file block and the data, if it is whole blocks.
fn whole_blocks(offset: u64, data: &[u8]) -> Option<(u64, &[Block])> {
    let (blocks, rest) = data.as_chunks::<4096>();
    (offset.is_multiple_of(BLOCK) && rest.is_empty()).then_some((offset / BLOCK, blocks))
}

impl Files {
    /// Writes all of `data`, or the part that fits, unless nothing fits. Accepted bytes are kept: if the log currently
    /// has no space for them, or for contents of other writers, this call does not fail. They are written when a
    /// checkpoint has freed segments.
    pub(crate) fn write_file(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.check_plain(inode)?;
        self.check_has_room(inode)?;
        self.checked_end(inode, offset, data.len() as u64)?;
        inode.heat.written();
        let from_cache = flags.contains(WriteFlags::FROM_CACHE);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let clusters = self.clusters(inode)?;
            let (n, brought) = match clusters {
                None => (CHUNK.min(data.len() - done), BLOCK),
                // If one block of a packed cluster becomes dirty, all do. A chunk is a multiple of every cluster size.
                Some(method) => {
                    let cluster = method.cluster_bytes() as u64;
                    ((CHUNK - (at % cluster) as usize).min(data.len() - done), cluster)
                }
            };
            let brought = (at + n as u64).next_multiple_of(brought) - at / brought * brought;
            let _shift = inode.steps.shift.read();
            let _admitted = self.admit(brought / BLOCK);
            let change = match volume.begin() {
                Ok(change) => change,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let mut content = inode.content.write();
            self.inodes.check_there(inode)?;
            let whole = &data[done..done + n];
            let there = self
                .check_plain(inode)
                .and_then(|()| self.check_has_room(inode))
                .and_then(|()| self.already_appended(inode, &content, at, whole, from_cache));
            let there = match there {
                Ok(there) => there,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            done += there;
            let (at, chunk) = (at + there as u64, &data[done..done + n - there]);
            if chunk.is_empty() {
                continue;
            }
            if content.set.is_some() {
                match self.write_to_set(inode, &mut content, at, chunk) {
                    Ok(()) => done += chunk.len(),
                    Err(_) if done > 0 => break,
                    Err(e) => return Err(e),
                }
                if flags.contains(WriteFlags::KILL_SUID_SGID) {
                    self.nodes.edit_inode(&inode.node, kill_suid_sgid);
                }
                continue;
            }
            let wrote = match whole_blocks(at, chunk) {
                Some((first, blocks))
                    if from_cache && clusters.is_none() && content.pages.len() + blocks.len() >= GATHERED =>
                {
                    self.write_through(&change, inode, &mut content, first, blocks)
                }
                _ => self.write_locked(&change, inode, &mut content, at, chunk),
            };
            let all = match wrote {
                Ok(n) => {
                    done += n;
                    n == chunk.len()
                }
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let now = self.ctx.now();
            self.nodes.edit_inode(&inode.node, |r| {
                if !from_cache {
                    touch(r, Touch::Modified, now);
                }
                if flags.contains(WriteFlags::KILL_SUID_SGID) {
                    kill_suid_sgid(r);
                }
            });
            if from_cache && content.pages.len() >= GATHERED {
                or_wait(self.write_back_early(&change, inode, &mut content))?;
            }
            self.limit_dirty(&change, inode, &mut content)?;
            if !all {
                break; // the rest does not fit
            }
        }
        self.ctx.counters.user_bytes.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// How many of the bytes to be written at `offset` an append-only file already contains, so that they need not be
    /// written: a cache above writes whole pages and repeats existing bytes. Refuses to change an existing byte. 0 for
    /// every other file.
    fn already_appended(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        offset: u64,
        data: &[u8],
        cached: bool,
    ) -> Result<usize> {
        if !inode.node.inode(|r| r.flags().contains(InodeFlags::APPEND)) {
            return Ok(0);
        }
        let size = inode.size();
        let there = size.saturating_sub(offset).min(data.len() as u64) as usize;
        let gap = offset > size && !cached;
        let same = || -> Result<bool> {
            let mut found = vec![0; there];
            Ok(self.read_locked(inode, content, offset, &mut found)? == there && found == data[..there])
        };
        if gap || (there > 0 && !(cached && same()?)) {
            return Err(vfs::Error::NotPermitted("the file is append-only").into());
        }
        Ok(there)
    }

    /// Writes into memory; the size grows, times stay. The caller holds the inode's lock
    /// exclusively.
    pub(crate) fn write_locked(
        &self,
        _held: &PackState,
        inode: &Arc<Inode>,
        content: &mut Content,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let end = self.checked_end(inode, offset, data.len() as u64)?;
        // If its deltas cannot be found, the contents could not be written back either, and would stop every
        // checkpoint.
        self.deltas.deltas(&inode.node)?;
        let size = inode.size();
        if let Some(room) = self.inline_room(inode)? {
            if end <= room {
                self.write_inline(inode, offset, data)?;
                if end > size {
                    self.nodes.edit_inode(&inode.node, |r| r.i_size = end.into());
                }
                return Ok(data.len());
            }
            self.leave_inline(inode, content)?;
        }
        if offset > size {
            self.clear_tail(inode, content, size)?;
        }
        let (n, out) = self.write_pages(inode, content, offset, data, size);
        if n > 0 && offset + n as u64 > size {
            self.nodes.edit_inode(&inode.node, |r| r.i_size = (offset + n as u64).into());
        }
        match out {
            Err(e) if n == 0 => Err(e),
            Err(Error::Fs(vfs::Error::NoSpace)) | Ok(()) => Ok(n),
            Err(e) => Err(e),
        }
    }

    /// Writes whole blocks to the log, with all other dirty blocks of the inode; the size grows, times stay. If the log
    /// has no space for them, they stay in memory too. The caller holds the lock that [`Self::write_locked`] requires.
    fn write_through(
        &self,
        _held: &PackState,
        inode: &Arc<Inode>,
        content: &mut Content,
        first: u64,
        blocks: &[Block],
    ) -> Result<usize> {
        let size = inode.size();
        self.leave_inline(inode, content)?;
        if first * BLOCK > size {
            self.clear_tail(inode, content, size)?;
        }
        let mut roomy = 0;
        while roomy < blocks.len() {
            match self.room_for(inode, first + roomy as u64, (blocks.len() - roomy) as u64) {
                Ok(n) => roomy += n as usize,
                // The caller retries the rest and gets the error then; no reservation behind the end is left.
                Err(_) if roomy > 0 => break,
                Err(e) => return Err(e),
            }
        }
        let blocks = &blocks[..roomy];
        let end = (first + roomy as u64) * BLOCK;
        if end > size {
            self.nodes.edit_inode(&inode.node, |r| r.i_size = end.into());
        }
        let out = self.write_out(inode, content, first, blocks);
        if out.is_err() {
            let mut fresh = 0;
            for (index, block) in (first..).zip(blocks) {
                fresh += usize::from(content.pages.insert(index, Box::new(*block)).is_none());
            }
            inode.gained_dirty(&self.inodes, fresh);
        }
        or_wait(out).map(|()| roomy * BLOCK as usize)
    }

    fn write_pages(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> (usize, Result<()>) {
        let mut done = 0;
        let mut fresh = 0;
        let mut reserved_to = 0;
        let mut grown = false;
        let clusters = match self.clusters(inode) {
            Ok(clusters) => clusters,
            Err(e) => return (0, Err(e)),
        };
        let out = loop {
            if done == data.len() {
                break Ok(());
            }
            let at = offset + done as u64;
            let (index, inside) = (at / BLOCK, (at % BLOCK) as usize);
            let n = (4096 - inside).min(data.len() - done);
            let piece = &data[done..done + n];
            if let Some(page) = content.pages.get_mut(&index) {
                page[inside..inside + n].copy_from_slice(piece);
                done += n;
                continue;
            }
            if let Some(method) = clusters {
                match self.enter_cluster(inode, content, method, at, &data[done..]) {
                    Ok(0) if content.pages.contains_key(&index) => continue,
                    Ok(0) => {}
                    Ok(replaced) => {
                        done += replaced;
                        continue;
                    }
                    Err(e) => break Err(e),
                }
            }
            let page = if n == 4096 {
                // OK to unwrap: `piece` is exactly one block long here.
                Box::<format::Block>::new(piece.try_into().unwrap())
            } else {
                let old = if index * BLOCK < size { self.deltas.load_stored(inode, index) } else { Ok(None) };
                match old {
                    Ok(old) => {
                        let mut p = old.unwrap_or_else(|| Box::new([0; 4096]));
                        // Bytes past the end of the file may be anything on disk.
                        let valid = size.saturating_sub(index * BLOCK).min(BLOCK) as usize;
                        p[valid..].fill(0);
                        p[inside..inside + n].copy_from_slice(piece);
                        p
                    }
                    Err(e) => break Err(e),
                }
            };
            // Last, because all before may fail: roll-forward would take a reserved block behind the end for a longer
            // file.
            if index >= reserved_to {
                let want = (offset + data.len() as u64).div_ceil(BLOCK) - index;
                match self.room_for(inode, index, want) {
                    Ok(n) => reserved_to = index + n,
                    Err(e) => break Err(e),
                }
                grown = true;
            }
            content.pages.insert(index, page);
            fresh += 1;
            done += n;
        };
        inode.gained_dirty(&self.inodes, fresh);
        if grown && out.is_ok() {
            self.grow_ahead(inode, content, (offset + data.len() as u64).div_ceil(BLOCK));
        }
        (done, out)
    }

    /// True if there is space to preallocate for logs.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.ctx.options.delta && self.nodes.space.user_blocks().saturating_sub(self.nodes.space.valid_blocks()) > ROOMY
    }

    /// Preallocates blocks for a log that grew up to block `end`, so that its inode need not be written for each
    /// growth: a delta node records its size. Optional: nothing depends on it.
    fn grow_ahead(&self, inode: &Arc<Inode>, content: &mut Content, end: u64) {
        if !content.frames.has_records() || !self.has_room_ahead() || end * BLOCK <= inode.size() {
            return;
        }
        let Ok(Lookup::At(place)) = self.nodes.find(&inode.node, end) else { return };
        if place.addr(&self.ctx, place.slot) != BlockAddr::NULL {
            return;
        }
        let free = match Arc::ptr_eq(&place.node, &inode.node) {
            // Up to the zone of deltas, which does not shrink for this.
            true => inode.node.inode(|r| r.divide(self.ctx.sb.features).map_or(0, |d| d.addressed())),
            false => place.slots,
        };
        // Blocks that a user reserved behind the end are not used.
        let holes = (place.slot..free).take_while(|slot| place.addr(&self.ctx, *slot) == BlockAddr::NULL);
        let count = holes.take(AHEAD as usize).count() as u64;
        if count > 0
            && let Ok(n) = self.reserve_run(&inode.node, end, count)
        {
            content.frames.got_ahead(end..end + n);
            self.nodes.edit_inode(&inode.node, |r| put_advise(r, Advise::KEEP_SIZE, true));
        }
    }

    /// Frees preallocated blocks that logs in memory have not grown into. Not when they are closed: SQLite closes a
    /// persistent journal after each transaction. The caller prevents all changes.
    pub(crate) fn give_back_ahead(&self, _alone: &mut PackState) -> Result<()> {
        for inode in self.inodes.table.of_kind(vfs::FileKind::Regular) {
            let mut content = inode.content.write();
            let Some(ahead) = content.frames.take_ahead() else { continue };
            if self.clusters(&inode)?.is_some() || inode.node.inode(|r| r.i_links.get()) == 0 {
                continue;
            }
            let behind = ahead.start.max(inode.size().div_ceil(BLOCK))..ahead.end;
            if !behind.is_empty() {
                self.promises.stray(inode.ino);
                self.punch(&inode, &mut content, behind, &mut u64::MAX.clone())?;
            }
        }
        Ok(())
    }

    /// Reserves blocks from `index` on; returns how many, at least one.
    pub(super) fn room_for(&self, inode: &Arc<Inode>, index: u64, want: u64) -> Result<u64> {
        // An overwrite needs no reservation: check this before any change.
        if let Lookup::At(p) = self.nodes.find(&inode.node, index)? {
            let bytes = p.node.read();
            let slots = p.slot..p.slot + p.run().min(want) as u32;
            let held = slots.take_while(|&slot| addr_in(&self.ctx, &p.node, &bytes, slot) != BlockAddr::NULL).count();
            if held > 0 {
                return Ok(held as u64);
            }
        }
        self.reserve_run(&inode.node, index, want)
    }

    /// Zeroes the rest of the block that contains byte `from`: the file is about to grow past it, and bytes behind the
    /// end are arbitrary.
    pub(super) fn clear_tail(&self, inode: &Arc<Inode>, content: &mut Content, from: u64) -> Result<()> {
        let (index, inside) = (from / BLOCK, (from % BLOCK) as usize);
        if self.clear_packed_tail(inode, content, from)? || inside == 0 {
            return Ok(());
        }
        if let Some(p) = content.pages.get_mut(&index) {
            p[inside..].fill(0);
            return Ok(());
        }
        let Some(mut p) = self.deltas.load_stored(inode, index)? else { return Ok(()) };
        if p[inside..].iter().any(|&b| b != 0) {
            p[inside..].fill(0);
            content.pages.insert(index, p);
            inode.gained_dirty(&self.inodes, 1);
        }
        Ok(())
    }
}
