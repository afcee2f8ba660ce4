//! `joulefs cp`: trees between the host and images, in any direction.
//!
//! One walk over a [`Source`] feeds one [`Sink`]; host and image are both, so there are no special directions. A file
//! that cannot be copied is reported in one line and counted, its partial copy is removed, and the walk goes on. A copy
//! with complete contents but incomplete attributes is kept if it replaces no existing file, with permissions for its
//! owner only. A directory whose attributes cannot be read is copied without them. Only a signal ends the walk early.

mod ahead;
mod below;
mod descent;
pub mod host;
mod inside;
mod item;
mod survey;
#[cfg(test)]
mod tests;
mod walk;
mod way;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::ProgressBar;
use serde_json::json;
use vfs::FileKind;
use volume::{MountOptions, OptionError};

use crate::bounded::Allowance;
use crate::commands::mount::options::{meant_by, meant_by_name};
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output, progress};
use item::Sink;
pub use item::{Glance, Item, Out, Reader, Source, join};
use survey::Survey;
pub use survey::survey;
use walk::{Copy, Done, base};
pub use walk::{Filled, copy_out, copy_tree, fill};

/// Copy files into, out of and between images.
///
/// Keeps file types, modes, times to the nanosecond, extended attributes, access lists, hard links within one copy,
/// device nodes and holes, and owners if run by root. A copy with another owner or group loses its set-uid and set-gid
/// bits. An existing host file is replaced only after its copy is complete. Each file that cannot be read or written
/// is named on standard error (in `failed` with --json); the others are copied, and the exit code is 1.
///
/// A copy out of an image writes no more than the volume can hold, unless --really is given. On the host, a copy stops
/// when only 1 % of the file system (at most 256 MiB) is free, and leaves no partial file.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs cp -r photos disk.img:/\n  joulefs cp -r disk.img:/photos /tmp/out\n  \
    joulefs cp a.img:/x b.img:/y\n  \
    joulefs cp -r -o compress_algorithm=zstd,compress_extension=* photos disk.img:/")]
pub struct Args {
    /// Sources: host paths or IMAGE:/path.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    from: Vec<Place>,
    /// Target: an existing directory, which receives the copies, or the name of the copy.
    #[arg(value_parser = clap::value_parser!(Place))]
    to: Place,
    /// Copy directories recursively.
    #[arg(short, long)]
    recursive: bool,
    /// Print the blocks written to the device, by cause.
    #[arg(long)]
    stats: bool,
    /// Options of the target volume, comma-separated, as in `joulefs mount -o` (`compress_extension=*`).
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    #[command(flatten)]
    reading: Reading,
    /// Copy more than the source volume can hold; for compressed files and files that share blocks.
    #[arg(long)]
    really: bool,
}

/// All of an image that another part of the program has mounted, as a source.
pub fn whole(image: &Image) -> inside::Inside<'_> {
    inside::Inside::lent(image, false)
}

/// Opens a source, and returns the path in it to start from.
fn open_source(place: &Place, reading: Reading) -> Result<(Box<dyn Source>, Vec<u8>), Failure> {
    Ok(match place {
        Place::Host(p) => {
            let root = p.as_os_str().as_bytes().to_vec();
            (Box::new(host::Host::new(&root)), root)
        }
        Place::Inside { image, path } => {
            (Box::new(inside::Inside::own(Image::open_to_read(image, reading)?)), path.clone())
        }
    })
}

