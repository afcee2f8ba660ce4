//! `stat`, `chattr` and extended attributes. Access control lists are attributes in their user-space form, and
//! agree with the mode. Callers have reserved room for the inode and the blocks that its attributes displace.

use format::acl::Acl;
use scherlfs_format::inode::Time;
use scherlfs_format::{FIRST_INO, ROOT};
use vfs::{Attr, Error, FileFlags, FileKind, Result, SetAttr, SetTime, XattrFlags};

use crate::inode::{ACCESSED, APPEND_ONLY, BORN, CHANGED, Inode, MODIFIED, SEALED, stamp};
use crate::volume::State;

/// The access ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The default ACL of a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Prefixes of stored attributes.
const KEPT: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];

/// Rejects changes to the file system's own files.
fn check_own(inode: &Inode) -> Result<()> {
    if inode.ino < FIRST_INO && inode.ino != ROOT {
        return Err(Error::NotPermitted("the inode map is the file system's own"));
    }
    Ok(())
}

/// Rejects changes that an immutable or append-only file forbids.
pub(crate) fn check_unsealed(inode: &Inode) -> Result<()> {
    check_own(inode)?;
    if inode.a.flags & SEALED != 0 {
        return Err(Error::NotPermitted("the file is immutable or append-only"));
    }
    Ok(())
}

/// Rejects changes that an immutable file forbids and an append-only one permits.
pub(crate) fn check_appendable(inode: &Inode) -> Result<()> {
    if inode.a.flags & SEALED == APPEND_ONLY { check_own(inode) } else { check_unsealed(inode) }
}

/// Like [`check_unsealed`], but the times of an append-only file may be set to now.
fn check_settable(inode: &Inode, set: &SetAttr) -> Result<()> {
    let times = SetAttr { atime: set.atime, mtime: set.mtime, ctime: set.ctime, ..SetAttr::default() };
    let at = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
    let touched = *set == times && !at(set.atime) && (set.ctime.is_some() || !at(set.mtime));
    let append_only = inode.a.flags & SEALED == APPEND_ONLY;
    if append_only && touched { check_own(inode) } else { check_unsealed(inode) }
}

fn known(name: &[u8]) -> Result<()> {
    let kept = KEPT.iter().any(|p| name.len() > p.len() && name.starts_with(p));
    let system = name.starts_with(b"system.") && name != ACCESS && name != DEFAULT;
    match kept && !system {
        true => Ok(()),
        false => Err(Error::Unsupported(format!("attributes named {:?}", String::from_utf8_lossy(name)))),
    }
}

