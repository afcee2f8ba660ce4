//! The walk that copies a tree: what there is of it, and one thing after the other.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use indicatif::ProgressBar;
use vfs::FileKind;

use super::item::{Glance, Item, Made, Out, Sink, Source, join};
use super::{ahead, below, inside};
use crate::failure::one_line;
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::{Failure, output, progress};

/// A copy under way.
pub struct Copy<'c> {
    pub source: &'c dyn Source,
    pub sink: &'c dyn Sink,
    pub links: HashMap<(u64, u64), Vec<u8>>,
    pub above: Vec<(u64, u64)>,
    pub bar: &'c ProgressBar,
    pub stop: &'c Interrupt,
    pub buf: Vec<u8>,
    pub done: &'c mut Done,
}

/// What came of a copy.
#[derive(Default)]
pub struct Done {
    pub files: u64,
    pub bytes: u64,
    /// What was not copied, and why.
    pub failed: Vec<String>,
    /// Failures are told as they happen.
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

/// Copying ends early if somebody asks for it.
fn go_on(stop: &Interrupt) -> Out<()> {
    if stop.came() { Err("interrupted".into()) } else { Ok(()) }
}

/// Why a tree has no end.
const CONTAINS_ITSELF: &str = "this directory contains itself; run joulefs fsck";

/// Adds up what will be copied, and refuses a tree that holds the image being written, which would grow while it is
/// read. What cannot be read counts nothing: the copy says so in its place.
pub struct Survey<'s> {
    /// Hears of everything in the tree: its path, what it is, and of a directory the names in it.
    pub each: &'s mut dyn FnMut(&[u8], &Glance, &[Vec<u8>]) -> Out<()>,
    pub source: &'s dyn Source,
    pub bar: &'s ProgressBar,
    pub stop: &'s Interrupt,
    pub written: Option<(u64, u64)>,
    pub above: Vec<(u64, u64)>,
}

/// Adds up what will be copied of a tree; `each` hears of everything in it.
pub fn survey(
    source: &dyn Source,
    written: Option<(u64, u64)>,
    stop: &Interrupt,
    each: &mut dyn FnMut(&[u8], &Glance, &[Vec<u8>]) -> Out<()>,
) -> Out<u64> {
    let bar = progress::bytes(0, "looking");
    Survey { each, source, bar: &bar, stop, written, above: Vec::new() }.of(b"/")?;
    Ok(bar.length().unwrap_or(0))
}

impl Survey<'_> {
    pub fn of(&mut self, path: &[u8]) -> Out<()> {
        go_on(self.stop)?;
        let Ok(item) = self.source.glance(path) else { return Ok(()) };
        match item.kind {
            FileKind::Directory if self.above.contains(&item.file) => Ok(()),
            FileKind::Directory => {
                self.above.push(item.file);
                let names = self.source.names(path).0;
                (self.each)(path, &item, &names)?;
                for name in names {
                    self.of(&join(path, &name))?;
                }
                self.above.pop();
                Ok(())
            }
            FileKind::Regular if self.written == Some(item.file) => {
                Err(format!("{}: is the image being written; move it elsewhere", String::from_utf8_lossy(path)))
            }
            FileKind::Regular => {
                self.bar.inc_length(item.size);
                (self.each)(path, &item, &[])
            }
            _ => (self.each)(path, &item, &[]),
        }
    }
}