/// The destination of a copy, opened once for all sources.
enum Target {
    Host(below::Below),
    Inside(inside::Inside<'static>),
}

impl Target {
    /// Opens the destination, and returns the path in it to copy to.
    fn open(place: &Place, options: MountOptions) -> Result<(Target, Vec<u8>), Failure> {
        let p = match place {
            Place::Host(p) => p,
            Place::Inside { image, path } => {
                return Ok((Target::Inside(inside::Inside::own(Image::open_with(image, options)?)), path.clone()));
            }
        };
        let fail = |e: std::io::Error| format!("{}: {e}", p.display());
        match std::fs::metadata(p) {
            // A symlink given as target directory is followed; symlinks below it are not.
            Ok(m) if m.is_dir() => {
                let real = std::fs::canonicalize(p).map_err(fail)?;
                Ok((Target::Host(below::Below::open(&real)?), b"/".to_vec()))
            }
            Err(e) if e.kind() != ErrorKind::NotFound => Err(fail(e).into()),
            _ => {
                let name = p.file_name().ok_or_else(|| fail(ErrorKind::NotFound.into()))?;
                let above = p.parent().unwrap_or(Path::new(""));
                Ok((Target::Host(below::Below::open(above)?), join(b"/", name.as_bytes())))
            }
        }
    }
    fn sink(&self) -> &dyn Sink {
        match self {
            Target::Host(below) => below,
            Target::Inside(inside) => inside,
        }
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let all = || args.from.iter().chain([&args.to]);
    if all().all(|p| matches!(p, Place::Host(_))) {
        return Err(Failure::usage(format!(
            "{}: neither source nor target is inside an image; write IMAGE:/path",
            args.to.text()
        )));
    }
    if (args.stats || !args.options.is_empty()) && matches!(args.to, Place::Host(_)) {
        let option = if args.stats { "--stats" } else { "-o" };
        return Err(Failure::usage(format!(
            "{option}: the target {} is not inside an image; write IMAGE:/path",
            args.to.text()
        )));
    }
    let image_of = |p: &Place| -> Option<PathBuf> {
        match p {
            Place::Inside { image, .. } => std::fs::canonicalize(image).ok(),
            Place::Host(_) => None,
        }
    };
    if let Some(target) = image_of(&args.to)
        && args.from.iter().any(|f| image_of(f).as_ref() == Some(&target))
    {
        return Err(Failure::usage(format!("{}: cannot copy within one image; mount it and use cp", args.to.text())));
    }
    let mut options = MountOptions::default();
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        options.set(name, value).map_err(|e| match e {
            OptionError::Unknown(_) => {
                let tip = meant_by_name(name);
                Failure::usage(format!("-o {option}: {e}{tip}; see joulefs mount --help"))
            }
            OptionError::Value(_) => Failure::usage(format!("-o {option}: {e}{}", meant_by(name, value))),
        })?;
    }
    let (target, to) = Target::open(&args.to, options)?;
    let stop = Interrupt::catch()?;
    let mut done = Done { told: !as_json, ..Done::default() };
    let out = copy_all(args, &target, &to, &stop, &mut done);
    let mut statistics = None;
    if let Target::Inside(i) = &target {
        i.image.close()?;
        statistics = Some(i.image.statistics());
    }
    stop.end();
    out?;
    if as_json {
        // Nothing was copied, for a single reason.
        if let (0, [why]) = (done.files, &done.failed[..]) {
            return Err(Failure::Failed(why.clone()));
        }
        let written = statistics.map(|s| s.json());
        let Done { files, bytes, failed, .. } = &done;
        output::print(&json!({ "files": files, "bytes": bytes, "failed": failed, "written": written }));
    } else if let Some(s) = statistics.filter(|_| args.stats) {
        output::lines(&s.table());
    }
    Ok(if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn copy_all(args: &Args, target: &Target, to: &[u8], stop: &Interrupt, done: &mut Done) -> Result<(), Failure> {
    let there = target.sink().kind(to)?;
    let into_dir = there == Some(FileKind::Directory);
    // A copy replaces the existing file, which would be wrong for a device or a pipe.
    if matches!(args.to, Place::Host(_)) && !matches!(there, None | Some(FileKind::Directory | FileKind::Regular)) {
        return Err(format!("{}: not a regular file; joulefs cat writes to pipes and devices", args.to.text()).into());
    }
    if args.from.len() > 1 && !into_dir {
        return Err(format!("{}: not a directory, but there are several sources", args.to.text()).into());
    }
    let written = match &args.to {
        Place::Inside { image, .. } => {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(image).ok().map(|m| (m.dev(), m.ino()))
        }
        Place::Host(_) => None,
    };
    let bar = progress::bytes(0, "copying");
    for place in &args.from {
        let copied = copy_place(args, place, (target.sink(), to, into_dir), &bar, stop, written, done);
        match copied {
            Err(Failure::Failed(why)) if args.from.len() > 1 && !stop.came() => done.fail(&bar, &why),
            other => other?,
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Copies one source into the sink, as its root or into it.
fn copy_place(
    args: &Args,
    place: &Place,
    (sink, to, into_dir): (&dyn Sink, &[u8], bool),
    bar: &ProgressBar,
    stop: &Interrupt,
    written: Option<(u64, u64)>,
    done: &mut Done,
) -> Result<(), Failure> {
    let (source, from) = open_source(place, args.reading)?;
    let source = &*source;
    if source.glance(&from)?.kind == FileKind::Directory && !args.recursive {
        return Err(format!("{}: is a directory; give -r to copy it recursively", place.text()).into());
    }
    Survey { each: &mut |_, _, _| Ok(()), source, bar, stop, written }.of(&from)?;
    // A root has no name: its contents go directly into the target.
    let target = match base(&from) {
        Some(name) if into_dir => join(to, name),
        _ => to.to_vec(),
    };
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let allowance = Allowance::new(source.holds(), args.really);
    Ok(Copy { source, sink, links, bar, stop, allowance, buf, done }.tree(&from, &target)?)
}
