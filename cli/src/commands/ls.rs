//! `joulefs ls`: which names are inside an image?
//!
//! A name is listed even if its inode cannot be read: on a damaged volume that matters.

use std::collections::HashSet;

use serde_json::{Value, json};
use vfs::{Attr, FileKind, FileSystem, Flow, Ino, path};

use super::cp::join;
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// List files inside an image.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs ls disk.img:/\n  joulefs ls -l -R disk.img:/photos")]
pub struct Args {
    /// IMAGE:/path of a directory or file.
    #[arg(value_parser = clap::value_parser!(Place))]
    place: Place,
    /// Show mode, links, owner, size and time too.
    #[arg(short, long)]
    long: bool,
    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show names that begin with a dot too.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    reading: Reading,
}

struct Row {
    name: Vec<u8>,
    attr: Result<Attr, String>,
    target: Option<Vec<u8>>,
}

/// Names of a directory with their inodes.
pub fn names(fs: &dyn FileSystem, dir: Ino) -> vfs::Result<Vec<(Vec<u8>, Ino, FileKind)>> {
    let mut out = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        if e.name != b"." && e.name != b".." {
            out.push((e.name.to_vec(), e.ino, e.kind));
        }
        Flow::Continue
    })?;
    Ok(out)
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let (image, at) = args.place.inside()?;
    let image = Image::open_to_read(image, args.reading)?;
    let fs = &*image.vol;
    let fail = |e: vfs::Error| format!("{}: {e}", args.place.text());
    let found = path::walk(fs, at).map_err(fail)?;
    let attr = fs.getattr(found.ino()).map_err(fail)?;
    let mut json_rows = Vec::new();
    if attr.kind != FileKind::Directory {
        let name = at.rsplit(|&b| b == b'/').find(|p| !p.is_empty()).unwrap_or(at).to_vec();
        let row = Row { name, attr: Ok(attr), target: fs.readlink(found.ino()).ok() };
        show(args, as_json, b"", &[row], &mut json_rows);
    } else {
        list(fs, args, as_json, (at, found.ino()), &mut json_rows).map_err(fail)?;
    }
    if as_json {
        output::print(&Value::Array(json_rows));
    }
    Ok(())
}

/// Directories to list, the next one last: path, inode and depth.
type Waiting = Vec<(Vec<u8>, Ino, usize)>;

/// Lists a directory, and with `-R` those below it, each after its parent. On a damaged volume a directory may contain
/// itself, which must not be followed forever, or directories may be nested a million deep, so ancestors are kept in a
/// list.
fn list(
    fs: &dyn FileSystem,
    args: &Args,
    as_json: bool,
    (at, dir): (&[u8], Ino),
    json_rows: &mut Vec<Value>,
) -> vfs::Result<()> {
    let mut waiting: Waiting = vec![(at.to_vec(), dir, 0)];
    let (mut way, mut above) = (Vec::new(), HashSet::new());
    let mut first = true;
    while let Some((at, dir, depth)) = waiting.pop() {
        way.drain(depth..).for_each(|left| _ = above.remove(&left));
        if !as_json && !first {
            output::line("");
        }
        first = false;
        if !above.insert(dir) {
            return Err(vfs::Error::Invalid("a directory contains itself; run joulefs fsck"));
        }
        way.push(dir);
        let below = list_one(fs, args, as_json, (&at, dir), json_rows)?;
        if args.recursive {
            waiting.extend(below.into_iter().rev().map(|(name, ino)| (join(&at, &name), ino, depth + 1)));
        }
    }
    Ok(())
}

