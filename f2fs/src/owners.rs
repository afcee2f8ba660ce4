//! Which file does the number in a device tag stand for?
//!
//! For reports only. An inode records one name and its directory. The record may be outdated: an inode with several
//! names records only one, and Linux does not always update it. So it is checked against the directory; if they
//! disagree, the directory is searched. A reused number stands for the new file. The names of deleted files are kept on
//! request.

use device::Tag;
use format::{BlockAddr, Ino, Nid};
use vfs::{FileKind, Flow};
pub use vfs::{Look, Owner};

use crate::error::Result;
use crate::volume::Volume;

/// Maximum depth of directories; more means a cycle.
const DEEPEST: usize = 1024;

/// A path and the names below it, which are ordered from the bottom.
fn joined(mut path: Vec<u8>, names: &[Vec<u8>]) -> Vec<u8> {
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

impl Volume {
    /// Starts to keep the names of deleted files, for the first 65,536 of them.
    pub fn keep_deleted_names(&self) {
        self.inodes.table.gone.kept.lock().get_or_insert_default();
    }

    /// The current meaning of a tag's owner.
    pub fn owner_of(&self, owner: u64, look: Look) -> Owner {
        if owner == Tag::default().owner {
            return Owner::Volume;
        }
        let Ok(number) = u32::try_from(owner) else { return Owner::Unnamed };
        if number < self.ctx.sb.root.0 {
            return Owner::Volume;
        }
        // An inode that cannot be read has no name to show here; other callers that read it get the error.
        self.climb(Nid(number), look, DEEPEST).unwrap_or(Owner::Unnamed)
    }

    /// Climbs at most `most` directories.
    fn climb(&self, nid: Nid, look: Look, most: usize) -> Result<Owner> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = nid;
        while at != self.ctx.sb.root.nid() {
            let node = match look {
                Look::InMemory => match self.nodes.cache.get(at) {
                    Some(node) => node,
                    None => return Ok(self.deleted(at, &names, look, most).unwrap_or(Owner::Unnamed)),
                },
                Look::Everywhere if self.nodes.nat.get(at)?.addr == BlockAddr::NULL => {
                    return Ok(self.deleted(at, &names, look, most).unwrap_or(Owner::Deleted(None)));
                }
                Look::Everywhere => self.nodes.node(at)?,
            };
            if node.ino.nid() != at {
                // The number belongs to a node that is not an inode: its previous owner is gone.
                return Ok(self.deleted(at, &names, look, most).unwrap_or(Owner::Deleted(None)));
            }
            let (links, parent, mut name) = node.inode(|r| (r.i_links.get(), Ino(r.i_pino.get()), r.name().to_vec()));
            if links == 0 {
                return Ok(self.deleted(at, &names, look, most).unwrap_or(Owner::Deleted(None)));
            }
            if look == Look::Everywhere {
                match self.name_in(parent, name, at.as_ino())? {
                    Some(right) => name = right,
                    None => return Ok(Owner::Unnamed),
                }
            }
            names.push(name);
            if names.len() > most {
                return Ok(Owner::Unnamed);
            }
            at = parent.nid();
        }
        let mut path = joined(Vec::new(), &names);
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(Owner::Path(path))
    }

    /// The last owner of number `at`, if its name was kept, followed by `names`, ordered from the bottom.
    fn deleted(&self, at: Nid, names: &[Vec<u8>], look: Look, most: usize) -> Option<Owner> {
        let (dir, name) = self.inodes.table.gone.of(at.as_ino())?;
        let above = match dir == self.ctx.sb.root {
            true => Vec::new(),
            // A directory is empty when it is removed: its contents were removed before, and its parent is removed
            // later.
            false => match self.climb(dir.nid(), look, most.checked_sub(names.len() + 1)?).ok()? {
                Owner::Path(path) | Owner::Deleted(Some(path)) => path,
                _ => return None,
            },
        };
        let path = joined(joined(above, &[name]), names);
        Some(Owner::Deleted(Some(path)))
    }

    /// The name of an inode in a directory: `noted` if correct, else the one found by a search.
    fn name_in(&self, dir: Ino, noted: Vec<u8>, ino: Ino) -> Result<Option<Vec<u8>>> {
        let dir = self.inodes.inode(dir)?;
        if dir.kind != FileKind::Directory {
            return Ok(None);
        }
        if self.names.find_entry(&dir, &mut dir.content.write(), &noted)?.is_some_and(|f| f.ino == ino) {
            return Ok(Some(noted));
        }
        let mut found = None;
        self.names.list(&dir, 0, &mut |e| {
            if e.ino == vfs::Ino(ino.0.into()) && e.name != b"." && e.name != b".." {
                found = Some(e.name.to_vec());
                return Flow::Stop;
            }
            Flow::Continue
        })?;
        Ok(found)
    }
}
