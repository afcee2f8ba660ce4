//! `joulefs cp`: trees between the host and images, in any direction.
//!
//! One walk over a [`Source`] feeds one [`Sink`]; host and image are both, so there are no special
//! directions. What cannot be copied is said in a line and counted, and the walk goes on; of it nothing is left
//! behind. A file whose contents are whole, but not its attributes, stays if it is nobody's place that it takes, for its
//! owner alone. A directory whose attributes cannot be read is copied without them. Only a signal ends the walk early.

mod below;
pub mod host;
mod inside;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::ProgressBar;
use serde_json::json;
use vfs::{DeviceNumber, FileKind, Timestamp};
use volume::{MountOptions, OptionError};

use crate::commands::mount::options::{meant_by, meant_by_name};
use crate::failure::one_line;
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::{Failure, output, progress};

/// Copy files into, out of and between images.
///
/// Keeps kinds, modes, times to the nanosecond, extended attributes, access lists, hard links within
/// one copy, device nodes and holes; owners too when run by root. A copy that has another owner or group is not
/// set-uid or set-gid. A file of the host that is there is replaced when its copy is whole. What cannot be read or written is named
/// in a line on standard error (in `failed` with --json); everything else is copied, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs cp -r photos disk.img:/\n  joulefs cp -r disk.img:/photos /tmp/out\n  \
    joulefs cp a.img:/x b.img:/y\n  \
    joulefs cp -r -o compress_algorithm=zstd,compress_extension=* photos disk.img:/")]
pub struct Args {
    /// What to copy: host paths or IMAGE:/path.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    from: Vec<Place>,
    /// Where to: a directory takes all in; otherwise it is the copy's name.
    #[arg(value_parser = clap::value_parser!(Place))]
    to: Place,
    /// Directories with all they hold.
    #[arg(short, long)]
    recursive: bool,
    /// Print what was written to the device, and why.
    #[arg(long)]
    stats: bool,
    /// Options of the volume that is copied to, comma-separated, as in `joulefs mount -o` (`compress_extension=*`).
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Read an image that is copied from as of its last checkpoint, without what was synced since; for one that is damaged and was
    /// not unmounted.
    #[arg(long)]
    norecovery: bool,
}

/// What is copied of a file beside its contents.
#[derive(Debug, Clone)]
pub struct Item {
    pub kind: FileKind,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub rdev: DeviceNumber,
    /// Device and inode, if it has more names than one.
    pub identity: Option<(u64, u64)>,
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Why a directory's attributes are not all in `xattrs`.
    pub amiss: Option<String>,
}

/// The bits of a mode by which a program runs as somebody else.
const SET_ID: u16 = 0o6000;
/// The bits of a mode that an access list can restrict.
const OTHERS: u16 = 0o077;

impl Item {
    /// Something that no inode stands for: this user's, empty, of no time.
    pub fn made(kind: FileKind, perm: u16) -> Self {
        Item {
            kind,
            perm,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            rdev: DeviceNumber::default(),
            identity: None,
            target: Vec::new(),
            xattrs: Vec::new(),
            amiss: None,
        }
    }
    /// The mode of a copy that belongs to `owner` and `group`. Where they are not the original's, a program must not run as
    /// somebody whom nobody chose. Where an access list may be missing, nobody gets what it may have refused.
    fn mode_for(&self, owner: u32, group: u32) -> u16 {
        let set_id = if (owner, group) == (self.uid, self.gid) { 0 } else { SET_ID };
        let others = if self.amiss.is_some() { OTHERS } else { 0 };
        self.perm & !set_id & !others
    }
    /// Access lists that the copy must not have.
    fn lists_not_had(&self) -> impl Iterator<Item = &'static [u8]> {
        let had = |list: &[u8]| self.xattrs.iter().any(|(name, _)| name == list);
        let kinds = match self.kind {
            FileKind::Symlink => 0,
            FileKind::Directory => 2,
            _ => 1,
        };
        ACCESS_LISTS.into_iter().take(kinds).filter(move |list| !had(list))
    }
}

/// What a first look at a file tells. It leaves the file's access time as it is.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    pub kind: FileKind,
    pub size: u64,
    /// Device (0: the image) and inode.
    pub file: (u64, u64),
}

