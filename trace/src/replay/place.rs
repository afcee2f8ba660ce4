//! Where are recorded calls made: on a JouleFS volume, or in a directory of the host?

use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use device::generate;
use vfs::WriteFlags;
use vfs::path::{walk, walk_parent};
use vfs::{Allocate, Caller, DeviceNumber, Error, FileKind, FileSystem, Flow, Ino, NewNode, RenameFlags, SetAttr};

use crate::call::How;

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileRef(u64);

/// Why a call failed, as text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PlaceError {
    why: String,
    /// True if there is no space.
    pub no_space: bool,
}

impl PlaceError {
    fn new(why: String) -> Self {
        PlaceError { why, no_space: false }
    }
}

impl From<Error> for PlaceError {
    fn from(e: Error) -> Self {
        PlaceError { no_space: matches!(e, Error::NoSpace), why: e.to_string() }
    }
}

impl From<std::io::Error> for PlaceError {
    fn from(e: std::io::Error) -> Self {
        PlaceError { no_space: e.kind() == std::io::ErrorKind::StorageFull, why: e.to_string() }
    }
}

type Result<T> = std::result::Result<T, PlaceError>;

/// A file system for replayed calls. Paths are absolute; symbolic links on the way are not followed.
pub trait Place {
    /// Opens a file, or a directory.
    fn open(&mut self, path: &[u8], how: How) -> Result<FileRef>;
    /// Closes it.
    fn close(&mut self, file: FileRef);
    /// Length in bytes.
    fn length(&mut self, file: FileRef) -> Result<u64>;
    /// Reads; returns the number of bytes.
    fn read(&mut self, file: FileRef, at: u64, buf: &mut [u8]) -> Result<u64>;
    /// Writes all bytes.
    fn write(&mut self, file: FileRef, at: u64, data: &[u8]) -> Result<()>;
    /// `fsync` or `fdatasync`.
    fn sync(&mut self, file: FileRef, data_only: bool) -> Result<()>;
    /// Makes everything durable.
    fn sync_all(&mut self) -> Result<()>;
    /// Changes a file's length.
    fn truncate(&mut self, file: FileRef, length: u64) -> Result<()>;
    /// `fallocate`: a hole if `punch`.
    fn allocate(&mut self, file: FileRef, at: u64, bytes: u64, punch: bool, keep_size: bool) -> Result<()>;
    /// Removes a name.
    fn unlink(&mut self, path: &[u8]) -> Result<()>;
    /// Removes a directory.
    fn remove_dir(&mut self, path: &[u8]) -> Result<()>;
    /// Makes a directory.
    fn make_dir(&mut self, path: &[u8]) -> Result<()>;
    /// Renames.
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<()>;
    /// Creates a hard link.
    fn link(&mut self, from: &[u8], to: &[u8]) -> Result<()>;
    /// Makes a symbolic link.
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<()>;
    /// Reads the attributes of a path.
    fn stat(&mut self, path: &[u8]) -> Result<()>;
    /// Lists a directory to its end.
    fn list(&mut self, dir: FileRef) -> Result<()>;
    /// Runs due background work; returns when to call again, if ever.
    fn tick(&mut self) -> Result<Option<Duration>>;
}

/// A volume.
pub struct OnVolume<'a> {
    fs: &'a dyn FileSystem,
}

impl<'a> OnVolume<'a> {
    /// Calls go to `fs`.
    pub fn new(fs: &'a dyn FileSystem) -> Self {
        OnVolume { fs }
    }

    fn ino(file: FileRef) -> Ino {
        Ino(file.0)
    }

    /// An inode by path, with a reference.
    fn find(&self, path: &[u8]) -> Result<Ino> {
        let (parent, name) = match walk_parent(self.fs, path) {
            Ok(found) => found,
            // The root has no parent and needs no reference.
            Err(Error::Invalid(_)) => return Ok(self.fs.root()),
            Err(e) => return Err(e.into()),
        };
        Ok(self.fs.lookup(parent.ino(), name)?.attr.ino)
    }

    fn forget(&self, ino: Ino) {
        if ino != self.fs.root() {
            self.fs.forget(ino, 1);
        }
    }
}

