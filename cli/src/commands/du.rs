//! `joulefs du`: how much room do the files below a directory inside an image take?
//!
//! What is counted is what du(1) counts of the volume when it is mounted: blocks, of each inode once, whatever names it has.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use vfs::{Attr, FileKind, FileSystem, Ino, path};

use super::ls::names;
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Say how much room files inside an image take.
///
/// One line for each directory, after those below it. Every file counts once, under the first of its names. With --json: a
/// list of objects. Of a mounted volume, du(1) says the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs du disk.img:/\n  joulefs du -s disk.img:/home disk.img:/var\n  \
    joulefs du --max-depth 1 disk.img:/")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    /// Only the sum of each place.
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Files too, not only directories.
    #[arg(short, long)]
    all: bool,
    /// Only what is at most so many levels below a place.
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Bytes, instead of units that people read.
    #[arg(short, long)]
    bytes: bool,
    #[command(flatten)]
    reading: Reading,
}

struct Count<'a> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    as_json: bool,
    /// Inodes with several names that were counted.
    seen: BTreeSet<u64>,
    /// Directories on the way: on a damaged volume one may contain itself, and is not followed for ever.
    above: Vec<Ino>,
    rows: &'a mut Vec<Value>,
    /// What cannot be read, of which somebody was told.
    failed: &'a mut u64,
}

impl Count<'_> {
    fn failed(&mut self, at: &str, why: &dyn std::fmt::Display) {
        *self.failed += 1;
        eprintln!("joulefs: {}: {why}", output::plain(at));
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

    /// Bytes of an inode and all below it.
    fn count(&mut self, at: &str, attr: &Attr, depth: usize) -> u64 {
        let dir = attr.kind == FileKind::Directory;
        if !dir && attr.nlink > 1 && !self.seen.insert(attr.ino.0) {
            return 0;
        }
        let mut bytes = attr.blocks512 * 512;
        if dir {
            bytes += self.below(at, attr.ino, depth);
        }
        self.say(at, bytes, depth, dir);
        bytes
    }

    fn below(&mut self, at: &str, dir: Ino, depth: usize) -> u64 {
        if self.above.contains(&dir) {
            self.failed(at, &"a directory contains itself; run joulefs fsck");
            return 0;
        }
        let mut found = match names(self.fs, dir) {
            Ok(found) => found,
            Err(e) => {
                self.failed(at, &e);
                return 0;
            }
        };
        found.sort_by(|a, b| a.0.cmp(&b.0));
        self.above.push(dir);
        let mut bytes = 0;
        for (name, ino, _) in found {
            let slash = if at.ends_with('/') { "" } else { "/" };
            let below = format!("{at}{slash}{}", String::from_utf8_lossy(&name));
            match self.fs.getattr(ino) {
                Ok(attr) => bytes += self.count(&below, &attr, depth + 1),
                Err(e) => self.failed(&below, &e),
            }
        }
        self.above.pop();
        bytes
    }
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
        let (seen, above, rows, failed) = (BTreeSet::new(), Vec::new(), &mut rows, &mut failed);
        Count { fs, args, as_json, seen, above, rows, failed }.count(&place.text(), &attr, 0);
    }
    if as_json {
        output::print(&rows.into());
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} of the names could not be read: the sums are too small").into()),
    }
}
