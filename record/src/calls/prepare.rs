//! What must exist on a file system before the calls of a recording with contents can be replayed?
//!
//! The recording has the attributes of every file that its calls found, and the contents of those that they changed. It
//! does not record paths. But until a call finds a file by name, no recorded call can have moved it, so that name is
//! its place. So this module tracks the names of all inodes through the recording, and creates what a call finds at a
//! name that no call gave. Files without recorded contents get generated ones.

use std::collections::BTreeMap;

use device::generate;
use vfs::{Caller, Error, FileKind, FileSystem, Ino, NewNode, RenameFlags, SetAttr, SetTime, WriteFlags, XattrFlags};

use super::call::{Call, OldFile};
use super::event::Event;
use crate::RecordError;

/// Bytes per write.
const PIECE: u64 = 1 << 20;

/// What was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prepared {
    /// Files and directories.
    pub files: u64,
    /// Bytes from the recording.
    pub recorded: u64,
    /// Bytes generated, because the recording lacks them.
    pub generated: u64,
}

/// A file that the recording needs could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{name}: cannot be created before the calls: {source}")]
pub struct PrepareError {
    /// The last component of its path.
    pub name: String,
    /// The reason.
    pub source: Error,
}

/// A file from before the recording, as far as the recording has been read.
struct Old {
    was: OldFile,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its inode and name on this file system.
    here: Option<(Ino, Vec<u8>)>,
    /// It existed already, and stays as it is.
    already: bool,
    /// The recording has its contents.
    held: bool,
}

struct Preparation<'a> {
    fs: &'a dyn FileSystem,
    root: Ino,
    /// By recorded number.
    old: BTreeMap<u64, Old>,
    /// Names given or found by the calls read so far: by the directory's recorded inode number and the name.
    names: BTreeMap<(u64, Vec<u8>), u64>,
    /// Files whose recorded inode number has been reused.
    replaced: Vec<Old>,
    done: Prepared,
}

/// Creates on `fs` what the calls of a recording find and `fs` lacks, and makes it durable. An existing file of the
/// same name and type stays as it is: `fs` may be a copy of the recorded file system. A recording without contents has
/// no state before, so nothing is done.
///
/// A damaged recording is prepared up to the damage; the error is returned together with the result. `progress` is
/// called for every record.
///
/// # Errors
/// The first file that cannot be created.
pub fn prepare(
    root: Ino,
    events: impl Iterator<Item = Result<Event, RecordError>>,
    fs: &dyn FileSystem,
    mut progress: impl FnMut(),
) -> Result<(Prepared, Result<(), RecordError>), PrepareError> {
    let mut preparation = Preparation {
        fs,
        root,
        old: BTreeMap::new(),
        names: BTreeMap::new(),
        replaced: Vec::new(),
        done: Prepared::default(),
    };
    let mut whole = Ok(());
    for event in events {
        match event {
            Ok(event) => preparation.read(event)?,
            Err(e) => {
                whole = Err(e);
                break;
            }
        }
        progress();
    }
    Ok((preparation.end()?, whole))
}

fn failed(name: &[u8]) -> impl FnOnce(Error) -> PrepareError + use<> {
    let name = String::from_utf8_lossy(name).into_owned();
    move |source| PrepareError { name, source }
}

