//! `joulefs rm`, `mkdir`, `mv`: how are names inside an image removed, created and renamed?
//!
//! An image is mounted and unmounted for each place, so that a failure does not affect the places before it.

use std::path::Path;

use vfs::{Caller, FileKind, FileSystem, Ino, RenameFlags, path};

use super::ls::names;
use serde_json::{Value, json};

use crate::image::Image;
use crate::place::Place;
use crate::{Failure, output};

/// Remove files inside an image.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs rm -r disk.img:/old disk.img:/tmp/x")]
pub struct RmArgs {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    /// Remove directories recursively.
    #[arg(short, long)]
    recursive: bool,
    /// Ignore missing files.
    #[arg(short, long)]
    force: bool,
}

/// Make directories inside an image.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs mkdir -p disk.img:/a/b/c")]
pub struct MkdirArgs {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    /// Make missing parents too; existing directories are not an error.
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal.
    #[arg(short, long, default_value = "755", value_parser = octal)]
    mode: u16,
}

/// Move or rename files inside one image.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs mv disk.img:/a.txt disk.img:/dir/b.txt")]
pub struct MvArgs {
    /// IMAGE:/path of the file.
    #[arg(value_parser = clap::value_parser!(Place))]
    from: Place,
    /// IMAGE:/path of the new name, or of a directory to move it into.
    #[arg(value_parser = clap::value_parser!(Place))]
    to: Place,
    /// Fail if the target exists.
    #[arg(short, long)]
    no_clobber: bool,
}

fn octal(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777).ok_or_else(|| "not an octal mode".into())
}

/// The caller for these commands.
pub fn caller() -> Caller {
    // This process never changes its user.
    static WHO: std::sync::LazyLock<Caller> = std::sync::LazyLock::new(|| Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    });
    *WHO
}

/// Runs `f` on each place, unmounting each image cleanly.
fn each(places: &[Place], mut f: impl FnMut(&Image, &[u8]) -> vfs::Result<()>) -> Result<(), Failure> {
    for place in places {
        let (image, at) = place.inside()?;
        let image = Image::open(image, true)?;
        let out = f(&image, at).map_err(|e| format!("{}: {e}", place.text()));
        image.close()?;
        out?;
    }
    Ok(())
}

fn texts(places: &[Place]) -> Vec<Value> {
    places.iter().map(|p| json!(p.raw())).collect()
}

/// Runs `rm`.
pub fn rm(args: &RmArgs, as_json: bool) -> Result<(), Failure> {
    each(&args.places, |image, at| {
        let fs = &*image.vol;
        let out = path::walk_parent(fs, at).and_then(|(parent, name)| {
            let found = path::walk(fs, at)?;
            let dir = fs.getattr(found.ino())?.kind == FileKind::Directory;
            if dir && !args.recursive {
                return Err(vfs::Error::IsDirectory);
            }
            let ino = found.ino();
            drop(found);
            remove(fs, parent.ino(), name, ino, dir, &mut Vec::new())
        });
        match out {
            Err(vfs::Error::NotFound) if args.force => Ok(()),
            other => other,
        }
    })?;
    output::done(as_json, &json!({ "removed": texts(&args.places) }));
    Ok(())
}

/// Removes a name and everything below it. `above` are the ancestor directories: on a damaged volume a directory may
/// contain itself, and must not be followed forever.
fn remove(fs: &dyn FileSystem, parent: Ino, name: &[u8], ino: Ino, dir: bool, above: &mut Vec<Ino>) -> vfs::Result<()> {
    if !dir {
        return fs.unlink(parent, name);
    }
    if above.contains(&ino) {
        return Err(vfs::Error::Invalid("a directory contains itself; run joulefs fsck"));
    }
    above.push(ino);
    for (below, ino_below, kind) in names(fs, ino)? {
        remove(fs, ino, &below, ino_below, kind == FileKind::Directory, above)?;
    }
    above.pop();
    fs.rmdir(parent, name)
}

/// Runs `mkdir`.
pub fn mkdir(args: &MkdirArgs, as_json: bool) -> Result<(), Failure> {
    each(&args.places, |image, at| {
        let fs = &*image.vol;
        let parts: Vec<&[u8]> = at.split(|&b| b == b'/').filter(|p| !p.is_empty()).collect();
        if parts.is_empty() && !args.parents {
            return Err(vfs::Error::Exists);
        }
        let mut dir = fs.root();
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            dir = match fs.lookup(dir, part) {
                Ok(e) if e.attr.kind != FileKind::Directory => {
                    return Err(vfs::Error::NotDirectory);
                }
                Ok(_) if last && !args.parents => return Err(vfs::Error::Exists),
                Ok(e) => e.attr.ino,
                Err(vfs::Error::NotFound) if last || args.parents => {
                    let mode = if last { args.mode } else { 0o755 };
                    fs.mkdir(caller(), dir, part, mode, 0)?.attr.ino
                }
                Err(e) => return Err(e),
            };
        }
        Ok(())
    })?;
    output::done(as_json, &json!({ "made": texts(&args.places) }));
    Ok(())
}

/// Runs `mv`.
pub fn mv(args: &MvArgs, as_json: bool) -> Result<(), Failure> {
    let (image, from) = args.from.inside()?;
    let (other, to) = args.to.inside()?;
    // Two paths may name the same image.
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if real(image) != real(other) {
        return Err(Failure::usage(format!(
            "{}: in another image; copy with joulefs cp and remove the original",
            args.to.text()
        )));
    }
    let image = Image::open(image, true)?;
    let fs = &*image.vol;
    let out = (|| {
        let (from_dir, from_name) = path::walk_parent(fs, from)?;
        let flags = if args.no_clobber { RenameFlags::NO_REPLACE } else { RenameFlags::empty() };
        let into = path::walk(fs, to).ok().filter(|f| fs.getattr(f.ino()).is_ok_and(|a| a.kind == FileKind::Directory));
        match into {
            Some(dir) => fs.rename(caller(), (from_dir.ino(), from_name), (dir.ino(), from_name), flags),
            None => {
                let (to_dir, to_name) = path::walk_parent(fs, to)?;
                fs.rename(caller(), (from_dir.ino(), from_name), (to_dir.ino(), to_name), flags)
            }
        }
    })()
    .map_err(|e: vfs::Error| format!("{} to {}: {e}", args.from.text(), args.to.text()));
    image.close()?;
    out?;
    output::done(as_json, &json!({ "from": args.from.raw(), "to": args.to.raw() }));
    Ok(())
}
