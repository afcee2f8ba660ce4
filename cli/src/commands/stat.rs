//! `joulefs stat`: what is known about a file inside an image?
//!
//! The terms are those of stat(1); a symlink is not followed.

use serde_json::{Value, json};
use vfs::{Attr, FileKind, Timestamp, path};

use super::ls;
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Show attributes of files inside an image.
///
/// With --json: a list of objects, one per file. On a mounted volume, stat(1) shows the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs stat disk.img:/etc/fstab\n  joulefs stat --json disk.img:/ disk.img:/tmp")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    #[command(flatten)]
    reading: Reading,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let mut list = Vec::new();
    for place in &args.places {
        let fail = |e: vfs::Error| format!("{}: {e}", place.text());
        let (image, at) = place.inside()?;
        let image = Image::open_to_read(image, args.reading)?;
        let fs = &*image.vol;
        let found = path::walk(fs, at).map_err(fail)?;
        let attr = fs.getattr(found.ino()).map_err(fail)?;
        let target = match attr.kind {
            FileKind::Symlink => Some(fs.readlink(found.ino()).map_err(fail)?),
            _ => None,
        };
        let target = target.map(|t| output::plain(&String::from_utf8_lossy(&t)));
        if as_json {
            list.push(as_value(&place.raw(), &attr, target.as_deref()));
        } else {
            output::lines(&as_text(&place.text(), &attr, target.as_deref()));
        }
    }
    if as_json {
        output::print(&list.into());
    }
    Ok(())
}

/// The kind of an inode in the terms of stat(1).
pub fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn has_device(a: &Attr) -> bool {
    matches!(a.kind, FileKind::CharDevice | FileKind::BlockDevice)
}

fn as_text(name: &str, a: &Attr, target: Option<&str>) -> String {
    let time = |t: Timestamp| {
        let seconds = ls::date(t.sec) + &format!(":{:02}", t.sec.rem_euclid(60));
        format!("{seconds}.{:09} UTC", t.nsec)
    };
    let arrow = target.map_or(String::new(), |t| format!(" -> {t}"));
    let device = match has_device(a) {
        true => format!("   Device type: {},{}", a.rdev.major, a.rdev.minor),
        false => String::new(),
    };
    let lines = [
        format!("  File: {name}{arrow}"),
        format!("  Size: {:<15} Blocks: {:<10} {}", a.size, a.blocks512, kind(a.kind)),
        format!(" Inode: {:<15} Links: {:<10}  Generation: {}{device}", a.ino.0, a.nlink, a.generation),
        format!("Access: ({:04o}/{})  Uid: {}   Gid: {}", a.perm, ls::mode_text(a), a.uid, a.gid),
        format!("Access: {}", time(a.atime)),
        format!("Modify: {}", time(a.mtime)),
        format!("Change: {}", time(a.ctime)),
        format!(" Birth: {}", a.crtime.map_or("-".to_owned(), time)),
    ];
    lines.join("\n")
}

fn as_value(name: &str, a: &Attr, target: Option<&str>) -> Value {
    let time = |t: Timestamp| format!("{}.{:09}", t.sec, t.nsec);
    json!({
        "path": name,
        "kind": kind(a.kind),
        "mode": format!("{:04o}", a.perm),
        "uid": a.uid,
        "gid": a.gid,
        "links": a.nlink,
        "size": a.size,
        "allocated_bytes": a.blocks512 * 512,
        "inode": a.ino.0,
        "generation": a.generation,
        "device": has_device(a).then(|| json!({ "major": a.rdev.major, "minor": a.rdev.minor })),
        "atime": time(a.atime),
        "mtime": time(a.mtime),
        "ctime": time(a.ctime),
        "crtime": a.crtime.map(time),
        "target": target,
    })
}