impl State {
    /// `setattr`.
    pub fn set_attributes(&mut self, inode: &mut Inode, set: &SetAttr, now: Time) -> Result<Attr> {
        check_settable(inode, set)?;
        if let Some(size) = set.size {
            self.set_size(inode, size, now)?;
            self.keep(inode);
        }
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(at) => stamp(at),
        };
        inode.a.uid = set.uid.unwrap_or(inode.a.uid);
        inode.a.gid = set.gid.unwrap_or(inode.a.gid);
        if set.kill_suid_sgid {
            inode.kill_suid_sgid();
        }
        if let Some(perm) = set.perm {
            inode.a.mode = inode.a.mode & 0o170_000 | perm & 0o7777;
            if inode.kind() != Some(FileKind::Symlink)
                && let Some(list) = inode.xattrs.get_mut(ACCESS)
            {
                let mut acl = Acl::from_wire(list).map_err(Error::corrupt)?;
                acl.chmod(perm);
                *list = acl.to_wire();
            }
        }
        let times = &mut inode.a.times;
        times[ACCESSED] = set.atime.map_or(times[ACCESSED], time);
        times[MODIFIED] = set.mtime.map_or(times[MODIFIED], time);
        times[BORN] = set.crtime.map_or(times[BORN], stamp);
        times[CHANGED] = set.ctime.map_or(now, stamp);
        self.keep(inode);
        Ok(inode.attr())
    }

    /// Sets the access time if it is due; returns true if it did.
    pub fn note_access(&mut self, inode: &mut Inode, now: Time) -> Result<bool> {
        const NOATIME: u32 = 0x80;
        let due = inode.attr().access_is_due(vfs::Timestamp { sec: now.secs, nsec: now.nanos });
        if inode.a.flags & NOATIME != 0 || inode.a.nlink == 0 || !due || check_own(inode).is_err() {
            return Ok(false);
        }
        inode.a.times[ACCESSED] = now;
        self.keep(inode);
        Ok(true)
    }

    /// Sets an attribute.
    pub fn set_xattr(&mut self, i: &mut Inode, name: &[u8], value: &[u8], flags: XattrFlags, now: Time) -> Result<()> {
        known(name)?;
        check_unsealed(i)?;
        if name == ACCESS || name == DEFAULT {
            return self.set_acl(i, name, value, flags, now);
        }
        match i.xattrs.contains_key(name) {
            true if flags.contains(XattrFlags::CREATE) => return Err(Error::Exists),
            false if flags.contains(XattrFlags::REPLACE) => return Err(Error::NoAttribute),
            _ => {}
        }
        self.put_xattr(i, name, Some(value.to_vec()), now)
    }

    fn put_xattr(&mut self, inode: &mut Inode, name: &[u8], value: Option<Vec<u8>>, now: Time) -> Result<()> {
        let bytes = |n: &[u8], v: &[u8]| 3 + n.len() + v.len();
        let old = inode.xattrs.get(name).map_or(0, |v| bytes(name, v));
        let new = value.as_ref().map_or(0, |v| bytes(name, v));
        let all = inode.xattr_bytes() - old + new;
        if !Inode::xattrs_fit(all) || name.len() > 255 {
            return Err(Error::AttributeTooLarge);
        }
        match value {
            Some(value) => inode.xattrs.insert(name.to_vec(), value),
            None => inode.xattrs.remove(name),
        };
        inode.changed(now);
        self.keep(inode);
        Ok(())
    }

    fn set_acl(&mut self, inode: &mut Inode, name: &[u8], value: &[u8], flags: XattrFlags, now: Time) -> Result<()> {
        if name == DEFAULT && !inode.is_dir() {
            return Err(Error::NotPermitted("only directories have a default list"));
        }
        if inode.kind() == Some(FileKind::Symlink) {
            return Err(Error::Unsupported("access lists of symlinks".into()));
        }
        let list = Acl::from_wire(value).map_err(|_| Error::Invalid("not an access control list"))?;
        if list.entries.is_empty() {
            return self.drop_acl(inode, name, now);
        }
        list.valid().map_err(|_| Error::Invalid("an access control list that breaks the rules"))?;
        if name == DEFAULT {
            return self.put_xattr(inode, name, Some(list.to_wire()), now);
        }
        let (perm, minimal) = list.equivalent_mode();
        match minimal {
            true => self.drop_acl(inode, name, now)?,
            false => self.put_xattr(inode, name, Some(list.to_wire()), now)?,
        }
        inode.a.mode = inode.a.mode & !0o777 | perm & 0o777;
        if flags.contains(XattrFlags::ACL_KILL_SGID) {
            inode.a.mode &= !0o2000;
        }
        inode.changed(now);
        self.keep(inode);
        Ok(())
    }

    fn drop_acl(&mut self, inode: &mut Inode, name: &[u8], now: Time) -> Result<()> {
        if inode.xattrs.contains_key(name) { self.put_xattr(inode, name, None, now) } else { Ok(()) }
    }

    /// Removes an attribute. As in Linux, a missing ACL is not an error.
    pub fn remove_xattr(&mut self, inode: &mut Inode, name: &[u8], now: Time) -> Result<()> {
        known(name)?;
        if !inode.xattrs.contains_key(name) {
            return match name {
                ACCESS | DEFAULT if inode.kind() == Some(FileKind::Symlink) => {
                    Err(Error::Unsupported("access lists of symlinks".into()))
                }
                ACCESS | DEFAULT => Ok(()),
                _ => Err(Error::NoAttribute),
            };
        }
        check_unsealed(inode)?;
        self.put_xattr(inode, name, None, now)
    }

    /// Sets the `chattr` flags.
    pub fn set_flags(&mut self, inode: &mut Inode, flags: FileFlags, project: Option<u32>, now: Time) -> Result<()> {
        check_own(inode)?;
        let kept = FileFlags::SYNC
            | FileFlags::IMMUTABLE
            | FileFlags::APPEND
            | FileFlags::NODUMP
            | FileFlags::NOATIME
            | FileFlags::PROJINHERIT;
        if !kept.contains(flags) {
            return Err(Error::Unsupported(format!("flags {:#x}", (flags - kept).bits())));
        }
        if flags.contains(FileFlags::PROJINHERIT) && !inode.is_dir() {
            return Err(Error::Invalid("only directories give their project on"));
        }
        inode.a.flags = flags.bits();
        inode.a.project = project.unwrap_or(inode.a.project);
        inode.changed(now);
        self.keep(inode);
        Ok(())
    }
}

/// Rejects reading an attribute that no file has.
pub(crate) fn readable(name: &[u8]) -> Result<()> {
    known(name)
}
