//! How does a writer learn that data already in the kernel's cache does not fit?
//!
//! With the writeback cache, `write(2)` returns when the kernel has copied the bytes, and it does not check later what
//! became of them (only `fsync` and `close` do). Without a countermeasure, a program writes to a full volume for ever.
//! But before the kernel takes the bytes, it makes sure that it knows the file's mode. If the attributes were declared
//! stale, it sends a `GETATTR` with the file handle, and the writer gets its error. `stat` passes no handle, and a
//! reader needs only the size, which the cache owns. So for a file with stale attributes, a `GETATTR` with a handle
//! announces a write:
//!
//! * *A page was refused.* The error is pending: a program that had the file open then gets it at its next write.
//! * *Space is short*: the free space may be less than the kernel can hold. From then on each write to a file is
//!   announced, and the kernel's data for the file is written back before the answer. So all accepted data has space,
//!   except one `write(2)` of each writer. That write may use a small reserve that `df` does not count as available;
//!   the writer's next one is then refused. As long as the reserve lasts, no data accepted by `write(2)` is lost, and a
//!   file is as long as its stored data.
//! * *Only the reserve is left*: files opened for writing from then on bypass the cache, so that each write is stored
//!   or refused before it returns.
//! * *The file was made immutable* while it was open.
//!
//! Refusing by free space alone would also refuse overwrites, which need no space. So only a file that grew into the
//! reserve is refused, and once for each time.
//!
//! Writes through a mapping are not announced; their errors are reported by `msync`, `fsync` and `close`.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::FileHandle;
use rustc_hash::FxHashMap;
use vfs::{Attr, Error, FileSystem, Ino, Result};

/// The reserve is 1/64 of the volume and at most 8 MiB, but at least what a write of 1 MiB takes with its nodes, if
/// that is not more than 1/8 of the volume.
fn reserve(capacity: u64) -> u64 {
    const ONE_WRITE: u64 = 3 << 19;
    (capacity / 64).max(ONE_WRITE.min(capacity / 8)).min(8 << 20)
}

/// An admitted program writes within this time, if at all.
const UNDERWAY: Duration = Duration::from_millis(500);

/// State of a file whose writes are announced.
#[derive(Debug, Default)]
struct Watched {
    /// Its stored size at the last answered announcement, in units of 512 bytes.
    blocks: Option<u64>,
    /// Its last growth between two announcements, in bytes.
    growth: u64,
    /// Time of an admitted write whose effect is not known yet.
    admitted: Option<Instant>,
    /// The pending error, with its failure number; none after a writer got it.
    owed: Option<(u64, Error)>,
    /// Some data was not stored since the kernel learned the size: the kernel may show the file longer than it is.
    cut: bool,
}

/// Decides which writes the kernel's cache may take.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    reserve: u64,
    /// Most bytes that the kernel may hold before writeback.
    held: AtomicU64,
    /// Bytes that may arrive before the next check for short space.
    unchecked: AtomicI64,
    /// Opens for writing and failures so far. A file handle is the number of its open, so it is unique, and gets only
    /// errors with a greater number.
    events: AtomicU64,
    files: Mutex<FxHashMap<u64, Watched>>,
    /// Length of `files`, readable without the lock.
    watched: AtomicUsize,
    /// Files open for writing, with their numbers of handles.
    open: Mutex<FxHashMap<u64, u64>>,
    /// True if all open files are watched.
    watches_all: AtomicBool,
}

/// The handle of a file opened for reading: reads are not announced and get no pending error.
pub(crate) const READER: FileHandle = FileHandle(u64::MAX);

