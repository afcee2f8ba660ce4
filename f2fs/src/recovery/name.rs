//! How does roll-forward restore the name of a synced file, which only its inode recorded?
//!
//! In the tree of the checkpoint the name may belong to another inode. That inode had lost the name before the fsync:
//! it was deleted, or it was moved and only a checkpoint would have recorded where to. Roll-forward takes a file for
//! deleted, as Linux does, and also a directory that is empty after the whole replay.
//!
//! A directory that is not empty by then lives on beside the file, under a name made of its old name and its number.
//! (Linux frees such a directory and leaves its durable contents without any name. Our own fsync writes a checkpoint
//! rather than promise such a name; docs/decisions/0009.)
//!
//! Names are compared by their bytes, in casefolded directories too, as Linux does here. What an inode of an encrypted
//! directory records is ciphertext of any bytes; where the directory folds case as well, the hash follows it, which
//! nobody could tell without the key.

use std::sync::Arc;

use format::inode::RawInode;
use format::{Block, Ino};
use vfs::FileKind;

use crate::dir::naming::Naming;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::pack::PackState;
use crate::volume::Volume;

/// A directory whose name a synced file took; it has no name for now.
pub(super) struct Displaced {
    /// Where it was.
    parent: Arc<Inode>,
    name: Vec<u8>,
    dir: Arc<Inode>,
}

impl Volume {
    /// Enters an inode under the name that its node in the chain records; false if the directory does not exist. A
    /// directory that had the name is left to [`Volume::settle_displaced`].
    pub(super) fn restore_name(
        &self,
        held: &PackState,
        inode: &Arc<Inode>,
        src: &Block,
        displaced: &mut Vec<Displaced>,
    ) -> Result<bool> {
        let raw = RawInode::of(src);
        let (parent, name) = (Ino(raw.i_pino.get()), raw.name());
        let no_name = || Error::corrupt(format_args!("inode {}: fsynced under an invalid name", inode.ino));
        if name.is_empty() || name == b"." || name == b".." {
            return Err(no_name());
        }
        let dir = match self.inode(parent) {
            Ok(d) if d.kind == FileKind::Directory => d,
            Err(Error::Device(e)) => return Err(e.into()),
            _ => return Ok(false),
        };
        let naming = self.naming(&dir);
        if !naming.is_encrypted() && (name.contains(&b'/') || name.contains(&0)) {
            return Err(no_name());
        }
        let hash = match naming {
            Naming::Keyed => raw.hash_behind_name().ok_or_else(no_name)?,
            _ => naming.hash(name),
        };
        let mut content = dir.content.write();
        match self.find_exact(&dir, &mut content, (name, hash))? {
            Some(found) if found.ino == inode.ino => return Ok(true),
            Some(found) => {
                let old = self.named(found.ino, &dir, name)?;
                if old.ino == dir.ino {
                    return Err(Error::corrupt(format_args!("directory {}: holds itself", dir.ino)));
                }
                let place = self.orphans.place()?;
                self.redirect_entry(&dir, &mut content, name, found, (inode.ino, inode.kind))?;
                drop(content);
                if old.kind == FileKind::Directory {
                    displaced.push(Displaced { parent: dir, name: name.to_vec(), dir: old });
                } else {
                    self.unlinked(held, &old, place, None)?;
                }
            }
            None => self.insert_under(&dir, &mut content, (name, hash), inode.ino, inode.kind, None)?,
        }
        Ok(true)
    }

    /// After the whole replay: frees a displaced directory that is empty, gives another name to one that is not.
    pub(super) fn settle_displaced(&self, held: &PackState, displaced: &Displaced) -> Result<()> {
        let Displaced { parent, name, dir } = displaced;
        if self.is_empty_dir(dir, &mut dir.content.write())? {
            let place = self.orphans.place()?;
            self.add_links(parent, -1);
            return self.unlinked(held, dir, place, None);
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
                self.set_place(dir, parent, &other);
                let (name, other) = (String::from_utf8_lossy(name), String::from_utf8_lossy(&other));
                log::warn!("directory {name:?}: a file was fsynced under its name; it is now {other:?}");
                break;
            }
        }
        Ok(())
    }
}
