//! A synced file's name, which only its inode recorded.

use std::sync::Arc;

use format::inode::RawInode;
use format::{Block, Ino};
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::volume::Volume;

impl Volume {
    /// Enters an inode under the name its node in the chain records; false if the directory is not
    /// there. Another inode under that name loses it: it had lost it when the fsync was done.
    pub(super) fn restore_name(&self, inode: &Arc<Inode>, src: &Block) -> Result<bool> {
        let raw = RawInode::of(src);
        let (parent, name) = (Ino(raw.i_pino.get()), raw.name());
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            let ino = inode.ino;
            return Err(Error::corrupt(format_args!("inode {ino}: synced under a name that is none")));
        }
        let dir = match self.inode(parent) {
            Ok(d) if d.kind == FileKind::Directory => d,
            Err(Error::Device(e)) => return Err(e.into()),
            _ => return Ok(false),
        };
        let mut content = dir.content.write();
        match self.find_entry(&dir, &mut content, name)? {
            Some(found) if found.ino == inode.ino => return Ok(true),
            Some(found) => {
                let old = self.named(found.ino, &dir, name)?;
                if old.kind == FileKind::Directory {
                    return Ok(false);
                }
                let place = self.orphans.place()?;
                self.redirect_entry(&dir, &mut content, found.spot, inode.ino, inode.kind)?;
                drop(content);
                self.unlinked(&old, (dir.ino, name), place)?;
            }
            None => self.insert_entry(&dir, &mut content, name, inode.ino, inode.kind, None)?,
        }
        Ok(true)
    }
}
