//! `joulefs du`: how much space do the files below a directory inside an image use?
//!
//! It counts like du(1) on the mounted volume: blocks, once for each inode, however many names it has.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use vfs::{Attr, FileKind, FileSystem, Ino, path};

use super::ls::names;
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Report space used by files inside an image.
///
/// Prints one line per directory, subdirectories first. A file with several names counts once, under the first. With
/// --json: a list of objects. On a mounted volume, du(1) gives the same numbers.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs du disk.img:/\n  joulefs du -s disk.img:/home disk.img:/var\n  \
    joulefs du --max-depth 1 disk.img:/")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    /// Print only the total of each argument.
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Print files too, not only directories.
    #[arg(short, long)]
    all: bool,
    /// Print at most this many levels below each argument.
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Print bytes instead of human-readable units.
    #[arg(short, long)]
    bytes: bool,
    #[command(flatten)]
    reading: Reading,
}

struct Count<'a> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    as_json: bool,
    /// Inodes with several names that were already counted.
    seen: BTreeSet<u64>,
    /// Ancestor directories: on a damaged volume a directory may contain itself, and must not be followed forever.
    above: BTreeSet<u64>,
    rows: &'a mut Vec<Value>,
    /// Reported read failures.
    failed: &'a mut u64,
}

impl Count<'_> {
    fn failed(&mut self, at: &str, why: &dyn std::fmt::Display) {
        *self.failed += 1;
        output::warn(&format!("{}: {why}", output::plain(at)));
    }

    fn say(&mut self, at: &str, bytes: u64, depth: usize, dir: bool) {
        let deepest = if self.args.summarize { Some(0) } else { self.args.max_depth };
        if deepest.is_some_and(|most| depth > most) || !(dir || self.args.all || depth == 0) {
            return;
        }
        if self.as_json {
            self.rows.push(json!({ "path": at, "allocated_bytes": bytes, "directory": dir }));
            return;
        }
        let size = if self.args.bytes { bytes.to_string() } else { output::bytes(bytes) };
        output::line(&format!("{size:>12}  {}", output::plain(at)));
    }

    /// Counts an inode and all below it.
    fn count(&mut self, place: &str, attr: &Attr) {
        let (mut at, mut open) = (place.to_owned(), Vec::new());
        open.extend(self.one(&at, attr, 0).1);
        while let Some(dir) = open.last_mut() {
            at.truncate(dir.path);
            if let Some((name, ino, _)) = dir.names.next() {
                if !at.ends_with('/') {
                    at.push('/');
                }
                at += &String::from_utf8_lossy(&name);
                match self.fs.getattr(ino) {
                    Ok(attr) => {
                        let (bytes, below) = self.one(&at, &attr, dir.depth + 1);
                        dir.bytes = dir.bytes.saturating_add(bytes);
                        open.extend(below);
                    }
                    Err(e) => self.failed(&at, &e),
                }
            } else if let Some(dir) = open.pop() {
                self.above.remove(&dir.ino.0);
                self.say(&at, dir.bytes, dir.depth, true);
                if let Some(above) = open.last_mut() {
                    above.bytes = above.bytes.saturating_add(dir.bytes);
                }
            }
        }
    }

    /// Counts one inode: its bytes. A readable directory is returned instead, and its bytes are counted there.
    fn one(&mut self, at: &str, attr: &Attr, depth: usize) -> (u64, Option<Inside>) {
        let is_dir = attr.kind == FileKind::Directory;
        if !is_dir && attr.nlink > 1 && !self.seen.insert(attr.ino.0) {
            return (0, None);
        }
        let bytes = attr.blocks512.saturating_mul(512);
        if is_dir && let Some(names) = self.names_in(at, attr.ino) {
            return (0, Some(Inside { ino: attr.ino, names, path: at.len(), depth, bytes }));
        }
        self.say(at, bytes, depth, is_dir);
        (bytes, None)
    }

    fn names_in(&mut self, at: &str, dir: Ino) -> Option<std::vec::IntoIter<(Vec<u8>, Ino, FileKind)>> {
        if self.above.contains(&dir.0) {
            self.failed(at, &"a directory contains itself; run joulefs fsck");
            return None;
        }
        match names(self.fs, dir) {
            Ok(mut found) => {
                found.sort_by(|a, b| a.0.cmp(&b.0));
                self.above.insert(dir.0);
                Some(found.into_iter())
            }
            Err(e) => {
                self.failed(at, &e);
                None
            }
        }
    }
}

/// A directory being counted. Ancestors are kept in a list, not on the stack: an image may nest them a million deep.
struct Inside {
    ino: Ino,
    names: std::vec::IntoIter<(Vec<u8>, Ino, FileKind)>,
    /// Length of its path.
    path: usize,
    depth: usize,
    /// Its bytes and those counted below it.
    bytes: u64,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let (mut rows, mut failed) = (Vec::new(), 0);
    for place in &args.places {
        let fail = |e: vfs::Error| format!("{}: {e}", place.text());
        let (image, at) = place.inside()?;
        let image = Image::open_to_read(image, args.reading)?;
        let fs = &*image.vol;
        let found = path::walk(fs, at).map_err(fail)?;
        let attr = fs.getattr(found.ino()).map_err(fail)?;
        let (seen, above, rows, failed) = (BTreeSet::new(), BTreeSet::new(), &mut rows, &mut failed);
        Count { fs, args, as_json, seen, above, rows, failed }.count(&place.raw(), &attr);
    }
    if as_json {
        output::print(&rows.into());
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} names could not be read: the totals are too small").into()),
    }
}
