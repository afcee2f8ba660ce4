//! The parts of an inode.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::RwLock;
use vfs::{Attr, DeviceNumber, Error, FileKind, Ino, Result, Timestamp};

use super::content::Content;

/// The names in a directory with their inodes.
pub(super) struct Directory {
    by_name: BTreeMap<Vec<u8>, (u64, Ino)>,
    /// In order of creation. The position is the listing's cookie, so it never changes.
    by_position: BTreeMap<u64, (Vec<u8>, Ino, FileKind)>,
    next: u64,
    pub(super) parent: Ino,
}

/// Positions below this are `.` and `..`.
pub(super) const FIRST: u64 = 3;

impl Directory {
    pub(super) fn new(parent: Ino) -> Self {
        Directory { by_name: BTreeMap::new(), by_position: BTreeMap::new(), next: FIRST, parent }
    }
    pub(super) fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_name.get(name).map(|&(_, ino)| ino)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
    pub(super) fn insert(&mut self, name: &[u8], ino: Ino, kind: FileKind) {
        self.remove(name);
        let position = self.next;
        self.next += 1;
        self.by_name.insert(name.to_vec(), (position, ino));
        self.by_position.insert(position, (name.to_vec(), ino, kind));
    }
    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((position, _)) = self.by_name.remove(name) {
            self.by_position.remove(&position);
        }
    }
    /// Names from a position.
    pub(super) fn from(&self, position: u64) -> impl Iterator<Item = (u64, &[u8], Ino, FileKind)> {
        self.by_position
            .range(position..)
            .map(|(&position, (name, ino, kind))| (position, name.as_slice(), *ino, *kind))
    }
}

pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

/// The mutable part of an inode.
pub(super) struct State {
    pub(super) perm: u16,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) crtime: Timestamp,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) body: Body,
}

pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) rdev: DeviceNumber,
    /// Lookups and opens not yet released.
    pub(super) references: AtomicU64,
    pub(super) damaged: AtomicBool,
    pub(super) state: RwLock<State>,
}

impl Node {
    pub(super) fn attr(&self) -> Attr {
        self.attr_of(&self.state.read())
    }

    pub(super) fn attr_of(&self, state: &State) -> Attr {
        let (size, blocks512) = match &state.body {
            Body::File(content) => (content.size, content.blocks512()),
            Body::Directory(_) => (4096, 8),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special => (0, 0),
        };
        Attr {
            ino: self.ino,
            generation: 0,
            kind: self.kind,
            perm: state.perm,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            size,
            blocks512,
            rdev: self.rdev,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            crtime: Some(state.crtime),
        }
    }
}

impl State {
    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }
    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }
    pub(super) fn file(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }
    pub(super) fn file_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }
    /// For a write by an unprivileged user.
    pub(super) fn kill_suid_sgid(&mut self) {
        self.perm &= !0o4000;
        if self.perm & 0o010 != 0 {
            self.perm &= !0o2000;
        }
    }
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.ctime = now;
    }
    pub(super) fn modified(&mut self, now: Timestamp) {
        self.mtime = now;
        self.ctime = now;
    }
}
