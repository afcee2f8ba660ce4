//! How do the attributes shown by `stat` change?

use std::sync::Arc;

use device::clock::Time;
use format::inode::{InodeFlags, extra_end};
use vfs::{Attr, SetAttr, SetTime};

use crate::context::Begin;
use crate::error::Result;
use crate::fields::{Touch, touch};
use crate::file::write::kill_suid_sgid;
use crate::inode::Inode;
use crate::volume::Volume;

fn time(set: SetTime, now: Time) -> (u64, u32) {
    match set {
        SetTime::Now => (now.secs as u64, now.nanos),
        SetTime::At(t) => (t.sec as u64, t.nsec),
    }
}

impl Volume {
    /// Sets the access time if it is due; returns whether it did. Nothing else about the inode changes, not even its
    /// change time.
    pub(crate) fn note_access(&self, inode: &Arc<Inode>) -> Result<bool> {
        let due = |now: Time| -> Result<bool> {
            Ok(self.inodes.attr(inode)?.access_is_due(vfs::Timestamp { sec: now.secs, nsec: now.nanos }))
        };
        let now = self.ctx.now();
        let still = inode.node.inode(|r| r.flags().contains(InodeFlags::NOATIME));
        if still || !due(now)? {
            return Ok(false);
        }
        let _change = self.begin_modest()?;
        let _content = inode.content.write();
        // Of many concurrent readers, the first has already updated it for all.
        let changes = due(now)? && inode.node.inode(|r| r.i_links.get()) > 0;
        if changes {
            self.nodes.edit_inode(&inode.node, |r| {
                (r.i_atime, r.i_atime_nsec) = ((now.secs as u64).into(), now.nanos.into())
            });
        }
        Ok(changes)
    }

    /// Refuses changes that an immutable or append-only inode forbids. The times of an append-only file may be set to
    /// now. A cache above that owns times also sets the time when the file last grew, and passes its change time with
    /// it.
    fn check_settable(&self, inode: &Inode, set: &SetAttr) -> Result<()> {
        let times = SetAttr { atime: set.atime, mtime: set.mtime, ctime: set.ctime, ..SetAttr::default() };
        let at = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
        let touched = *set == times && !at(set.atime) && (set.ctime.is_some() || !at(set.mtime));
        let append_only =
            inode.node.inode(|r| r.flags().contains(InodeFlags::APPEND) && !r.flags().contains(InodeFlags::IMMUTABLE));
        if append_only && touched { Ok(()) } else { inode.check_unsealed() }
    }

    /// `setattr`.
    pub(crate) fn set_attributes(&self, inode: &Arc<Inode>, set: &SetAttr) -> Result<Attr> {
        self.check_settable(inode, set)?;
        if let Some(size) = set.size {
            self.files.set_size(self, inode, size)?;
        }
        let change = self.begin_modest()?;
        let _content = inode.content.write();
        self.inodes.check_there(inode)?;
        // Check again: the flags cannot change while this lock is held.
        self.check_settable(inode, set)?;
        self.note_altered(inode);
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| {
            if let Some(uid) = set.uid {
                r.i_uid = uid.into();
            }
            if let Some(gid) = set.gid {
                r.i_gid = gid.into();
            }
            if set.kill_suid_sgid {
                kill_suid_sgid(r);
            }
            if let Some(perm) = set.perm {
                r.i_mode = (r.i_mode.get() & 0o170000 | perm & 0o7777).into();
            }
            if let Some(t) = set.atime {
                let (s, n) = time(t, now);
                (r.i_atime, r.i_atime_nsec) = (s.into(), n.into());
            }
            if let Some(t) = set.mtime {
                let (s, n) = time(t, now);
                (r.i_mtime, r.i_mtime_nsec) = (s.into(), n.into());
            }
            if let Some(t) = set.crtime
                && r.extra_isize() >= extra_end::CRTIME
                && let Some(e) = r.extra_mut()
            {
                (e.i_crtime, e.i_crtime_nsec) = ((t.sec as u64).into(), t.nsec.into());
            }
            match set.ctime {
                Some(t) => (r.i_ctime, r.i_ctime_nsec) = ((t.sec as u64).into(), t.nsec.into()),
                None => touch(r, Touch::Changed, now),
            }
        });
        if let Some(perm) = set.perm {
            self.xattrs.chmod_acl(&change, inode, perm)?;
        }
        self.inodes.attr(inode)
    }
}
