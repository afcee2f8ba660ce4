//! How are calls recorded while a file system is in use?

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use device::clock::Clock;
use parking_lot::Mutex;
use vfs::{
    Allocate, Attr, Caller, Compression, DirEntry, Entry, FileFlags, FileSystem, Flags, Flow, Ino, NewNode,
    RenameFlags, Result, Seek, SetAttr, StatFs, WriteFlags, XattrFlags,
};

use super::before::Before;
use super::call::{Call, Contents};
use super::event::{Event, Failure};
use super::{MOST, NOTICE, PART};
use crate::field::{encode_number, encode_text};
use crate::{Kind, Writer};

struct Out {
    writer: Writer,
    before: u64,
}

impl Out {
    /// Adds a record. Contents longer than [`PART`] are split: the parts precede the record.
    fn add(&mut self, mut event: Event) {
        let (arrival, took) = (event.arrival, event.took);
        if let Some(contents) = event.call.contents_mut().filter(|c| c.len() > PART) {
            let rest = contents.split_off(contents.len() - PART);
            for bytes in std::mem::replace(contents, rest).chunks(PART) {
                self.write(&Event { arrival, took, call: Call::Part { bytes: bytes.to_vec() }, answer: Ok(0) });
            }
        }
        self.write(&event);
    }

    fn write(&mut self, event: &Event) {
        let Out { writer, before } = self;
        writer.add(|bytes, first| {
            if first {
                *before = 0;
            }
            event.encode(bytes, before);
        });
    }
}

/// A decorator that records every call when it returns, including failed ones.
///
/// For contents and attribute values, length and checksum are recorded, or the bytes if requested. Access lists and
/// capabilities, which mean something to the system, are always recorded whole. If the recording cannot be written,
/// recording stops, [`finish`](Self::finish) reports it, and the file system goes on.
pub struct Recorder<F: ?Sized> {
    inner: Arc<F>,
    clock: Arc<dyn Clock>,
    began: u64,
    /// Files from before the recording, if contents are recorded. Locked before `out`, and held while old contents are
    /// read: a file does not change while it is copied.
    before: Option<Mutex<Before>>,
    out: Mutex<Out>,
}

impl<F: FileSystem + ?Sized> Recorder<F> {
    /// Records calls to `inner` into `out`. `clock` gives the times; pass the virtual clock if time is virtual.
    pub fn new(inner: Arc<F>, out: impl Write + Send + 'static, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Recorder::start(inner, Box::new(out), clock, false)
    }

    /// The same with written contents, and with the old contents of changed files.
    ///
    /// Old state is read while `inner` is in use, with calls that are not recorded: attributes when a file is first
    /// found; contents, up to 64 MiB per file, before their first change.
    pub fn with_contents(inner: Arc<F>, out: impl Write + Send + 'static, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Recorder::start(inner, Box::new(out), clock, true)
    }

    fn start(inner: Arc<F>, out: Box<dyn Write + Send>, clock: Arc<dyn Clock>, contents: bool) -> io::Result<Self> {
        let bytes = inner.statfs().map_or(0, |s| s.blocks.saturating_mul(s.block_size.into()));
        let mut subject = subject(inner.root(), bytes);
        let writer = if contents {
            encode_text(&mut subject, NOTICE);
            Writer::with_contents(out, Kind::Calls, &subject)?
        } else {
            Writer::new(out, Kind::Calls, &subject)?
        };
        let began = nanos(&*clock);
        let before = contents.then(Mutex::default);
        Ok(Recorder { inner, clock, began, before, out: Mutex::new(Out { writer, before: 0 }) })
    }

    /// The file system underneath.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Ends the recording and returns its number of calls; the file system goes on unrecorded. Dropping does the same
    /// without reporting errors.
    ///
    /// # Errors
    /// The first write error since the beginning.
    pub fn finish(&self) -> io::Result<u64> {
        let out = &mut self.out.lock().writer;
        out.finish()?;
        Ok(out.records())
    }

