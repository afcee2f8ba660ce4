//! The walk that copies a tree, file by file.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use indicatif::ProgressBar;
use terminal::failure::one_line;
use vfs::FileKind;

use super::item::{Item, Made, Out, Sink, Source, go_on, push};
use super::survey::{Met, Survey};
use super::{ahead, below, inside};
use crate::bounded::Allowance;
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::{Failure, output, progress};

/// A copy in progress.
pub struct Copy<'c> {
    pub source: &'c dyn Source,
    pub sink: &'c dyn Sink,
    pub links: HashMap<(u64, u64), Vec<u8>>,
    pub bar: &'c ProgressBar,
    pub stop: &'c Interrupt,
    /// How much may still be written.
    pub allowance: Allowance,
    pub buf: Vec<u8>,
    pub done: &'c mut Done,
}

/// The result of a copy.
#[derive(Default)]
pub struct Done {
    pub files: u64,
    pub bytes: u64,
    /// Error messages of files not copied.
    pub failed: Vec<String>,
    /// Failures are printed as they happen.
    pub told: bool,
}

impl Done {
    pub fn fail(&mut self, bar: &ProgressBar, why: &str) {
        let why = one_line(why);
        if self.told {
            bar.suspend(|| output::failure(&why, false));
        }
        self.failed.push(why);
    }
}

pub fn base(path: &[u8]) -> Option<&[u8]> {
    path.split(|&b| b == b'/').rfind(|p| !p.is_empty() && *p != b"." && *p != b"..")
}

/// Error for an infinite tree.
const CONTAINS_ITSELF: &str = "this directory contains itself or has a second name; run joulefs fsck";

/// A directory being copied.
struct Inside {
    file: (u64, u64),
    item: Item,
    /// An error if its names are incomplete.
    read: Out<()>,
    names: std::vec::IntoIter<Vec<u8>>,
    /// Lengths of its source and target paths.
    paths: (usize, usize),
}

impl Copy<'_> {
    /// Copies a tree except for failures, which are recorded. Fails if interrupted.
    pub fn tree(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        let (mut from, mut to) = (from.to_vec(), to.to_vec());
        let (mut met, mut open) = (Met::new(self.source), Vec::new());
        open.extend(self.copied(&from, &to, &mut met)?);
        while let Some(dir) = open.last_mut() {
            from.truncate(dir.paths.0);
            to.truncate(dir.paths.1);
            if let Some(name) = dir.names.next().filter(|_| !self.is_ended()) {
                push(&mut from, &name);
                push(&mut to, &name);
                open.extend(self.copied(&from, &to, &mut met)?);
            } else if let Some(dir) = open.pop() {
                met.leave(dir.file);
                let left = self.leave(dir, &to);
                self.note(left)?;
            }
        }
        Ok(())
    }

    /// True if nothing more may be written.
    fn is_ended(&self) -> bool {
        self.allowance.is_reached() || self.sink.is_full()
    }

    /// Records a failure; fails if interrupted.
    fn note<T>(&mut self, copied: Out<T>) -> Out<Option<T>> {
        go_on(self.stop)?;
        match copied {
            Ok(copied) => Ok(Some(copied)),
            Err(why) => {
                self.done.fail(self.bar, &why);
                Ok(None)
            }
        }
    }

    fn copied(&mut self, from: &[u8], to: &[u8], met: &mut Met) -> Out<Option<Inside>> {
        let copied = self.one(from, to, met);
        Ok(self.note(copied)?.flatten())
    }

    /// Copies one file; a directory is created and returned to be walked.
    fn one(&mut self, from: &[u8], to: &[u8], met: &mut Met) -> Out<Option<Inside>> {
        go_on(self.stop)?;
        let item = self.source.item(from)?;
        if item.kind == FileKind::Directory {
            return self.enter(from, to, item, met).map(Some);
        }
        if let Some(first) = item.identity.and_then(|id| self.links.get(&id)) {
            self.bar.inc(item.size);
            self.sink.link(first, to)?;
            self.done.files += 1;
            return Ok(None);
        }
        let mut made = self.sink.make(to, &item)?;
        if item.kind == FileKind::Regular {
            self.contents(from, &mut *made, item.size)?;
        }
        let finished = made.finish(&item);
        if finished.is_ok() {
            made.place()?;
        } else if !made.keep() {
            return finished.map(|()| None);
        }
        if let Some(id) = item.identity {
            self.links.insert(id, to.to_vec());
        }
        self.done.files += 1;
        finished.map(|()| None)
    }

    fn enter(&mut self, from: &[u8], to: &[u8], item: Item, met: &mut Met) -> Out<Inside> {
        let file = self.source.glance(from)?.file;
        if !met.enter(file) {
            return Err(format!("{}: {CONTAINS_ITSELF}", self.source.place(from)));
        }
        let (names, read) = self.source.names(from);
        if names.is_empty() {
            read.clone()?;
        }
        self.sink.make_directory(to)?;
        Ok(Inside { file, item, read, names: names.into_iter(), paths: (from.len(), to.len()) })
    }

    /// Finishes a directory after its contents are copied.
    fn leave(&mut self, dir: Inside, to: &[u8]) -> Out<()> {
        self.done.files += 1;
        let known = dir.item.amiss.clone().map_or(Ok(()), Err);
        self.sink.finish(to, &dir.item).and(dir.read).and(known)
    }

    fn contents(&mut self, from: &[u8], writer: &mut dyn Made, size: u64) -> Out<()> {
        let mut reader = self.source.open(from)?;
        let mut at = 0;
        while at < size {
            let Some((start, end)) = reader.next_data(at)? else {
                break;
            };
            self.bar.inc(start - at);
            at = start;
            while at < end.min(size) {
                go_on(self.stop)?;
                let want = (end.min(size) - at).min(self.buf.len() as u64) as usize;
                let n = reader.read_at(at, &mut self.buf[..want])?;
                if n == 0 {
                    return writer.set_size(at); // the file shrank meanwhile
                }
                self.allowance.take(n as u64).map_err(|why| format!("{}: {why}", self.source.place(from)))?;
                writer.write_at(at, &self.buf[..n])?;
                at += n as u64;
                self.done.bytes += n as u64;
                self.bar.inc(n as u64);
                progress::show_if_slow(self.bar);
            }
        }
        self.bar.inc(size - at.min(size));
        writer.set_size(size)
    }
}

