//! Path walking, one `lookup` at a time. Symlinks are not followed.

use crate::{Error, FileSystem, Ino, Result};

/// An inode found by a path, with a reference that is given back on drop.
pub struct Found<'a, F: FileSystem + ?Sized> {
    fs: &'a F,
    ino: Ino,
    counted: bool,
}

impl<F: FileSystem + ?Sized> Found<'_, F> {
    /// Its number, valid while this value exists.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl<F: FileSystem + ?Sized> Drop for Found<'_, F> {
    fn drop(&mut self) {
        if self.counted {
            self.fs.forget(self.ino, 1);
        }
    }
}

/// Walks `path` (components separated by `/`, empty ones ignored) from the root.
pub fn walk<'a, F: FileSystem + ?Sized>(fs: &'a F, path: &[u8]) -> Result<Found<'a, F>> {
    walk_from(fs, fs.root(), path)
}

/// Walks `path` from a directory that has a name, or to which the caller holds a reference.
pub fn walk_from<'a, F: FileSystem + ?Sized>(fs: &'a F, dir: Ino, path: &[u8]) -> Result<Found<'a, F>> {
    let mut at = Found { fs, ino: dir, counted: false };
    for part in path.split(|&b| b == b'/').filter(|p| !p.is_empty()) {
        let entry = fs.lookup(at.ino, part)?;
        at = Found { fs, ino: entry.attr.ino, counted: true };
    }
    Ok(at)
}

/// Walks to the parent of a path, and returns it with the last component.
pub fn walk_parent<'a, 'p, F: FileSystem + ?Sized>(fs: &'a F, path: &'p [u8]) -> Result<(Found<'a, F>, &'p [u8])> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let path = &path[..end];
    if path.is_empty() {
        return Err(Error::Invalid("the root has no name"));
    }
    let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    Ok((walk(fs, &path[..cut])?, &path[cut..]))
}
