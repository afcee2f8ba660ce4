//! A directory of the host as sink: how does a copy write below it, and nowhere else?
//!
//! Other processes may have write access to directories that a copy passes through, and replace one with a symlink. So
//! each directory is opened relative to its parent, never through a symlink, and files in it are created relative to
//! its descriptor. If a directory is moved meanwhile, the copy follows it to its new place, or fails.
//!
//! A file is created in the same directory under a temporary name, readable only by its owner, and renamed when
//! complete. Owner, attributes and mode are set through its descriptor: after the file has another owner, its name may
//! lead to a different file.
//!
//! Left out: the path of the top directory. The user typed it, and symlinks in it are followed.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Rng;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};
use rustix::io::Errno;
use vfs::{FileKind, Timestamp};

use super::descent::{Descent, check_name, open_directory, split};
use super::item::{ACCESS_LISTS, Item, Made, Out, Sink};
use crate::bounded::HostReserve;

/// The group bits of a mode.
const GROUP: u16 = 0o070;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The place of a file: its directory and name.
type Spot = (Arc<OwnedFd>, OsString);

/// A directory of the host; the sink's paths are relative to it.
pub struct Below {
    top: Arc<OwnedFd>,
    /// Its name in error messages.
    named: PathBuf,
    descent: RefCell<Descent>,
    rng: RefCell<Rng>,
    reserve: HostReserve,
    /// The host is out of space.
    full: Cell<bool>,
}

/// Device and inode that a name refers to; symlinks are not followed.
fn identity((dir, name): &Spot) -> Option<(u64, u64)> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|m| (m.st_dev, m.st_ino)).ok()
}

impl Below {
    /// Opens the directory.
    pub fn open(named: &Path) -> Out<Self> {
        let fail = |e: io::Error| format!("{}: {e}", named.display());
        let there = if named.as_os_str().is_empty() { Path::new(".") } else { named };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, there, flags, Mode::empty()).map_err(|e| fail(e.into()))?;
        Self::at(top, named)
    }

    /// Uses an open directory.
    pub fn at(top: OwnedFd, named: &Path) -> Out<Self> {
        let seed = device::rng::entropy().map_err(|e| format!("{}: {e}", named.display()))?;
        let rng = RefCell::new(Rng::new(u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8]))));
        let (reserve, full) = (HostReserve::default(), Cell::new(false));
        let top = Arc::new(top);
        let descent = RefCell::new(Descent::from(top.clone()));
        Ok(Below { top, named: named.to_owned(), descent, rng, reserve, full })
    }

    /// Fails if the host lacks space for `bytes` more on the file system of an open file.
    fn check_room(&self, at: &[u8], file: impl AsFd, bytes: u64) -> Out<()> {
        self.reserve.check(file, bytes).map_err(|why| {
            self.full.set(true);
            self.fail(at)(why)
        })
    }

    fn fail<E: std::fmt::Display>(&self, at: &[u8]) -> impl FnOnce(E) -> String {
        move |e| {
            let below = at.strip_prefix(b"/").unwrap_or(at);
            let at = if below.is_empty() { self.named.clone() } else { self.named.join(OsStr::from_bytes(below)) };
            format!("{}: {e}", at.display())
        }
    }

    fn spot(&self, at: &[u8]) -> Out<Spot> {
        let (dir, name) = split(at);
        let spot = || match name {
            b"" => Ok((self.top.clone(), ".".into())),
            name => {
                check_name(name)?;
                Ok((self.descent.borrow_mut().directory(dir)?, OsStr::from_bytes(name).to_owned()))
            }
        };
        spot().map_err(|e: io::Error| self.fail(at)(e))
    }

    /// Creates something in a directory under an unused temporary name.
    fn beside<T>(&self, dir: Arc<OwnedFd>, make: impl Fn(&OwnedFd, &OsStr) -> io::Result<T>) -> io::Result<(Temp, T)> {
        loop {
            let name = OsString::from(format!(".joulefs-{:016x}", self.rng.borrow_mut().next_u64()));
            match make(&dir, &name) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return Ok((Temp { dir, name: Some(name) }, made?)),
            }
        }
    }
}

