//! The host's file system as source.
//!
//! A copy leaves no trace in what it reads. Files are found by their paths: who may rename a directory above them decides
//! what is read.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::item::{Glance, Item, Out, Reader, Source};

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

fn xattrs(at: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Most files have few, if any.
    let (mut few, mut many) = ([0u8; 512], Vec::new());
    let mut list = &mut few[..];
    let mut listed = rustix::fs::llistxattr(path(at), &mut *list);
    if listed == Err(Errno::RANGE) {
        many.resize(65536, 0u8);
        list = &mut many;
        listed = rustix::fs::llistxattr(path(at), &mut *list);
    }
    // A file system without attributes has none to copy.
    let Ok(n) = listed else { return Vec::new() };
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
