//! The host's file system as source and sink.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::{Glance, Item, Out, Reader, Sink, Source, Writer};

/// The host.
pub struct Host;

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

impl Writer for Open {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()> {
        self.file.write_all_at(data, offset).map_err(fail(&self.at))
    }
    fn set_size(&mut self, size: u64) -> Out<()> {
        self.file.set_len(size).map_err(fail(&self.at))
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
        match fs::create_dir(path(at)) {
            // Not through a symlink: it may lead out of the tree that is being written.
            Err(e)
                if e.kind() == ErrorKind::AlreadyExists && fs::symlink_metadata(path(at)).is_ok_and(|m| m.is_dir()) =>
            {
                Ok(())
            }
            other => other.map_err(fail(at)),
        }
    }
    fn make(&self, at: &[u8], item: &Item) -> Out<()> {
        match fs::remove_file(path(at)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(fail(at)(e)),
            _ => {}
        }
        let node =
            |kind, dev| rustix::fs::mknodat(CWD, path(at), kind, Mode::from_raw_mode(0o600), dev).map_err(fail(at));
        let dev = rustix::fs::makedev(item.rdev.major, item.rdev.minor);
        use rustix::fs::FileType as T;
        match item.kind {
            FileKind::Regular => {
                OpenOptions::new().write(true).create_new(true).open(path(at)).map(drop).map_err(fail(at))
            }
            FileKind::Symlink => {
                std::os::unix::fs::symlink(OsStr::from_bytes(&item.target), path(at)).map_err(fail(at))
            }
            FileKind::Fifo => node(T::Fifo, 0),
            FileKind::Socket => node(T::Socket, 0),
            FileKind::CharDevice => node(T::CharacterDevice, dev),
            FileKind::BlockDevice => node(T::BlockDevice, dev),
            FileKind::Directory => self.make_directory(at),
        }
    }
    fn link(&self, existing: &[u8], at: &[u8]) -> Out<()> {
        match fs::remove_file(path(at)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(fail(at)(e)),
            _ => {}
        }
        fs::hard_link(path(existing), path(at)).map_err(fail(at))
    }
    fn open<'s>(&'s self, at: &[u8]) -> Out<Box<dyn Writer + 's>> {
        let file = OpenOptions::new().write(true).open(path(at)).map_err(fail(at))?;
        Ok(Box::new(Open { file, at: at.to_vec() }))
    }
    fn discard(&self, at: &[u8]) {
        let _ = fs::remove_file(path(at));
    }
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        if is_root() {
            std::os::unix::fs::lchown(path(at), Some(item.uid), Some(item.gid)).map_err(fail(at))?;
        }
        if item.kind != FileKind::Symlink {
            let mode = Mode::from_raw_mode(item.perm.into());
            rustix::fs::chmodat(CWD, path(at), mode, AtFlags::empty()).map_err(fail(at))?;
        }
        for list in item.lists_not_had() {
            match rustix::fs::lremovexattr(path(at), OsStr::from_bytes(list)) {
                // None there, or none possible.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                other => other.map_err(fail(at))?,
            }
        }
        for (name, value) in &item.xattrs {
            let out = rustix::fs::lsetxattr(path(at), OsStr::from_bytes(name), value, XattrFlags::empty());
            match out {
                // Others' attributes, or a file system without them: the copy goes on.
                Err(Errno::OPNOTSUPP) => {}
                Err(Errno::PERM) if !is_root() => {}
                other => other.map_err(fail(at))?,
            }
        }
        let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
        let times = rustix::fs::Timestamps { last_access: time(item.atime), last_modification: time(item.mtime) };
        rustix::fs::utimensat(CWD, path(at), &times, AtFlags::SYMLINK_NOFOLLOW).map_err(fail(at))
    }
}