/// A temporary name in a directory, removed on drop unless placed.
struct Temp {
    dir: Arc<OwnedFd>,
    name: Option<OsString>,
}

impl Temp {
    /// Renames it to `name`; replaces an existing file only if `gives_way`.
    fn place(&mut self, name: &OsStr, gives_way: bool) -> Result<(), Errno> {
        let Some(temp) = &self.name else { return Ok(()) };
        let (dir, flags) = (&self.dir, if gives_way { RenameFlags::empty() } else { RenameFlags::NOREPLACE });
        match rustix::fs::renameat_with(dir, temp, dir, name, flags) {
            // Not every file system supports `RENAME_NOREPLACE`.
            Err(Errno::INVAL | Errno::NOSYS) if !gives_way => {
                rustix::fs::linkat(dir, temp, dir, name, AtFlags::empty())
            }
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            failed => failed,
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Errors are ignored: an earlier one is reported.
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
    }
}

/// An open file, independent of its name.
struct Held {
    file: File,
    /// Its path, if the descriptor only identifies it (`O_PATH`).
    path: Option<PathBuf>,
}

impl Held {
    fn opened(file: File) -> Self {
        Held { file, path: None }
    }

    /// Opens anything but a regular file, including a symlink itself.
    fn node(dir: &OwnedFd, name: &OsStr, kind: FileKind) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let held = Held { file: fd.into(), path: Some(path) };
        if FileKind::from_mode(held.file.metadata()?.mode() as u16) != Some(kind) {
            return Err(io::Error::other("was replaced by something else while it was being created"));
        }
        Ok(held)
    }

    fn directory(dir: &OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Held::opened(fd.into())),
            // An owner may change a directory without being able to read it.
            Err(Errno::ACCESS) => Held::node(dir, name, FileKind::Directory),
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

    /// Sets owner, attributes, mode and times. The mode comes after the owner and the access list, so that access is
    /// never wider than in the end.
    fn finish(&self, item: &Item) -> io::Result<()> {
        if is_root() {
            self.set_owner(item.uid, item.gid)?;
        }
        for list in item.lists_not_had() {
            match self.remove_xattr(OsStr::from_bytes(list)) {
                // None present, or not supported.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                other => other?,
            }
        }
        let mut refused = 0;
        for (name, value) in &item.xattrs {
            match self.set_xattr(OsStr::from_bytes(name), value) {
                // With an access list, these bits are its mask, not the permissions of the group.
                Err(Errno::OPNOTSUPP) if name == ACCESS_LISTS[0] => refused = GROUP,
                // Attributes the user may not set, or a file system without them: the copy continues.
                Err(Errno::OPNOTSUPP) => {}
                Err(Errno::PERM) if !is_root() => {}
                other => other?,
            }
        }
        if item.kind != FileKind::Symlink {
            let m = self.file.metadata()?;
            let mode = item.mode_for(m.uid(), m.gid()) & !refused;
            self.set_mode(Mode::from_raw_mode(mode.into()))?;
        }
        let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
        let times = Timestamps { last_access: time(item.atime), last_modification: time(item.mtime) };
        Ok(self.set_times(&times)?)
    }
}

/// A file under a temporary name next to its final place.
struct Beside<'b> {
    below: &'b Below,
    temp: Temp,
    held: Held,
    name: OsString,
    at: Vec<u8>,
}

