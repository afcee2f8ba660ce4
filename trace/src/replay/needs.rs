//! What must exist on a file system before recorded calls can be replayed?
//!
//! A recording begins in the middle of a program's life. A file existed before if the program read what it had not
//! written, opened what it had not created, or removed it. Such a file is created as long as the recording needs it,
//! with the directories above it that the program did not create.
//!
//! The scan remembers every name, including removed ones, and every file that can still be used. So memory grows with
//! the number of different names and of files open at the same time, not with the length of the recording.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::place::{Place, PlaceError, contents};
use crate::TraceError;
use crate::call::{Call, Calls, Handle, How, Op, Target};

/// A write this many bytes past the known end of a file leaves a hole.
const FAR: u64 = 256 << 20;
/// Bytes per write.
const PIECE: u64 = 1 << 20;

/// Files and directories that must exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Directories, parents first.
    pub directories: BTreeSet<Vec<u8>>,
    /// Files with their sizes.
    pub files: BTreeMap<Vec<u8>, u64>,
    /// Most bytes in files at the same time during the calls, including these.
    pub peak: u64,
}

struct File {
    /// Its initial name, if it must have existed.
    was: Option<Vec<u8>>,
    /// Its initial name, if it existed.
    may_be: Option<Vec<u8>>,
    /// Its initial size, as far as known.
    then: u64,
    now: u64,
    /// True if `now` is its exact length, not just the minimum.
    settled: bool,
    /// Bytes appended to an unknown end.
    appended: u64,
    directory: bool,
    /// Link count and open count: with neither, the file cannot be used any more.
    names: u32,
    opened: u32,
}

/// Tracks a recording.
#[derive(Default)]
struct Scan {
    /// Files that can still be used. Other files are in [`Needs`] if they must have existed, and their slots are free.
    files: Vec<File>,
    free: Vec<usize>,
    needs: Needs,
    by_path: BTreeMap<Vec<u8>, usize>,
    open: FxHashMap<Handle, (usize, u64, How)>,
    /// Paths that no longer exist, or never did.
    gone: BTreeSet<Vec<u8>>,
    made: BTreeSet<Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
    held: u64,
    peak: u64,
}

/// The parent directory of a path.
fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    Some(&path[..slash]).filter(|p| !p.is_empty())
}

