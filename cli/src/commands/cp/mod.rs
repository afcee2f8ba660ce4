//! `joulefs cp`: trees between the host and images, in any direction.
//!
//! One walk over a [`Source`] feeds one [`Sink`]; host and image are both, so there are no special
//! directions.

mod host;
mod inside;

use std::collections::HashMap;
use std::path::PathBuf;

use indicatif::ProgressBar;
use serde_json::json;
use vfs::{DeviceNumber, FileKind, Timestamp};

use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::{Failure, output, progress};

/// Copy files into, out of and between images.
///
/// Keeps kinds, modes, times to the nanosecond, extended attributes, access lists, hard links within
/// one copy, device nodes and holes; owners too when run by root.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs cp -r photos disk.img:/\n  joulefs cp -r disk.img:/photos /tmp/out\n  \
    joulefs cp a.img:/x b.img:/y")]
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
}

/// What is copied of a file beside its contents.
#[derive(Debug, Clone)]
pub struct Item {
    kind: FileKind,
    perm: u16,
    uid: u32,
    gid: u32,
    size: u64,
    atime: Timestamp,
    mtime: Timestamp,
    rdev: DeviceNumber,
    /// Device and inode, if it has more names than one.
    identity: Option<(u64, u64)>,
    target: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Item {
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
struct Glance {
    kind: FileKind,
    size: u64,
    /// Device (0: the image) and inode.
    file: (u64, u64),
}

/// The attributes that are access lists: a file and a directory may have taken them from the directory
/// they were made in, so where the original has none they must go.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

type Out<T> = Result<T, String>;

/// Contents being read.
trait Reader {
    /// The next stretch of data at or after `offset`; `None` if only holes are left.
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>>;
    /// Reads at most `buf.len()` bytes.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize>;
}

/// Contents being written.
trait Writer {
    /// Writes all of `data`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()>;
    /// Gives the file its size.
    fn set_size(&mut self, size: u64) -> Out<()>;
}

/// Where things come from. Paths are bytes with `/` between the names.
trait Source {
    fn glance(&self, path: &[u8]) -> Out<Glance>;
    fn item(&self, path: &[u8]) -> Out<Item>;
    fn names(&self, path: &[u8]) -> Out<Vec<Vec<u8>>>;
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>>;
}

/// Where things go.
trait Sink {
    fn kind(&self, path: &[u8]) -> Out<Option<FileKind>>;
    /// Makes a directory; one that is there serves.
    fn make_directory(&self, path: &[u8]) -> Out<()>;
    /// Makes anything but a directory; what is there gives way.
    fn make(&self, path: &[u8], item: &Item) -> Out<()>;
    fn link(&self, existing: &[u8], path: &[u8]) -> Out<()>;
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Writer + 's>>;
    /// Removes a file whose contents are not whole; that it was not copied is said already.
    fn discard(&self, path: &[u8]);
    /// Gives a path its owner, mode, attributes and times, last of all.
    fn finish(&self, path: &[u8], item: &Item) -> Out<()>;
}

struct Copy<'c> {
    source: &'c dyn Source,
    sink: &'c dyn Sink,
    links: HashMap<(u64, u64), Vec<u8>>,
    bar: &'c ProgressBar,
    stop: &'c Interrupt,
    buf: Vec<u8>,
    files: u64,
    bytes: u64,
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

/// Adds up what will be copied, and refuses trees without end: one that holds the image being written,
/// which would grow while it is read, and a damaged one that contains itself.
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
        let item = self.source.glance(path)?;
        let fail = |why| Err(format!("{}: {why}", String::from_utf8_lossy(path)));
        match item.kind {
            FileKind::Directory if self.above.contains(&item.file) => {
                fail("this directory contains itself; run joulefs fsck")
            }
            FileKind::Directory => {
                self.above.push(item.file);
                for name in self.source.names(path)? {
                    self.of(&join(path, &name))?;
                }
                self.above.pop();
                Ok(())
            }
            FileKind::Regular if self.written == Some(item.file) => {
                fail("is the image being written; move it elsewhere")
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
    fn tree(&mut self, from: &[u8], to: &[u8]) -> Out<()> {
        go_on(self.stop)?;
        let item = self.source.item(from)?;
        if item.kind == FileKind::Directory {
            self.sink.make_directory(to)?;
            for name in self.source.names(from)? {
                self.tree(&join(from, &name), &join(to, &name))?;
            }
            self.files += 1;
            return self.sink.finish(to, &item);
        }
        self.files += 1;
        if let Some(first) = item.identity.and_then(|id| self.links.get(&id)) {
            self.bar.inc(item.size);
            return self.sink.link(first, to);
        }
        self.sink.make(to, &item)?;
        if item.kind == FileKind::Regular {
            self.contents(from, to, item.size).inspect_err(|_| self.sink.discard(to))?;
        }
        if let Some(id) = item.identity {
            self.links.insert(id, to.to_vec());
        }
        self.sink.finish(to, &item)
    }

    fn contents(&mut self, from: &[u8], to: &[u8], size: u64) -> Out<()> {
        let mut reader = self.source.open(from)?;
        let mut writer = self.sink.open(to)?;
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
                self.bytes += n as u64;
                self.bar.inc(n as u64);
                progress::show_if_slow(self.bar);
            }
        }
        self.bar.inc(size - at.min(size));
        writer.set_size(size)
    }
}

/// The end of a copy, opened once for all sources.
enum End {
    Host(host::Host),
    Inside(inside::Inside),
}

impl End {
    fn open(place: &Place, write: bool) -> Result<(End, Vec<u8>), Failure> {
        use std::os::unix::ffi::OsStrExt;
        Ok(match place {
            // A symlink that a person names as target directory is meant; those found below are not.
            Place::Host(p) if write && p.is_dir() => {
                let real = std::fs::canonicalize(p).map_err(|e| format!("{}: {e}", p.display()))?;
                (End::Host(host::Host), real.as_os_str().as_bytes().to_vec())
            }
            Place::Host(p) => (End::Host(host::Host), p.as_os_str().as_bytes().to_vec()),
            Place::Inside { image, path } => (End::Inside(inside::Inside(Image::open(image, write)?)), path.clone()),
        })
    }
    fn source(&self) -> &dyn Source {
        match self {
            End::Host(h) => h,
            End::Inside(i) => i,
        }
    }
    fn sink(&self) -> &dyn Sink {
        match self {
            End::Host(h) => h,
            End::Inside(i) => i,
        }
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let all = || args.from.iter().chain([&args.to]);
    if all().all(|p| matches!(p, Place::Host(_))) {
        return Err(Failure::usage(format!(
            "{}: no place inside an image is named; write IMAGE:/path",
            args.to.text()
        )));
    }
    if args.stats && matches!(args.to, Place::Host(_)) {
        return Err(Failure::usage(format!(
            "--stats: {} is no place inside an image, so that nothing is written to one",
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
    let (end, to) = End::open(&args.to, true)?;
    let stop = Interrupt::catch()?;
    let out = copy_all(args, &end, &to, &stop);
    let mut statistics = None;
    if let End::Inside(i) = &end {
        i.0.close()?;
        statistics = Some(i.0.statistics());
    }
    stop.end();
    let (files, bytes) = out?;
    if as_json {
        let written = statistics.map(|s| s.json());
        output::print(&json!({ "files": files, "bytes": bytes, "written": written }));
    } else if let Some(s) = statistics.filter(|_| args.stats) {
        output::line(&s.table());
    }
    Ok(())
}

fn copy_all(args: &Args, end: &End, to: &[u8], stop: &Interrupt) -> Result<(u64, u64), Failure> {
    let there = end.sink().kind(to)?;
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
    let (mut files, mut bytes) = (0, 0);
    for place in &args.from {
        let (source_end, from) = End::open(place, false)?;
        let source = source_end.source();
        if source.glance(&from)?.kind == FileKind::Directory && !args.recursive {
            return Err(format!("{}: is a directory; give -r to copy it with all it holds", place.text()).into());
        }
        Survey { source, bar: &bar, stop, written, above: Vec::new() }.of(&from)?;
        // A root has no name of its own: its contents go where they shall.
        let target = match base(&from) {
            Some(name) if into_dir => join(to, name),
            _ => to.to_vec(),
        };
        let buf = vec![0; 1 << 20];
        let (sink, links) = (end.sink(), HashMap::new());
        let mut copy = Copy { source, sink, links, bar: &bar, stop, buf, files: 0, bytes: 0 };
        copy.tree(&from, &target)?;
        files += copy.files;
        bytes += copy.bytes;
    }
    bar.finish_and_clear();
    Ok((files, bytes))
}
