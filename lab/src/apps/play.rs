//! Replays a script's calls on a file system.

use std::time::Duration;

use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, RenameFlags, SetAttr, WriteFlags};

use super::tape::{Call, Script};

/// A script being replayed.
pub struct Player<'s> {
    script: &'s Script,
    /// Prefix of its file names.
    prefix: String,
    files: Vec<Ino>,
    names: Vec<String>,
    next: usize,
    begun: bool,
    /// Whether files are synced.
    syncs: bool,
}

/// The kind of a call, for latency measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A sync of a file.
    Sync,
    /// A read.
    Read,
    /// Time must pass.
    Wait(Duration),
    /// Anything else.
    Other,
}

impl<'s> Player<'s> {
    /// Starts at the script's beginning.
    pub fn new(script: &'s Script) -> Self {
        Self::among_others(script, "")
    }

    /// Starts a script that shares a volume with others: its file names begin with `prefix`.
    pub fn among_others(script: &'s Script, prefix: &str) -> Self {
        Player {
            script,
            prefix: prefix.into(),
            files: Vec::new(),
            names: Vec::new(),
            next: 0,
            begun: false,
            syncs: true,
        }
    }

    /// Leaves the syncs out.
    pub fn without_syncs(self) -> Self {
        Player { syncs: false, ..self }
    }

    /// The names of the existing files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter(|name| !name.is_empty()).map(String::as_str)
    }

    /// Inodes and names of the existing files.
    pub fn files(&self) -> impl Iterator<Item = (Ino, &str)> {
        self.files
            .iter()
            .copied()
            .zip(&self.names)
            .filter(|(_, name)| !name.is_empty())
            .map(|(ino, n)| (ino, n.as_str()))
    }

    /// Remaining calls of this part: of the preparation or, after [`Player::begin`], of the rest.
    pub fn left(&self) -> usize {
        let end = if self.begun { self.script.calls.len() } else { self.script.prepares };
        end - self.next
    }

    /// Ends the preparation.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// Bytes that the next call reads or writes.
    pub fn bytes(&self) -> u64 {
        match self.script.calls.get(self.next) {
            Some(Call::Write(_, _, bytes)) => bytes.len() as u64,
            Some(Call::Read(_, _, bytes)) => *bytes as u64,
            _ => 0,
        }
    }

    /// Looks the files up again after a remount.
    pub fn find_again(&mut self, fs: &dyn FileSystem) -> vfs::Result<()> {
        for (ino, name) in self.files.iter_mut().zip(&self.names).filter(|(_, name)| !name.is_empty()) {
            *ino = fs.lookup(fs.root(), name.as_bytes())?.attr.ino;
        }
        Ok(())
    }

    /// Makes the next call.
    pub fn step(&mut self, fs: &dyn FileSystem) -> vfs::Result<Made> {
        let Some(call) = self.script.calls.get(self.next) else { return Ok(Made::Other) };
        self.next += 1;
        match call {
            Call::Make(_, name) => {
                let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
                let name = format!("{}{name}", self.prefix);
                self.files.push(fs.mknod(Caller::default(), fs.root(), name.as_bytes(), &new)?.attr.ino);
                self.names.push(name);
            }
            Call::Write(file, at, bytes) => {
                let (mut at, mut rest) = (*at, &self.script.bytes[bytes.clone()]);
                while !rest.is_empty() {
                    let n = fs.write(self.files[*file], at, rest, WriteFlags::empty())?;
                    (at, rest) = (at + n as u64, &rest[n..]);
                }
            }
            Call::Read(file, at, bytes) => {
                fs.read(self.files[*file], *at, &mut vec![0; *bytes])?;
                return Ok(Made::Read);
            }
            Call::Size(file, size) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                fs.setattr(self.files[*file], &set)?;
            }
            Call::Sync(_) | Call::SyncDirectory if !self.syncs => {}
            Call::Sync(file) => {
                fs.fsync(self.files[*file], true)?;
                return Ok(Made::Sync);
            }
            Call::SyncDirectory => fs.fsyncdir(fs.root(), false)?,
            Call::Delete(file) => {
                fs.unlink(fs.root(), std::mem::take(&mut self.names[*file]).as_bytes())?;
                fs.forget(self.files[*file], 1);
            }
            Call::Rename(file, to) => {
                let to = format!("{}{to}", self.prefix);
                if let Some(other) = self.names.iter().position(|n| *n == to) {
                    self.names[other].clear();
                    fs.forget(self.files[other], 1);
                }
                let root = fs.root();
                let from = (root, self.names[*file].as_bytes());
                fs.rename(Caller::default(), from, (root, to.as_bytes()), RenameFlags::empty())?;
                self.names[*file] = to;
            }
            Call::Wait(time) => return Ok(Made::Wait(*time)),
        }
        Ok(Made::Other)
    }
}
