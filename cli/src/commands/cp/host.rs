//! The host's file system as source and sink.
//!
//! A file is made beside its place, readable by its owner alone, and renamed when it is whole.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::{Glance, Item, Made, Out, Reader, Sink, Source};

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

/// A file that lies beside its place, under a name that nobody else has.
struct Beside {
    temp: NamedTempFile<Option<File>>,
    at: Vec<u8>,
}

/// Makes what will be called `at` in the same directory.
fn beside(at: &[u8], mut make: impl FnMut(&Path) -> io::Result<Option<File>>) -> Out<Beside> {
    let dir = path(at).parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temp = tempfile::Builder::new().prefix(".joulefs-").make_in(dir, |p| make(p)).map_err(fail(at))?;
    Ok(Beside { temp, at: at.to_vec() })
}

impl Beside {
    fn file(&self) -> Out<&File> {
        self.temp.as_file().as_ref().ok_or_else(|| fail(&self.at)("no regular file"))
    }
}

impl Made for Beside {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()> {
        self.file()?.write_all_at(data, offset).map_err(fail(&self.at))
    }
    fn set_size(&mut self, size: u64) -> Out<()> {
        self.file()?.set_len(size).map_err(fail(&self.at))
    }
    fn finish(&mut self, item: &Item) -> Out<()> {
        finish(self.temp.path(), &self.at, item)
    }
    fn place(self: Box<Self>) -> Out<()> {
        let Beside { temp, at } = *self;
        temp.persist(path(&at)).map(drop).map_err(|e| fail(&at)(e.error))
    }
}

/// Gives what lies at `there`, and is or will be called `at`, its owner, attributes, mode and times. The mode comes after
/// the owner and the access list: nobody may do meanwhile what he may not in the end.
fn finish(there: &Path, at: &[u8], item: &Item) -> Out<()> {
    if is_root() {
        std::os::unix::fs::lchown(there, Some(item.uid), Some(item.gid)).map_err(fail(at))?;
    }
    for list in item.lists_not_had() {
        match rustix::fs::lremovexattr(there, OsStr::from_bytes(list)) {
            // None there, or none possible.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            other => other.map_err(fail(at))?,
        }
    }
    for (name, value) in &item.xattrs {
        let out = rustix::fs::lsetxattr(there, OsStr::from_bytes(name), value, XattrFlags::empty());
        match out {
            // Others' attributes, or a file system without them: the copy goes on.
            Err(Errno::OPNOTSUPP) => {}
            Err(Errno::PERM) if !is_root() => {}
            other => other.map_err(fail(at))?,
        }
    }
    if item.kind != FileKind::Symlink {
        let m = fs::symlink_metadata(there).map_err(fail(at))?;
        let mode = Mode::from_raw_mode(item.mode_for(m.uid(), m.gid()).into());
        rustix::fs::chmodat(CWD, there, mode, AtFlags::empty()).map_err(fail(at))?;
    }
    let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
    let times = rustix::fs::Timestamps { last_access: time(item.atime), last_modification: time(item.mtime) };
    rustix::fs::utimensat(CWD, there, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(fail(at))
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
        let node = |there: &Path, kind, dev| Ok(rustix::fs::mknodat(CWD, there, kind, private, dev).map(|()| None)?);
        let dev = rustix::fs::makedev(item.rdev.major, item.rdev.minor);
        Ok(Box::new(beside(at, |there| match item.kind {
            FileKind::Regular => OpenOptions::new().write(true).create_new(true).mode(0o600).open(there).map(Some),
            FileKind::Symlink => std::os::unix::fs::symlink(OsStr::from_bytes(&item.target), there).map(|()| None),
            FileKind::Fifo => node(there, T::Fifo, 0),
            FileKind::Socket => node(there, T::Socket, 0),
            FileKind::CharDevice => node(there, T::CharacterDevice, dev),
            FileKind::BlockDevice => node(there, T::BlockDevice, dev),
            FileKind::Directory => Err(ErrorKind::IsADirectory.into()),
        })?))
    }
    fn link(&self, existing: &[u8], at: &[u8]) -> Out<()> {
        let file = |at| fs::symlink_metadata(path(at)).map(|m| (m.dev(), m.ino())).ok();
        // One name of a file does not replace another of it.
        if file(existing).is_some() && file(existing) == file(at) {
            return Ok(());
        }
        Box::new(beside(at, |there| fs::hard_link(path(existing), there).map(|()| None))?).place()
    }
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        finish(path(at), at, item)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn item(kind: FileKind) -> Item {
        let time = Timestamp { sec: 1, nsec: 0 };
        Item {
            kind,
            perm: 0o666,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 3,
            atime: time,
            mtime: time,
            rdev: DeviceNumber::default(),
            identity: None,
            target: b"elsewhere".to_vec(),
            xattrs: Vec::new(),
            amiss: None,
        }
    }

    #[test]
    fn nobody_else_can_open_a_copy_before_it_has_its_owner_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("file");
        let mut made = Host.make(at.as_os_str().as_bytes(), &item(FileKind::Regular)).unwrap();
        made.write_at(0, b"new").unwrap();
        let there: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
        assert_eq!(there.len(), 1);
        assert_eq!(there[0].metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        made.finish(&item(FileKind::Regular)).unwrap();
        made.place().unwrap();
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o7777, 0o666);
        let below = dir.path().join("below");
        Host.make_directory(below.as_os_str().as_bytes()).unwrap();
        assert_eq!(fs::metadata(below).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_file_that_is_there_stays_until_its_copy_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let at = file.as_os_str().as_bytes();
        fs::write(&file, "old").unwrap();
        for kind in [FileKind::Regular, FileKind::Symlink, FileKind::Fifo] {
            drop(Host.make(at, &item(kind)).unwrap());
            assert_eq!(fs::read(&file).unwrap(), b"old");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        Host.make(at, &item(FileKind::Symlink)).unwrap().place().unwrap();
        assert_eq!(fs::read_link(&file).unwrap(), Path::new("elsewhere"));
    }

    #[test]
    fn a_second_name_replaces_what_is_there_and_not_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, "one").unwrap();
        fs::write(&two, "two").unwrap();
        for _ in 0..2 {
            Host.link(one.as_os_str().as_bytes(), two.as_os_str().as_bytes()).unwrap();
            assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
