//! How does roll-forward restore the name of a synced file, which only its inode recorded?
//!
//! In the tree of the checkpoint the name may belong to another inode. That inode lost the name before the fsync: it
//! was deleted, or moved to a place that only a checkpoint would have recorded. Roll-forward treats a file as deleted,
//! as Linux does, and also a directory that is empty after the whole replay.
//!
//! A directory that is not empty then stays next to the file, under a name made of its old name and its number. (Linux
//! frees such a directory and leaves its durable contents without any name. JouleFS's fsync writes a checkpoint instead
//! of promising such a name; docs/decisions/0009.)
//!
//! Names are compared by bytes, in casefolded directories too, as Linux does here. The name recorded in an inode of an
//! encrypted directory is arbitrary ciphertext; if the directory is also casefolded, the hash follows it, because it
//! cannot be computed without the key.

use std::sync::Arc;

use format::inode::RawInode;
use format::{Block, Ino};
use vfs::FileKind;

use crate::dir::naming::Naming;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::pack::PackState;
use crate::volume::Volume;

/// A directory whose name went to a synced file; it has no name for now.
pub(super) struct Displaced {
    /// Its former parent.
    parent: Arc<Inode>,
    name: Vec<u8>,
    dir: Arc<Inode>,
}

impl Volume {
    /// Adds the name recorded by an inode's node in the chain; false if the directory does not exist. A directory that
    /// had the name is left to [`Volume::settle_displaced`].
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
        let dir = match self.inodes.inode(parent) {
            Ok(d) if d.kind == FileKind::Directory => d,
            Err(Error::Device(e)) => return Err(e.into()),
            _ => return Ok(false),
        };
        let naming = self.names.naming(&dir);
        if !naming.is_encrypted() && (name.contains(&b'/') || name.contains(&0)) {
            return Err(no_name());
        }
        let hash = match naming {
            Naming::Keyed => raw.hash_behind_name().ok_or_else(no_name)?,
            _ => naming.hash(name),
        };
        let mut content = dir.content.write();
        match self.names.find_exact(&dir, &mut content, (name, hash))? {
            Some(found) if found.ino == inode.ino => return Ok(true),
            Some(found) => {
                let old = self.names.named(found.ino, &dir, name)?;
                if old.ino == dir.ino {
                    return Err(Error::corrupt(format_args!("directory {}: holds itself", dir.ino)));
                }
                let place = self.inodes.orphans.place()?;
                self.names.redirect_entry(&dir, &mut content, name, found, (inode.ino, inode.kind))?;
                drop(content);
                if old.kind == FileKind::Directory {
                    displaced.push(Displaced { parent: dir, name: name.to_vec(), dir: old });
                } else {
                    self.names.unlinked(held, &old, place, None)?;
                }
            }
            None => self.names.insert_under(&dir, &mut content, (name, hash), inode.ino, inode.kind, None)?,
        }
        Ok(true)
    }

    /// After the whole replay: frees a displaced directory if it is empty, otherwise gives it another name.
    pub(super) fn settle_displaced(&self, held: &PackState, displaced: &Displaced) -> Result<()> {
        let Displaced { parent, name, dir } = displaced;
        if self.names.is_empty_dir(dir, &mut dir.content.write())? {
            let place = self.inodes.orphans.place()?;
            self.names.add_links(parent, -1);
            return self.names.unlinked(held, dir, place, None);
        }
        let mut content = parent.content.write();
        for n in 0u64.. {
            let mut suffix = format!(".{}", dir.ino);
            if n > 0 {
                suffix += &format!(".{n}");
            }
            let mut other = name[..name.len().min(255 - suffix.len())].to_vec();
            other.extend_from_slice(suffix.as_bytes());
            if self.names.find_entry(parent, &mut content, &other)?.is_none() {
                self.names.insert_entry(parent, &mut content, &other, dir.ino, FileKind::Directory, None)?;
                self.names.set_place(dir, parent, &other);
                let (name, other) = (String::from_utf8_lossy(name), String::from_utf8_lossy(&other));
                log::warn!("directory {name:?}: a file was fsynced under its name; it is now {other:?}");
                break;
            }
        }
        Ok(())
    }
}
