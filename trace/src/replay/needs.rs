//! What must be on a file system before recorded calls can be made on it?
//!
//! A recording begins in the middle of a program's life. What it read without having written it, opened without
//! making it, or removed, was there: as long as the recording needs it to be, and in directories that it did not make
//! itself.
//!
//! Names are remembered, also those that are gone: memory grows with how many different ones a recording has, not with its
//! length.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::place::{Place, PlaceError, contents};
use crate::TraceError;
use crate::call::{Call, Calls, Handle, How, Op, Target};

/// A write that begins so many bytes after what is known of a file leaves a hole.
const FAR: u64 = 256 << 20;
/// Bytes written at once.
const PIECE: u64 = 1 << 20;

/// Files and directories that must be there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Directories, above before below.
    pub directories: BTreeSet<Vec<u8>>,
    /// Files, with their bytes.
    pub files: BTreeMap<Vec<u8>, u64>,
    /// The most bytes that files hold at once while the calls are made, these included.
    pub peak: u64,
}

struct File {
    /// What it was called at the beginning, if it must have been there.
    was: Option<Vec<u8>>,
    /// What it would have been called if it was.
    may_be: Option<Vec<u8>>,
    /// Bytes it had then, as far as is known.
    then: u64,
    now: u64,
    /// `now` is its length, not only the least it can be.
    settled: bool,
    /// Bytes that were written at its end, wherever that was.
    appended: u64,
    directory: bool,
    names: u32,
}

/// Follows a recording.
#[derive(Default)]
struct Scan {
    files: Vec<File>,
    by_path: BTreeMap<Vec<u8>, usize>,
    open: FxHashMap<Handle, (usize, u64, How)>,
    /// Paths that led somewhere and do not any more, or never did.
    gone: BTreeSet<Vec<u8>>,
    made: BTreeSet<Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
    held: u64,
    peak: u64,
}

/// The directory a path is in.
fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    Some(&path[..slash]).filter(|p| !p.is_empty())
}

