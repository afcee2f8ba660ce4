//! A tree of the host as source.
//!
//! A copy does not change access times. Below the root given by the user, no symlink is followed: files are opened
//! relative to their directory ([`Descent`]), however long their paths are.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::descent::{Descent, split};
use super::item::{Glance, Item, Out, Reader, Source};

/// A tree of the host.
pub struct Host {
    root: Vec<u8>,
    /// The way to directories below it, if it is a directory.
    descent: Option<Mutex<Descent>>,
}

/// The place of a file: its directory and name.
type Spot = (Option<Arc<OwnedFd>>, OsString);

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn fail<E: std::fmt::Display>(at: &[u8]) -> impl FnOnce(E) -> String {
    move |e| format!("{}: {e}", path(at).display())
}

fn kind_of(at: &[u8], m: &fs::Metadata) -> Out<FileKind> {
    FileKind::from_mode(m.mode() as u16).ok_or_else(|| fail(at)("of no known kind"))
}

/// Uses the C library, so that fakeroot can substitute owners and devices.
fn stat(spot: &Spot) -> io::Result<fs::Metadata> {
    fs::symlink_metadata(reached(spot))
}

/// A path to it, for calls that accept only paths.
fn reached((dir, name): &Spot) -> PathBuf {
    match dir {
        Some(dir) => Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name),
        None => name.into(),
    }
}

fn xattrs(spot: &Spot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let at = reached(spot);
    // Most files have few attributes or none.
    let (mut few, mut many) = ([0u8; 512], Vec::new());
    let mut list = &mut few[..];
    let mut listed = rustix::fs::llistxattr(&at, &mut *list);
    if listed == Err(Errno::RANGE) {
        many.resize(65536, 0u8);
        list = &mut many;
        listed = rustix::fs::llistxattr(&at, &mut *list);
    }
    // A file system without attributes.
    let Ok(n) = listed else { return Vec::new() };
    let mut out = Vec::new();
    for name in list[..n].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 65536];
        if let Ok(n) = rustix::fs::lgetxattr(&at, OsStr::from_bytes(name), &mut value[..]) {
            value.truncate(n);
            out.push((name.to_vec(), value));
        }
    }
    out
}

/// Opens for reading without changing the access time. Only root and the owner may do this.
fn open_unseen((dir, name): &Spot, more: OFlags) -> Result<File, Errno> {
    let open = |flags| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        match dir {
            Some(dir) => rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()),
            None => rustix::fs::openat(CWD, name, flags, Mode::empty()),
        }
    };
    let fd = match open(more | OFlags::NOATIME) {
        Err(Errno::PERM) => open(more),
        other => other,
    };
    Ok(fd?.into())
}

impl Host {
    /// The tree at a path.
    pub fn new(root: &[u8]) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, path(root), flags, Mode::empty()).ok();
        let descent = top.map(|top| Mutex::new(Descent::from(Arc::new(top))));
        Host { root: root.to_vec(), descent }
    }

    fn find(&self, at: &[u8]) -> io::Result<Spot> {
        let below = at.strip_prefix(&self.root[..]).map(split).filter(|(_, name)| !name.is_empty());
        match (&self.descent, below) {
            (Some(descent), Some((dir, name))) => {
                let dir = descent.lock().unwrap_or_else(PoisonError::into_inner).directory(dir)?;
                Ok((Some(dir), OsStr::from_bytes(name).to_owned()))
            }
            // The root itself.
            _ => Ok((None, OsStr::from_bytes(at).to_owned())),
        }
    }

    fn spot(&self, at: &[u8]) -> Out<Spot> {
        self.find(at).map_err(fail(at))
    }

    fn read_names(&self, at: &[u8], out: &mut Vec<Vec<u8>>) -> Out<()> {
        let dir = open_unseen(&self.spot(at)?, OFlags::DIRECTORY).map_err(fail(at))?;
        for e in rustix::fs::Dir::read_from(dir).map_err(fail(at))? {
            let name = e.map_err(fail(at))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                out.push(name);
            }
        }
        Ok(())
    }
}

impl Source for Host {
    fn glance(&self, at: &[u8]) -> Out<Glance> {
        let m = stat(&self.spot(at)?).map_err(fail(at))?;
        Ok(Glance { kind: kind_of(at, &m)?, size: m.size(), file: (m.dev(), m.ino()) })
    }
    fn item(&self, at: &[u8]) -> Out<Item> {
        let spot = self.spot(at)?;
        let m = stat(&spot).map_err(fail(at))?;
        let kind = kind_of(at, &m)?;
        let target = match kind {
            FileKind::Symlink => fs::read_link(reached(&spot)).map_err(fail(at))?.into_os_string().into_vec(),
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
            xattrs: xattrs(&spot),
            amiss: None,
        })
    }
    fn names(&self, at: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let mut out = Vec::new();
        let read = self.read_names(at, &mut out);
        out.sort();
        (out, read)
    }
    fn open<'s>(&'s self, at: &[u8]) -> Out<Box<dyn Reader + 's>> {
        let file = open_unseen(&self.spot(at)?, OFlags::empty()).map_err(fail(at))?;
        Ok(Box::new(Open { file, at: at.to_vec() }))
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
            // A file system without hole support: everything is data.
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
