//! How are names and unused inodes removed?

use std::sync::Arc;

use format::Ino;
use format::inode::InodeFlags;
use parking_lot::RwLockWriteGuard;
use vfs::FileKind;

use crate::context::Begin;
use crate::dir::Names;
use crate::error::Result;
use crate::fields::{Touch, touch};
use crate::file::free::KeptPages;
use crate::inode::{Content, Inode};
use crate::orphan::Place;
use crate::pack::PackState;

impl Names {
    /// Removes a name; `directory` is the kind that the caller expects.
    pub(crate) fn remove_name(&self, volume: &dyn Begin, parent: vfs::Ino, name: &[u8], directory: bool) -> Result<()> {
        if name == b"." {
            return Err(vfs::Error::Invalid("cannot remove .").into());
        }
        if name == b".." {
            return Err(vfs::Error::NotEmpty.into());
        }
        let change = volume.begin_modest()?;
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
        let emptied = if directory { Some(self.lock_empty_dir(&victim)?) } else { None };
        let place = self.inodes.orphans.place()?;
        self.remove_entry(&dir, &mut content, name, found)?;
        self.touch_dir(&dir);
        if directory {
            self.add_links(&dir, -1);
        }
        self.unlinked(&change, &victim, place, emptied)
    }

    /// The lock of an empty directory, which stays empty while the lock is held.
    pub(super) fn lock_empty_dir<'i>(&self, dir: &'i Inode) -> Result<RwLockWriteGuard<'i, Content>> {
        let mut content = dir.content.write();
        match self.is_empty_dir(dir, &mut content)? {
            true => Ok(content),
            false => Err(vfs::Error::NotEmpty.into()),
        }
    }

    /// The inode that an entry points to. If there is none, the volume is damaged: the error is not "not found".
    pub(crate) fn named(&self, ino: Ino, dir: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        self.inodes.inode(ino).map_err(|e| match e {
            crate::error::Error::Fs(vfs::Error::NotFound) => crate::error::Error::corrupt(format_args!(
                "directory {}: {:?} leads to inode {ino}, which does not exist",
                dir.ino,
                String::from_utf8_lossy(name)
            )),
            e => e,
        })
    }

    pub(super) fn check_removable(&self, inode: &Inode) -> Result<()> {
        if inode.node.inode(|r| r.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        Ok(())
    }

    /// Handles an inode that lost a name. Without any name it is freed or, while it has users, becomes an orphan, for
    /// which a place is reserved. `locked` is the inode's lock, if the caller holds it. Links are counted and the
    /// orphan is listed under this lock, so that a thread that adds a name finds the inode with names, listed, or gone.
    pub(crate) fn unlinked<'i>(
        &self,
        held: &PackState,
        inode: &'i Arc<Inode>,
        place: Place<'_>,
        locked: Option<RwLockWriteGuard<'i, Content>>,
    ) -> Result<()> {
        let locked = locked.unwrap_or_else(|| inode.content.write());
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        let left =
            if inode.kind == FileKind::Directory { self.add_links(inode, -2) } else { self.add_links(inode, -1) };
        if left > 0 {
            self.doubt_place(inode);
            return Ok(());
        }
        if inode.kind != FileKind::Directory {
            let known = self.nodes.nat.since_checkpoint(inode.ino.nid()).checkpointed;
            self.promises.names.lock().died(inode.ino, known);
        }
        let last = || inode.node.inode(|r| (Ino(r.i_pino.get()), r.name().to_vec()));
        self.inodes.table.gone.note(inode.ino, last);
        self.inodes.orphans.put(inode.ino, place);
        drop(locked);
        if !self.inodes.table.is_held(inode.ino) {
            self.remove_orphan(held, inode)?;
        }
        Ok(())
    }

    /// Frees an orphan without users. Two threads may get here at the same time: one removed the last name, the other
    /// dropped the last reference. The one that takes the orphan off the list frees it. No checkpoint sees the list
    /// without it.
    fn remove_orphan(&self, held: &PackState, inode: &Arc<Inode>) -> Result<()> {
        let Some(place) = self.inodes.orphans.take(inode.ino) else { return Ok(()) };
        let out = self.remove_inode(held, inode);
        if out.is_err() {
            self.inodes.orphans.put(inode.ino, place);
        }
        out
    }

    /// Frees a new inode that gets no name after all; if that fails, it is an orphan.
    pub(crate) fn abandon(&self, held: &PackState, inode: &Arc<Inode>) -> Result<()> {
        self.nodes.edit_inode(&inode.node, |r| r.i_links = 0.into());
        self.remove_inode(held, inode).inspect_err(|_| self.inodes.orphans.keep(inode.ino))
    }

    /// Frees an inode, its blocks and its nodes. The caller holds no lock of this inode, which has no users.
    pub(super) fn remove_inode(&self, _held: &PackState, inode: &Arc<Inode>) -> Result<()> {
        let mut content = inode.content.write();
        self.files.drop_contents(inode, &mut content);
        self.free_inode_blocks(inode)?;
        drop(content);
        self.inodes.table.drop_inode(inode.ino);
        if self.ctx.options.prealloc.is_some() {
            self.logs.seg.lock().leave_window(inode.ino);
        }
        self.promises.renamed.lock().remove(&inode.ino);
        self.nodes.free_node(&inode.node, true)
    }

    /// Frees the blocks and nodes of an inode except its own node.
    fn free_inode_blocks(&self, inode: &Arc<Inode>) -> Result<()> {
        use format::inode::Inline;
        let inline = inode.node.inode(|r| r.inline());
        let mapped = matches!(inode.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        if mapped && !inline.intersects(Inline::DATA | Inline::DENTRY) {
            self.files.free_from(&inode.node, 0, KeptPages::Go)?;
        }
        if let Some(n) = self.xattrs.xattr_node(inode)? {
            self.nodes.free_node(&n, false)?;
            self.nodes.edit_inode(&inode.node, |r| r.i_xattr_nid = 0.into());
        }
        Ok(())
    }

    /// Handles the loss of an inode's last reference: frees it if it has no name.
    pub(crate) fn unreferenced(&self, volume: &dyn Begin, ino: Ino) -> Result<()> {
        if !self.inodes.orphans.contains(ino) || self.ctx.is_read_only() {
            return Ok(());
        }
        let change = volume.begin_modest()?;
        if self.inodes.table.is_held(ino) || !self.inodes.orphans.contains(ino) {
            return Ok(());
        }
        let inode = match self.inodes.inode(ino) {
            // The thread that removed its last name has already freed it.
            Err(crate::error::Error::Fs(vfs::Error::NotFound)) => return Ok(()),
            other => other?,
        };
        self.remove_orphan(&change, &inode)
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileSystem;

    use crate::MountOptions;
    use crate::rig::*;

    #[test]
    fn a_directory_found_empty_takes_no_name_before_it_is_gone() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let d = dir(&vol, vol.root(), "d");
        let (removed, made) = std::thread::scope(|s| {
            let hold = vol.inodes.orphans.hold();
            let remover = s.spawn(|| vol.rmdir(vol.root(), b"d"));
            std::thread::sleep(A_WHILE);
            let maker = s.spawn(|| try_file(&vol, d, "inside"));
            std::thread::sleep(A_WHILE);
            drop(hold);
            (remover.join().unwrap(), maker.join().unwrap())
        });
        assert_ne!(removed.is_ok(), made.is_ok(), "{removed:?}, {made:?}");
        vol.forget(d, 1);
        judge(&dev, &vol);
    }

    #[test]
    fn a_file_that_gets_a_name_while_it_loses_its_last_one_is_kept_or_refused() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let (f, other) = (file(&vol, "f"), dir(&vol, vol.root(), "other"));
        vol.forget(f, 1);
        let inode = vol.names.outer(f).unwrap();
        let (removed, linked) = std::thread::scope(|s| {
            // Between counting names and listing the orphan, the thread records the removed name.
            let hold = vol.inodes.table.gone.hold();
            let remover = s.spawn(|| vol.unlink(vol.root(), b"f"));
            while inode.node.inode(|r| r.i_links.get()) > 0 {
                std::thread::yield_now();
            }
            let linker = s.spawn(|| vol.link(f, other, b"g").map(drop));
            std::thread::sleep(A_WHILE);
            drop(hold);
            (remover.join().unwrap(), linker.join().unwrap())
        });
        removed.unwrap();
        match linked {
            Ok(()) => {
                // The reference from the creation of the name.
                vol.forget(f, 1);
                assert_eq!(vol.lookup(other, b"g").unwrap().attr.nlink, 1);
            }
            Err(e) => assert_eq!(e, vfs::Error::NotFound),
        }
        judge(&dev, &vol);
    }

    #[test]
    fn a_write_to_a_file_that_is_freed_while_it_waits_is_refused_or_goes_with_the_file() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(3));
        vol.sync().unwrap();
        vol.forget(f, 1);
        let inode = vol.names.outer(f).unwrap();
        let (removed, written) = std::thread::scope(|s| {
            let content = inode.content.read();
            let remover = s.spawn(|| vol.unlink(vol.root(), b"f"));
            std::thread::sleep(A_WHILE);
            let writer = s.spawn(|| vol.write(f, 0, &blocks(40), vfs::WriteFlags::empty()));
            std::thread::sleep(A_WHILE);
            drop(content);
            (remover.join().unwrap(), writer.join().unwrap())
        });
        removed.unwrap();
        assert!(matches!(written, Ok(_) | Err(vfs::Error::NotFound)), "{written:?}");
        assert!(vol.names.outer(f).is_err());
        judge(&dev, &vol);
    }
}
