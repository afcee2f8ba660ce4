//! The host's file system as source and sink.
//!
//! A file is made beside its place, readable by its owner alone, and renamed when it is whole. Its owner, attributes and
//! mode are set through a descriptor of the file that was made: once it belongs to somebody else, he may have put another
//! in its place. Directories above it are reached by their path: who may rename those can lead a copy elsewhere.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, Timestamps, XattrFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::{ACCESS_LISTS, Glance, Item, Made, Out, Reader, Sink, Source};

/// The host.
pub struct Host;

/// The bits of a mode that are the group's.
const GROUP: u16 = 0o070;

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn fail<E: std::fmt::Display>(at: &[u8]) -> impl FnOnce(E) -> String {
    move |e| format!("{}: {e}", path(at).display())
}

fn kind_of(at: &[u8], m: &fs::Metadata) -> Out<FileKind> {
    FileKind::from_mode(m.mode() as u16).ok_or_else(|| fail(at)("of no known kind"))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn xattrs(at: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // A file system without attributes has none to copy.
    let mut list = vec![0u8; 65536];
    let Ok(n) = rustix::fs::llistxattr(path(at), &mut list[..]) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for name in list[..n].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 65536];
        if let Ok(n) = rustix::fs::lgetxattr(path(at), OsStr::from_bytes(name), &mut value[..]) {
            value.truncate(n);
            out.push((name.to_vec(), value));
        }
    }
    out
}

/// Opens for reading without leaving a trace: the access time is copied, not changed. Only root and the
/// owner may.
fn open_unseen(at: &[u8], more: OFlags) -> Out<File> {
    let open = |flags| rustix::fs::openat(CWD, path(at), OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
    let fd = match open(more | OFlags::NOATIME) {
        Err(Errno::PERM) => open(more),
        other => other,
    };
    Ok(fd.map_err(fail(at))?.into())
}

fn read_names(at: &[u8], out: &mut Vec<Vec<u8>>) -> Out<()> {
    let dir = open_unseen(at, OFlags::DIRECTORY)?;
    for e in rustix::fs::Dir::read_from(dir).map_err(fail(at))? {
        let name = e.map_err(fail(at))?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            out.push(name);
        }
    }
    Ok(())
}

impl Source for Host {
    fn glance(&self, at: &[u8]) -> Out<Glance> {
        let m = fs::symlink_metadata(path(at)).map_err(fail(at))?;
        Ok(Glance { kind: kind_of(at, &m)?, size: m.size(), file: (m.dev(), m.ino()) })
    }
    fn item(&self, at: &[u8]) -> Out<Item> {
        let m = fs::symlink_metadata(path(at)).map_err(fail(at))?;
        let kind = kind_of(at, &m)?;
        let target = match kind {
            FileKind::Symlink => fs::read_link(path(at)).map_err(fail(at))?.into_os_string().into_vec(),
            _ => Vec::new(),
        };
        Ok(Item {
            kind,
            perm: m.mode() as u16 & 0o7777,
            uid: m.uid(),
            gid: m.gid(),
            size: m.size(),
            atime: Timestamp { sec: m.atime(), nsec: m.atime_nsec() as u32 },
            mtime: Timestamp { sec: m.mtime(), nsec: m.mtime_nsec() as u32 },
            rdev: DeviceNumber { major: rustix::fs::major(m.rdev()), minor: rustix::fs::minor(m.rdev()) },
            identity: (m.nlink() > 1 && kind != FileKind::Directory).then(|| (m.dev(), m.ino())),
            target,
            xattrs: xattrs(at),
            amiss: None,
        })
    }
    fn names(&self, at: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let mut out = Vec::new();
        let read = read_names(at, &mut out);
        out.sort();
        (out, read)
    }
    fn open<'s>(&'s self, at: &[u8]) -> Out<Box<dyn Reader + 's>> {
        Ok(Box::new(Open { file: open_unseen(at, OFlags::empty())?, at: at.to_vec() }))
    }
}

