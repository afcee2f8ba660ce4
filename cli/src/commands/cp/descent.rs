//! How is a directory of the host reached at any depth, and never through a symlink?
//!
//! Each directory is opened relative to its parent. The last ones on the way are kept open, so that the next name in
//! the same directory, its parent or a child takes one step. Left out: the path of the top directory, which the user
//! typed; symlinks in it are followed.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Maximum number of directories kept open.
pub const OPEN: usize = 64;

/// The way from the top to the last requested directory.
pub struct Descent {
    top: Arc<OwnedFd>,
    way: Way,
}

#[derive(Default)]
struct Way {
    /// Its path: each name preceded by a slash.
    path: Vec<u8>,
    /// For each directory on it: the end of its path, and its device and inode.
    dirs: Vec<(usize, (u64, u64))>,
    /// The last of these directories; only a few are kept open at any depth.
    open: VecDeque<Arc<OwnedFd>>,
}

/// Rejects names that lead out of the directory.
pub fn check_name(name: &[u8]) -> io::Result<()> {
    match name {
        b"." | b".." => Err(io::Error::other("the name is not allowed for a copy")),
        _ => Ok(()),
    }
}

/// Opens a directory, refusing a symlink.
pub fn open_directory(above: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

/// Splits a path into directory and last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let cut = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    (&path[..cut.saturating_sub(1)], &path[cut..end])
}

/// Device and inode of an open file.
fn file_of(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(fd).map(|m| (m.st_dev, m.st_ino))
}

impl Way {
    fn enter(&mut self, name: &[u8], dir: OwnedFd) -> Result<(), Errno> {
        let file = file_of(&dir)?;
        self.path.push(b'/');
        self.path.extend_from_slice(name);
        self.dirs.push((self.path.len(), file));
        self.open.push_back(Arc::new(dir));
        if self.open.len() > OPEN {
            self.open.pop_front();
        }
        Ok(())
    }

    /// Goes to the parent of the last directory. If that is no longer open, it is opened through `..` and must still be
    /// the same directory; otherwise the way starts again at the top.
    fn leave(&mut self) {
        let last = self.open.pop_back();
        self.dirs.pop();
        self.path.truncate(self.dirs.last().map_or(0, |(end, _)| *end));
        if let (true, Some((_, expected)), Some(last)) = (self.open.is_empty(), self.dirs.last(), last) {
            match open_directory(&last, OsStr::new("..")) {
                Ok(above) if file_of(&above) == Ok(*expected) => self.open.push_back(Arc::new(above)),
                _ => *self = Way::default(),
            }
        }
    }
}

impl From<Arc<OwnedFd>> for Descent {
    /// Starts at a directory.
    fn from(top: Arc<OwnedFd>) -> Self {
        Descent { top, way: Way::default() }
    }
}

impl Descent {
    /// The directory at a path below the top.
    pub fn directory(&mut self, path: &[u8]) -> io::Result<Arc<OwnedFd>> {
        let Descent { top, way } = self;
        let leads_on = |way: &Way| path.starts_with(&way.path) && matches!(path.get(way.path.len()), None | Some(b'/'));
        while !way.path.is_empty() && !leads_on(way) {
            way.leave();
        }
        let rest = path.get(way.path.len()..).unwrap_or(&[]);
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            check_name(name)?;
            let above = way.open.back().unwrap_or(top);
            let next = open_directory(above, OsStr::from_bytes(name))?;
            way.enter(name, next)?;
        }
        Ok(way.open.back().unwrap_or(top).clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn directories_are_found_in_any_order_deeper_than_are_kept_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = dir.path().to_owned();
        let deep = 3 * OPEN;
        let mut paths = vec![(Vec::new(), std::fs::metadata(&at).unwrap().ino())];
        for n in 0..deep {
            at.push(format!("d{n}"));
            std::fs::create_dir(&at).unwrap();
            let path = [&paths[n].0[..], format!("/d{n}").as_bytes()].concat();
            paths.push((path, std::fs::metadata(&at).unwrap().ino()));
        }
        let top = rustix::fs::open(dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let mut descent = Descent::from(Arc::new(top));
        let mut check = |n: usize| {
            let found = descent.directory(&paths[n].0).unwrap();
            assert_eq!(file_of(&found).unwrap().1, paths[n].1, "{n}");
        };
        (0..=deep).chain((0..=deep).rev()).for_each(&mut check);
        [deep, 1, deep - 1, OPEN, 0, 2 * OPEN, deep].into_iter().for_each(&mut check);
        assert!(descent.directory(b"/d0/../d0").is_err());
        assert!(descent.directory(b"/none").is_err());
    }

    #[test]
    fn a_directory_that_was_moved_is_looked_for_from_the_top() {
        let dir = tempfile::tempdir().unwrap();
        let path: String = (0..2 * OPEN).map(|n| format!("/d{n}")).collect();
        std::fs::create_dir_all(dir.path().join(&path[1..])).unwrap();
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        let top = rustix::fs::open(dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let mut descent = Descent::from(Arc::new(top));
        descent.directory(path.as_bytes()).unwrap();
        // Replaces the middle of the way by another directory.
        let cut: String = (0..OPEN).map(|n| format!("/d{n}")).collect();
        std::fs::rename(dir.path().join(&cut[1..]), dir.path().join("elsewhere/it")).unwrap();
        std::fs::create_dir(dir.path().join(&cut[1..])).unwrap();
        let above: String = (0..OPEN - 1).map(|n| format!("/d{n}")).collect();
        let found = descent.directory(above.as_bytes()).unwrap();
        let expected = std::fs::metadata(dir.path().join(&above[1..])).unwrap().ino();
        assert_eq!(file_of(&found).unwrap().1, expected, "it went on where the directory is now");
    }
}
