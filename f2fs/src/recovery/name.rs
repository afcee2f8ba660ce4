//! A synced file's name, which only its inode recorded.
//!
//! In the tree of the checkpoint another inode may have the name. It had lost it when the fsync was done: it was
//! deleted, or moved to where only a checkpoint would have recorded it. A file is taken for deleted, as Linux
//! takes it. So is a directory that is empty once all is replayed.
//!
//! A directory that holds something by then lives on beside the file, under its name and its number: Linux frees
//! it, too, and leaves what it held without any name, though it was durable. (Our own fsync writes a checkpoint
//! rather than promise such a name; docs/decisions/0009.)

use std::sync::Arc;

use format::inode::RawInode;
use format::{Block, Ino};
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::volume::Volume;

/// A directory whose name a synced file took: it has none for now.
pub(super) struct Displaced {
    /// Where it was.
    parent: Arc<Inode>,
    name: Vec<u8>,
    dir: Arc<Inode>,
}

impl Volume {
    /// Enters an inode under the name its node in the chain records; false if the directory is not there. A
    /// directory that had the name is for [`Volume::settle_displaced`].
    pub(super) fn restore_name(&self, inode: &Arc<Inode>, src: &Block, displaced: &mut Vec<Displaced>) -> Result<bool> {
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
                if old.ino == dir.ino {
                    return Err(Error::corrupt(format_args!("directory {}: holds itself", dir.ino)));
                }
                let place = self.orphans.place()?;
                self.redirect_entry(&dir, &mut content, found.spot, inode.ino, inode.kind)?;
                drop(content);
                if old.kind == FileKind::Directory {
                    displaced.push(Displaced { parent: dir, name: name.to_vec(), dir: old });
                } else {
                    self.unlinked(&old, (dir.ino, name), place, None)?;
                }
            }
            None => self.insert_entry(&dir, &mut content, name, inode.ino, inode.kind, None)?,
        }
        Ok(true)
    }

    /// Frees a displaced directory that is empty now that all is replayed; gives another name to one that is not.
    pub(super) fn settle_displaced(&self, displaced: &Displaced) -> Result<()> {
        let Displaced { parent, name, dir } = displaced;
        if self.is_empty_dir(dir, &mut dir.content.write())? {
            let place = self.orphans.place()?;
            self.add_links(parent, -1);
            return self.unlinked(dir, (parent.ino, name), place, None);
        }
        let mut content = parent.content.write();
        for n in 0u64.. {
            let mut suffix = format!(".{}", dir.ino);
            if n > 0 {
                suffix += &format!(".{n}");
            }
            let mut other = name[..name.len().min(255 - suffix.len())].to_vec();
            other.extend_from_slice(suffix.as_bytes());
            if self.find_entry(parent, &mut content, &other)?.is_none() {
                self.insert_entry(parent, &mut content, &other, dir.ino, FileKind::Directory, None)?;
                self.set_place(dir, parent.ino, &other);
                let (name, other) = (String::from_utf8_lossy(name), String::from_utf8_lossy(&other));
                log::warn!("directory {name:?}: a file was synced under its name; it is now {other:?}");
                break;
            }
        }
        Ok(())
    }
}