impl Preparation<'_> {
    fn read(&mut self, event: Event) -> Result<(), PrepareError> {
        let Ok(answer) = event.answer else { return Ok(()) };
        match event.call {
            Call::Was { ino, was } => {
                let old = Old { was, attributes: Vec::new(), here: None, already: false, held: false };
                if let Some(before) = self.old.insert(ino.0, old) {
                    self.replaced.push(before);
                }
            }
            Call::WasAttribute { ino, name, value } => {
                if let Some(old) = self.old.get_mut(&ino.0) {
                    old.attributes.push((name, value));
                }
            }
            Call::WasContents { ino, offset, bytes } => self.held(ino, offset, &bytes)?,
            Call::Lookup { parent, name } => self.found(parent, name, Ino(answer))?,
            Call::Mknod { parent, name, .. }
            | Call::Mkdir { parent, name, .. }
            | Call::Symlink { parent, name, .. } => {
                self.created(Ino(answer));
                self.names.insert((parent.0, name), answer);
            }
            Call::Tmpfile { .. } => self.created(Ino(answer)),
            Call::Link { ino, parent, name } => {
                self.names.insert((parent.0, name), ino.0);
            }
            Call::Unlink { parent, name } | Call::Rmdir { parent, name } => {
                self.names.remove(&(parent.0, name));
            }
            Call::Rename { parent, name, to_parent, to_name, flags, .. } => {
                let (from, to) = ((parent.0, name), (to_parent.0, to_name));
                let (moved, replaced) = (self.names.remove(&from), self.names.remove(&to));
                self.names.extend(moved.map(|ino| (to, ino)));
                if flags.contains(RenameFlags::EXCHANGE) {
                    self.names.extend(replaced.map(|ino| (from, ino)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A call created the file: the previous file with its number is gone.
    fn created(&mut self, ino: Ino) {
        self.replaced.extend(self.old.remove(&ino.0));
    }

    /// The inode of a recorded directory on this file system, if it was created before the calls.
    fn directory(&self, recorded: Ino) -> Option<Ino> {
        if recorded == self.root {
            return Some(self.fs.root());
        }
        self.old.get(&recorded.0)?.here.as_ref().map(|(ino, _)| *ino)
    }

    fn found(&mut self, parent: Ino, name: Vec<u8>, ino: Ino) -> Result<(), PrepareError> {
        let place = (parent.0, name);
        if ino == self.root || matches!(place.1.as_slice(), b"." | b"..") || self.names.contains_key(&place) {
            return Ok(());
        }
        if let (Some(directory), Some(old)) = (self.directory(parent), self.old.get_mut(&ino.0)) {
            match &old.here {
                Some((here, _)) => match self.fs.link(*here, directory, &place.1) {
                    Ok(linked) => self.fs.forget(linked.attr.ino, 1),
                    Err(Error::Exists) => {}
                    Err(e) => return Err(failed(&place.1)(e)),
                },
                None => {
                    let (here, already) = make(self.fs, directory, &place.1, old).map_err(failed(&place.1))?;
                    old.here = Some((here, place.1.clone()));
                    old.already = already;
                    self.done.files += u64::from(!already);
                }
            }
        }
        self.names.insert(place, ino.0);
        Ok(())
    }

    fn held(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), PrepareError> {
        let Some(Old { here: Some((here, name)), already: false, held, .. }) = self.old.get_mut(&ino.0) else {
            return Ok(());
        };
        *held = true;
        self.done.recorded += bytes.len() as u64;
        write(self.fs, *here, offset, bytes).map_err(failed(name))
    }

    fn end(mut self) -> Result<Prepared, PrepareError> {
        let all: Vec<Old> =
            std::mem::take(&mut self.replaced).into_iter().chain(std::mem::take(&mut self.old).into_values()).collect();
        for old in &all {
            if let (Some((here, name)), false) = (&old.here, old.already) {
                self.finish(old, *here).map_err(failed(name))?;
            }
        }
        self.fs.sync().map_err(failed(b"/"))?;
        for (here, _) in all.into_iter().filter_map(|old| old.here) {
            self.fs.forget(here, 1);
        }
        Ok(self.done)
    }

    /// Sets a file's length and times, and generates contents if the recording has none.
    fn finish(&mut self, old: &Old, here: Ino) -> Result<(), Error> {
        let Old { was, held, .. } = old;
        if was.kind == FileKind::Regular {
            if !held {
                // A file with holes gets data from its beginning, as much as it had blocks.
                let bytes = was.size.min(was.blocks512.saturating_mul(512));
                let mut buf = vec![0; PIECE.min(bytes) as usize];
                for at in (0..bytes).step_by(PIECE as usize) {
                    let piece = &mut buf[..PIECE.min(bytes - at) as usize];
                    generate(here.0 ^ 1 << 62, (at / device::BLOCK as u64) as u32, piece);
                    write(self.fs, here, at, piece)?;
                    self.done.generated += piece.len() as u64;
                }
            }
            self.fs.setattr(here, &SetAttr { size: Some(was.size), ..SetAttr::default() })?;
        }
        for (name, value) in &old.attributes {
            // An attribute class that this file system lacks does not change the cost of its calls.
            match self.fs.setxattr(here, name, value, XattrFlags::empty()) {
                Err(Error::Unsupported(_) | Error::NotPermitted(_)) | Ok(()) => {}
                Err(e) => return Err(e),
            }
        }
        let mtime = Some(SetTime::At(was.mtime));
        let (perm, uid, gid) = ((was.kind != FileKind::Symlink).then_some(was.perm), Some(was.uid), Some(was.gid));
        self.fs.setattr(here, &SetAttr { perm, uid, gid, mtime, ..SetAttr::default() }).map(drop)
    }
}

/// Creates a file; returns true if it exists already.
fn make(fs: &dyn FileSystem, directory: Ino, name: &[u8], old: &Old) -> Result<(Ino, bool), Error> {
    let OldFile { kind, perm, uid, gid, rdev, .. } = old.was;
    let caller = Caller { uid, gid };
    let made = match kind {
        FileKind::Directory => fs.mkdir(caller, directory, name, perm, 0),
        FileKind::Symlink => fs.symlink(caller, directory, name, &old.was.target),
        _ => fs.mknod(caller, directory, name, &NewNode { kind, perm, umask: 0, rdev }),
    };
    match made {
        Err(Error::Exists) => {
            let there = fs.lookup(directory, name)?.attr;
            if there.kind == kind {
                return Ok((there.ino, true));
            }
            fs.forget(there.ino, 1);
            Err(Error::Exists)
        }
        made => Ok((made?.attr.ino, false)),
    }
}

fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let mut done = 0;
    while done < bytes.len() {
        match fs.write(ino, offset.saturating_add(done as u64), &bytes[done..], WriteFlags::empty())? {
            0 => return Err(Error::NoSpace),
            n => done += n,
        }
    }
    Ok(())
}
