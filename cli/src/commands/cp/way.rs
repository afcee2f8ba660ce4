//! How is a path in an image looked up quickly if it is near the previous one?
//!
//! A copy goes from name to name, with several calls for each. The directories on the way to the last one are kept, so
//! that only the differing part of a path is looked up: a tree takes one step per name, at any depth.

use std::cell::RefCell;

use vfs::path::{Found, walk_from};
use vfs::{Error, FileSystem, Ino, Result};

/// The directories on the way to the last path looked up.
#[derive(Default)]
pub struct Way {
    at: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The path of the last directory: each name preceded by a slash.
    path: Vec<u8>,
    /// For each directory on it: the end of its path, and its inode number.
    dirs: Vec<(usize, Ino)>,
}

/// Splits a path into directory and name. The name is empty if the path is empty or ends in a slash.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    (&path[..cut.saturating_sub(1)], &path[cut..])
}

impl Way {
    /// Looks up a path.
    pub fn walk<'f>(&self, fs: &'f dyn FileSystem, path: &[u8]) -> Result<Found<'f, dyn FileSystem>> {
        let (dir, name) = split(path);
        walk_from(fs, self.directory(fs, dir)?, name)
    }

    /// Looks up the parent directory of a path.
    pub fn walk_parent<'p>(&self, fs: &dyn FileSystem, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let (dir, name) = split(&path[..end]);
        if name.is_empty() {
            return Err(Error::Invalid("the root has no name"));
        }
        Ok((self.directory(fs, dir)?, name))
    }

    fn directory(&self, fs: &dyn FileSystem, dir: &[u8]) -> Result<Ino> {
        let mut kept = self.at.borrow_mut();
        let Kept { path, dirs } = &mut *kept;
        while !(path.is_empty() || dir.starts_with(path) && matches!(dir.get(path.len()), None | Some(b'/'))) {
            // Directories with a name need no reference.
            dirs.pop();
            path.truncate(dirs.last().map_or(0, |(end, _)| *end));
        }
        let mut at = dirs.last().map_or(fs.root(), |(_, ino)| *ino);
        let rest = dir[path.len()..].to_vec();
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            at = walk_from(fs, at, name)?.ino();
            path.push(b'/');
            path.extend_from_slice(name);
            dirs.push((path.len(), at));
        }
        Ok(at)
    }
}
