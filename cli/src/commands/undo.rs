//! `joulefs undo`: lists what can be undone, and undoes it.

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
/// A log does not overwrite the data that it replaces. A volume mounted with `-o undo=SIZE` keeps the latest SIZE
/// bytes of replaced data. --list shows the changes that can be undone, --last N undoes the last N of them on the
/// whole volume, and IMAGE:/PATH restores one file's contents from before its last change, or a deleted file. Moves by
/// cleaning are not listed.
///
/// An undo is written to the log as one transaction: after a power cut it is either done or not, and it can be undone
/// too. The volume must not be mounted.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs mount archive.img /mnt -o undo=256M\n  joulefs undo archive.img --list\n  \
    joulefs undo archive.img:/letters/to-anna.txt\n  joulefs undo archive.img --last 3"
)]
pub struct Args {
    /// The image or block device; not mounted. With a path inside it: only this file.
    #[arg(value_name = "IMAGE[:/PATH]")]
    place: PathBuf,
    /// List the changes that can be undone, latest first.
    #[arg(long, short, conflicts_with = "last")]
    list: bool,
    /// Undo the last N changes of the volume.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
}

/// The image and its volume.
fn open(path: &Path, write: bool) -> Result<(Image, Arc<scherlfs::Volume>), Failure> {
    let image = Image::open_with(path, MountOptions::default().read_only(!write))?;
    let volume = match image.mounted() {
        Mounted::ScherlFs(volume) => volume.clone(),
        Mounted::F2fs(_) => {
            let why = "an F2FS volume; undo is for ScherlFS";
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
        (Some(inside), None, false) => undo_file(&path, &inside, as_json),
        (Some(_), ..) => Err(Failure::usage(
            "a path inside the image cannot be combined with --list or \
            --last"
                .to_owned(),
        )),
        (None, Some(last), _) => back(&path, last, as_json),
        (None, None, true) => list(&path, as_json),
        (None, None, false) => {
            Err(Failure::usage("give --list, --last N, or the path of a file as IMAGE:/PATH".to_owned()))
        }
    }
}

fn undo_file(path: &Path, inside: &[u8], as_json: bool) -> Result<(), Failure> {
    let (image, volume) = open(path, true)?;
    let names: Vec<&[u8]> = inside.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    let shown = output::name(inside);
    let done = volume.undo_file(&names).map_err(|e| match e {
        vfs::Error::NotFound => {
            format!("{shown}: has no change that can be undone; joulefs undo {} --list shows all", path.display())
        }
        e => format!("{shown}: {e}"),
    });
    image.close()?;
    done?;
    match as_json {
        true => output::print(
            &json!({ "image": path.display().to_string(), "path": String::from_utf8_lossy(inside), "undone": true }),
        ),
        false => output::line(&format!("{shown}: restored to the state before its last change")),
    }
    Ok(())
}

fn back(path: &Path, last: u32, as_json: bool) -> Result<(), Failure> {
    let (image, volume) = open(path, true)?;
    let there = volume.history().map_err(|e| format!("{}: {e}", path.display()))?.len();
    let done = match last as usize {
        n if n > there => Err(format!("{}: only {there} changes can be undone, not {n}", path.display())),
        n => volume.undo_last(n).map_err(|e| format!("{}: {e}", path.display())),
    };
    image.close()?;
    let inodes = done?;
    match as_json {
        true => output::print(&json!({ "image": path.display().to_string(), "undone": last, "inodes": inodes })),
        false => {
            output::line(&format!("{}: {last} undone, {inodes} inodes restored; --last 1 undoes that", path.display()))
        }
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
                json!({ "last": n + 1, "transaction": e.seq, "time": format!("{}.000000000", e.secs), "changes": changes })
            })
            .collect();
        output::print(&json!({ "image": path.display().to_string(), "changes": all }));
        return Ok(());
    }
    if events.is_empty() {
        output::line(&format!(
            "{}: nothing can be undone; mount it with -o undo=SIZE to keep replaced data",
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