impl Place for OnVolume<'_> {
    fn open(&mut self, path: &[u8], how: How) -> Result<FileRef> {
        let ino = match self.find(path) {
            Ok(ino) => ino,
            Err(e) if !how.contains(How::CREATE) => return Err(e),
            Err(_) => {
                let (parent, name) = walk_parent(self.fs, path)?;
                let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
                self.fs.mknod(Caller::default(), parent.ino(), name, &new)?.attr.ino
            }
        };
        if let Err(e) = self.fs.open(ino, how.contains(How::TRUNCATE)) {
            self.forget(ino);
            return Err(e.into());
        }
        Ok(FileRef(ino.0))
    }
    fn close(&mut self, file: FileRef) {
        self.fs.release(Self::ino(file));
        self.forget(Self::ino(file));
    }
    fn length(&mut self, file: FileRef) -> Result<u64> {
        Ok(self.fs.getattr(Self::ino(file))?.size)
    }
    fn read(&mut self, file: FileRef, at: u64, buf: &mut [u8]) -> Result<u64> {
        Ok(self.fs.read(Self::ino(file), at, buf)? as u64)
    }
    fn write(&mut self, file: FileRef, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let n = self.fs.write(Self::ino(file), at + done as u64, &data[done..], WriteFlags::empty())?;
            if n == 0 {
                return Err(Error::NoSpace.into());
            }
            done += n;
        }
        Ok(())
    }
    fn sync(&mut self, file: FileRef, data_only: bool) -> Result<()> {
        Ok(self.fs.fsync(Self::ino(file), data_only)?)
    }
    fn sync_all(&mut self) -> Result<()> {
        Ok(self.fs.sync()?)
    }
    fn truncate(&mut self, file: FileRef, length: u64) -> Result<()> {
        self.fs.setattr(Self::ino(file), &SetAttr { size: Some(length), ..SetAttr::default() })?;
        Ok(())
    }
    fn allocate(&mut self, file: FileRef, at: u64, bytes: u64, punch: bool, keep_size: bool) -> Result<()> {
        let what = if punch { Allocate::PunchHole } else { Allocate::Reserve { keep_size } };
        Ok(self.fs.fallocate(Self::ino(file), what, at, bytes)?)
    }
    fn unlink(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = walk_parent(self.fs, path)?;
        Ok(self.fs.unlink(parent.ino(), name)?)
    }
    fn remove_dir(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = walk_parent(self.fs, path)?;
        Ok(self.fs.rmdir(parent.ino(), name)?)
    }
    fn make_dir(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = walk_parent(self.fs, path)?;
        let made = self.fs.mkdir(Caller::default(), parent.ino(), name, 0o755, 0)?;
        self.forget(made.attr.ino);
        Ok(())
    }
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        let (a, old) = walk_parent(self.fs, from)?;
        let (b, new) = walk_parent(self.fs, to)?;
        Ok(self.fs.rename(Caller::default(), (a.ino(), old), (b.ino(), new), RenameFlags::empty())?)
    }
    fn link(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        let file = walk(self.fs, from)?;
        let (parent, name) = walk_parent(self.fs, to)?;
        let made = self.fs.link(file.ino(), parent.ino(), name)?;
        self.forget(made.attr.ino);
        Ok(())
    }
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let (parent, name) = walk_parent(self.fs, path)?;
        let made = self.fs.symlink(Caller::default(), parent.ino(), name, target)?;
        self.forget(made.attr.ino);
        Ok(())
    }
    fn stat(&mut self, path: &[u8]) -> Result<()> {
        let found = walk(self.fs, path)?;
        self.fs.getattr(found.ino())?;
        Ok(())
    }
    fn list(&mut self, dir: FileRef) -> Result<()> {
        Ok(self.fs.readdir(Self::ino(dir), 0, &mut |_| Flow::Continue)?)
    }
    fn tick(&mut self) -> Result<Option<Duration>> {
        Ok(Some(self.fs.tick()?))
    }
}

/// A directory of the host, on any file system.
pub struct OnDirectory {
    root: PathBuf,
    open: Vec<Option<(File, PathBuf)>>,
}

impl OnDirectory {
    /// Calls go below `root`, which should be empty.
    pub fn new(root: &Path) -> Self {
        OnDirectory { root: root.to_owned(), open: Vec::new() }
    }

