//! How are the calls of a recording replayed on another file system?

use std::collections::BTreeMap;

use device::{BLOCK, generate};
use vfs::{Entry, Error, FileSystem, Flow, Ino};

use super::call::{Call, Contents};
use super::event::{Event, Failure};
use crate::{RecordError, Tempo};

/// Largest read or write in bytes; longer calls are split.
const PIECE: u64 = 1 << 20;
/// Longest attribute value (`XATTR_SIZE_MAX` of Linux).
const LONGEST_VALUE: u64 = 64 << 10;

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Calls replayed.
    pub calls: u64,
    /// Calls skipped because this file system has no such inode.
    pub left_out: u64,
    /// The first of them: its index in the recording, from 0, and the method.
    pub first_left_out: Option<(u64, &'static str)>,
    /// Calls with another result than in the recording: success instead of failure or the reverse, another error, or
    /// another number of bytes read or written.
    pub diverged: u64,
    /// The first of them.
    pub first_divergence: Option<Divergence>,
    /// Those among them that failed for lack of space, and succeeded in the recording.
    pub no_space: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes among them that were generated, because the recording lacks them.
    pub generated: u64,
    /// Bytes read.
    pub read: u64,
    /// Nanoseconds from the first recorded arrival to the last.
    pub span: u64,
}

/// A call with another result than in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divergence {
    /// Its index in the recording, from 0.
    pub record: u64,
    /// The method.
    pub call: &'static str,
    /// Its recorded result.
    pub then: Result<u64, Failure>,
    /// Its result now.
    pub now: Result<u64, Failure>,
}

/// Replays the calls of a recording on `fs`, one after the other. Writes write the recorded contents, or generated
/// bytes if the recording has none; equal fingerprints give equal bytes.
///
/// The replay learns inode numbers from lookups and creations, so `fs` may number its inodes differently. `fs` should
/// hold what the recorded file system held at the beginning; for a recording with contents, [`super::prepare()`]
/// creates it. At the end the replay releases all references, unless the recording ends with an unmount.
///
/// A damaged recording is replayed up to the damage; the error is returned together with the result so far.
pub fn replay(
    root: Ino,
    events: impl Iterator<Item = Result<Event, RecordError>>,
    fs: &dyn FileSystem,
    tempo: &Tempo,
    mut each: impl FnMut(&Event),
) -> (Replayed, Result<(), RecordError>) {
    let mut calls = Replayer::new(root, fs);
    let mut time = tempo.start();
    let mut whole = Ok(());
    for (n, event) in (0..).zip(events) {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                whole = Err(e);
                break;
            }
        };
        calls.arrives(event.arrival);
        time.due(event.arrival);
        if !event.call.is_of_before() {
            calls.make(n, &event);
            each(&event);
        }
    }
    (calls.end(), whole)
}

/// A replay whose caller chooses the calls and their times.
pub struct Replayer<'a> {
    state: State<'a>,
    /// The first arrival that counts.
    first: Option<u64>,
}

impl<'a> Replayer<'a> {
    /// A replay on `fs` of a recording whose root had this number.
    pub fn new(root: Ino, fs: &'a dyn FileSystem) -> Self {
        Replayer::below(fs.root(), root, fs)
    }

    /// The same with a directory of `fs` as the root: several recordings can then be replayed side by side.
    pub fn below(directory: Ino, root: Ino, fs: &'a dyn FileSystem) -> Self {
        let state = State {
            fs,
            directory,
            root,
            known: BTreeMap::new(),
            listings: BTreeMap::new(),
            unmounted: false,
            buf: Vec::new(),
            done: Replayed::default(),
        };
        Replayer { state, first: None }
    }

    /// Extends the span to this time.
    pub fn arrives(&mut self, arrival: u64) {
        let first = *self.first.get_or_insert(arrival);
        let span = &mut self.state.done.span;
        *span = (*span).max(arrival.saturating_sub(first));
    }

    /// Replays a call; `record` is its index.
    pub fn make(&mut self, record: u64, event: &Event) {
        self.state.make(record, event);
    }

    /// Resets the counters.
    pub fn count_from_here(&mut self) {
        self.state.done = Replayed::default();
        self.first = None;
    }

    /// Releases all references, unless the file system was unmounted; returns the result.
    pub fn end(mut self) -> Replayed {
        self.state.end();
        self.state.done
    }
}

/// An inode of this file system, and the number of references held.
struct Known {
    ino: Ino,
    references: u64,
}

struct State<'a> {
    fs: &'a dyn FileSystem,
    /// The directory that replaces the recorded root.
    directory: Ino,
    root: Ino,
    /// By recorded inode number.
    known: BTreeMap<u64, Known>,
    /// By recorded inode number: the recorded end cookies of listings, and those of this file system. Several programs
    /// may list one directory at the same time.
    listings: BTreeMap<u64, BTreeMap<u64, u64>>,
    unmounted: bool,
    buf: Vec<u8>,
    done: Replayed,
}

