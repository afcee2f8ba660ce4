//! Which writes of a file become durable together, and where do they wait?
//!
//! Between start and commit, the writes to a file go into its *set*: pages in memory that nothing else knows. Map, size
//! and dirty contents of the file stay as they are, so checkpoints, fsync, writeback and cleaning need no rule for sets,
//! and dropping a set restores the file. Readers see the set through every descriptor, as in Linux. Space is taken at
//! the commit ([`crate::fsync`] has its order of writes).
//!
//! All sets together hold at most a quarter of the dirty contents that the mount allows. If a set does not fit, or a write
//! to it fails, its pages are dropped, and its commit fails. A set that does not fit accepts later writes and drops them:
//! an error of the write itself would not reach the program. The kernel's cache has answered already, and reports it at
//! a later fsync, which may be that of another transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::Ino;
use format::inode::{Advise, Inline};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use vfs::FileKind;

use super::BLOCK;
use crate::error::Result;
use crate::fields::{Touch, touch};
use crate::file::Files;
use crate::inode::set::WriteSet;
use crate::inode::{Content, Inode};
use crate::pack::PackState;

/// The sets of a volume.
#[derive(Default)]
pub(crate) struct Sets {
    all: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Files with a set. They stay in memory.
    files: FxHashMap<Ino, Arc<Inode>>,
    /// Pages of all sets.
    pages: u64,
}

impl Sets {
    /// A file, if it has a set.
    pub(crate) fn with_set(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.all.lock().files.get(&ino).cloned()
    }

    /// Counts one more page if it fits.
    fn take_page(&self, limit: u64) -> bool {
        let mut held = self.all.lock();
        let fits = held.pages < limit;
        held.pages += u64::from(fits);
        fits
    }

    fn give_pages(&self, pages: usize) {
        self.all.lock().pages -= pages as u64;
    }
}

impl Files {
    /// Refuses a file whose blocks must stay, or are not whole pages.
    fn check_may_have_set(&self, inode: &Inode) -> Result<()> {
        if inode.kind != FileKind::Regular {
            return Err(vfs::Error::Invalid("atomic writes need a regular file").into());
        }
        self.check_plain(inode)?;
        if self.clusters(inode)?.is_some() {
            return Err(vfs::Error::Invalid("atomic writes to a compressed file").into());
        }
        if inode.node.inode(|r| r.inline().contains(Inline::PIN_FILE)) {
            return Err(vfs::Error::Invalid("atomic writes to a pinned file").into());
        }
        Ok(())
    }

    /// Begins a set. Does nothing if the owner has one.
    pub(crate) fn start_set(&self, inode: &Arc<Inode>, owner: u64) -> Result<()> {
        self.ctx.check_writable()?;
        let _turn = inode.steps.turn.lock();
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        self.check_may_have_set(inode)?;
        if content.set_of(owner)?.is_none() {
            let size = inode.size();
            content.set = Some(Box::new(WriteSet { owner, pages: BTreeMap::new(), size, failed: None }));
            self.sets.all.lock().files.insert(inode.ino, inode.clone());
        }
        Ok(())
    }

    /// Writes into the file's set. The caller holds the inode's lock exclusively and has checked the range.
    pub(super) fn write_to_set(&self, inode: &Arc<Inode>, content: &mut Content, at: u64, data: &[u8]) -> Result<()> {
        let Some(mut set) = content.set.take() else { return Ok(()) };
        let out = self.add_to_set(inode, content, &mut set, at, data);
        inode.size_in_set.store(set.size, Ordering::Release);
        content.set = Some(set);
        out
    }

    fn add_to_set(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        set: &mut WriteSet,
        at: u64,
        data: &[u8],
    ) -> Result<()> {
        let limit = (self.ctx.options.dirty_limit / 4).max(1) as u64;
        let mut done = 0;
        while done < data.len() && set.failed.is_none() {
            let here = at + done as u64;
            let (index, inside) = (here / BLOCK, (here % BLOCK) as usize);
            let n = (4096 - inside).min(data.len() - done);
            let page = match set.pages.get_mut(&index) {
                Some(page) => page,
                None => {
                    let mut page = Box::new([0; 4096]);
                    if n < 4096 {
                        self.read_without_set(inode, content, index * BLOCK, &mut page[..])?;
                    }
                    if !self.sets.take_page(limit) {
                        self.empty_set(set, vfs::Error::TooBig);
                        log::warn!(
                            "inode {}: atomic writes of more than {limit} pages; the commit will fail",
                            inode.ino
                        );
                        break;
                    }
                    set.pages.entry(index).or_insert(page)
                }
            };
            page[inside..inside + n].copy_from_slice(&data[done..done + n]);
            done += n;
            set.size = set.size.max(here + n as u64);
        }
        set.size = set.size.max(at + data.len() as u64);
        Ok(())
    }