/// Reads a recording to its end, or up to damage: the error comes beside what is needed until there. `progress` is told now and then how many bytes of the file were read.
pub fn scan(calls: &mut dyn Calls, mut progress: impl FnMut(u64)) -> (Needs, Result<(), TraceError>) {
    let mut scan = Scan::default();
    let mut n = 0_u64;
    let whole = loop {
        match calls.next() {
            Ok(Some(call)) => scan.add(&call),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        n += 1;
        if n.is_multiple_of(1 << 14) {
            progress(calls.consumed());
        }
    };
    (scan.needs(), whole)
}

impl Scan {
    fn new_file(&mut self, path: &[u8], file: File) -> usize {
        self.inside(path);
        self.files.push(file);
        self.by_path.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    /// Whether something can have been at a path at the beginning: nothing at it was seen to go, and no directory above
    /// it was made since.
    fn may_have_been(&self, path: &[u8]) -> bool {
        let above = std::iter::successors(parent(path), |p| parent(p));
        !self.gone.contains(path) && !self.made.contains(path) && !above.into_iter().any(|d| self.made.contains(d))
    }

    /// A directory above a path that nobody made must have been there.
    fn inside(&mut self, path: &[u8]) {
        let mut at = path;
        while let Some(above) = parent(at) {
            if self.made.contains(above) || !self.directories.insert(above.to_owned()) {
                break;
            }
            at = above;
        }
    }

    /// The file at a path, which is there now.
    fn there(&mut self, path: &[u8]) -> usize {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let was = self.may_have_been(path).then(|| path.to_owned());
        let settled = was.is_none();
        self.new_file(
            path,
            File { was, may_be: None, then: 0, now: 0, settled, appended: 0, directory: false, names: 1 },
        )
    }

    fn grow(&mut self, file: usize, to: u64) {
        let f = &mut self.files[file];
        let more = to.saturating_sub(f.now);
        f.now = f.now.max(to);
        self.held = self.held.saturating_add(more);
        self.peak = self.peak.max(self.held);
    }

    /// Somebody relies on the file having had at least so many bytes.
    fn had(&mut self, file: usize, bytes: u64) {
        let f = &mut self.files[file];
        if bytes <= f.now || f.settled {
            return;
        }
        if f.was.is_none() {
            f.was = f.may_be.take();
        }
        f.then = f.then.max(bytes.saturating_sub(f.appended));
        self.grow(file, bytes);
    }

    /// Its length is known from now on, whatever it was.
    fn set(&mut self, file: usize, length: u64) {
        let f = &mut self.files[file];
        f.may_be = None;
        f.settled = true;
        if length < f.now {
            self.held = self.held.saturating_sub(f.now - length);
            f.now = length;
        } else {
            self.grow(file, length);
        }
    }

    fn dropped(&mut self, path: &[u8]) {
        if let Some(file) = self.by_path.remove(path) {
            let f = &mut self.files[file];
            f.names = f.names.saturating_sub(1);
            if f.names == 0 {
                self.held = self.held.saturating_sub(f.now);
            }
        }
        self.gone.insert(path.to_owned());
    }

    fn open(&mut self, handle: Handle, path: &[u8], how: How) {
        let new = how.contains(How::CREATE | How::EXCLUSIVE);
        if new {
            self.dropped(path);
        }
        let file = match self.by_path.get(path) {
            Some(known) => *known,
            None if how.contains(How::CREATE) => {
                let may_be = (!new && self.may_have_been(path)).then(|| path.to_owned());
                let settled = may_be.is_none();
                self.new_file(
                    path,
                    File { was: None, may_be, then: 0, now: 0, settled, appended: 0, directory: false, names: 1 },
                )
            }
            None => self.there(path),
        };
        self.files[file].directory |= how.contains(How::DIRECTORY);
        if how.contains(How::TRUNCATE) {
            self.set(file, 0);
        }
        self.open.insert(handle, (file, 0, how));
    }

    fn moved(&mut self, handle: Handle, at: Option<u64>, bytes: u64, write: bool) {
        let Some(&(file, position, how)) = self.open.get(&handle) else { return };
        let from = match at {
            Some(at) => at,
            None if write && how.contains(How::APPEND) => self.files[file].now,
            None => position,
        };
        let end = from.saturating_add(bytes);
        if write {
            // What lies before is more likely old than a hole, if it is not too much.
            if from.saturating_sub(self.files[file].now) <= FAR {
                self.had(file, from);
            }
            if at.is_none() && how.contains(How::APPEND) {
                self.files[file].appended += bytes;
            }
            self.grow(file, end);
        } else {
            self.had(file, end);
        }
        if at.is_none() {
            self.open.insert(handle, (file, end, how));
        }
    }

    fn add(&mut self, call: &Call) {
        if call.failed.is_some() {
            return;
        }
        match &call.op {
            Op::Open { handle, path, how } => self.open(*handle, path, *how),
            Op::Close { handle } => _ = self.open.remove(handle),
            Op::Read { handle, at, bytes } => self.moved(*handle, *at, *bytes, false),
            Op::Write { handle, at, bytes } => self.moved(*handle, *at, *bytes, true),
            Op::Seek { handle, to } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.1 = to.unwrap_or(self.files[open.0].now);
                }
            }
            Op::Truncate { file, length } => {
                let file = match file {
                    Target::Open(handle) => self.open.get(handle).map(|o| o.0),
                    Target::Path(path) => Some(self.there(path)),
                };
                file.into_iter().for_each(|f| self.set(f, *length));
            }
            Op::Allocate { handle, at, bytes, punch, keep_size } => {
                if let (Some(&(file, ..)), false) = (self.open.get(handle), *punch || *keep_size) {
                    self.grow(file, at.saturating_add(*bytes));
                }
            }
            Op::Unlink { path } => {
                self.there(path);
                self.dropped(path);
            }
            Op::RemoveDir { path } => {
                if !self.made.remove(path) {
                    self.inside(path);
                    self.directories.insert(path.clone());
                }
                self.gone.insert(path.clone());
            }
            Op::MakeDir { path } => {
                self.inside(path);
                self.made.insert(path.clone());
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Link { from, to } => {
                let file = self.there(from);
                self.files[file].names += 1;
                self.inside(to);
                self.by_path.insert(to.clone(), file);
            }
            Op::Symlink { path, .. } => {
                self.gone.insert(path.clone());
                self.there(path);
            }
            Op::Stat { file: Target::Path(path) } => {
                if !self.made.contains(path) && !self.directories.contains(path) && path.as_slice() != b"/" {
                    self.there(path);
                }
            }
            Op::List { handle } => {
                if let Some(&(file, ..)) = self.open.get(handle) {
                    self.files[file].directory = true;
                }
            }
            Op::Sync { .. } | Op::SyncAll | Op::Stat { .. } => {}
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        self.inside(to);
        let below = |path: &[u8]| path.starts_with(from) && path.get(from.len()) == Some(&b'/');
        let after = self.by_path.range(from.to_owned()..).map(|(p, _)| p).take_while(|p| p.starts_with(from));
        let inside: Vec<Vec<u8>> = after.filter(|p| below(p)).cloned().collect();
        let directory = self.made.contains(from) || self.directories.contains(from) || !inside.is_empty();
        if directory {
            self.inside(from);
            if !self.made.remove(from) {
                self.directories.insert(from.to_owned());
            }
            self.made.insert(to.to_owned());
            for old in inside {
                if let Some(file) = self.by_path.remove(&old) {
                    self.by_path.insert([to, &old[from.len()..]].concat(), file);
                    self.gone.insert(old);
                }
            }
        } else {
            self.there(from);
            // Two names of one file: nothing happens (rename(2)).
            if from == to || self.by_path.get(from) == self.by_path.get(to) {
                return;
            }
            self.dropped(to);
            if let Some(file) = self.by_path.remove(from) {
                self.by_path.insert(to.to_owned(), file);
            }
        }
        self.gone.insert(from.to_owned());
    }

    fn needs(self) -> Needs {
        let mut needs = Needs { directories: self.directories, files: BTreeMap::new(), peak: self.peak };
        for file in self.files {
            match file.was {
                Some(path) if file.directory => _ = needs.directories.insert(path),
                Some(path) => _ = needs.files.insert(path, file.then),
                None => {}
            }
        }
        // What was only looked at may be a directory that other paths go through.
        needs.files.retain(|path, _| !needs.directories.contains(path) && path.as_slice() != b"/");
        needs.directories.remove(b"/".as_slice());
        needs.directories.remove(b"".as_slice());
        needs
    }
}

impl Needs {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Puts them on a file system, and makes them durable.
    pub fn prepare(&self, place: &mut dyn Place, mut progress: impl FnMut(u64)) -> Result<(), (Vec<u8>, PlaceError)> {
        let (mut buf, mut done) = (Vec::new(), 0);
        for path in &self.directories {
            if place.stat(path).is_err() {
                place.make_dir(path).map_err(|e| (path.clone(), e))?;
            }
        }
        for (n, (path, bytes)) in (0..).zip(&self.files) {
            let mut make = || {
                let file = place.open(path, How::CREATE | How::WRITE | How::READ)?;
                let there = place.length(file)?;
                for at in (there..*bytes).step_by(PIECE as usize) {
                    let piece = PIECE.min(bytes - at) as usize;
                    place.write(file, at, contents((n << 20) | (at / PIECE), piece, &mut buf))?;
                    done += piece as u64;
                    progress(done);
                }
                place.close(file);
                Ok(())
            };
            make().map_err(|e: PlaceError| (path.clone(), e))?;
        }
        place.sync_all().map_err(|e| (b"/".to_vec(), e))
    }
}