struct Open {
    file: File,
    at: Vec<u8>,
}

impl Reader for Open {
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => Ok(None),
            // A file system that knows no holes: all is data.
            Err(Errno::INVAL) => Ok(Some((offset, u64::MAX))),
            Err(e) => Err(fail(&self.at)(e)),
            Ok(start) => {
                let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).map_err(fail(&self.at))?;
                Ok(Some((start, end)))
            }
        }
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize> {
        self.file.read_at(buf, offset).map_err(fail(&self.at))
    }
}

/// A file that is held, whatever becomes of its name.
struct Held {
    file: File,
    /// What leads to it if the descriptor is good for nothing but that.
    path: Option<PathBuf>,
}

impl Held {
    fn opened(file: File) -> Self {
        Held { file, path: None }
    }

    /// Holds what is no regular file, and what a symlink is itself.
    fn node(there: &Path, kind: FileKind) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, there, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let held = Held { file: fd.into(), path: Some(path) };
        if FileKind::from_mode(held.file.metadata()?.mode() as u16) != Some(kind) {
            return Err(io::Error::other("was replaced by something else while it was made"));
        }
        Ok(held)
    }

    fn directory(there: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, there, flags, Mode::empty()) {
            Ok(fd) => Ok(Held::opened(fd.into())),
            // Its owner may change it, though he may not read it.
            Err(Errno::ACCESS) => Held::node(there, FileKind::Directory),
            Err(e) => Err(e.into()),
        }
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        match &self.path {
            Some(path) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
            None => std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid)),
        }
    }
    fn remove_xattr(&self, name: &OsStr) -> Result<(), Errno> {
        match &self.path {
            Some(path) => rustix::fs::removexattr(path, name),
            None => rustix::fs::fremovexattr(&self.file, name),
        }
    }
    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<(), Errno> {
        match &self.path {
            Some(path) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
            None => rustix::fs::fsetxattr(&self.file, name, value, XattrFlags::empty()),
        }
    }
    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match &self.path {
            Some(path) => rustix::fs::chmod(path, mode),
            None => rustix::fs::fchmod(&self.file, mode),
        }
    }
    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match &self.path {
            Some(path) => rustix::fs::utimensat(CWD, path, times, AtFlags::empty()),
            None => rustix::fs::futimens(&self.file, times),
        }
    }

    /// Gives it, which is or will be called `at`, its owner, attributes, mode and times. The mode comes after the owner
    /// and the access list: nobody may do meanwhile what he may not in the end.
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        if is_root() {
            self.set_owner(item.uid, item.gid).map_err(fail(at))?;
        }
        for list in item.lists_not_had() {
            match self.remove_xattr(OsStr::from_bytes(list)) {
                // None there, or none possible.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                other => other.map_err(fail(at))?,
            }
        }
        let mut refused = 0;
        for (name, value) in &item.xattrs {
            match self.set_xattr(OsStr::from_bytes(name), value) {
                // With an access list, these bits are the most that anybody in it may do, not what the group may.
                Err(Errno::OPNOTSUPP) if name == ACCESS_LISTS[0] => refused = GROUP,
                // Others' attributes, or a file system without them: the copy goes on.
                Err(Errno::OPNOTSUPP) => {}
                Err(Errno::PERM) if !is_root() => {}
                other => other.map_err(fail(at))?,
            }
        }
        if item.kind != FileKind::Symlink {
            let m = self.file.metadata().map_err(fail(at))?;
            let mode = item.mode_for(m.uid(), m.gid()) & !refused;
            self.set_mode(Mode::from_raw_mode(mode.into())).map_err(fail(at))?;
        }
        let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
        let times = Timestamps { last_access: time(item.atime), last_modification: time(item.mtime) };
        self.set_times(&times).map_err(fail(at))
    }
}

/// A file that lies beside its place, under a name that nobody else has.
struct Beside {
    temp: NamedTempFile<Held>,
    at: Vec<u8>,
}