impl Made for Beside<'_> {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()> {
        self.below.check_room(&self.at, &self.held.file, data.len() as u64)?;
        self.held.file.write_all_at(data, offset).map_err(self.below.fail(&self.at))
    }
    fn set_size(&mut self, size: u64) -> Out<()> {
        self.held.file.set_len(size).map_err(self.below.fail(&self.at))
    }
    fn finish(&mut self, item: &Item) -> Out<()> {
        self.held.finish(item).map_err(self.below.fail(&self.at))
    }
    fn place(mut self: Box<Self>) -> Out<()> {
        let fail = self.below.fail(&self.at);
        // A replaced file must be complete after a power cut too.
        if self.held.path.is_none() && identity(&(self.temp.dir.clone(), self.name.clone())).is_some() {
            self.held.file.sync_all().map_err(fail)?;
        }
        self.temp.place(&self.name, true).map_err(self.below.fail(&self.at))
    }
    fn keep(mut self: Box<Self>) -> bool {
        self.temp.place(&self.name, false).is_ok()
    }
}

impl Sink for Below {
    fn kind(&self, at: &[u8]) -> Out<Option<FileKind>> {
        let (dir, name) = self.spot(at)?;
        match rustix::fs::statat(dir, name, AtFlags::empty()) {
            Ok(m) => Ok(FileKind::from_mode(m.st_mode as u16)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.fail(at)(e)),
        }
    }
    fn make_directory(&self, at: &[u8]) -> Out<()> {
        let (dir, name) = self.spot(at)?;
        self.check_room(at, &dir, 0)?;
        match rustix::fs::mkdirat(&dir, &name, Mode::RWXU) {
            Err(Errno::EXIST) if open_directory(&dir, &name).is_ok() => Ok(()),
            other => other.map_err(self.fail(at)),
        }
    }
    fn make<'s>(&'s self, at: &[u8], item: &Item) -> Out<Box<dyn Made + 's>> {
        let (dir, name) = self.spot(at)?;
        self.check_room(at, &dir, 0)?;
        let private = Mode::RUSR | Mode::WUSR;
        let dev = rustix::fs::makedev(item.rdev.major, item.rdev.minor);
        let made = self.beside(dir, |dir, there| {
            let node = |kind, dev| rustix::fs::mknodat(dir, there, kind, private, dev);
            match item.kind {
                FileKind::Regular => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let file = rustix::fs::openat(dir, there, flags, private)?;
                    return Ok(Some(Held::opened(file.into())));
                }
                FileKind::Symlink => rustix::fs::symlinkat(OsStr::from_bytes(&item.target), dir, there),
                FileKind::Fifo => node(FileType::Fifo, 0),
                FileKind::Socket => node(FileType::Socket, 0),
                FileKind::CharDevice => node(FileType::CharacterDevice, dev),
                FileKind::BlockDevice => node(FileType::BlockDevice, dev),
                FileKind::Directory => Err(Errno::ISDIR),
            }?;
            Ok(None)
        });
        let held = made.and_then(|(temp, file)| match (file, &temp.name) {
            (None, Some(there)) => Held::node(&temp.dir, there, item.kind).map(|held| (temp, held)),
            (file, _) => Ok((temp, file.ok_or(ErrorKind::NotFound)?)),
        });
        let (temp, held) = held.map_err(self.fail(at))?;
        Ok(Box::new(Beside { below: self, temp, held, name, at: at.to_vec() }))
    }
    fn link(&self, existing: &[u8], at: &[u8]) -> Out<()> {
        let (from, to) = (self.spot(existing)?, self.spot(at)?);
        // Renaming between two links of one file has no effect.
        if identity(&from).is_some() && identity(&from) == identity(&to) {
            return Ok(());
        }
        let link =
            |dir: &OwnedFd, there: &OsStr| Ok(rustix::fs::linkat(&from.0, &from.1, dir, there, AtFlags::empty())?);
        let (mut temp, ()) = self.beside(to.0, link).map_err(self.fail(at))?;
        temp.place(&to.1, true).map_err(self.fail(at))
    }
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        let (dir, name) = self.spot(at)?;
        Held::directory(&dir, &name).and_then(|held| held.finish(item)).map_err(self.fail(at))
    }
    fn is_full(&self) -> bool {
        self.full.get()
    }
}

#[cfg(test)]
mod tests;