    /// Runs a call and records it: `call` builds the record, `number` extracts the number from the result.
    fn note<T>(
        &self,
        ask: impl FnOnce() -> Result<T>,
        call: impl FnOnce() -> Call,
        number: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let start = nanos(&*self.clock);
        let answer = ask();
        let took = nanos(&*self.clock).saturating_sub(start);
        let arrival = start.saturating_sub(self.began);
        let event =
            Event { arrival, took, call: call(), answer: answer.as_ref().map(number).map_err(Failure::from_error) };
        self.out.lock().add(event);
        answer
    }

    /// Records state from before.
    fn say(&self, call: Call) {
        let arrival = nanos(&*self.clock).saturating_sub(self.began);
        self.out.lock().add(Event { arrival, took: 0, call, answer: Ok(0) });
    }

    /// A file was truncated to zero: nothing can refer to its old contents.
    fn emptied(&self, ino: Ino) {
        if let Some(before) = &self.before {
            before.lock().settled(ino);
        }
    }

    /// Called before the contents of an inode change.
    fn changes(&self, ino: Ino) {
        if let Some(before) = &self.before {
            before.lock().changes(&*self.inner, ino, &mut |call| self.say(call));
        }
    }

    /// Creates a file. Lookups of its name wait meanwhile, so that it is not taken for an old file.
    fn make(&self, ask: impl FnOnce() -> Result<Entry>, call: impl FnOnce() -> Call) -> Result<Entry> {
        let Some(before) = &self.before else { return self.entry(ask, call) };
        let mut before = before.lock();
        let made = self.entry(ask, call);
        if let Ok(entry) = &made {
            before.settled(entry.attr.ino);
        }
        made
    }

    /// Written contents in their recorded form.
    fn contents(&self, bytes: &[u8]) -> Contents {
        let whole = self.before.is_some() && bytes.len() as u64 <= MOST;
        if whole { Contents::Given(bytes.to_vec()) } else { Contents::fingerprint(bytes) }
    }

    fn entry(&self, ask: impl FnOnce() -> Result<Entry>, call: impl FnOnce() -> Call) -> Result<Entry> {
        self.note(ask, call, |entry| entry.attr.ino.0)
    }

    fn attr(&self, ask: impl FnOnce() -> Result<Attr>, call: impl FnOnce() -> Call) -> Result<Attr> {
        self.note(ask, call, |attr| attr.size)
    }

    fn plain<T>(&self, ask: impl FnOnce() -> Result<T>, call: impl FnOnce() -> Call) -> Result<T> {
        self.note(ask, call, |_| 0)
    }

    fn silent(&self, ask: impl FnOnce(), call: impl FnOnce() -> Call) {
        let asked: Result<()> = self.plain(
            || {
                ask();
                Ok(())
            },
            call,
        );
        // The call cannot fail.
        drop(asked);
    }
}

fn nanos(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// The header of a recording of a file system with this root and capacity.
pub(super) fn subject(root: Ino, bytes: u64) -> Vec<u8> {
    let mut subject = Vec::new();
    encode_number(&mut subject, root.0);
    encode_number(&mut subject, bytes);
    subject
}

/// The system gives no meaning to attributes under `user.` and `trusted.`.
pub(super) fn meaningless(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"trusted.")
}

impl<F: FileSystem + ?Sized> FileSystem for Recorder<F> {
    fn root(&self) -> Ino {
        self.inner.root()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.plain(|| self.inner.statfs(), || Call::Statfs {})
    }
    fn folds(&self) -> bool {
        self.inner.folds()
    }

