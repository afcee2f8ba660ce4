//! Files of an image or a mounted volume: which are fragmented, where are their blocks, and how are these moved?
//!
//! An image is mounted inside this process while the command runs; `inspect` finds fragmented files by reading the
//! device. A mounted volume is queried through attributes of its files (`fuse::control`).

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fuse::control::{DEFRAGMENT, EXTENTS, MOST, REPORT, ROOM, STEP};
use inspect::file::Extent;
use inspect::inode::Kind;
use inspect::treatment::Run;
use inspect::{Progress, Volume as Seen};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vfs::{Ino, Moving, Room};

use crate::image::{self, Image};
use crate::interrupt::Interrupt;
use crate::output::plain;
use crate::{Failure, progress};

/// A file to defragment.
pub struct Found {
    /// Its path in the volume, for display and comparison.
    pub path: String,
    /// Its inode, in an image.
    ino: Ino,
    /// Its path on the host, in a mounted volume.
    place: PathBuf,
}

/// The source of the files.
pub enum Files {
    /// An image, mounted by this command.
    Image(Box<Image>),
    /// The directory of a mounted volume.
    Mounted(PathBuf),
}

/// Maximum size of an attribute's value in Linux.
const VALUE: usize = 64 * 1024;

/// The files with the most excess extents, at most `n`, and messages about files and directories of a mount that could
/// not be examined. An image is examined before it is mounted.
pub fn worst(source: &Path, n: usize, stop: &Interrupt) -> Result<(Vec<Found>, Vec<String>), Failure> {
    if !source.is_dir() {
        return Ok((worst_of_image(source, n, stop)?, Vec::new()));
    }
    // Refuses a directory of another file system before its files are queried.
    Files::open(source, false)?;
    worst_below(source, n, stop)
}

impl Files {
    /// Opens an image, writable only if blocks are to be moved, or checks a directory.
    pub fn open(source: &Path, write: bool) -> Result<Self, Failure> {
        if !source.is_dir() {
            let image = Image::open(source, write)?;
            image.f2fs("joulefs clean")?;
            return Ok(Files::Image(Box::new(image)));
        }
        let mut bytes = vec![0; VALUE];
        rustix::fs::getxattr(source, REPORT, &mut bytes[..]).map_err(|e| match e {
            Errno::NODATA | Errno::OPNOTSUPP => {
                format!("{}: not a JouleFS mount point", source.display())
            }
            e => format!("{}: {e}", source.display()),
        })?;
        Ok(Files::Mounted(source.to_owned()))
    }

    /// A file by its path in the volume.
    pub fn named(&self, path: &Path) -> Result<Found, Failure> {
        let parts = path.components();
        let names: Vec<&OsStr> = parts
            .filter_map(|part| match part {
                Component::Normal(name) => Some(Ok(name)),
                Component::RootDir | Component::CurDir => None,
                _ => Some(Err(Failure::usage(format!("--defrag {}: write a path without ..", path.display())))),
            })
            .collect::<Result<_, _>>()?;
        let inside = names.iter().fold(Vec::new(), |all, name| [&all, &b"/"[..], name.as_bytes()].concat());
        let shown = if inside.is_empty() { "/".to_owned() } else { plain(&String::from_utf8_lossy(&inside)) };
        match self {
            Files::Image(image) => {
                let found = vfs::path::walk(&*image.vol, &inside)
                    .map_err(|e| format!("{}: {shown}: {e}", image.path().display()))?;
                Ok(Found { path: shown, ino: found.ino(), place: PathBuf::new() })
            }
            Files::Mounted(dir) => {
                let place = names.iter().fold(dir.clone(), |at, name| at.join(name));
                fs::symlink_metadata(&place).map_err(|e| format!("{}: {e}", place.display()))?;
                Ok(Found { path: shown, ino: Ino(0), place })
            }
        }
    }

    /// Why a file cannot be moved, in words; `None` if it can.
    pub fn why_not(&self, file: &Found) -> Result<Option<String>, String> {
        match self {
            Files::Image(image) => match image.vol.defragment(file.ino, 0..0, Moving::Copy) {
                // The mount is read-only only here.
                Ok(_) | Err(vfs::Error::ReadOnly) => Ok(None),
                Err(vfs::Error::NotPermitted(why) | vfs::Error::Invalid(why) | vfs::Error::Busy(why)) => {
                    Ok(Some(why.to_owned()))
                }
                Err(e) => Err(e.to_string()),
            },
            Files::Mounted(_) => match attribute(&file.place, DEFRAGMENT)? {
                why if why.is_empty() => Ok(None),
                why => Ok(Some(why)),
            },
        }
    }

