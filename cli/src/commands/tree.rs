//! `joulefs tree`: draws the tree below a directory inside an image.

use serde_json::{Value, json};
use vfs::{Attr, FileKind, FileSystem, Ino, path};

use super::ls::names;
use super::stat::kind;
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Draw a directory tree inside an image.
///
/// Directories end in a slash, symlinks show their target, files show their size. With --json: an object for the
/// directory, with its entries in `children`. On a mounted volume, tree(1) draws the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs tree disk.img:/\n  joulefs tree -d --level 2 disk.img:/usr")]
pub struct Args {
    /// IMAGE:/path of a directory.
    #[arg(value_parser = clap::value_parser!(Place))]
    place: Place,
    /// Only directories.
    #[arg(short, long)]
    directories: bool,
    /// Descend at most this many levels.
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<usize>,
    /// Show names that begin with a dot too.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    reading: Reading,
}

struct Drawing<'a> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    as_json: bool,
    /// Ancestor directories: on a damaged volume a directory may contain itself, and must not be followed forever.
    above: Vec<Ino>,
    directories: u64,
    files: u64,
    failed: u64,
}

/// Maximum number of levels drawn: no terminal is wide enough for more, and an image may have a million.
const DEEPEST: usize = 1000;

impl Drawing<'_> {
    /// Draws the contents of a directory, each line prefixed with `indent`.
    fn below(&mut self, dir: Ino, indent: &str) -> vfs::Result<Vec<Value>> {
        let depth = self.above.len();
        if self.args.level.is_some_and(|most| depth >= most) {
            return Ok(Vec::new());
        }
        if depth >= DEEPEST {
            return Err(vfs::Error::Invalid("more than 1000 levels cannot be drawn; joulefs ls -R lists all"));
        }
        if self.above.contains(&dir) {
            return Err(vfs::Error::Invalid("a directory contains itself; run joulefs fsck"));
        }
        let mut found = names(self.fs, dir)?;
        found.retain(|(name, _, kind)| {
            (self.args.all || !name.starts_with(b".")) && (!self.args.directories || *kind == FileKind::Directory)
        });
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let last = found.len();
        let mut children = Vec::new();
        self.above.push(dir);
        for (n, (name, ino, _)) in found.into_iter().enumerate() {
            let (branch, trunk) = if n + 1 == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let name = String::from_utf8_lossy(&name);
            children.push(self.one(&name, ino, &format!("{indent}{branch}"), &format!("{indent}{trunk}")));
        }
        self.above.pop();
        Ok(children)
    }

    /// Draws one name, and everything below it.
    fn one(&mut self, name: &str, ino: Ino, before: &str, indent: &str) -> Value {
        let attr = match self.fs.getattr(ino) {
            Ok(attr) => attr,
            Err(e) => return self.unreadable(before, name, &e),
        };
        let mut value = json!({ "name": name, "kind": kind(attr.kind), "size": attr.size });
        let behind = self.behind(&attr, &mut value);
        if !self.as_json {
            output::line(&format!("{before}{}{behind}", output::plain(name)));
        }
        if attr.kind != FileKind::Directory {
            self.files += 1;
            return value;
        }
        self.directories += 1;
        match self.below(ino, indent) {
            Ok(children) => value["children"] = children.into(),
            Err(e) => {
                self.unreadable(&format!("{indent}└── "), "", &e);
                value["error"] = json!(e.to_string());
            }
        }
        value
    }

    fn behind(&self, attr: &Attr, value: &mut Value) -> String {
        match attr.kind {
            FileKind::Directory => "/".to_owned(),
            FileKind::Symlink => {
                let target = self.fs.readlink(attr.ino).unwrap_or_default();
                let target = String::from_utf8_lossy(&target);
                value["target"] = json!(target);
                format!(" -> {}", output::plain(&target))
            }
            FileKind::Regular => format!("  ({})", output::bytes(attr.size)),
            other => format!("  ({})", kind(other)),
        }
    }

    fn unreadable(&mut self, before: &str, name: &str, e: &vfs::Error) -> Value {
        self.failed += 1;
        if !self.as_json {
            output::line(&format!("{before}{}: {e}", output::plain(name)));
        }
        json!({ "name": name, "error": e.to_string() })
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let fail = |e: vfs::Error| format!("{}: {e}", args.place.text());
    let (image, at) = args.place.inside()?;
    let image = Image::open_to_read(image, args.reading)?;
    let fs = &*image.vol;
    let found = path::walk(fs, at).map_err(fail)?;
    if fs.getattr(found.ino()).map_err(fail)?.kind != FileKind::Directory {
        return Err(fail(vfs::Error::NotDirectory).into());
    }
    if !as_json {
        output::line(&args.place.text());
    }
    let mut drawing = Drawing { fs, args, as_json, above: Vec::new(), directories: 0, files: 0, failed: 0 };
    let children = drawing.below(found.ino(), "").map_err(fail)?;
    let Drawing { directories, files, failed, .. } = drawing;
    if as_json {
        let place = args.place.raw();
        output::print(&json!({ "path": place, "directories": directories, "files": files, "children": children }));
    } else if args.directories {
        output::lines(&format!("\n{directories} directories"));
    } else {
        output::lines(&format!("\n{directories} directories, {files} files"));
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} names could not be read").into()),
    }
}