impl Admission {
    /// For a volume with this many bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Admission { reserve: reserve(capacity), ..Admission::default() }
    }

    /// Sets the most bytes that the kernel may hold before writeback.
    pub(crate) fn kernel_may_hold(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
        self.look_again();
    }

    /// Bytes that are free but not available.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// The handle of a file opened for writing now.
    fn handle(&self) -> FileHandle {
        FileHandle(self.events.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Space may have been used without a call of [`is_short`](Self::is_short).
    pub(crate) fn look_again(&self) {
        self.unchecked.store(0, Ordering::Relaxed);
    }

    /// Whether space is short after `came` more bytes.
    pub(crate) fn is_short(&self, fs: &dyn FileSystem, came: usize) -> bool {
        let came = i64::try_from(came).unwrap_or(i64::MAX);
        if self.unchecked.fetch_sub(came, Ordering::Relaxed).saturating_sub(came) > 0 {
            return false;
        }
        let Some(free) = free(fs) else { return false };
        // A single page may need a node in addition to its block.
        let held = self.held.load(Ordering::Relaxed).saturating_mul(2);
        let more = free.saturating_sub(self.reserve.saturating_add(held));
        self.unchecked.store(i64::try_from(more).unwrap_or(i64::MAX), Ordering::Relaxed);
        if more > 0 {
            self.watches_all.store(false, Ordering::Relaxed);
        }
        more == 0
    }

    /// Whether at most the reserve is left, so that new writers bypass the kernel's cache.
    pub(crate) fn is_spent(&self, fs: &dyn FileSystem) -> bool {
        free(fs).is_some_and(|free| free < self.reserve)
    }

    /// When space becomes short: returns the files open for writing, and watches them from now on.
    pub(crate) fn watch_all(&self) -> Vec<Ino> {
        if self.watches_all.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let open = self.open().keys().copied().map(Ino).collect::<Vec<_>>();
        open.iter().for_each(|ino| self.watch(*ino));
        open
    }

    fn open(&self) -> MutexGuard<'_, FxHashMap<u64, u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file is open for writing.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.open().contains_key(&ino.0)
    }

    /// Called when a file is opened for writing.
    pub(crate) fn opened(&self, ino: Ino) -> FileHandle {
        *self.open().entry(ino.0).or_default() += 1;
        if self.watches(ino) {
            // Earlier growth of the file is not this program's.
            self.change(|files| files.get_mut(&ino.0).and_then(|file| file.blocks.take()));
        }
        self.handle()
    }

    fn files(&self) -> MutexGuard<'_, FxHashMap<u64, Watched>> {
        // The map is consistent after every statement, even if another thread panicked.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut FxHashMap<u64, Watched>) -> R) -> R {
        let mut files = self.files();
        let result = change(&mut files);
        self.watched.store(files.len(), Ordering::Release);
        result
    }

    /// From now on the file's writes must be announced; the caller declares its attributes stale.
    pub(crate) fn watch(&self, ino: Ino) {
        self.change(|files| {
            files.entry(ino.0).or_default();
        });
    }

    /// Whether a file's writes are announced.
    pub(crate) fn watches(&self, ino: Ino) -> bool {
        self.watched.load(Ordering::Acquire) > 0 && self.files().contains_key(&ino.0)
    }

    /// Some of the kernel's data for the file could not be stored. From now on its writes must be announced.
    pub(crate) fn not_stored(&self, ino: Ino, error: &Error) {
        let number = self.events.fetch_add(1, Ordering::AcqRel) + 1;
        self.change(|files| {
            let file = files.entry(ino.0).or_default();
            (file.owed, file.cut) = (Some((number, error.clone())), true);
        });
    }

    /// Whether some of the file's data was not stored.
    pub(crate) fn is_cut(&self, ino: Ino) -> bool {
        self.watched.load(Ordering::Acquire) > 0 && self.files().get(&ino.0).is_some_and(|file| file.cut)
    }

    /// The files with data that was not stored.
    pub(crate) fn cut(&self) -> Vec<Ino> {
        match self.watched.load(Ordering::Acquire) {
            0 => Vec::new(),
            _ => self.files().iter().filter(|(_, file)| file.cut).map(|(ino, _)| Ino(*ino)).collect(),
        }
    }

    /// Answers an announced write through a handle, after the kernel's data for the file was written back.
    ///
    /// # Errors
    /// The error for the writer.
    pub(crate) fn announced(&self, fs: &dyn FileSystem, ino: Ino, handle: FileHandle) -> Result<Attr> {
        fs.may_write(ino, true)?;
        let attr = fs.getattr(ino)?;
        let short = self.is_short(fs, 0);
        self.change(|files| {
            let Some(file) = files.get_mut(&ino.0) else { return Ok(attr) };
            file.admitted = None;
            let before = file.blocks.replace(attr.blocks512);
            if let Some((_, error)) = file.owed.take_if(|(number, _)| handle.0 < *number) {
                return Err(error);
            }
            if !short {
                if file.owed.is_none() && !file.cut {
                    files.remove(&ino.0);
                }
                return Ok(attr);
            }
            let grew = before.map_or(0, |blocks| attr.blocks512.saturating_sub(blocks) * 512);
            if grew > 0 {
                file.growth = grew;
                let underway = underway(files);
                if free(fs).is_some_and(|free| free < self.reserve.saturating_add(underway)) {
                    return Err(Error::NoSpace);
                }
            }
            files.entry(ino.0).or_default().admitted = Some(Instant::now());
            Ok(attr)
        })
    }

    /// Called when a handle is closed: `close` has reported its pending error.
    pub(crate) fn closed(&self, ino: Ino, handle: FileHandle) {
        if let Entry::Occupied(mut handles) = self.open().entry(ino.0) {
            *handles.get_mut() -= 1;
            if *handles.get() == 0 {
                handles.remove();
            }
        }
        if self.watches(ino) {
            self.change(|files| {
                let Some(file) = files.get_mut(&ino.0) else { return };
                file.owed.take_if(|(number, _)| handle.0 < *number);
                file.admitted = None;
            });
        }
    }

    /// The kernel has forgotten the file.
    pub(crate) fn forgotten(&self, ino: Ino) {
        if self.watches(ino) {
            self.change(|files| drop(files.remove(&ino.0)));
        }
    }
}