    /// The path on the host. No other program works in the directory, so a path without links now has none when it is
    /// used.
    fn path(&self, path: &[u8]) -> Result<PathBuf> {
        let below = Path::new(std::ffi::OsStr::from_bytes(path));
        let mut out = self.root.clone();
        for part in below.components() {
            // It goes through a link created by an earlier call, to an unknown place.
            if out != self.root && fs::symlink_metadata(&out).is_ok_and(|m| m.is_symlink()) {
                return Err(PlaceError::new(format!("{}: goes through a symbolic link", below.display())));
            }
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => out.push(name),
                // It leaves the directory.
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(PlaceError::new(format!("{}: leaves the directory", below.display())));
                }
            }
        }
        Ok(out)
    }

    fn file(&self, file: FileRef) -> Result<&(File, PathBuf)> {
        self.open.get(file.0 as usize).and_then(Option::as_ref).ok_or(PlaceError::new("not open".into()))
    }
}

impl Place for OnDirectory {
    fn open(&mut self, path: &[u8], how: How) -> Result<FileRef> {
        let path = self.path(path)?;
        let mut options = OpenOptions::new();
        let is_dir = how.contains(How::DIRECTORY) || (!how.contains(How::WRITE) && path.is_dir());
        // Links are not followed: they could lead outside.
        options.read(true).write(!is_dir).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        options.create(how.contains(How::CREATE)).truncate(how.contains(How::TRUNCATE) && !is_dir);
        let file = options.open(&path)?;
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == self.open.len() {
            self.open.push(None);
        }
        self.open[free] = Some((file, path));
        Ok(FileRef(free as u64))
    }
    fn close(&mut self, file: FileRef) {
        if let Some(place) = self.open.get_mut(file.0 as usize) {
            *place = None;
        }
    }
    fn length(&mut self, file: FileRef) -> Result<u64> {
        Ok(self.file(file)?.0.metadata()?.len())
    }
    fn read(&mut self, file: FileRef, at: u64, buf: &mut [u8]) -> Result<u64> {
        let mut done = 0;
        while done < buf.len() {
            match self.file(file)?.0.read_at(&mut buf[done..], at + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done as u64)
    }
    fn write(&mut self, file: FileRef, at: u64, data: &[u8]) -> Result<()> {
        Ok(self.file(file)?.0.write_all_at(data, at)?)
    }
    fn sync(&mut self, file: FileRef, data_only: bool) -> Result<()> {
        let file = &self.file(file)?.0;
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }
    fn sync_all(&mut self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?).map_err(std::io::Error::from)?)
    }
    fn truncate(&mut self, file: FileRef, length: u64) -> Result<()> {
        Ok(self.file(file)?.0.set_len(length)?)
    }
    fn allocate(&mut self, file: FileRef, at: u64, bytes: u64, punch: bool, keep_size: bool) -> Result<()> {
        use rustix::fs::FallocateFlags as F;
        let mut flags = F::empty();
        flags.set(F::KEEP_SIZE, keep_size || punch);
        flags.set(F::PUNCH_HOLE, punch);
        Ok(rustix::fs::fallocate(&self.file(file)?.0, flags, at, bytes).map_err(std::io::Error::from)?)
    }
    fn unlink(&mut self, path: &[u8]) -> Result<()> {
        Ok(fs::remove_file(self.path(path)?)?)
    }
    fn remove_dir(&mut self, path: &[u8]) -> Result<()> {
        Ok(fs::remove_dir(self.path(path)?)?)
    }
    fn make_dir(&mut self, path: &[u8]) -> Result<()> {
        Ok(fs::create_dir(self.path(path)?)?)
    }
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(fs::rename(self.path(from)?, self.path(to)?)?)
    }
    fn link(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(fs::hard_link(self.path(from)?, self.path(to)?)?)
    }
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        Ok(std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), self.path(path)?)?)
    }
    fn stat(&mut self, path: &[u8]) -> Result<()> {
        fs::symlink_metadata(self.path(path)?)?;
        Ok(())
    }
    fn list(&mut self, dir: FileRef) -> Result<()> {
        for entry in fs::read_dir(&self.file(dir)?.1)? {
            entry?;
        }
        Ok(())
    }
    fn tick(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

/// Generated contents for a write, different for every `seed`.
pub(super) fn contents(seed: u64, bytes: usize, buf: &mut Vec<u8>) -> &[u8] {
    if buf.len() < bytes {
        buf.resize(bytes, 0);
    }
    generate(seed, 0, &mut buf[..bytes]);
    &buf[..bytes]
}
