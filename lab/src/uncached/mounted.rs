//! The calls on our file system, in this process.
//!
//! As in a kernel, inode numbers of directories and files found stay in memory; other than that, only the file system's
//! own state does.

use std::collections::HashMap;

use device::generate;
use vfs::{Caller as Asker, DeviceNumber, FileKind, FileSystem, Ino, NewNode, SetAttr, WriteFlags};

use super::calls::{self, Caller};
use super::fill;
use sim::error::SimError;

use crate::error::LabError;

/// A file system, and the inodes found on it.
pub struct Mounted<'a> {
    fs: &'a dyn FileSystem,
    /// Every call that writes ends with an fsync.
    durable: bool,
    directories: HashMap<u32, Ino>,
    files: HashMap<u32, Ino>,
}

impl<'a> Mounted<'a> {
    /// Starts without known inodes. With `durable`, a call's writes are durable when it returns.
    pub fn new(fs: &'a dyn FileSystem, durable: bool) -> Self {
        Mounted { fs, durable, directories: HashMap::new(), files: HashMap::new() }
    }

    fn directory_of(&mut self, file: u32) -> Result<Ino, LabError> {
        let n = calls::directory_of(file);
        if let Some(ino) = self.directories.get(&n) {
            return Ok(*ino);
        }
        let found = self.fs.lookup(self.fs.root(), calls::directory_name(n).as_bytes())?;
        self.directories.insert(n, found.attr.ino);
        Ok(found.attr.ino)
    }

    fn file(&mut self, file: u32) -> Result<Ino, LabError> {
        if let Some(ino) = self.files.get(&file) {
            return Ok(*ino);
        }
        let directory = self.directory_of(file)?;
        let found = self.fs.lookup(directory, calls::file_name(file).as_bytes())?;
        self.files.insert(file, found.attr.ino);
        Ok(found.attr.ino)
    }

    fn put(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> Result<(), LabError> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.fs.write(ino, at + done as u64, &bytes[done..], WriteFlags::empty())?;
        }
        if self.durable {
            self.fs.fsync(ino, false)?;
        }
        Ok(())
    }
}

impl Caller for Mounted<'_> {
    type Error = LabError;

    fn directory(&mut self, directory: u32) -> Result<(), LabError> {
        let name = calls::directory_name(directory);
        let made = self.fs.mkdir(Asker::default(), self.fs.root(), name.as_bytes(), 0o755, 0)?;
        self.directories.insert(directory, made.attr.ino);
        if self.durable {
            self.fs.fsyncdir(self.fs.root(), false)?;
        }
        Ok(())
    }

    fn create(&mut self, file: u32, bytes: &[u8]) -> Result<(), LabError> {
        let parent = self.directory_of(file)?;
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let made = self.fs.mknod(Asker::default(), parent, calls::file_name(file).as_bytes(), &new)?;
        self.files.insert(file, made.attr.ino);
        self.put(made.attr.ino, 0, bytes)
    }

    fn rewrite(&mut self, file: u32, bytes: &[u8]) -> Result<(), LabError> {
        let ino = self.file(file)?;
        self.fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        self.put(ino, 0, bytes)
    }

    fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Result<(), LabError> {
        let ino = self.file(file)?;
        self.put(ino, at, bytes)
    }

    fn read(&mut self, file: u32, at: u64, bytes: &mut [u8]) -> Result<(), LabError> {
        let ino = self.file(file)?;
        let mut done = 0;
        while done < bytes.len() {
            match self.fs.read(ino, at + done as u64, &mut bytes[done..])? {
                0 => return Err(self.wrong(file, at + done as u64)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn wrong(&mut self, file: u32, at: u64) -> LabError {
        SimError::Contents { file: calls::file_name(file), at }.into()
    }
}

/// A file system to fill.
pub struct Filled<'a> {
    fs: &'a dyn FileSystem,
    directory: Option<(String, Ino)>,
}

impl<'a> Filled<'a> {
    /// Starts with an empty volume.
    pub fn new(fs: &'a dyn FileSystem) -> Self {
        Filled { fs, directory: None }
    }

    fn directory(&mut self, file: u32, make: bool) -> vfs::Result<Ino> {
        let name = fill::directory_name(file);
        if let Some((_, ino)) = self.directory.as_ref().filter(|(n, _)| *n == name) {
            return Ok(*ino);
        }
        let root = self.fs.root();
        let found = match self.fs.lookup(root, name.as_bytes()) {
            Err(vfs::Error::NotFound) if make => self.fs.mkdir(Asker::default(), root, name.as_bytes(), 0o755, 0)?,
            found => found?,
        };
        self.directory = Some((name, found.attr.ino));
        Ok(found.attr.ino)
    }

    fn try_make(&mut self, file: u32) -> vfs::Result<()> {
        let (directory, name) = (self.directory(file, true)?, fill::file_name(file));
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let ino = self.fs.mknod(Asker::default(), directory, name.as_bytes(), &new)?.attr.ino;
        let mut bytes = [0; fill::BYTES as usize];
        generate(u64::from(file), 0, &mut bytes);
        let written = self.fs.write(ino, 0, &bytes, WriteFlags::empty());
        self.fs.forget(ino, 1);
        match written {
            Ok(n) if n == bytes.len() => Ok(()),
            other => {
                self.fs.unlink(directory, name.as_bytes())?;
                Err(other.err().unwrap_or(vfs::Error::NoSpace))
            }
        }
    }
}

impl fill::Room for Filled<'_> {
    type Error = LabError;

    fn make(&mut self, file: u32) -> Result<bool, LabError> {
        match self.try_make(file) {
            Ok(()) => Ok(true),
            Err(vfs::Error::NoSpace) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
    fn delete(&mut self, file: u32) -> Result<(), LabError> {
        let directory = self.directory(file, false)?;
        Ok(self.fs.unlink(directory, fill::file_name(file).as_bytes())?)
    }
    fn used(&mut self) -> Result<f64, LabError> {
        let now = self.fs.statfs()?;
        Ok(100.0 * (now.blocks - now.blocks_free) as f64 / now.blocks as f64)
    }
}