    /// Current extents of a file.
    pub fn runs(&self, file: &Found) -> Result<Vec<Run>, String> {
        match self {
            Files::Image(image) => {
                let all = image.vol.extents(file.ino, 0, usize::MAX).map_err(|e| e.to_string())?;
                Ok(all.into_iter().map(|e| run(e.from, e.addr, e.blocks, e.begins)).collect())
            }
            Files::Mounted(_) => runs_at(&file.place),
        }
    }

    /// Defragments a file; returns the number of blocks moved. `go_on` receives the number and may stop it.
    pub fn bring_together(
        &self,
        file: &Found,
        blocks: Range<u64>,
        how: Moving,
        go_on: &dyn Fn(u64) -> bool,
    ) -> Result<u64, String> {
        let (mut at, mut moved) = (blocks.start, 0);
        while at < blocks.end {
            let (next, n) = match self {
                Files::Image(image) => {
                    image.vol.defragment(file.ino, at..blocks.end, how).map_err(|e| e.to_string())?
                }
                Files::Mounted(_) => {
                    let next = blocks.end.min(at + STEP);
                    let how = if how == Moving::Share { "share" } else { "copy" };
                    let asked = format!("{at} {next} {how}");
                    rustix::fs::lsetxattr(&file.place, DEFRAGMENT, asked.as_bytes(), XattrFlags::empty())
                        .map_err(|e| refusal(&file.place, e))?;
                    (next, next - at)
                }
            };
            at = next;
            moved += n;
            if !go_on(n) && at < blocks.end {
                return Err("interrupted".to_owned());
            }
        }
        Ok(moved)
    }

    /// The free space missing for `blocks` contiguous blocks.
    pub fn room(&self, blocks: u64) -> Result<Room, String> {
        match self {
            Files::Image(image) => image.vol.room(blocks, false).map_err(|e| e.to_string()),
            Files::Mounted(dir) => {
                let text = attribute(dir, &format!("{ROOM}.{blocks}"))?;
                let mut words = text.split(' ').map(|w| w.parse::<u64>().ok());
                match (words.next().flatten(), words.next().flatten()) {
                    (Some(short), Some(moves)) => Ok(Room { short, moves, moved: 0 }),
                    _ => Err(format!("unexpected answer from the mount: {text}")),
                }
            }
        }
    }

    /// Cleans sections until `blocks` can be contiguous; returns the number of blocks moved. `go_on` may stop it.
    pub fn make_room(&self, blocks: u64, go_on: &dyn Fn(u64) -> bool) -> Result<u64, String> {
        let moved = |files: &Self| match files {
            Files::Image(image) => {
                image.f2fs("cleaning").map(|vol| vol.counters.moved_blocks()).map_err(|e| e.text().to_owned())
            }
            Files::Mounted(dir) => moved_by(dir),
        };
        let before = moved(self)?;
        let (mut least, mut in_vain) = (u64::MAX, 0);
        loop {
            let short = self.room(blocks)?.short;
            if short == 0 {
                return Ok(moved(self)? - before);
            }
            // Cleaning moves blocks before it frees segments; without progress for long it will not succeed.
            in_vain = if short < least { 0 } else { in_vain + 1 };
            least = least.min(short);
            if in_vain == 16 {
                return Err(format!("cleaning cannot free enough sections: {short} more are needed"));
            }
            match self {
                Files::Image(image) => image.vol.room(blocks, true).map(drop).map_err(|e| e.to_string())?,
                Files::Mounted(dir) => {
                    let name = format!("{ROOM}.{blocks}");
                    rustix::fs::lsetxattr(dir, &name, b"clean", XattrFlags::empty()).map_err(|e| e.to_string())?;
                }
            }
            if !go_on(0) {
                return Err("interrupted".to_owned());
            }
        }
    }

