//! Where in an image is a path, if the one before was near it?
//!
//! A copy goes from a name to the next, and asks several things of each. The directories on the way to the last one are kept, so that
//! of a path only what differs is looked up: a tree takes as many steps as it has names, however deep it is.

use std::cell::RefCell;

use vfs::path::{Found, walk_from};
use vfs::{Error, FileSystem, Ino, Result};

/// The directories on the way to what was looked up last.
#[derive(Default)]
pub struct Way {
    at: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The path of the last directory: names, each behind a slash.
    path: Vec<u8>,
    /// Of each directory on it: where its path ends, and its number.
    dirs: Vec<(usize, Ino)>,
}

/// A path as directory and name. Of one that ends in a slash, or is empty, the name is empty.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    (&path[..cut.saturating_sub(1)], &path[cut..])
}

impl Way {
    /// Finds what a path leads to.
    pub fn walk<'f>(&self, fs: &'f dyn FileSystem, path: &[u8]) -> Result<Found<'f, dyn FileSystem>> {
        let (dir, name) = split(path);
        walk_from(fs, self.directory(fs, dir)?, name)
    }

    /// Finds the directory in which the last name of a path is.
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
            // Those that have a name need no reference.
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
