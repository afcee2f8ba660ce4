//! `joulefs undo`: what can be undone, and undoing it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use scherlfs::undo::Event;
use serde_json::json;
use volume::{MountOptions, Mounted};

use crate::commands::ls::date;
use crate::image::{Image, check_name};
use crate::place::Place;
use crate::table::{self, Table};
use crate::{Failure, output};

/// Undo the last changes of a ScherlFS volume, or of one file in it.
///
/// A log does not overwrite what it replaces. A volume mounted with `-o undo=SIZE` keeps that much of it, the latest, and is
/// then asked to go back: --list shows what can be undone, --last N undoes the last N entries of that list, all of the
/// volume, and IMAGE:/PATH gives one file the contents that it had before they were changed last, or, if it is not
/// there, brings it back. What cleaning moved in between is no entry of its own.
///
/// Going back is written to the log like any other change, as one transaction: a power cut leaves the volume as it was, or
/// gone back, and it can be undone itself. The volume must not be mounted.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs mount archive.img /mnt -o undo=256M\n  joulefs undo archive.img --list\n  \
    joulefs undo archive.img:/letters/to-anna.txt\n  joulefs undo archive.img --last 3"
)]
pub struct Args {
    /// The image or block device; not mounted. With a path in it: this file alone.
    #[arg(value_name = "IMAGE[:/PATH]")]
    place: PathBuf,
    /// Show what can be undone, the latest first.
    #[arg(long, short, conflicts_with = "last")]
    list: bool,
    /// Undo the last N changes of the volume.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
}

/// The volume, and the image that it is on.
fn open(path: &Path, write: bool) -> Result<(Image, Arc<scherlfs::Volume>), Failure> {
    let image = Image::open_with(path, MountOptions::default().read_only(!write))?;
    let volume = match image.mounted() {
        Mounted::ScherlFs(volume) => volume.clone(),
        Mounted::F2fs(_) => {
            let why = "a volume of F2FS, which overwrites; undo is for ScherlFS";
            return Err(format!("{}: {why}", path.display()).into());
        }
    };
    Ok((image, volume))
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let (path, inside) = match Place::from(args.place.clone().into_os_string()) {
        Place::Inside { image, path } => (image, Some(path)),
        Place::Host(path) => (path, None),
    };
    match (inside, args.last, args.list) {
        (Some(inside), None, false) => one(&path, &inside, as_json),
        (Some(_), ..) => Err(Failure::usage("a path in the image goes without --list and --last".to_owned())),
        (None, Some(last), _) => back(&path, last, as_json),
        (None, None, true) => list(&path, as_json),
        (None, None, false) => {
            Err(Failure::usage("say what: --list, --last N, or the path of a file as IMAGE:/PATH".to_owned()))
        }
    }
}

fn one(path: &Path, inside: &[u8], as_json: bool) -> Result<(), Failure> {
    let (image, volume) = open(path, true)?;
    let names: Vec<&[u8]> = inside.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    let shown = output::name(inside);
    let done = volume.undo_file(&names).map_err(|e| match e {
        vfs::Error::NotFound => {
            format!("{shown}: nothing of it can be undone; joulefs undo {} --list shows what can", path.display())
        }
        e => format!("{shown}: {e}"),
    });
    image.close()?;
    done?;
    match as_json {
        true => output::print(
            &json!({ "image": path.display().to_string(), "path": String::from_utf8_lossy(inside), "undone": true }),
        ),
        false => output::line(&format!("{shown}: is as it was before its last change")),
    }
    Ok(())
}

fn back(path: &Path, last: u32, as_json: bool) -> Result<(), Failure> {
    let (image, volume) = open(path, true)?;
    let there = volume.history().map_err(|e| format!("{}: {e}", path.display()))?.len();
    let done = match last as usize {
        n if n > there => Err(format!("{}: {there} changes can be undone, not {n}", path.display())),
        n => volume.undo_last(n).map_err(|e| format!("{}: {e}", path.display())),
    };
    image.close()?;
    let inodes = done?;
    match as_json {
        true => output::print(&json!({ "image": path.display().to_string(), "undone": last, "inodes": inodes })),
        false => output::line(&format!(
            "{}: {last} undone, {inodes} inodes are what they were; --last 1 undoes that",
            path.display()
        )),
    }
    Ok(())
}

fn words(event: &Event) -> Vec<(&'static str, String)> {
    let name = |path: &Option<Vec<u8>>, ino: u32| match path {
        Some(path) => String::from_utf8_lossy(path).into_owned(),
        None => format!("inode {ino}"),
    };
    event.changes.iter().map(|(what, path, ino)| (what.text(), name(path, *ino))).collect()
}

fn list(path: &Path, as_json: bool) -> Result<(), Failure> {
    check_name(path)?;
    let (_image, volume) = open(path, false)?;
    let events = volume.history().map_err(|e| format!("{}: {e}", path.display()))?;
    if as_json {
        let all: Vec<_> = events
            .iter()
            .enumerate()
            .map(|(n, e)| {
                let changes: Vec<_> =
                    words(e).into_iter().map(|(what, path)| json!({ "what": what, "path": path })).collect();
                json!({ "last": n + 1, "transaction": e.seq, "seconds": e.secs, "changes": changes })
            })
            .collect();
        output::print(&json!({ "image": path.display().to_string(), "changes": all }));
        return Ok(());
    }
    if events.is_empty() {
        output::line(&format!(
            "{}: nothing can be undone; mount it with -o undo=SIZE to keep what is replaced",
            path.display()
        ));
        return Ok(());
    }
    let columns = [table::number("").least(4), table::word("").least(16), table::word("").least(7), table::text("")];
    let mut table = Table::new(columns);
    for (n, event) in events.iter().enumerate() {
        let mut all = words(event).into_iter();
        let (what, name) = all.next().unwrap_or(("changed", "/".to_owned()));
        table.row(&[&(n + 1), &date(event.secs), &what, &name]);
        all.for_each(|(what, name)| table.row(&[&"", &"", &what, &name]));
    }
    output::lines(&table.text());
    Ok(())
}
