//! The calls of a recording, on another file system.

use std::collections::BTreeMap;

use device::{BLOCK, generate};
use vfs::{Entry, Error, FileSystem, Flow, Ino};

use super::call::{Call, Contents};
use super::event::{Event, Failure};
use crate::{RecordError, Tempo};

/// Bytes read or written at once at most; longer calls are made in parts.
const PIECE: u64 = 1 << 20;
/// The longest value of an attribute there is (`XATTR_SIZE_MAX` of Linux).
const LONGEST_VALUE: u64 = 64 << 10;

/// What a replay did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Calls made.
    pub calls: u64,
    /// Calls left out, because they are for an inode this file system does not have.
    pub left_out: u64,
    /// Calls that ended otherwise than when they were recorded: failed, did not fail, failed for another
    /// reason, or read or wrote another number of bytes.
    pub diverged: u64,
    /// The first of them.
    pub first_divergence: Option<Divergence>,
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// Nanoseconds from the first recorded arrival to the last.
    pub span: u64,
}

/// A call that ended otherwise than when it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divergence {
    /// Its place in the recording, counted from 0.
    pub record: u64,
    /// The method.
    pub call: &'static str,
    /// What it answered then.
    pub then: Result<u64, Failure>,
    /// What it answered now.
    pub now: Result<u64, Failure>,
}

/// Makes the calls of a recording on `fs`, one after the other in their order. Writes write generated
/// bytes, the same ones for the same fingerprint.
///
/// The replay learns the numbers of inodes from lookups and creations, so `fs` may number them as it likes. `fs` should
/// hold what the recorded file system held at the beginning. At the end the replay gives back all references it
/// holds, unless the recording ends with an unmount.
///
/// A damaged recording is replayed up to the damage; the error comes beside what was done.
pub fn replay(
    root: Ino,
    events: impl Iterator<Item = Result<Event, RecordError>>,
    fs: &dyn FileSystem,
    tempo: &Tempo,
    mut each: impl FnMut(&Event),
) -> (Replayed, Result<(), RecordError>) {
    let mut state = State {
        fs,
        root,
        known: BTreeMap::new(),
        listings: BTreeMap::new(),
        unmounted: false,
        buf: Vec::new(),
        done: Replayed::default(),
    };
    let mut time = tempo.start();
    let mut first = None;
    let mut whole = Ok(());
    for (n, event) in (0..).zip(events) {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                whole = Err(e);
                break;
            }
        };
        let start = *first.get_or_insert(event.arrival);
        state.done.span = state.done.span.max(event.arrival.saturating_sub(start));
        time.due(event.arrival);
        state.make(n, &event);
        each(&event);
    }
    state.end();
    (state.done, whole)
}

/// An inode of this file system, and the references held to it.
struct Known {
    ino: Ino,
    references: u64,
}

struct State<'a> {
    fs: &'a dyn FileSystem,
    root: Ino,
    /// By recorded number.
    known: BTreeMap<u64, Known>,
    /// By recorded number: the recorded cookie a listing came to, and that of this file system.
    listings: BTreeMap<u64, (u64, u64)>,
    unmounted: bool,
    buf: Vec<u8>,
    done: Replayed,
}

/// The call is for an inode that is not known.
struct Unknown;

/// True if a replay must get the same answer to this call as the recording.
fn comparable(call: &Call) -> bool {
    matches!(call, Call::Read { .. } | Call::Write { .. })
}

impl State<'_> {
    fn make(&mut self, n: u64, event: &Event) {
        let Ok(now) = self.ask(event) else {
            self.done.left_out += 1;
            return;
        };
        self.done.calls += 1;
        let now = now.map_err(|e| Failure::of(&e));
        let same = match (&event.answer, &now) {
            (Ok(then), Ok(now)) => !comparable(&event.call) || then == now,
            (then, now) => then == now,
        };
        if !same {
            self.done.diverged += 1;
            let here = Divergence { record: n, call: event.call.name(), then: event.answer, now };
            self.done.first_divergence.get_or_insert(here);
        }
    }

    fn ino(&self, recorded: Ino) -> Result<Ino, Unknown> {
        if recorded == self.root {
            return Ok(self.fs.root());
        }
        self.known.get(&recorded.0).map(|k| k.ino).ok_or(Unknown)
    }

    /// Notes the inode in an answer. If the recorded call failed, gives the reference back: nobody got one then.
    fn found(&mut self, event: &Event, entry: Result<Entry, Error>) -> Result<u64, Error> {
        let ino = entry?.attr.ino;
        match event.answer {
            Ok(recorded) if Ino(recorded) != self.root => {
                let known = self.known.entry(recorded).or_insert(Known { ino, references: 0 });
                if known.ino != ino {
                    // The number was given to another file since.
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
                        // One byte more than allowed is refused like any more.
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
                    // A sequence has 2^32 blocks; a longer write starts again.
                    generate(u64::from(*fingerprint), (done / BLOCK as u64) as u32, &mut self.buf);
                    &self.buf
                }
            };
            let n = self.fs.write(ino, offset.saturating_add(done), data, flags)? as u64;
            done += n;
            self.done.written += n;
            if n < piece || done >= len {
                return Ok(done);
            }
        }
    }

    /// Takes as many names from a directory as were taken when it was recorded. `end` is the cookie that
    /// listing came to.
    fn list(&mut self, dir: Ino, cookie: u64, names: u64, end: Option<u64>) -> Result<Result<u64, Error>, Unknown> {
        let ino = self.ino(dir)?;
        let from = match (cookie, self.listings.get(&dir.0)) {
            (0, _) => 0,
            (recorded, Some((then, now))) if *then == recorded => *now,
            // Somebody went on from a place that was passed long ago.
            _ => return Err(Unknown),
        };
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
            self.listings.insert(dir.0, (end, last));
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