/// Reads a recording to its end, or up to damage: the error is returned together with the needs up to there. `progress`
/// receives the number of bytes read so far, at intervals.
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
        self.require_parents(path);
        let place = match self.free.pop() {
            Some(place) => {
                self.files[place] = file;
                place
            }
            None => {
                self.files.push(file);
                self.files.len() - 1
            }
        };
        self.name(path, place);
        place
    }

    /// Lets a path lead to a file, and no longer to another.
    fn name(&mut self, path: &[u8], file: usize) {
        if let Some(before) = self.by_path.insert(path.to_owned(), file) {
            self.unnamed(before);
        }
    }

    /// A path no longer leads to the file.
    fn unnamed(&mut self, file: usize) {
        let f = &mut self.files[file];
        f.names = f.names.saturating_sub(1);
        if f.names == 0 {
            self.held = self.held.saturating_sub(f.now);
            self.fold(file);
        }
    }

    /// Closes the file once.
    fn closed(&mut self, file: usize) {
        let f = &mut self.files[file];
        f.opened = f.opened.saturating_sub(1);
        self.fold(file);
    }

    /// Keeps the needs of a file without names and opens, and frees its slot.
    fn fold(&mut self, file: usize) {
        let f = &mut self.files[file];
        if f.names == 0 && f.opened == 0 {
            if let Some(path) = f.was.take() {
                self.needs.add(path, f);
            }
            self.free.push(file);
        }
    }

    /// Whether a file may have been at this path initially: none was seen to disappear from there, and no directory
    /// above it was created since.
    fn may_have_existed(&self, path: &[u8]) -> bool {
        let above = std::iter::successors(parent(path), |p| parent(p));
        !self.gone.contains(path) && !self.made.contains(path) && !above.into_iter().any(|d| self.made.contains(d))
    }

    /// The directories above a path that were never created must have existed.
    fn require_parents(&mut self, path: &[u8]) {
        let mut at = path;
        while let Some(above) = parent(at) {
            if self.made.contains(above) || !self.directories.insert(above.to_owned()) {
                break;
            }
            at = above;
        }
    }

    /// The file at an existing path.
    fn existing(&mut self, path: &[u8]) -> usize {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let was = self.may_have_existed(path).then(|| path.to_owned());
        let settled = was.is_none();
        self.new_file(
            path,
            File { was, may_be: None, then: 0, now: 0, settled, appended: 0, directory: false, names: 1, opened: 0 },
        )
    }

    fn grow(&mut self, file: usize, to: u64) {
        let f = &mut self.files[file];
        let more = to.saturating_sub(f.now);
        f.now = f.now.max(to);
        self.held = self.held.saturating_add(more);
        self.peak = self.peak.max(self.held);
    }

    /// The file must have had at least this many bytes.
    fn require_length(&mut self, file: usize, bytes: u64) {
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

    /// Its length is exactly this from now on.
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
            self.unnamed(file);
        }
        if !self.gone.contains(path) {
            self.gone.insert(path.to_owned());
        }
    }

    fn open(&mut self, handle: Handle, path: &[u8], how: How) {
        let new = how.contains(How::CREATE | How::EXCLUSIVE);
        if new {
            self.dropped(path);
        }
        let file = match self.by_path.get(path) {
            Some(known) => *known,
            None if how.contains(How::CREATE) => {
                let may_be = (!new && self.may_have_existed(path)).then(|| path.to_owned());
                let settled = may_be.is_none();
                self.new_file(
                    path,
                    File {
                        was: None,
                        may_be,
                        then: 0,
                        now: 0,
                        settled,
                        appended: 0,
                        directory: false,
                        names: 1,
                        opened: 0,
                    },
                )
            }
            None => self.existing(path),
        };
        self.files[file].directory |= how.contains(How::DIRECTORY);
        if how.contains(How::TRUNCATE) {
            self.set(file, 0);
        }
        self.files[file].opened += 1;
        if let Some((before, ..)) = self.open.insert(handle, (file, 0, how)) {
            self.closed(before);
        }
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
            // Unless the gap is too long, it is more likely old data than a hole.
            if from.saturating_sub(self.files[file].now) <= FAR {
                self.require_length(file, from);
            }
            if at.is_none() && how.contains(How::APPEND) {
                self.files[file].appended += bytes;
            }
            self.grow(file, end);
        } else {
            self.require_length(file, end);
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
            Op::Close { handle } => {
                if let Some((file, ..)) = self.open.remove(handle) {
                    self.closed(file);
                }
            }
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
                    Target::Path(path) => Some(self.existing(path)),
                };
                file.into_iter().for_each(|f| self.set(f, *length));
            }
            Op::Allocate { handle, at, bytes, punch, keep_size } => {
                if let (Some(&(file, ..)), false) = (self.open.get(handle), *punch || *keep_size) {
                    self.grow(file, at.saturating_add(*bytes));
                }
            }
            Op::Unlink { path } => {
                self.existing(path);
                self.dropped(path);
            }
            Op::RemoveDir { path } => {
                if !self.made.remove(path) {
                    self.require_parents(path);
                    self.directories.insert(path.clone());
                }
                self.gone.insert(path.clone());
            }
            Op::MakeDir { path } => {
                self.require_parents(path);
                self.made.insert(path.clone());
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Link { from, to } => {
                let file = self.existing(from);
                self.files[file].names += 1;
                self.require_parents(to);
                self.name(to, file);
            }
            Op::Symlink { path, .. } => {
                self.gone.insert(path.clone());
                self.existing(path);
            }
            Op::Stat { file: Target::Path(path) } => {
                if !self.made.contains(path) && !self.directories.contains(path) && path.as_slice() != b"/" {
                    self.existing(path);
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
        self.require_parents(to);
        let below = |path: &[u8]| path.starts_with(from) && path.get(from.len()) == Some(&b'/');
        let after = self.by_path.range(from.to_owned()..).map(|(p, _)| p).take_while(|p| p.starts_with(from));
        let inside: Vec<Vec<u8>> = after.filter(|p| below(p)).cloned().collect();
        let directory = self.made.contains(from) || self.directories.contains(from) || !inside.is_empty();
        if directory {
            self.require_parents(from);
            if !self.made.remove(from) {
                self.directories.insert(from.to_owned());
            }
            self.made.insert(to.to_owned());
            for old in inside {
                if let Some(file) = self.by_path.remove(&old) {
                    self.name(&[to, &old[from.len()..]].concat(), file);
                    self.gone.insert(old);
                }
            }
        } else {
            self.existing(from);
            // Two names of one file: rename(2) does nothing.
            if from == to || self.by_path.get(from) == self.by_path.get(to) {
                return;
            }
            self.dropped(to);
            if let Some(file) = self.by_path.remove(from) {
                self.name(to, file);
            }
        }
        self.gone.insert(from.to_owned());
    }

    fn needs(self) -> Needs {
        let mut needs = self.needs;
        for mut file in self.files {
            if let Some(path) = file.was.take() {
                needs.add(path, &file);
            }
        }
        needs.directories.extend(self.directories);
        needs.peak = self.peak;
        // A path that was only looked up may be a directory on the way to others.
        needs.files.retain(|path, _| !needs.directories.contains(path) && path.as_slice() != b"/");
        needs.directories.remove(b"/".as_slice());
        needs.directories.remove(b"".as_slice());
        needs
    }
}

impl Needs {
    /// Adds a file that must have existed.
    fn add(&mut self, path: Vec<u8>, file: &File) {
        if file.directory {
            self.directories.insert(path);
        } else {
            self.files.insert(path, file.then);
        }
    }

    /// Total size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Creates them on a file system, and makes them durable.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_recreated_often_is_remembered_once() {
        let mut scan = Scan::default();
        let path = |name: &str| format!("/d/{name}").into_bytes();
        for n in 0..50_000_u64 {
            let how = How::WRITE | How::CREATE | if n % 3 == 0 { How::EXCLUSIVE } else { How::TRUNCATE };
            let (handle, temporary) = (Handle(n), path("new"));
            let ops = [
                Op::Open { handle, path: temporary.clone(), how },
                Op::Write { handle, at: None, bytes: 100 },
                Op::Rename { from: temporary, to: path("old") },
                Op::Link { from: path("old"), to: path("other") },
                // Some are never closed, but their handle is reused.
                Op::Close { handle: if n % 5 == 0 { Handle(u64::MAX) } else { handle } },
                Op::Open { handle: Handle(1 << 40), path: path("other"), how: How::READ },
                Op::Unlink { path: path("other") },
                Op::Read { handle: Handle(1 << 40), at: None, bytes: 100 },
            ];
            let close = (n % 5 == 0).then_some(Op::Open { handle, path: path("old"), how: How::READ });
            for op in ops.into_iter().chain(close).chain([Op::Close { handle }]) {
                scan.add(&Call { time: n, thread: 1, op, took: None, failed: None });
            }
        }
        assert!(scan.files.len() < 8, "{} files are held", scan.files.len());
        assert!(scan.open.len() + scan.by_path.len() + scan.gone.len() + scan.made.len() < 16);
    }
}
