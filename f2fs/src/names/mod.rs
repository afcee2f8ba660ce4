//! How are names created, linked, removed and renamed?
//!
//! Every operation first checks, then allocates (space, numbers), and only then changes anything, so that a failed
//! operation leaves nothing behind.

pub mod create;
mod free;
pub mod remove;
pub mod rename;

use std::sync::Arc;

use format::Ino;
use format::inode::{Advise, InodeFlags, extra_end};
use format::superblock::Features;
use vfs::FileKind;

use crate::context::Begin;
use crate::dir::Names;
use crate::dir::naming::Naming;
use crate::dir::spot::Found;
use crate::error::Result;
use crate::fields::{Touch, put_advise, touch};
use crate::inode::Inode;

/// Refuses a name that no new file can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(vfs::Error::Invalid("not a valid name").into());
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(vfs::Error::Invalid("a name cannot contain a slash or NUL").into());
    }
    if name.len() > 255 {
        return Err(vfs::Error::NameTooLong.into());
    }
    Ok(())
}

impl Names {
    /// The inode for a number from a caller.
    pub(crate) fn outer(&self, ino: vfs::Ino) -> Result<Arc<Inode>> {
        let n = u32::try_from(ino.0).map_err(|_| vfs::Error::NotFound)?;
        self.inodes.inode(Ino(n))
    }

    /// The directory for a number from a caller.
    pub(crate) fn outer_dir(&self, ino: vfs::Ino) -> Result<Arc<Inode>> {
        let dir = self.outer(ino)?;
        if dir.kind != FileKind::Directory {
            return Err(vfs::Error::NotDirectory.into());
        }
        Ok(dir)
    }

    /// An inode by its number alone, with a reference. Unlinked inodes are not found.
    pub(crate) fn itself(&self, volume: &dyn Begin, ino: vfs::Ino) -> Result<vfs::Entry> {
        let inode = self.outer(ino)?;
        // Reference first, check second: a thread that removes the last name meanwhile sees the reference, or this
        // check sees that there is no name.
        self.inodes.table.hold(inode.ino);
        let found = self.inodes.attr(&inode).and_then(|attr| match attr.nlink {
            0 => Err(vfs::Error::NotFound.into()),
            _ => Ok(vfs::Entry { attr }),
        });
        if found.is_err() && self.inodes.table.unhold(inode.ino, 1) {
            self.unreferenced(volume, inode.ino)?;
        }
        found
    }

    /// The result of a lookup, with a reference. The caller holds the directory's lock.
    pub(crate) fn found_entry(&self, dir: &Inode, name: &[u8], found: Option<Found>) -> Result<vfs::Entry> {
        let inode = self.named(found.ok_or(vfs::Error::NotFound)?.ino, dir, name)?;
        let attr = self.inodes.attr(&inode)?;
        self.note_sighting(&inode, dir, name);
        self.inodes.table.hold(inode.ino);
        Ok(vfs::Entry { attr })
    }

    /// Refuses changes to an immutable or append-only directory.
    pub(in crate::names) fn check_dir_changes(&self, dir: &Inode, adding: bool) -> Result<()> {
        let (flags, links) = dir.node.inode(|r| (r.flags(), r.i_links.get()));
        if links == 0 {
            return Err(vfs::Error::NotFound.into());
        }
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !adding) {
            return Err(vfs::Error::NotPermitted("the directory is immutable or append-only").into());
        }
        Ok(())
    }

    /// Refuses new names in an encrypted directory: encrypting them needs the key. Names can be removed without it, as
    /// in Linux.
    pub(crate) fn check_has_key(&self, dir: &Inode) -> Result<()> {
        match self.naming(dir).is_encrypted() {
            true => Err(vfs::Error::NoKey.into()),
            false => Ok(()),
        }
    }

    /// Whether inodes belong to projects.
    pub(crate) fn keeps_projects(&self) -> bool {
        self.ctx.has(Features::PRJQUOTA)
    }

    /// The project of an inode, 0 without project support.
    pub(crate) fn project(&self, inode: &Inode) -> u32 {
        if !self.keeps_projects() {
            return 0;
        }
        inode.node.inode(|r| {
            let kept = r.extra_isize() >= extra_end::PROJID;
            r.extra().filter(|_| kept).map_or(0, |e| e.i_projid.get())
        })
    }

    /// Refuses a name for an inode of another project in a directory whose children inherit its project (kernel
    /// `FI_PROJ_INHERIT`).
    pub(in crate::names) fn check_project(&self, inode: &Inode, dir: &Inode) -> Result<()> {
        let takes_own = dir.node.inode(|r| r.flags().contains(InodeFlags::PROJINHERIT));
        match takes_own && self.project(dir) != self.project(inode) {
            true => Err(vfs::Error::OtherProject.into()),
            false => Ok(()),
        }
    }

    /// Updates a directory's times after a change.
    pub(in crate::names) fn touch_dir(&self, dir: &Inode) {
        let now = self.ctx.now();
        self.nodes.edit_inode(&dir.node, |r| touch(r, Touch::Modified, now));
    }

    /// Changes a link count.
    pub(crate) fn add_links(&self, inode: &Inode, delta: i32) -> u32 {
        self.nodes.edit_inode(&inode.node, |r| {
            let n = r.i_links.get().saturating_add_signed(delta);
            r.i_links = n.into();
            n
        })
    }

    /// Marks an inode that has, or had, several names: its recorded name may be gone, so roll-forward must not rely on
    /// it (kernel `file_lost_pino`).
    pub(in crate::names) fn doubt_place(&self, inode: &Inode) {
        self.promises.renamed.lock().remove(&inode.ino);
        self.promises.doubt(inode.ino);
        self.nodes.edit_inode(&inode.node, |r| put_advise(r, Advise::LOST_PINO, true));
    }

    /// Records parent and name, in the directory's spelling, in the inode.
    pub(crate) fn set_place(&self, inode: &Inode, dir: &Inode, name: &[u8]) {
        let naming = self.naming(dir);
        self.nodes.edit_inode(&inode.node, |r| {
            r.i_pino = dir.ino.0.into();
            put_advise(r, Advise::ENC_NAME, naming.is_encrypted());
            if naming == Naming::Keyed {
                // Roll-forward would look for the hash after the name (kernel `init_dent_inode`).
                put_advise(r, Advise::LOST_PINO, true);
            }
            r.i_namelen = (name.len() as u32).into();
            r.i_name.fill(0);
            r.i_name[..name.len()].copy_from_slice(name);
        });
    }
}