/// Estimated size of the writes just admitted: the last growth of each file.
fn underway(files: &FxHashMap<u64, Watched>) -> u64 {
    let lately = |file: &&Watched| file.admitted.is_some_and(|at| at.elapsed() < UNDERWAY);
    files.values().filter(lately).map(|file| file.growth).sum()
}

/// Free bytes, if the volume reports them.
fn free(fs: &dyn FileSystem) -> Option<u64> {
    let s = fs.statfs().ok()?;
    Some(s.blocks_available.saturating_mul(s.block_size.into()))
}

#[cfg(test)]
mod tests {
    use judges::memfs::MemFs;
    use vfs::{Caller, DeviceNumber, FileKind, NewNode, WriteFlags};

    use super::*;

    const MIB: usize = 1 << 20;

    /// A volume of 128 MiB with `free` bytes free, so that the reserve is 2 MiB; two files, and the kernel may hold 2
    /// MiB.
    fn volume(free: usize) -> (MemFs, Admission, [Ino; 2]) {
        let fs = MemFs::new(128 << 20);
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let files = [b"a", b"b"].map(|name| fs.mknod(Caller::default(), fs.root(), name, &new).unwrap().attr.ino);
        write(&fs, files[1], 0, 128 * MIB - free);
        let admission = Admission::new(128 << 20);
        admission.kernel_may_hold(2 << 20);
        (fs, admission, files)
    }

    fn write(fs: &MemFs, ino: Ino, at: u64, bytes: usize) {
        fs.write(ino, at, &vec![1; bytes], WriteFlags::FROM_CACHE).unwrap();
    }

    #[test]
    fn the_reserve_holds_a_write_and_is_a_small_part_of_all_but_the_smallest_volumes() {
        let mib = |n| n << 20;
        let sizes = [mib(1_u64), mib(64), mib(128), mib(256), mib(4096)];
        assert_eq!(sizes.map(reserve), [1 << 17, 3 << 19, mib(2), mib(4), mib(8)]);
    }

