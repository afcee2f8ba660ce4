//! Inodes without a name: freed once nobody has them any more, at the latest by the next mount.

use format::Ino;

use crate::error::{Error, Result};
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
                        match self.remove_inode(&inode) {
                            Ok(()) => {}
                            Err(Error::Device(e)) => return Err(e.into()),
                            Err(e) => {
                                log::warn!("orphan {ino}: {e}; kept for fsck");
                                continue;
                            }
                        }
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
}