/// The attributes that are access lists: a file and a directory may have taken them from the directory
/// they were made in, so where the original has none they must go.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub type Out<T> = Result<T, String>;

/// Contents being read.
pub trait Reader {
    /// The next stretch of data at or after `offset`; `None` if only holes are left.
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>>;
    /// Reads at most `buf.len()` bytes.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize>;
}

/// Where things come from. Paths are bytes with `/` between the names.
pub trait Source {
    fn glance(&self, path: &[u8]) -> Out<Glance>;
    fn item(&self, path: &[u8]) -> Out<Item>;
    /// The names in a directory, sorted. Where reading it fails: those read until then, and why.
    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>);
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>>;
}

/// Where things go.
trait Sink {
    fn kind(&self, path: &[u8]) -> Out<Option<FileKind>>;
    /// Makes a directory; one that is there serves.
    fn make_directory(&self, path: &[u8]) -> Out<()>;
    /// Makes anything but a directory.
    fn make<'s>(&'s self, path: &[u8], item: &Item) -> Out<Box<dyn Made + 's>>;
    /// Gives a file one more name; what is there gives way.
    fn link(&self, existing: &[u8], path: &[u8]) -> Out<()>;
    /// Gives a directory its owner, attributes, mode and times, last of all.
    fn finish(&self, path: &[u8], item: &Item) -> Out<()>;
}

/// A file being made. Dropped before it is placed, it is gone.
trait Made {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()>;
    fn set_size(&mut self, size: u64) -> Out<()>;
    /// Gives it its owner, attributes, mode and times.
    fn finish(&mut self, item: &Item) -> Out<()>;
    /// It is whole, and what its name leads to from now on.
    fn place(self: Box<Self>) -> Out<()>;
    /// Its contents are whole, but it could not be finished: it gets its name if that was nobody's. False if it is gone.
    fn keep(self: Box<Self>) -> bool;
}

struct Copy<'c> {
    source: &'c dyn Source,
    sink: &'c dyn Sink,
    links: HashMap<(u64, u64), Vec<u8>>,
    above: Vec<(u64, u64)>,
    bar: &'c ProgressBar,
    stop: &'c Interrupt,
    buf: Vec<u8>,
    done: &'c mut Done,
}

/// What came of a copy.
#[derive(Default)]
struct Done {
    files: u64,
    bytes: u64,
    /// What was not copied, and why.
    failed: Vec<String>,
    /// Failures are told as they happen.
    told: bool,
}

impl Done {
    fn fail(&mut self, bar: &ProgressBar, why: &str) {
        let why = one_line(why);
        if self.told {
            bar.suspend(|| output::failure(&why, false));
        }
        self.failed.push(why);
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = dir.to_vec();
    if !out.ends_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(name);
    out
}

fn base(path: &[u8]) -> Option<&[u8]> {
    path.split(|&b| b == b'/').rfind(|p| !p.is_empty() && *p != b"." && *p != b"..")
}

/// Copying ends early if somebody asks for it.
fn go_on(stop: &Interrupt) -> Out<()> {
    if stop.came() { Err("interrupted".into()) } else { Ok(()) }
}

/// Why a tree has no end.
const CONTAINS_ITSELF: &str = "this directory contains itself; run joulefs fsck";

/// Adds up what will be copied, and refuses a tree that holds the image being written, which would grow while it is
/// read. What cannot be read counts nothing: the copy says so in its place.
struct Survey<'s> {
    source: &'s dyn Source,
    bar: &'s ProgressBar,
    stop: &'s Interrupt,
    written: Option<(u64, u64)>,
    above: Vec<(u64, u64)>,
}

