//! Access control lists: stored as attributes and kept consistent with the mode.

use std::sync::Arc;

use format::acl::{self, Acl, Inherited};
use format::xattr::index;
use vfs::{FileKind, XattrFlags};

use crate::error::{Error, Result};
use crate::fields::{Touch, touch};
use crate::inode::Inode;
use crate::pack::PackState;
use crate::xattr::Xattrs;

impl Xattrs {
    fn stored_acl(&self, inode: &Inode, index: u8) -> Result<Option<Acl>> {
        match self.xattr(inode, index, b"")? {
            None => Ok(None),
            Some(bytes) => {
                Acl::from_disk(&bytes).map(Some).map_err(|e| Error::corrupt(format_args!("inode {}: {e}", inode.ino)))
            }
        }
    }

    /// A list in the format that users see.
    pub(crate) fn acl_value(&self, inode: &Inode, index: u8) -> Result<Option<Vec<u8>>> {
        Ok(self.stored_acl(inode, index)?.map(|a| a.to_wire()))
    }

    /// The lists that a new inode inherits from its directory.
    pub(crate) fn inherited_acl(&self, dir: &Inode, kind: FileKind, perm: u16, umask: u16) -> Result<Inherited> {
        let default = match kind {
            FileKind::Symlink => None,
            _ => self.stored_acl(dir, index::ACL_DEFAULT)?,
        };
        Ok(acl::inherit(default.as_ref(), kind.mode_bits() | perm & 0o7777, umask))
    }

    /// Stores inherited lists: the default list first, as Linux does.
    pub(crate) fn store_inherited_acl(&self, held: &PackState, inode: &Arc<Inode>, what: &Inherited) -> Result<()> {
        let lists = [(index::ACL_DEFAULT, &what.default), (index::ACL_ACCESS, &what.access)];
        for (index, list) in lists {
            if let Some(list) = list {
                self.put_xattr(held, inode, index, b"", Some(&list.to_disk()), XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Sets or removes a list in the users' format. An access list also sets the mode, and is not stored if the mode
    /// expresses all of it. The caller holds the locks that `put_xattr` requires.
    pub(crate) fn set_acl(
        &self,
        held: &PackState,
        inode: &Arc<Inode>,
        index: u8,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        let is_default = index == index::ACL_DEFAULT;
        if is_default && inode.kind != FileKind::Directory {
            return Err(vfs::Error::NotPermitted("only directories have a default list").into());
        }
        if inode.kind == FileKind::Symlink {
            return Err(vfs::Error::Unsupported("access lists of symlinks".into()).into());
        }
        let list = Acl::from_wire(value).map_err(|_| vfs::Error::Invalid("not an access control list"))?;
        if list.entries.is_empty() {
            return self.drop_acl(held, inode, index);
        }
        list.valid().map_err(|_| vfs::Error::Invalid("an access control list that breaks the rules"))?;
        if is_default {
            return self.put_xattr(held, inode, index, b"", Some(&list.to_disk()), XattrFlags::empty());
        }
        let (perm, minimal) = list.equivalent_mode();
        // The list first: only this step can run out of space.
        match minimal {
            true => self.drop_acl(held, inode, index),
            false => self.put_xattr(held, inode, index, b"", Some(&list.to_disk()), XattrFlags::empty()),
        }?;
        let kill = flags.contains(XattrFlags::ACL_KILL_SGID);
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| {
            let mut mode = r.i_mode.get() & !0o777 | perm & 0o777;
            if kill {
                mode &= !0o2000;
            }
            r.i_mode = mode.into();
            touch(r, Touch::Changed, now);
        });
        Ok(())
    }

    /// Removes a list; a missing list is no error.
    pub(crate) fn drop_acl(&self, held: &PackState, inode: &Arc<Inode>, index: u8) -> Result<()> {
        match self.put_xattr(held, inode, index, b"", None, XattrFlags::empty()) {
            Err(Error::Fs(vfs::Error::NoAttribute)) => Ok(()),
            other => other,
        }
    }

    /// The result of removing a missing list: success, as in Linux, where removing any other missing attribute fails.
    /// Symlinks have no lists.
    pub(crate) fn has_no_acl(&self, inode: &Inode) -> Result<()> {
        match inode.kind {
            FileKind::Symlink => Err(vfs::Error::Unsupported("access lists of symlinks".into()).into()),
            _ => Ok(()),
        }
    }

    /// Updates the access list after the mode changed.
    pub(crate) fn chmod_acl(&self, held: &PackState, inode: &Arc<Inode>, mode: u16) -> Result<()> {
        if inode.kind == FileKind::Symlink {
            return Ok(());
        }
        if let Some(mut list) = self.stored_acl(inode, index::ACL_ACCESS)? {
            list.chmod(mode);
            self.put_xattr(held, inode, index::ACL_ACCESS, b"", Some(&list.to_disk()), XattrFlags::empty())?;
        }
        Ok(())
    }
}
