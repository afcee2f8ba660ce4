//! How are orphans freed at mount and at unmount?

use format::Ino;

use crate::dir::Names;
use crate::error::{Error, Result};
use crate::pack::PackState;

impl Names {
    /// Frees every orphan that can be freed. No other thread may use the volume meanwhile.
    pub(crate) fn free_orphans(&self, held: &PackState) {
        for ino in self.inodes.orphans.all() {
            match self.free_orphan(held, ino) {
                Ok(()) => self.inodes.orphans.remove(ino),
                Err(e) => log::warn!("orphan {ino}: {e}; it stays for the next mount or fsck"),
            }
        }
    }

    fn free_orphan(&self, held: &PackState, ino: Ino) -> Result<()> {
        let inode = match self.inodes.inode(ino) {
            Err(Error::Fs(vfs::Error::NotFound)) => return Ok(()),
            other => other?,
        };
        let links = inode.node.inode(|r| r.i_links.get());
        if links > 0 {
            log::warn!("inode {ino}: on the list of orphans, but it has {links} links; kept");
            return Ok(());
        }
        self.remove_inode(held, &inode)
    }
}