    fn refuses_opening(&self) -> bool {
        self.inner.refuses_opening()
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        let call = || Call::Lookup { parent, name: name.into() };
        let Some(before) = &self.before else { return self.entry(|| self.inner.lookup(parent, name), call) };
        let look = || {
            let mut before = before.lock();
            let entry = self.inner.lookup(parent, name)?;
            before.found(&*self.inner, entry.attr.ino, &mut |call| self.say(call));
            Ok(entry)
        };
        self.entry(look, call)
    }
    fn forget(&self, ino: Ino, count: u64) {
        self.silent(|| self.inner.forget(ino, count), || Call::Forget { ino, count });
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attr(|| self.inner.getattr(ino), || Call::Getattr { ino })
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if set.size.is_some_and(|size| size > 0) {
            self.changes(ino);
        }
        let set_attr = self.attr(|| self.inner.setattr(ino, set), || Call::Setattr { ino, set: *set });
        if set_attr.is_ok() && set.size == Some(0) {
            self.emptied(ino);
        }
        set_attr
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.note(|| self.inner.readlink(ino), || Call::Readlink { ino }, |target| target.len() as u64)
    }
    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry> {
        let call = || Call::Mknod { caller, parent, name: name.into(), new: *new };
        self.make(|| self.inner.mknod(caller, parent, name, new), call)
    }
    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry> {
        let call = || Call::Mkdir { caller, parent, name: name.into(), perm, umask };
        self.make(|| self.inner.mkdir(caller, parent, name, perm, umask), call)
    }
    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        let call = || Call::Symlink { caller, parent, name: name.into(), target: target.into() };
        self.make(|| self.inner.symlink(caller, parent, name, target), call)
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.entry(|| self.inner.link(ino, parent, name), || Call::Link { ino, parent, name: name.into() })
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.plain(|| self.inner.unlink(parent, name), || Call::Unlink { parent, name: name.into() })
    }
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.plain(|| self.inner.rmdir(parent, name), || Call::Rmdir { parent, name: name.into() })
    }
    fn rename(&self, caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        let (parent, to_parent) = (from.0, to.0);
        let call = || Call::Rename { caller, parent, name: from.1.into(), to_parent, to_name: to.1.into(), flags };
        self.plain(|| self.inner.rename(caller, from, to, flags), call)
    }
    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry> {
        let call = || Call::Tmpfile { caller, parent, perm, umask };
        self.make(|| self.inner.tmpfile(caller, parent, perm, umask), call)
    }
    fn open(&self, ino: Ino, truncate: bool) -> Result<()> {
        let opened = self.plain(|| self.inner.open(ino, truncate), || Call::Open { ino, truncate });
        if truncate && opened.is_ok() {
            self.emptied(ino);
        }
        opened
    }
    // Not recorded: neither this query nor a refused open has an effect.
    fn may_write(&self, ino: Ino, appending: bool) -> Result<()> {
        self.inner.may_write(ino, appending)
    }
    fn release(&self, ino: Ino) {
        self.silent(|| self.inner.release(ino), || Call::Release { ino });
    }
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = buf.len() as u64;
        self.note(|| self.inner.read(ino, offset, buf), || Call::Read { ino, offset, len }, |n| *n as u64)
    }
    // Not recorded: a recording mount does not update access times.
    fn accessed(&self, ino: Ino) -> bool {
        self.inner.accessed(ino)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        self.changes(ino);
        let call = || Call::Write { ino, offset, contents: self.contents(data), flags };
        self.note(|| self.inner.write(ino, offset, data, flags), call, |n| *n as u64)
    }
    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        self.changes(ino);
        self.plain(|| self.inner.fallocate(ino, what, offset, len), || Call::Fallocate { ino, what, offset, len })
    }
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.note(|| self.inner.seek(ino, offset, what), || Call::Seek { ino, offset, what }, |n| *n)
    }
    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        let (names, last) = (Cell::new(0), Cell::new(cookie));
        let list = || {
            self.inner.readdir(ino, cookie, &mut |entry| {
                let next = entry.next;
                let flow = each(entry);
                if flow == Flow::Continue {
                    names.set(names.get() + 1);
                    last.set(next);
                }
                flow
            })
        };
        self.note(list, || Call::Readdir { ino, cookie, names: names.get() }, |()| last.get())
    }
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.plain(|| self.inner.fsync(ino, data_only), || Call::Fsync { ino, data_only })
    }
    fn fsyncdir(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.plain(|| self.inner.fsyncdir(ino, data_only), || Call::Fsyncdir { ino, data_only })
    }
    fn sync(&self) -> Result<()> {
        self.plain(|| self.inner.sync(), || Call::Sync {})
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let call = || Call::Getxattr { ino, name: name.into() };
        self.note(|| self.inner.getxattr(ino, name), call, |value| value.len() as u64)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.note(|| self.inner.listxattr(ino), || Call::Listxattr { ino }, |names| names.len() as u64)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], bytes: &[u8], flags: XattrFlags) -> Result<()> {
        let value = || if meaningless(name) { self.contents(bytes) } else { Contents::Given(bytes.to_vec()) };
        let call = || Call::Setxattr { ino, name: name.into(), value: value(), flags };
        self.plain(|| self.inner.setxattr(ino, name, bytes, flags), call)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.plain(|| self.inner.removexattr(ino, name), || Call::Removexattr { ino, name: name.into() })
    }
    // Not recorded: file flags change nothing on the device except one node, and compression settings need the
    // contents, which a recording may lack.
    fn flags(&self, ino: Ino) -> Result<Flags> {
        self.inner.flags(ino)
    }
    fn set_flags(&self, ino: Ino, flags: FileFlags, project: Option<u32>) -> Result<()> {
        self.inner.set_flags(ino, flags, project)
    }
    fn compression(&self, ino: Ino) -> Result<Option<Compression>> {
        self.inner.compression(ino)
    }
    fn set_compression(&self, ino: Ino, algorithm: u8, log_cluster: u8) -> Result<()> {
        self.inner.set_compression(ino, algorithm, log_cluster)
    }
    fn repack(&self, ino: Ino, packed: bool) -> Result<()> {
        self.inner.repack(ino, packed)
    }
    fn extents(&self, ino: Ino, from: u64, most: usize) -> Result<Vec<vfs::Extent>> {
        self.inner.extents(ino, from, most)
    }
    fn defragment(&self, ino: Ino, blocks: std::ops::Range<u64>, how: vfs::Moving) -> Result<(u64, u64)> {
        self.inner.defragment(ino, blocks, how)
    }
    fn room(&self, blocks: u64, clean: bool) -> Result<vfs::Room> {
        self.inner.room(blocks, clean)
    }
    fn start_atomic(&self, ino: Ino, owner: u64) -> Result<()> {
        self.inner.start_atomic(ino, owner)
    }
    fn commit_atomic(&self, ino: Ino, owner: u64) -> Result<()> {
        self.inner.commit_atomic(ino, owner)
    }
    fn abort_atomic(&self, ino: Ino, owner: u64) -> Result<bool> {
        self.inner.abort_atomic(ino, owner)
    }
    fn feature_bits(&self) -> Result<u32> {
        self.inner.feature_bits()
    }
    fn release_saved(&self, ino: Ino) -> Result<u64> {
        self.inner.release_saved(ino)
    }
    fn reserve_saved(&self, ino: Ino) -> Result<u64> {
        self.inner.reserve_saved(ino)
    }
    fn tick(&self) -> Result<Duration> {
        self.plain(|| self.inner.tick(), || Call::Tick {})
    }
    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.inner.wake_by(wake);
    }
    fn report(&self) -> Vec<(String, String)> {
        self.inner.report()
    }
    fn account(&self, files: usize, since: u64) -> Option<String> {
        self.inner.account(files, since)
    }
    fn tune(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        self.inner.tune(name, value)
    }
    fn unmount(&self) -> Result<()> {
        self.plain(|| self.inner.unmount(), || Call::Unmount {})
    }
}