/// The call's inode is not known.
struct Unknown;

/// True if a replay must return the recorded result for this call.
fn comparable(call: &Call) -> bool {
    matches!(call, Call::Read { .. } | Call::Write { .. })
}

impl State<'_> {
    fn make(&mut self, n: u64, event: &Event) {
        let Ok(now) = self.ask(event) else {
            self.done.left_out += 1;
            self.done.first_left_out.get_or_insert((n, event.call.name()));
            return;
        };
        self.done.calls += 1;
        let now = now.map_err(|e| Failure::from_error(&e));
        let same = match (&event.answer, &now) {
            (Ok(then), Ok(now)) => !comparable(&event.call) || then == now,
            (then, now) => then == now,
        };
        if !same {
            self.done.diverged += 1;
            self.done.no_space += u64::from(now == Err(Failure::NoSpace));
            let here = Divergence { record: n, call: event.call.name(), then: event.answer, now };
            self.done.first_divergence.get_or_insert(here);
        }
    }

    fn ino(&self, recorded: Ino) -> Result<Ino, Unknown> {
        if recorded == self.root {
            return Ok(self.directory);
        }
        self.known.get(&recorded.0).map(|k| k.ino).ok_or(Unknown)
    }

    /// Notes the inode in a result. If the recorded call failed, releases the reference, since the recorded caller got
    /// none.
    fn found(&mut self, event: &Event, entry: Result<Entry, Error>) -> Result<u64, Error> {
        let ino = entry?.attr.ino;
        match event.answer {
            Ok(recorded) if Ino(recorded) != self.root => {
                let known = self.known.entry(recorded).or_insert(Known { ino, references: 0 });
                if known.ino != ino {
                    // The number has been reused for another file.
                    self.fs.forget(known.ino, known.references);
                    *known = Known { ino, references: 0 };
                }
                known.references += 1;
            }
            _ => self.fs.forget(ino, 1),
        }
        Ok(ino.0)
    }

    fn forget(&mut self, recorded: Ino, count: u64) -> Result<(), Unknown> {
        let known = self.known.get_mut(&recorded.0).ok_or(Unknown)?;
        let count = count.min(known.references);
        known.references -= count;
        self.fs.forget(known.ino, count);
        if known.references == 0 {
            self.known.remove(&recorded.0);
            self.listings.remove(&recorded.0);
        }
        Ok(())
    }

    fn ask(&mut self, event: &Event) -> Result<Result<u64, Error>, Unknown> {
        let fs = self.fs;
        let none = |result: Result<(), Error>| result.map(|()| 0);
        Ok(match &event.call {
            Call::Lookup { parent, name } => {
                let parent = self.ino(*parent)?;
                self.found(event, fs.lookup(parent, name))
            }
            Call::Forget { ino, count } => {
                self.forget(*ino, *count)?;
                Ok(0)
            }
            Call::Getattr { ino } => fs.getattr(self.ino(*ino)?).map(|a| a.size),
            Call::Setattr { ino, set } => fs.setattr(self.ino(*ino)?, set).map(|a| a.size),
            Call::Readlink { ino } => fs.readlink(self.ino(*ino)?).map(|t| t.len() as u64),
            Call::Mknod { caller, parent, name, new } => {
                let parent = self.ino(*parent)?;
                self.found(event, fs.mknod(*caller, parent, name, new))
            }
            Call::Mkdir { caller, parent, name, perm, umask } => {
                let parent = self.ino(*parent)?;
                self.found(event, fs.mkdir(*caller, parent, name, *perm, *umask))
            }
            Call::Symlink { caller, parent, name, target } => {
                let parent = self.ino(*parent)?;
                self.found(event, fs.symlink(*caller, parent, name, target))
            }
            Call::Link { ino, parent, name } => {
                let (ino, parent) = (self.ino(*ino)?, self.ino(*parent)?);
                self.found(event, fs.link(ino, parent, name))
            }
            Call::Unlink { parent, name } => none(fs.unlink(self.ino(*parent)?, name)),
            Call::Rmdir { parent, name } => none(fs.rmdir(self.ino(*parent)?, name)),
            Call::Rename { caller, parent, name, to_parent, to_name, flags } => {
                let (parent, to_parent) = (self.ino(*parent)?, self.ino(*to_parent)?);
                none(fs.rename(*caller, (parent, name), (to_parent, to_name), *flags))
            }
            Call::Tmpfile { caller, parent, perm, umask } => {
                let parent = self.ino(*parent)?;
                self.found(event, fs.tmpfile(*caller, parent, *perm, *umask))
            }
            Call::Open { ino, truncate } => none(fs.open(self.ino(*ino)?, *truncate)),
            Call::Release { ino } => {
                fs.release(self.ino(*ino)?);
                Ok(0)
            }
            Call::Read { ino, offset, len } => {
                let ino = self.ino(*ino)?;
                self.read(ino, *offset, *len)
            }
            Call::Write { ino, offset, contents, flags } => {
                let ino = self.ino(*ino)?;
                self.write(ino, *offset, contents, *flags)
            }
            Call::Fallocate { ino, what, offset, len } => none(fs.fallocate(self.ino(*ino)?, *what, *offset, *len)),
            Call::Seek { ino, offset, what } => fs.seek(self.ino(*ino)?, *offset, *what),
            Call::Readdir { ino, cookie, names } => self.list(*ino, *cookie, *names, event.answer.ok())?,
            Call::Fsync { ino, data_only } => none(fs.fsync(self.ino(*ino)?, *data_only)),
            Call::Fsyncdir { ino, data_only } => none(fs.fsyncdir(self.ino(*ino)?, *data_only)),
            Call::Sync {} => none(fs.sync()),
            Call::Getxattr { ino, name } => fs.getxattr(self.ino(*ino)?, name).map(|v| v.len() as u64),
            Call::Listxattr { ino } => fs.listxattr(self.ino(*ino)?).map(|n| n.len() as u64),
            Call::Setxattr { ino, name, value, flags } => {
                let ino = self.ino(*ino)?;
                let value = match value {
                    Contents::Given(value) => value.clone(),
                    Contents::Of { len, fingerprint } => {
                        // One byte over the limit is refused like any larger value.
                        let mut value = vec![0; (*len).min(LONGEST_VALUE + 1) as usize];
                        generate(u64::from(*fingerprint), 0, &mut value);
                        value
                    }
                };
                none(fs.setxattr(ino, name, &value, *flags))
            }
            Call::Removexattr { ino, name } => none(fs.removexattr(self.ino(*ino)?, name)),
            Call::Statfs {} => fs.statfs().map(|_| 0),
            Call::Tick {} => none(fs.tick().map(|_| ())),
            // Records of the state before are not calls.
            Call::Part { .. } | Call::Was { .. } | Call::WasAttribute { .. } | Call::WasContents { .. } => Ok(0),
            Call::Unmount {} => {
                self.unmounted = true;
                none(fs.unmount())
            }
        })
    }

    fn read(&mut self, ino: Ino, offset: u64, len: u64) -> Result<u64, Error> {
        let mut done = 0;
        loop {
            let piece = PIECE.min(len - done);
            self.buf.resize(piece as usize, 0);
            let n = self.fs.read(ino, offset.saturating_add(done), &mut self.buf)? as u64;
            done += n;
            self.done.read += n;
            if n < piece || done >= len {
                return Ok(done);
            }
        }
    }

    fn write(&mut self, ino: Ino, offset: u64, contents: &Contents, flags: vfs::WriteFlags) -> Result<u64, Error> {
        let len = contents.len();
        let mut done = 0;
        loop {
            let piece = PIECE.min(len - done);
            let data = match contents {
                Contents::Given(bytes) => &bytes[done as usize..(done + piece) as usize],
                Contents::Of { fingerprint, .. } => {
                    self.buf.resize(piece as usize, 0);
                    // A generated sequence has 2^32 blocks; a longer write repeats it.
                    generate(u64::from(*fingerprint), (done / BLOCK as u64) as u32, &mut self.buf);
                    &self.buf
                }
            };
            let n = self.fs.write(ino, offset.saturating_add(done), data, flags)? as u64;
            done += n;
            self.done.written += n;
            if matches!(contents, Contents::Of { .. }) {
                self.done.generated += n;
            }
            if n < piece || done >= len {
                return Ok(done);
            }
        }
    }

    /// Lists as many names of a directory as the recorded call did. `end` is the recorded end cookie.
    fn list(&mut self, dir: Ino, cookie: u64, names: u64, end: Option<u64>) -> Result<Result<u64, Error>, Unknown> {
        let ino = self.ino(dir)?;
        let ends = self.listings.entry(dir.0).or_default();
        // A kernel without room for all names continues in the middle of a listing. The recording does not show which
        // cookie this file system has for that name, so the listing continues from the last known position before it.
        let exact = cookie == 0 || ends.contains_key(&cookie);
        let from = if cookie == 0 { 0 } else { ends.range(..=cookie).next_back().map_or(0, |(_, now)| *now) };
        let (mut taken, mut last) = (0, from);
        let listed = self.fs.readdir(ino, from, &mut |entry| {
            if taken == names {
                return Flow::Stop;
            }
            taken += 1;
            last = entry.next;
            Flow::Continue
        });
        if let Some(end) = end {
            let ends = self.listings.entry(dir.0).or_default();
            if exact {
                ends.insert(end, last);
            } else {
                ends.entry(end).or_insert(last);
            }
        }
        Ok(listed.map(|()| last))
    }

    fn end(&mut self) {
        if self.unmounted {
            return;
        }
        for known in self.known.values() {
            self.fs.forget(known.ino, known.references);
        }
        self.known.clear();
    }
}