impl Copy<'_> {
    /// Copies a tree but for what fails, which is noted. Fails if it was told to stop.
    pub fn tree(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        let copied = self.one(from, to);
        go_on(self.stop)?;
        if let Err(why) = copied {
            self.done.fail(self.bar, &why);
        }
        Ok(())
    }

    fn one(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        go_on(self.stop)?;
        let item = self.source.item(from)?;
        if item.kind == FileKind::Directory {
            return self.directory(from, to, &item);
        }
        if let Some(first) = item.identity.and_then(|id| self.links.get(&id)) {
            self.bar.inc(item.size);
            self.sink.link(first, to)?;
            self.done.files += 1;
            return Ok(());
        }
        let mut made = self.sink.make(to, &item)?;
        if item.kind == FileKind::Regular {
            self.contents(from, &mut *made, item.size)?;
        }
        let finished = made.finish(&item);
        if finished.is_ok() {
            made.place()?;
        } else if !made.keep() {
            return finished;
        }
        if let Some(id) = item.identity {
            self.links.insert(id, to.to_vec());
        }
        self.done.files += 1;
        finished
    }

    fn directory(&mut self, from: &[u8], to: &[u8], item: &Item) -> Out<()> {
        let file = self.source.glance(from)?.file;
        if self.above.contains(&file) {
            return Err(format!("{}: {CONTAINS_ITSELF}", String::from_utf8_lossy(from)));
        }
        let (names, read) = self.source.names(from);
        if names.is_empty() {
            read.clone()?;
        }
        self.sink.make_directory(to)?;
        self.above.push(file);
        for name in names {
            self.tree(&join(from, &name), &join(to, &name))?;
        }
        self.above.pop();
        self.done.files += 1;
        let known = item.amiss.clone().map_or(Ok(()), Err);
        self.sink.finish(to, item).and(read).and(known)
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
                    return writer.set_size(at); // it shrank meanwhile
                }
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

/// Copies a tree that is neither the host's nor a volume's into a directory of the host. What could not be copied is
/// returned, and told unless the answer is for machines.
pub fn copy_tree(source: &dyn Source, to: &Path, stop: &Interrupt, as_json: bool) -> Result<Vec<String>, Failure> {
    let mut done = Done { told: !as_json, ..Done::default() };
    let bar = progress::bytes(0, "copying");
    // Nobody else looks in before it is finished.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(to).and_then(|()| std::fs::canonicalize(to));
    let to = made.map_err(|e| format!("{}: {e}", to.display()))?;
    Survey { each: &mut |_, _, _| Ok(()), source, bar: &bar, stop, written: None, above: Vec::new() }.of(b"/")?;
    let sink = &below::Below::open(&to)?;
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let mut copy = Copy { source, sink, links, above: Vec::new(), bar: &bar, stop, buf, done: &mut done };
    let copied = copy.tree(b"/", b"/");
    bar.finish_and_clear();
    stop.end();
    copied?;
    Ok(done.failed)
}

/// Copies a source into a directory of the host that is open. What could not be copied is noted, and not told.
pub fn copy_out(source: &dyn Source, to: OwnedFd, named: &Path, stop: &Interrupt) -> Out<Done> {
    let (mut done, bar) = (Done::default(), ProgressBar::hidden());
    let sink = &below::Below::at(to, named)?;
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let mut copy = Copy { source, sink, links, above: Vec::new(), bar: &bar, stop, buf, done: &mut done };
    copy.tree(b"/", b"/")?;
    Ok(done)
}

/// What came of filling a volume.
pub struct Filled {
    pub files: u64,
    pub bytes: u64,
    /// What was not copied, and why.
    pub failed: Vec<String>,
    /// It was for want of room.
    pub is_full: bool,
}

/// Copies a tree, of which a [`survey`] counted so many bytes, into the root of a mounted image, owners and all. What fails is not
/// told.
pub fn fill(source: &(dyn Source + Sync), image: &Image, bytes: u64, stop: &Interrupt) -> Result<Filled, Failure> {
    let mut done = Done::default();
    let bar = progress::bytes(bytes, "copying");
    let sink = inside::Inside { image: inside::Hold::Lent(image), owners: true };
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let copied = ahead::with(source, b"/", |source| {
        let above = Vec::new();
        Copy { source, sink: &sink, links, above, bar: &bar, stop, buf, done: &mut done }.tree(b"/", b"/")
    });
    bar.finish_and_clear();
    copied?;
    let full = vfs::Error::NoSpace.to_string();
    let is_full = done.failed.iter().any(|why| why.ends_with(&full));
    Ok(Filled { files: done.files, bytes: done.bytes, failed: done.failed, is_full })
}