    #[test]
    fn space_is_short_when_the_kernel_may_hold_all_that_is_left_above_the_reserve() {
        let (fs, admission, [file, _]) = volume(9 * MIB);
        assert_eq!(admission.reserve(), 2 << 20);
        for (mib, short) in [(0, false), (1, false), (2, true), (3, true)] {
            write(&fs, file, mib << 20, MIB);
            assert_eq!(admission.is_short(&fs, MIB), short, "after {mib} MiB");
        }
    }

    #[test]
    fn only_a_file_that_grew_into_the_reserve_is_refused_and_only_once() {
        let (fs, admission, [growing, large]) = volume(2 * MIB + MIB / 2);
        admission.watch(growing);
        admission.watch(large);
        let asks = |ino| admission.announced(&fs, ino, FileHandle(0)).map(drop);
        assert_eq!(asks(growing), Ok(()));
        write(&fs, growing, 0, MIB / 2);
        assert_eq!(asks(growing), Ok(()), "all of the reserve is left");
        write(&fs, growing, MIB as u64, MIB / 2);
        assert_eq!(asks(growing), Err(Error::NoSpace));
        assert_eq!(asks(growing), Ok(()), "it may overwrite, or try again");
        for _ in 0..3 {
            write(&fs, large, 0, MIB);
            assert_eq!(asks(large), Ok(()), "who overwrites needs no room");
        }
    }

    #[test]
    fn a_growing_file_leaves_space_for_other_admitted_writes() {
        let (fs, admission, [one, other]) = volume(4 * MIB + MIB / 2);
        let asks = |ino| admission.announced(&fs, ino, FileHandle(0)).map(drop);
        assert_ne!(admission.opened(one), admission.opened(other));
        let mut all = admission.watch_all();
        all.sort_by_key(|ino| ino.0);
        assert_eq!((all, admission.watch_all()), (vec![one, other], Vec::new()));
        assert_eq!((asks(one), asks(other)), (Ok(()), Ok(())));
        write(&fs, other, 128 << 20, MIB);
        assert_eq!(asks(other), Ok(()));
        write(&fs, one, 0, MIB * 3 / 4);
        assert_eq!(asks(one), Err(Error::NoSpace), "2.75 MiB are left, less what the other may be writing");
        admission.closed(other, FileHandle(0));
        write(&fs, one, MIB as u64, MIB / 2);
        assert_eq!(asks(one), Ok(()), "2.25 MiB are left");
    }

    #[test]
    fn an_error_is_reported_once_to_each_program_that_had_the_file_open() {
        let (fs, admission, [file, other]) = volume(32 * MIB);
        let before = admission.handle();
        admission.not_stored(file, &Error::NoSpace);
        let after = admission.handle();
        assert!(admission.watches(file) && admission.is_cut(file) && !admission.watches(other));
        let asks = |handle| admission.announced(&fs, file, handle).map(drop);
        assert_eq!(asks(after), Ok(()));
        assert_eq!(asks(before), Err(Error::NoSpace));
        assert_eq!(asks(before), Ok(()));
        admission.not_stored(file, &Error::NoSpace);
        admission.closed(file, after);
        assert_eq!(asks(after), Ok(()), "the last handle that is owed something is closed");
        assert_eq!(admission.cut(), [file]);
        admission.forgotten(file);
        assert!(!admission.watches(file) && admission.cut().is_empty());
    }

    #[test]
    fn a_file_announces_its_writes_only_as_long_as_room_is_short() {
        let (fs, admission, [file, large]) = volume(2 * MIB);
        admission.watch(file);
        assert!(admission.announced(&fs, file, FileHandle(0)).is_ok() && admission.watches(file));
        fs.setattr(large, &vfs::SetAttr { size: Some(0), ..Default::default() }).unwrap();
        assert!(admission.announced(&fs, file, FileHandle(0)).is_ok() && !admission.watches(file));
    }
}