    fn empty_set(&self, set: &mut WriteSet, why: vfs::Error) {
        self.sets.give_pages(set.pages.len());
        set.pages.clear();
        set.failed.get_or_insert(why);
    }

    /// A write to the file failed, or stored only a part: the file's set, if there is one, lacks it.
    pub(crate) fn fail_set(&self, inode: &Inode, why: &vfs::Error) {
        if self.sets.with_set(inode.ino).is_some()
            && let Some(set) = &mut inode.content.write().set
        {
            self.empty_set(set, why.clone());
        }
    }

    /// Reads the file as it will be after the commit. The caller holds the inode's lock.
    pub(super) fn read_with_set(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        set: &WriteSet,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        if offset >= set.size {
            return Ok(0);
        }
        let n = (set.size - offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..n];
        let stored = self.read_without_set(inode, content, offset, buf)?;
        buf[stored..].fill(0);
        let end = offset + n as u64;
        for (index, page) in set.pages.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = ((index * BLOCK).max(offset), ((index + 1) * BLOCK).min(end));
            let inside = (from - index * BLOCK) as usize;
            let there = (from - offset) as usize..(to - offset) as usize;
            buf[there.clone()].copy_from_slice(&page[inside..inside + there.len()]);
        }
        Ok(n)
    }

    /// Number of pages of the owner's set; `None` without a set.
    pub(crate) fn pages_of_set(&self, inode: &Inode, owner: u64) -> Result<Option<u64>> {
        match inode.content.write().set_of(owner)? {
            Some(WriteSet { failed: Some(why), .. }) => Err(why.clone().into()),
            set => Ok(set.map(|set| set.pages.len() as u64)),
        }
    }

    /// Drops the owner's set; true if there was one.
    pub(crate) fn drop_set(&self, inode: &Inode, owner: u64) -> Result<bool> {
        let mut content = inode.content.write();
        let there = content.set_of(owner)?.is_some();
        self.end_set(inode, &mut content);
        Ok(there)
    }

    /// Drops a set, if there is one.
    pub(super) fn end_set(&self, inode: &Inode, content: &mut Content) {
        self.take_set(inode, content);
        inode.size_in_set.store(0, Ordering::Release);
    }

    fn take_set(&self, inode: &Inode, content: &mut Content) -> Option<Box<WriteSet>> {
        let set = content.set.take()?;
        let mut held = self.sets.all.lock();
        held.files.remove(&inode.ino);
        held.pages -= set.pages.len() as u64;
        Some(set)
    }

    /// Ends the set and makes its pages dirty contents of the file, with the size. The caller holds the inode's lock
    /// exclusively, and lets no checkpoint begin before all of them have a place. On failure, the file's contents and
    /// size are as before; holes that the set fills may stay reserved.
    pub(crate) fn adopt_set(&self, held: &PackState, inode: &Arc<Inode>, content: &mut Content) -> Result<()> {
        let out = match self.take_set(inode, content) {
            Some(set) if !set.pages.is_empty() => self.adopt(held, inode, content, *set),
            _ => Ok(()),
        };
        // Only now: `stat` must not see the old size in between.
        inode.size_in_set.store(0, Ordering::Release);
        out
    }

    fn adopt(&self, held: &PackState, inode: &Arc<Inode>, content: &mut Content, set: WriteSet) -> Result<()> {
        self.check_may_have_set(inode)?;
        self.checked_end(inode, 0, set.size)?;
        // Everything that may fail comes first.
        self.deltas.deltas(&inode.node)?;
        let size = inode.size();
        let now = self.ctx.now();
        if let Some(room) = self.inline_room(inode)? {
            if set.size <= room {
                if let Some(page) = set.pages.get(&0) {
                    self.write_inline(inode, 0, &page[..set.size as usize])?;
                }
                self.nodes.edit_inode(&inode.node, |r| {
                    r.i_size = set.size.into();
                    touch(r, Touch::Modified, now);
                });
                return Ok(());
            }
            self.leave_inline(inode, content)?;
        }
        if set.size > size {
            self.clear_tail(inode, content, size)?;
        }
        for index in set.pages.keys() {
            if let Err(e) = self.room_for(inode, *index, 1) {
                // Roll-forward would take reserved blocks behind the end for a longer file.
                let kept = inode.node.inode(|r| r.advise().contains(Advise::KEEP_SIZE));
                while !kept && !self.truncate_some(held, inode, content, size)? {}
                return Err(e);
            }
        }
        let mut fresh = 0;
        for (index, page) in set.pages {
            fresh += usize::from(content.pages.insert(index, page).is_none());
        }
        inode.gained_dirty(&self.inodes, fresh);
        self.nodes.edit_inode(&inode.node, |r| {
            r.i_size = set.size.into();
            touch(r, Touch::Modified, now);
        });
        Ok(())
    }
}
