//! Removing names, and inodes nobody needs any more.

use std::sync::Arc;

use format::inode::InodeFlags;
use format::{Ino, Nid};
use vfs::FileKind;

use crate::error::Result;
use crate::inode::{Content, Inode, Touch, touch};
use crate::orphan::Place;
use crate::volume::Volume;

impl Volume {
    /// Removes a name; `directory` says which kind the caller means.
    pub(crate) fn remove_name(&self, parent: vfs::Ino, name: &[u8], directory: bool) -> Result<()> {
        if name == b"." {
            return Err(vfs::Error::Invalid("cannot remove .").into());
        }
        if name == b".." {
            return Err(vfs::Error::NotEmpty.into());
        }
        let _change = self.begin()?;
        let dir = self.outer_dir(parent)?;
        let mut content = dir.content.write();
        self.check_dir_changes(&dir, false)?;
        let found = self.find_entry(&dir, &mut content, name)?.ok_or(vfs::Error::NotFound)?;
        let victim = self.named(found.ino, &dir, name)?;
        match (directory, victim.kind == FileKind::Directory) {
            (false, true) => return Err(vfs::Error::IsDirectory.into()),
            (true, false) => return Err(vfs::Error::NotDirectory.into()),
            _ => {}
        }
        self.check_removable(&victim)?;
        if victim.ino == dir.ino {
            return Err(crate::error::Error::corrupt(format_args!("directory {}: holds itself", dir.ino)));
        }
        if directory && !self.is_empty_dir(&victim, &mut victim.content.write())? {
            return Err(vfs::Error::NotEmpty.into());
        }
        let place = self.orphans.place()?;
        self.remove_entry(&dir, &mut content, found.spot)?;
        self.touch_dir(&dir);
        if directory {
            self.add_links(&dir, -1);
        }
        self.unlinked(&victim, (dir.ino, name), place)
    }

    /// The inode an entry leads to. One that is not there is damage, not absence.
    pub(crate) fn named(&self, ino: Ino, dir: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        self.inode(ino).map_err(|e| match e {
            crate::error::Error::Fs(vfs::Error::NotFound) => crate::error::Error::corrupt(format_args!(
                "directory {}: {:?} leads to inode {ino}, which does not exist",
                dir.ino,
                String::from_utf8_lossy(name)
            )),
            e => e,
        })
    }

    pub(crate) fn check_removable(&self, inode: &Inode) -> Result<()> {
        if inode.node.inode(|r| r.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        Ok(())
    }

    /// An inode lost a name in a directory. Without names it is freed, or becomes an orphan, for which there is a place, while
    /// somebody refers to it.
    pub(crate) fn unlinked(&self, inode: &Arc<Inode>, lost: (Ino, &[u8]), place: Place<'_>) -> Result<()> {
        let now = self.now();
        self.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        let left =
            if inode.kind == FileKind::Directory { self.add_links(inode, -2) } else { self.add_links(inode, -1) };
        if left > 0 || inode.kind == FileKind::Directory {
            self.promises.vacated(lost.0, lost.1);
        }
        if left > 0 {
            self.doubt_place(inode);
            return Ok(());
        }
        let last = || inode.node.inode(|r| (Ino(r.i_pino.get()), r.name().to_vec()));
        self.inodes.gone.note(inode.ino, last);
        self.orphans.put(inode.ino, place);
        if !self.inodes.is_held(inode.ino) {
            self.remove_orphan(inode)?;
        }
        Ok(())
    }

    /// Frees an orphan nobody refers to. The name's end and the last reference's end may both get
    /// here at once: who takes it off the list frees it. The caller holds `cp` shared, so no
    /// checkpoint sees the list without it.
    fn remove_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(place) = self.orphans.take(inode.ino) else { return Ok(()) };
        let out = self.remove_inode(inode);
        if out.is_err() {
            self.orphans.put(inode.ino, place);
        }
        out
    }

    /// Frees a new inode that gets no name after all; one that cannot be freed now is an orphan.
    pub(crate) fn abandon(&self, inode: &Arc<Inode>) -> Result<()> {
        self.edit_inode(&inode.node, |r| r.i_links = 0.into());
        self.remove_inode(inode).inspect_err(|_| self.orphans.keep(inode.ino))
    }

    /// Frees an inode and all it has. The caller holds `cp` shared (or mounts) and no lock of this
    /// inode; nobody refers to it.
    pub(crate) fn remove_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut content: parking_lot::RwLockWriteGuard<'_, Content> = inode.content.write();
        self.drop_contents(inode, &mut content);
        self.free_inode_blocks(inode)?;
        drop(content);
        self.inodes.drop_inode(inode.ino);
        self.renamed.lock().remove(&inode.ino);
        self.free_node(&inode.node, true)
    }

    /// Frees the blocks and nodes of an inode but its own.
    fn free_inode_blocks(&self, inode: &Arc<Inode>) -> Result<()> {
        use format::inode::Inline;
        let inline = inode.node.inode(|r| r.inline());
        let mapped = matches!(inode.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        if mapped && !inline.intersects(Inline::DATA | Inline::DENTRY) {
            self.free_from(&inode.node, 0)?;
        }
        let xattr = inode.node.inode(|r| Nid(r.i_xattr_nid.get()));
        if xattr != Nid(0) {
            let n = self.node(xattr)?;
            self.free_node(&n, false)?;
            self.edit_inode(&inode.node, |r| r.i_xattr_nid = 0.into());
        }
        Ok(())
    }

    /// The last reference to an inode is gone: frees it if it has no name.
    pub(crate) fn unreferenced(&self, ino: Ino) -> Result<()> {
        if !self.orphans.contains(ino) || self.options.read_only {
            return Ok(());
        }
        let _change = self.begin()?;
        if self.inodes.is_held(ino) || !self.orphans.contains(ino) {
            return Ok(());
        }
        let inode = match self.inode(ino) {
            // Freed meanwhile by who took its last name.
            Err(crate::error::Error::Fs(vfs::Error::NotFound)) => return Ok(()),
            other => other?,
        };
        self.remove_orphan(&inode)
    }
}