/// Makes what will be called `at` in the same directory.
fn beside<F>(at: &[u8], make: impl FnMut(&Path) -> io::Result<F>) -> Out<NamedTempFile<F>> {
    let dir = path(at).parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new().prefix(".joulefs-").make_in(dir, make).map_err(fail(at))
}

fn place<F>(temp: NamedTempFile<F>, at: &[u8]) -> Out<()> {
    temp.persist(path(at)).map(drop).map_err(|e| fail(at)(e.error))
}

impl Made for Beside {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()> {
        self.temp.as_file().file.write_all_at(data, offset).map_err(fail(&self.at))
    }
    fn set_size(&mut self, size: u64) -> Out<()> {
        self.temp.as_file().file.set_len(size).map_err(fail(&self.at))
    }
    fn finish(&mut self, item: &Item) -> Out<()> {
        self.temp.as_file().finish(&self.at, item)
    }
    fn place(self: Box<Self>) -> Out<()> {
        let Beside { temp, at } = *self;
        // Who had a whole file has one after a power cut too.
        if temp.as_file().path.is_none() && fs::symlink_metadata(path(&at)).is_ok() {
            temp.as_file().file.sync_all().map_err(fail(&at))?;
        }
        place(temp, &at)
    }
    fn keep(self: Box<Self>) -> bool {
        let Beside { temp, at } = *self;
        temp.persist_noclobber(path(&at)).is_ok()
    }
}

impl Sink for Host {
    fn kind(&self, at: &[u8]) -> Out<Option<FileKind>> {
        match fs::metadata(path(at)) {
            Ok(m) => Ok(FileKind::from_mode(m.mode() as u16)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(fail(at)(e)),
        }
    }
    fn make_directory(&self, at: &[u8]) -> Out<()> {
        match fs::DirBuilder::new().mode(0o700).create(path(at)) {
            // Not through a symlink: it may lead out of the tree that is being written.
            Err(e)
                if e.kind() == ErrorKind::AlreadyExists && fs::symlink_metadata(path(at)).is_ok_and(|m| m.is_dir()) =>
            {
                Ok(())
            }
            other => other.map_err(fail(at)),
        }
    }
    fn make<'s>(&'s self, at: &[u8], item: &Item) -> Out<Box<dyn Made + 's>> {
        use rustix::fs::FileType as T;
        let private = Mode::from_raw_mode(0o600);
        let node = |there: &Path, kind, dev| Ok(rustix::fs::mknodat(CWD, there, kind, private, dev)?);
        let dev = rustix::fs::makedev(item.rdev.major, item.rdev.minor);
        let temp = beside(at, |there| {
            match item.kind {
                FileKind::Regular => {
                    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(there);
                    return file.map(Held::opened);
                }
                FileKind::Symlink => std::os::unix::fs::symlink(OsStr::from_bytes(&item.target), there),
                FileKind::Fifo => node(there, T::Fifo, 0),
                FileKind::Socket => node(there, T::Socket, 0),
                FileKind::CharDevice => node(there, T::CharacterDevice, dev),
                FileKind::BlockDevice => node(there, T::BlockDevice, dev),
                FileKind::Directory => Err(ErrorKind::IsADirectory.into()),
            }?;
            Held::node(there, item.kind).inspect_err(|_| _ = fs::remove_file(there))
        })?;
        Ok(Box::new(Beside { temp, at: at.to_vec() }))
    }
    fn link(&self, existing: &[u8], at: &[u8]) -> Out<()> {
        let file = |at| fs::symlink_metadata(path(at)).map(|m| (m.dev(), m.ino())).ok();
        // One name of a file does not replace another of it.
        if file(existing).is_some() && file(existing) == file(at) {
            return Ok(());
        }
        place(beside(at, |there| fs::hard_link(path(existing), there))?, at)
    }
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        Held::directory(path(at)).map_err(fail(at))?.finish(at, item)
    }
}

#[cfg(test)]
mod tests;