/// Lists one directory, and returns the directories in it.
fn list_one(
    fs: &dyn FileSystem,
    args: &Args,
    as_json: bool,
    (at, dir): (&[u8], Ino),
    json_rows: &mut Vec<Value>,
) -> vfs::Result<Vec<(Vec<u8>, Ino)>> {
    let mut rows = Vec::new();
    for (name, ino, kind) in names(fs, dir)? {
        if !args.all && name.starts_with(b".") {
            continue;
        }
        let target = if kind == FileKind::Symlink { fs.readlink(ino).ok() } else { None };
        rows.push((Row { name, attr: fs.getattr(ino).map_err(|e| e.to_string()), target }, ino));
    }
    rows.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let dirs: Vec<(Vec<u8>, Ino)> = rows
        .iter()
        .filter(|(r, _)| r.attr.as_ref().is_ok_and(|a| a.kind == FileKind::Directory))
        .map(|(r, i)| (r.name.clone(), *i))
        .collect();
    let rows: Vec<Row> = rows.into_iter().map(|(r, _)| r).collect();
    if args.recursive && !as_json {
        output::line(&format!("{}:", output::name(at)));
    }
    show(args, as_json, at, &rows, json_rows);
    Ok(dirs)
}

fn show(args: &Args, as_json: bool, at: &[u8], rows: &[Row], json_rows: &mut Vec<Value>) {
    let width = rows.iter().filter_map(|r| r.attr.as_ref().ok()).map(|a| a.size.to_string().len()).max().unwrap_or(1);
    for row in rows {
        let name = output::name(&row.name);
        if as_json {
            json_rows.push(as_value(at, row));
        } else if args.long {
            match &row.attr {
                Ok(a) => {
                    let arrow = row.target.as_ref().map_or(String::new(), |t| format!(" -> {}", output::name(t)));
                    let size = match a.kind {
                        FileKind::CharDevice | FileKind::BlockDevice => {
                            format!("{},{}", a.rdev.major, a.rdev.minor)
                        }
                        _ => a.size.to_string(),
                    };
                    output::line(&format!(
                        "{} {:>3} {:>5} {:>5} {size:>width$} {} {name}{arrow}",
                        mode_text(a),
                        a.nlink,
                        a.uid,
                        a.gid,
                        date(a.mtime.sec)
                    ));
                }
                Err(e) => output::line(&format!("?????????? {name}: {e}")),
            }
        } else {
            output::line(&name);
        }
    }
}

fn as_value(at: &[u8], row: &Row) -> Value {
    let name = String::from_utf8_lossy(&row.name);
    let dir = String::from_utf8_lossy(at);
    let mut v = json!({ "directory": dir, "name": name });
    match &row.attr {
        Ok(a) => {
            v["kind"] = json!(format!("{:?}", a.kind));
            v["mode"] = json!(format!("{:04o}", a.perm));
            v["uid"] = json!(a.uid);
            v["gid"] = json!(a.gid);
            v["links"] = json!(a.nlink);
            v["size"] = json!(a.size);
            v["mtime"] = json!(format!("{}.{:09}", a.mtime.sec, a.mtime.nsec));
            v["inode"] = json!(a.ino.0);
        }
        Err(e) => v["error"] = json!(e),
    }
    if let Some(t) = &row.target {
        v["target"] = json!(String::from_utf8_lossy(t));
    }
    v
}

/// Kind and permissions in the format of `ls -l`.
pub fn mode_text(a: &Attr) -> String {
    let kind = match a.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut out = String::from(kind);
    for (i, shift) in [6, 3, 0].into_iter().enumerate() {
        let bits = a.perm >> shift & 7;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        let special = a.perm & [0o4000, 0o2000, 0o1000][i] != 0;
        out.push(match (special, bits & 1 != 0, i) {
            (false, true, _) => 'x',
            (false, false, _) => '-',
            (true, true, 2) => 't',
            (true, false, 2) => 'T',
            (true, true, _) => 's',
            (true, false, _) => 'S',
        });
    }
    out
}

/// A date in UTC (days to civil date by the proleptic Gregorian calendar's 400-year cycle).
pub fn date(secs: i64) -> String {
    let days = secs.div_euclid(86_400);
    let of_day = secs.rem_euclid(86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", of_day / 3600, of_day / 60 % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_before_and_after_1970() {
        assert_eq!(super::date(0), "1970-01-01 00:00");
        assert_eq!(super::date(-1), "1969-12-31 23:59");
        assert_eq!(super::date(1_709_210_096), "2024-02-29 12:34");
    }
}
