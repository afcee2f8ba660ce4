//! Changing what `stat` shows.

use std::sync::Arc;

use device::clock::Time;
use format::inode::{InodeFlags, extra_end};
use vfs::{Attr, SetAttr, SetTime};

use crate::error::Result;
use crate::file::write::kill_suid_sgid;
use crate::inode::{Inode, Touch, touch};
use crate::volume::Volume;

fn time(set: SetTime, now: Time) -> (u64, u32) {
    match set {
        SetTime::Now => (now.secs as u64, now.nanos),
        SetTime::At(t) => (t.sec as u64, t.nsec),
    }
}

impl Volume {
    /// `setattr`.
    pub(crate) fn set_attributes(&self, inode: &Arc<Inode>, set: &SetAttr) -> Result<Attr> {
        let flags = inode.node.inode(|r| r.flags());
        if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        if let Some(size) = set.size {
            self.set_size(inode, size)?;
        }
        let _change = self.begin()?;
        let _content = inode.content.write();
        self.check_there(inode)?;
        let now = self.now();
        self.edit_inode(&inode.node, |r| {
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
            self.chmod_acl(inode, perm)?;
        }
        self.attr(inode)
    }
}