/// Copies a tree from a source that is neither the host nor a volume into a directory of the host. Failures are
/// returned, and printed unless the answer is for machines.
pub fn copy_tree(
    source: &dyn Source,
    to: &Path,
    stop: &Interrupt,
    really: bool,
    as_json: bool,
) -> Result<Vec<String>, Failure> {
    let mut done = Done { told: !as_json, ..Done::default() };
    let bar = progress::bytes(0, "copying");
    // No other user may access it before it is finished.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(to).and_then(|()| std::fs::canonicalize(to));
    let to = made.map_err(|e| format!("{}: {e}", to.display()))?;
    Survey { each: &mut |_, _, _| Ok(()), source, bar: &bar, stop, written: None }.of(b"/")?;
    let sink = &below::Below::open(&to)?;
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let allowance = Allowance::new(source.holds(), really);
    let mut copy = Copy { source, sink, links, bar: &bar, stop, allowance, buf, done: &mut done };
    let copied = copy.tree(b"/", b"/");
    bar.finish_and_clear();
    stop.end();
    copied?;
    Ok(done.failed)
}

/// Copies a source into an open directory of the host. Failures are recorded, not printed.
pub fn copy_out(source: &dyn Source, to: OwnedFd, named: &Path, stop: &Interrupt) -> Out<Done> {
    let (mut done, bar) = (Done::default(), ProgressBar::hidden());
    let sink = &below::Below::at(to, named)?;
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    // Data in memory and on the device together may exceed the device's capacity.
    let allowance = Allowance::new(None, false);
    let mut copy = Copy { source, sink, links, bar: &bar, stop, allowance, buf, done: &mut done };
    copy.tree(b"/", b"/")?;
    Ok(done)
}

/// The result of filling a volume.
pub struct Filled {
    pub files: u64,
    pub bytes: u64,
    /// Error messages of files not copied.
    pub failed: Vec<String>,
    /// The volume is full.
    pub is_full: bool,
}

/// Copies a tree into the root of a mounted image, with owners; `survey` counted `bytes` in it. Failures are not
/// printed.
pub fn fill(source: &(dyn Source + Sync), image: &Image, bytes: u64, stop: &Interrupt) -> Result<Filled, Failure> {
    let mut done = Done::default();
    let bar = progress::bytes(bytes, "copying");
    let sink = inside::Inside::lent(image, true);
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let copied = ahead::with(source, b"/", |source| {
        let allowance = Allowance::new(source.holds(), false);
        Copy { source, sink: &sink, links, allowance, bar: &bar, stop, buf, done: &mut done }.tree(b"/", b"/")
    });
    bar.finish_and_clear();
    copied?;
    let full = vfs::Error::NoSpace.to_string();
    let is_full = done.failed.iter().any(|why| why.ends_with(&full));
    Ok(Filled { files: done.files, bytes: done.bytes, failed: done.failed, is_full })
}
