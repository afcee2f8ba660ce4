//! How is an inode found by number, how are its dirty blocks counted, and what does `stat` show?

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::Ino;
use format::inode::{Advise, Division, Inline, RawInode, extra_end};
use vfs::{Attr, DeviceNumber, FileKind, Timestamp};

use super::Inode;
use crate::error::{Error, Result};
use crate::inode::Inodes;
use crate::no_key;
use crate::node::cache::Node;

impl Inode {
    /// Counts dirty blocks; the first puts the inode on the list for writeback.
    pub(crate) fn gained_dirty(self: &Arc<Self>, inodes: &Inodes, n: usize) {
        if n > 0 && self.dirty.fetch_add(n, Ordering::AcqRel) == 0 {
            inodes.table.dirty.lock().insert(self.ino, self.clone());
        }
        let p = if self.kind == FileKind::Directory { &inodes.logs.pressure.dents } else { &inodes.logs.pressure.data };
        p.fetch_add(n as u64, Ordering::Relaxed);
    }
    /// Discounts dirty blocks that were written or dropped.
    pub(crate) fn lost_dirty(&self, inodes: &Inodes, n: usize) {
        if n > 0 && self.dirty.fetch_sub(n, Ordering::AcqRel) == n {
            inodes.table.dirty.lock().remove(&self.ino);
        }
        let p = if self.kind == FileKind::Directory { &inodes.logs.pressure.dents } else { &inodes.logs.pressure.data };
        p.fetch_sub(n as u64, Ordering::Relaxed);
    }
}

impl Inodes {
    /// An inode by number. [`vfs::Error::NotFound`] if it is deleted or never existed.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(i) = self.table.get(ino) {
            return Ok(i);
        }
        if ino.0 < self.ctx.sb.root.0 || ino.0 >= self.ctx.sb.max_nid() {
            return Err(vfs::Error::NotFound.into());
        }
        let node = self.nodes.node(ino.nid())?;
        if node.ino != ino {
            return Err(vfs::Error::NotFound.into());
        }
        let (mode, links) = node.inode(|r| (r.i_mode.get(), r.i_links.get()));
        if links == 0 && !self.table.is_held(ino) && !self.orphans.contains(ino) {
            return Err(vfs::Error::NotFound.into());
        }
        let kind = FileKind::from_mode(mode)
            .ok_or_else(|| Error::corrupt(format_args!("inode {ino}: mode {mode:#o} names no kind of file")))?;
        Ok(self.table.insert(Inode::new(ino, kind, node)))
    }

    /// Refuses an inode that was freed while the caller waited for its lock, which the caller now holds. Only inodes
    /// without references are freed, so this concerns callers that keep no reference.
    pub(crate) fn check_there(&self, inode: &Inode) -> Result<()> {
        match inode.node.inode(|r| r.i_links.get()) == 0 && !self.orphans.contains(inode.ino) {
            true => Err(vfs::Error::NotFound.into()),
            false => Ok(()),
        }
    }

    /// Adds a new inode, whose node is in memory, to the table. It replaces a deleted inode of that number that is in
    /// the table again, because a reader without a reference loaded it just before it was freed.
    pub(crate) fn adopt_inode(&self, ino: Ino, kind: FileKind, node: Arc<Node>) -> Arc<Inode> {
        self.table.drop_inode(ino);
        self.table.insert(Inode::new(ino, kind, node))
    }

    /// The attributes that `stat` shows.
    pub(crate) fn attr(&self, inode: &Inode) -> Result<Attr> {
        inode.node.inode(|r| {
            let kind = inode.kind;
            let ts = |sec: u64, nsec: u32| Timestamp { sec: sec as i64, nsec: nsec.min(999_999_999) };
            let crtime = r
                .extra()
                .filter(|_| r.extra_isize() >= extra_end::CRTIME)
                .map(|e| ts(e.i_crtime.get(), e.i_crtime_nsec.get()));
            let rdev = match kind {
                FileKind::CharDevice | FileKind::BlockDevice => device_number(r, self.nodes.division(r)?),
                _ => DeviceNumber::default(),
            };
            Ok(Attr {
                ino: vfs::Ino(inode.ino.0.into()),
                generation: r.i_generation.get(),
                kind,
                perm: r.i_mode.get() & 0o7777,
                nlink: r.i_links.get(),
                uid: r.i_uid.get(),
                gid: r.i_gid.get(),
                size: match kind {
                    FileKind::Symlink if r.advise().contains(Advise::ENCRYPT) => no_key::target_len(r.i_size.get()),
                    _ => r.i_size.get().max(inode.size_in_set.load(Ordering::Acquire)),
                },
                blocks512: shown_blocks(r, kind),
                rdev,
                atime: ts(r.i_atime.get(), r.i_atime_nsec.get()),
                mtime: ts(r.i_mtime.get(), r.i_mtime_nsec.get()),
                ctime: ts(r.i_ctime.get(), r.i_ctime_nsec.get()),
                crtime,
            })
        })
    }
}

/// Blocks as Linux shows them: without the inode's own block, with contents inside the inode (kernel `f2fs_getattr`).
fn shown_blocks(r: &RawInode, kind: FileKind) -> u64 {
    let inside = match kind {
        FileKind::Regular => r.inline().contains(Inline::DATA),
        _ => r.inline().contains(Inline::DENTRY),
    };
    let inside = if inside { r.i_size.get().div_ceil(512) } else { 0 };
    r.i_blocks.get().saturating_sub(1).saturating_mul(8).saturating_add(inside)
}

/// The device number of a device node: the first address word in the old 16-bit form, or the second in the new 32-bit
/// form (kernel `__get_inode_rdev`).
fn device_number(r: &RawInode, d: Division) -> DeviceNumber {
    let old = r.addr(d, 0).0;
    if old != 0 {
        return DeviceNumber { major: old >> 8 & 0xFF, minor: old & 0xFF };
    }
    let new = r.addr(d, 1).0;
    DeviceNumber { major: new >> 8 & 0xFFF, minor: new & 0xFF | new >> 12 & 0xF_FF00 }
}