impl Survey<'_> {
    fn of(&mut self, path: &[u8]) -> Out<()> {
        go_on(self.stop)?;
        let Ok(item) = self.source.glance(path) else { return Ok(()) };
        match item.kind {
            FileKind::Directory if self.above.contains(&item.file) => Ok(()),
            FileKind::Directory => {
                self.above.push(item.file);
                for name in self.source.names(path).0 {
                    self.of(&join(path, &name))?;
                }
                self.above.pop();
                Ok(())
            }
            FileKind::Regular if self.written == Some(item.file) => {
                Err(format!("{}: is the image being written; move it elsewhere", String::from_utf8_lossy(path)))
            }
            FileKind::Regular => {
                self.bar.inc_length(item.size);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Copy<'_> {
    /// Copies a tree but for what fails, which is noted. Fails if it was told to stop.
    fn tree(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        let copied = self.one(from, to);
        go_on(self.stop)?;
        if let Err(why) = copied {
            self.done.fail(self.bar, &why);
        }
        Ok(())
    }

    fn one(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        go_on(self.stop)?;
        let item = self.source.item(from)?;
        if item.kind == FileKind::Directory {
            return self.directory(from, to, &item);
        }
        if let Some(first) = item.identity.and_then(|id| self.links.get(&id)) {
            self.bar.inc(item.size);
            self.sink.link(first, to)?;
            self.done.files += 1;
            return Ok(());
        }
        let mut made = self.sink.make(to, &item)?;
        if item.kind == FileKind::Regular {
            self.contents(from, &mut *made, item.size)?;
        }
        let finished = made.finish(&item);
        if finished.is_ok() {
            made.place()?;
        } else if !made.keep() {
            return finished;
        }
        if let Some(id) = item.identity {
            self.links.insert(id, to.to_vec());
        }
        self.done.files += 1;
        finished
    }

    fn directory(&mut self, from: &[u8], to: &[u8], item: &Item) -> Out<()> {
        let file = self.source.glance(from)?.file;
        if self.above.contains(&file) {
            return Err(format!("{}: {CONTAINS_ITSELF}", String::from_utf8_lossy(from)));
        }
        let (names, read) = self.source.names(from);
        if names.is_empty() {
            read.clone()?;
        }
        self.sink.make_directory(to)?;
        self.above.push(file);
        for name in names {
            self.tree(&join(from, &name), &join(to, &name))?;
        }
        self.above.pop();
        self.done.files += 1;
        let known = item.amiss.clone().map_or(Ok(()), Err);
        self.sink.finish(to, item).and(read).and(known)
    }

    fn contents(&mut self, from: &[u8], writer: &mut dyn Made, size: u64) -> Out<()> {
        let mut reader = self.source.open(from)?;
        let mut at = 0;
        while at < size {
            let Some((start, end)) = reader.next_data(at)? else {
                break;
            };
            self.bar.inc(start - at);
            at = start;
            while at < end.min(size) {
                go_on(self.stop)?;
                let want = (end.min(size) - at).min(self.buf.len() as u64) as usize;
                let n = reader.read_at(at, &mut self.buf[..want])?;
                if n == 0 {
                    return writer.set_size(at); // it shrank meanwhile
                }
                writer.write_at(at, &self.buf[..n])?;
                at += n as u64;
                self.done.bytes += n as u64;
                self.bar.inc(n as u64);
                progress::show_if_slow(self.bar);
            }
        }
        self.bar.inc(size - at.min(size));
        writer.set_size(size)
    }
}

/// Opens what is copied from, and says where in it to begin.
fn open_source(place: &Place, norecovery: bool) -> Result<(Box<dyn Source>, Vec<u8>), Failure> {
    Ok(match place {
        Place::Host(p) => (Box::new(host::Host), p.as_os_str().as_bytes().to_vec()),
        Place::Inside { image, path } => {
            (Box::new(inside::Inside::own(Image::open_to_read(image, norecovery)?)), path.clone())
        }
    })
}

/// Where a copy goes, opened once for all sources.
enum Target {
    Host(below::Below),
    Inside(inside::Inside<'static>),
}

impl Target {
    /// Opens it, and says where in it the copy goes.
    fn open(place: &Place, options: MountOptions) -> Result<(Target, Vec<u8>), Failure> {
        let p = match place {
            Place::Host(p) => p,
            Place::Inside { image, path } => {
                return Ok((Target::Inside(inside::Inside::own(Image::open_with(image, options)?)), path.clone()));
            }
        };
        let fail = |e: std::io::Error| format!("{}: {e}", p.display());
        match std::fs::metadata(p) {
            // A symlink that a person names as target directory is meant; those found below are not.
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
            "{}: no place inside an image is named; write IMAGE:/path",
            args.to.text()
        )));
    }
    if (args.stats || !args.options.is_empty()) && matches!(args.to, Place::Host(_)) {
        let option = if args.stats { "--stats" } else { "-o" };
        return Err(Failure::usage(format!(
            "{option}: {} is no place inside an image, so that nothing is written to one",
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
        return Err(Failure::usage(format!(
            "{}: copying within one image is not done here; mount it and use cp",
            args.to.text()
        )));
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
        // Nothing was copied, for one reason.
        if let (0, [why]) = (done.files, &done.failed[..]) {
            return Err(Failure::Failed(why.clone()));
        }
        let written = statistics.map(|s| s.json());
        let Done { files, bytes, failed, .. } = &done;
        output::print(&json!({ "files": files, "bytes": bytes, "failed": failed, "written": written }));
    } else if let Some(s) = statistics.filter(|_| args.stats) {
        output::line(&s.table());
    }
    Ok(if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn copy_all(args: &Args, target: &Target, to: &[u8], stop: &Interrupt, done: &mut Done) -> Result<(), Failure> {
    let there = target.sink().kind(to)?;
    let into_dir = there == Some(FileKind::Directory);
    // What is there gives way to a copy, which nobody wants of a device or a pipe.
    if matches!(args.to, Place::Host(_)) && !matches!(there, None | Some(FileKind::Directory | FileKind::Regular)) {
        return Err(format!("{}: no regular file; joulefs cat writes to pipes and devices", args.to.text()).into());
    }
    if args.from.len() > 1 && !into_dir {
        return Err(format!("{}: not a directory, and there are several things to copy", args.to.text()).into());
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

/// Copies a tree that is neither the host's nor a volume's into a directory of the host. What could not be copied is
/// returned, and told unless the answer is for machines.
pub fn copy_tree(source: &dyn Source, to: &Path, stop: &Interrupt, as_json: bool) -> Result<Vec<String>, Failure> {
    let mut done = Done { told: !as_json, ..Done::default() };
    let bar = progress::bytes(0, "copying");
    // Nobody else looks in before it is finished.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(to).and_then(|()| std::fs::canonicalize(to));
    let to = made.map_err(|e| format!("{}: {e}", to.display()))?;
    Survey { source, bar: &bar, stop, written: None, above: Vec::new() }.of(b"/")?;
    let sink = &below::Below::open(&to)?;
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let mut copy = Copy { source, sink, links, above: Vec::new(), bar: &bar, stop, buf, done: &mut done };
    let copied = copy.tree(b"/", b"/");
    bar.finish_and_clear();
    stop.end();
    copied?;
    Ok(done.failed)
}

/// What came of filling a volume.
pub struct Filled {
    pub files: u64,
    pub bytes: u64,
    /// What was not copied, and why.
    pub failed: Vec<String>,
    /// It was for want of room.
    pub is_full: bool,
}

/// Copies a tree into the root of a mounted image, owners and all. `written` is the image's file, which must not be in the tree.
/// What fails is not told.
pub fn fill(
    source: &dyn Source,
    image: &Image,
    written: Option<(u64, u64)>,
    stop: &Interrupt,
) -> Result<Filled, Failure> {
    let mut done = Done::default();
    let bar = progress::bytes(0, "copying");
    Survey { source, bar: &bar, stop, written, above: Vec::new() }.of(b"/")?;
    let sink = inside::Inside { image: inside::Cow::Lent(image), owners: true };
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    let mut copy = Copy { source, sink: &sink, links, above: Vec::new(), bar: &bar, stop, buf, done: &mut done };
    let copied = copy.tree(b"/", b"/");
    bar.finish_and_clear();
    copied?;
    let full = vfs::Error::NoSpace.to_string();
    let is_full = done.failed.iter().any(|why| why.ends_with(&full));
    Ok(Filled { files: done.files, bytes: done.bytes, failed: done.failed, is_full })
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
    let (source, from) = open_source(place, args.norecovery)?;
    let source = &*source;
    if source.glance(&from)?.kind == FileKind::Directory && !args.recursive {
        return Err(format!("{}: is a directory; give -r to copy it with all it holds", place.text()).into());
    }
    Survey { source, bar, stop, written, above: Vec::new() }.of(&from)?;
    // A root has no name of its own: its contents go where they shall.
    let target = match base(&from) {
        Some(name) if into_dir => join(to, name),
        _ => to.to_vec(),
    };
    let (links, buf) = (HashMap::new(), vec![0; 1 << 20]);
    Ok(Copy { source, sink, links, above: Vec::new(), bar, stop, buf, done }.tree(&from, &target)?)
}
