//! How many bytes will be copied of a tree, and is the tree finite? Determined before the copy.
//!
//! Directories are kept in a list, not on the stack: a damaged or hostile image may nest them a million deep.

use std::collections::HashSet;

use indicatif::ProgressBar;
use vfs::FileKind;

use super::item::{Glance, Out, Source, go_on, push};
use crate::interrupt::Interrupt;
use crate::progress;

/// The directories met by a walk, by device and inode, so that it terminates.
pub struct Met {
    dirs: HashSet<(u64, u64)>,
    /// Directories have one name. Otherwise (bind mounts on a host), one may be met again, but not below itself.
    once: bool,
}

impl Met {
    pub fn new(source: &dyn Source) -> Self {
        Met { dirs: HashSet::new(), once: source.names_directories_once() }
    }
    /// Enters a directory; false if it must not be entered.
    pub fn enter(&mut self, dir: (u64, u64)) -> bool {
        self.dirs.insert(dir)
    }
    pub fn leave(&mut self, dir: (u64, u64)) {
        if !self.once {
            self.dirs.remove(&dir);
        }
    }
}

/// A directory being walked.
pub struct Inside {
    file: (u64, u64),
    names: std::vec::IntoIter<Vec<u8>>,
    /// Length of its path.
    path: usize,
}

impl Inside {
    pub fn of(file: (u64, u64), names: Vec<Vec<u8>>, path: &[u8]) -> Self {
        Inside { file, names: names.into_iter(), path: path.len() }
    }
}

/// Walks a tree in the order of a copy. `look` visits one file, and returns a directory that it entered.
pub fn walk<E>(
    source: &dyn Source,
    root: &[u8],
    mut look: impl FnMut(&[u8], &mut Met) -> Result<Option<Inside>, E>,
) -> Result<(), E> {
    let (mut path, mut met, mut open) = (root.to_vec(), Met::new(source), Vec::new());
    open.extend(look(&path, &mut met)?);
    while let Some(dir) = open.last_mut() {
        path.truncate(dir.path);
        let Some(name) = dir.names.next() else {
            met.leave(dir.file);
            open.pop();
            continue;
        };
        push(&mut path, &name);
        open.extend(look(&path, &mut met)?);
    }
    Ok(())
}

/// Adds up the bytes to copy, and refuses a tree that contains the image being written, which would grow while it is
/// read. Unreadable files are not counted: the copy reports them.
pub struct Survey<'s> {
    /// Called for each file in the tree: its path, basic information, and for a directory its names.
    pub each: &'s mut dyn FnMut(&[u8], &Glance, &[Vec<u8>]) -> Out<()>,
    pub source: &'s dyn Source,
    pub bar: &'s ProgressBar,
    pub stop: &'s Interrupt,
    pub written: Option<(u64, u64)>,
}

/// Adds up the bytes to copy of a tree; `each` is called for each file in it.
pub fn survey(
    source: &dyn Source,
    written: Option<(u64, u64)>,
    stop: &Interrupt,
    each: &mut dyn FnMut(&[u8], &Glance, &[Vec<u8>]) -> Out<()>,
) -> Out<u64> {
    let bar = progress::bytes(0, "looking");
    Survey { each, source, bar: &bar, stop, written }.of(b"/")?;
    Ok(bar.length().unwrap_or(0))
}

impl Survey<'_> {
    pub fn of(&mut self, root: &[u8]) -> Out<()> {
        walk(self.source, root, |path, met| self.one(path, met))
    }

    /// Visits a file; returns a directory to walk.
    fn one(&mut self, path: &[u8], met: &mut Met) -> Out<Option<Inside>> {
        go_on(self.stop)?;
        let Ok(item) = self.source.glance(path) else { return Ok(None) };
        match item.kind {
            FileKind::Directory if !met.enter(item.file) => return Ok(None),
            FileKind::Directory => {
                let names = self.source.names(path).0;
                (self.each)(path, &item, &names)?;
                return Ok(Some(Inside::of(item.file, names, path)));
            }
            FileKind::Regular if self.written == Some(item.file) => {
                return Err(format!(
                    "{}: is the image being written; move it out of the source directory",
                    self.source.place(path)
                ));
            }
            FileKind::Regular => self.bar.inc_length(item.size),
            _ => {}
        }
        (self.each)(path, &item, &[])?;
        Ok(None)
    }
}
