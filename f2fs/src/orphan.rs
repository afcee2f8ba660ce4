//! Inodes without a name: freed once nobody has them any more, at the latest by the next mount.

use std::sync::Arc;

use format::Ino;
use format::inode::Inline;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::volume::Volume;

impl Volume {
    /// Frees every orphan. Nobody may use the volume meanwhile.
    pub(crate) fn free_orphans(&self) -> Result<()> {
        let orphans: Vec<Ino> = self.orphans.lock().iter().copied().collect();
        for ino in orphans {
            match self.inode(ino) {
                Ok(inode) => {
                    let links = inode.node.inode(|r| r.i_links.get());
                    if links == 0 {
                        self.free_orphan(&inode)?;
                    } else {
                        log::warn!("inode {ino}: on the list of orphans, but it has {links} links; kept");
                    }
                }
                Err(Error::Fs(vfs::Error::NotFound)) => {}
                Err(Error::Device(e)) => return Err(e.into()),
                // Damage in one orphan must not keep the volume from being used.
                Err(e) => log::warn!("orphan {ino}: {e}; kept for fsck"),
            }
            self.orphans.lock().remove(&ino);
        }
        Ok(())
    }

    /// Frees an inode with all it has.
    fn free_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        {
            let mut content = inode.content.write();
            self.drop_contents(inode, &mut content);
        }
        let (mapped, xattr) = inode.node.inode(|r| {
            use vfs::FileKind::{Directory, Regular, Symlink};
            let mapped = matches!(inode.kind, Directory | Regular | Symlink)
                && !r.inline().intersects(Inline::DATA | Inline::DENTRY);
            (mapped, format::Nid(r.i_xattr_nid.get()))
        });
        if mapped {
            self.free_from(&inode.node, 0)?;
        }
        if xattr.0 != 0 {
            let node = self.node(xattr)?;
            self.free_node(&node, false)?;
        }
        self.free_node(&inode.node, true)?;
        self.inodes.drop_inode(inode.ino);
        Ok(())
    }
}