    /// Makes all changes durable.
    pub fn close(&self) -> Result<(), Failure> {
        match self {
            Files::Image(image) => image.close(),
            Files::Mounted(dir) => {
                let dir = fs::File::open(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                Ok(rustix::fs::syncfs(&dir).map_err(|e| format!("syncfs: {e}"))?)
            }
        }
    }
}

fn run(from: u64, addr: u64, blocks: u64, begins: bool) -> Run {
    (Extent { from, addr, blocks }, begins)
}

fn refusal(place: &Path, e: Errno) -> String {
    let said = match e {
        Errno::PERM | Errno::ACCESS => Some("only root and the user who mounted the volume may move blocks".to_owned()),
        Errno::NODATA | Errno::OPNOTSUPP => {
            Some("not a file on a JouleFS mount, or its device does not support it".to_owned())
        }
        // Another attribute has the error message.
        Errno::BUSY | Errno::INVAL => attribute(place, DEFRAGMENT).ok().filter(|why| !why.is_empty()),
        _ => None,
    };
    said.unwrap_or_else(|| e.to_string())
}

/// An attribute's value. A symlink is not followed.
fn attribute(place: &Path, name: &str) -> Result<String, String> {
    let mut bytes = vec![0; VALUE];
    match rustix::fs::lgetxattr(place, name, &mut bytes[..]) {
        Ok(n) => Ok(String::from_utf8_lossy(&bytes[..n]).into_owned()),
        Err(Errno::PERM | Errno::ACCESS) => {
            Err("only root and the user who mounted the volume may read the layout of a file".to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Blocks moved by cleaning on a mounted volume.
fn moved_by(dir: &Path) -> Result<u64, String> {
    let report = attribute(dir, REPORT)?;
    let count = |name: &str| {
        report.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(count("moved_blocks_background") + count("moved_blocks_foreground"))
}

fn runs_at(place: &Path) -> Result<Vec<Run>, String> {
    let mut out: Vec<Run> = Vec::new();
    loop {
        let from = out.last().map_or(0, |(e, _)| e.from + e.blocks);
        let text = attribute(place, &format!("{EXTENTS}.{from}"))?;
        let before = out.len();
        for line in text.lines() {
            let mut words = line.split(' ').map(|w| w.parse::<u64>().ok());
            let mut next = || words.next().flatten().ok_or_else(|| format!("unexpected answer from the mount: {line}"));
            let (from, addr, blocks, begins) = (next()?, next()?, next()?, next()?);
            // The first extent of an answer looks like a new fragment, because its predecessor is in the previous
            // answer.
            let goes_on = out.len() == before && out.last().is_some_and(|(e, _)| e.from + e.blocks == from);
            out.push(run(from, addr, blocks, begins == 1 && !goes_on));
        }
        if out.len() - before < MOST {
            return Ok(out);
        }
    }
}

fn worst_of_image(path: &Path, n: usize, stop: &Interrupt) -> Result<Vec<Found>, Failure> {
    let dev = image::open_device(path, false)?;
    image::only_f2fs(&*dev, path, "joulefs clean")?;
    let bar = progress::steps(Seen::steps(&*dev), "looking");
    let mut tell = |blocks| {
        bar.inc(blocks);
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let seen = Seen::read(&*dev, &inspect::Options::default(), &mut Progress::new(&mut tell));
    bar.finish_and_clear();
    let seen = seen.map_err(|e| format!("{}: {e}", path.display()))?;
    let mut torn: Vec<&inspect::File> =
        seen.files.iter().filter(|f| f.kind == Kind::File && f.excess() > 0 && f.links > 0).collect();
    torn.sort_by_key(|f| std::cmp::Reverse((f.excess(), f.layout.span)));
    let found = torn.into_iter().take(n).map(|f| Found {
        path: plain(&seen.path(f).text()),
        ino: Ino(f.ino.0.into()),
        place: PathBuf::new(),
    });
    Ok(found.collect())
}

fn worst_below(root: &Path, n: usize, stop: &Interrupt) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let named = |at: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", at.display());
    let device = fs::metadata(root).map_err(|e| named(root, &e))?.dev();
    fs::read_dir(root).map_err(|e| named(root, &e))?;
    let mut unread = Vec::new();
    let mut torn: Vec<(u64, PathBuf)> = Vec::new();
    let mut waiting = vec![root.to_owned()];
    let mut seen = std::collections::HashSet::new();
    while let Some(dir) = waiting.pop() {
        if stop.came() {
            return Err("interrupted".into());
        }
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => {
                unread.push(named(&dir, &e));
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    unread.push(named(&dir, &e));
                    break;
                }
            };
            // Skip entries that disappear meanwhile.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != device || meta.nlink() > 1 && !meta.is_dir() && !seen.insert(meta.ino()) {
                continue;
            }
            if meta.is_dir() {
                waiting.push(entry.path());
            } else if meta.is_file() {
                let runs = match runs_at(&entry.path()) {
                    Err(e) if entry.path().exists() => {
                        unread.push(named(&entry.path(), &e));
                        continue;
                    }
                    runs => runs.unwrap_or_default(),
                };
                let excess = runs.windows(2).filter(|w| !w[1].1 && w[0].0.addr + w[0].0.blocks != w[1].0.addr).count();
                if excess > 0 {
                    torn.push((excess as u64, entry.path()));
                }
            }
        }
    }
    torn.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    let found = torn.into_iter().take(n).map(|(_, place)| {
        let inside = place.strip_prefix(root).unwrap_or(&place).as_os_str().to_owned().into_vec();
        Found { path: plain(&format!("/{}", String::from_utf8_lossy(&inside))), ino: Ino(0), place }
    });
    Ok((found.collect(), unread))
}
