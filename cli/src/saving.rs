//! `joulefs ctl DIR save OUT`: how is data that is not durable copied out of a mounted volume?
//!
//! Like `joulefs cp -r` from an image, but done by the process that has the volume in memory, into a directory opened
//! by the requesting process. Durable data is left out, if the volume distinguishes it and its image still has a name.

use std::collections::HashSet;
use std::sync::Arc;

use fuse::socket::{Saved, Saver, Saving};
use vfs::{FileKind, Ino};

use crate::commands::cp::{Glance, Item, Out, Reader, Source, copy_out, join, whole};
use crate::image::Image;
use crate::interrupt::Interrupt;

/// Failures reported individually; the rest is counted.
const TOLD: usize = 200;

/// Copies data of `image` that is not durable.
pub fn saver(image: Arc<Image>) -> Saver {
    Arc::new(move |saving| save(&image, saving))
}

fn save(image: &Image, saving: Saving) -> Result<Saved, String> {
    let stop = Interrupt::by(saving.stop);
    let inside = whole(image);
    let doomed = image.host_room().is_some_and(|room| !room.has_name());
    let done = match image.vol.not_durable().filter(|_| !doomed) {
        None => copy_out(&inside, saving.to, &saving.named, &stop)?,
        Some(inodes) => {
            let wanted = inodes.into_iter().map(|Ino(number)| number).collect();
            let mut part = Part { inner: &inside, kept: HashSet::new() };
            part.keep(&wanted, b"/", &mut Vec::new(), &stop)?;
            copy_out(&part, saving.to, &saving.named, &stop)?
        }
    };
    let mut failed = done.failed;
    let failed_more = failed.len().saturating_sub(TOLD) as u64;
    failed.truncate(TOLD);
    Ok(Saved { files: done.files, bytes: done.bytes, failed, failed_more })
}

/// A source restricted to some paths.
struct Part<'s> {
    inner: &'s dyn Source,
    kept: HashSet<Vec<u8>>,
}

impl Part<'_> {
    /// Keeps wanted files at or below a path, with the directories that lead to them; returns true if there are any.
    /// Unreadable files are kept, too: the copy reports the error.
    fn keep(&mut self, wanted: &HashSet<u64>, path: &[u8], above: &mut Vec<u64>, stop: &Interrupt) -> Out<bool> {
        if stop.came() {
            return Err("interrupted".into());
        }
        let Ok(glance) = self.inner.glance(path) else {
            self.kept.insert(path.to_vec());
            return Ok(true);
        };
        let (_, number) = glance.file;
        let mut any = wanted.contains(&number);
        // The copy reports a directory that contains itself.
        if glance.kind == FileKind::Directory && !above.contains(&number) {
            above.push(number);
            let (names, read) = self.inner.names(path);
            any |= read.is_err();
            for name in names {
                any |= self.keep(wanted, &join(path, &name), above, stop)?;
            }
            above.pop();
        }
        if any {
            self.kept.insert(path.to_vec());
        }
        Ok(any)
    }
}

impl Source for Part<'_> {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        self.inner.glance(path)
    }
    fn item(&self, path: &[u8]) -> Out<Item> {
        self.inner.item(path)
    }
    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let (mut names, read) = self.inner.names(path);
        names.retain(|name| self.kept.contains(&join(path, name)));
        (names, read)
    }
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>> {
        self.inner.open(path)
    }
}
