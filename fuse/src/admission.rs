//! How does a writer learn that what the kernel's cache took from it does not fit?
//!
//! With the writeback cache `write(2)` ends once the kernel has copied the bytes; what becomes of them it
//! never looks at again (only `fsync` and `close` do). Left alone, a program fills a full volume for ever.
//! But before it takes the bytes, the kernel makes sure that it knows the file's mode, and if its attributes
//! were declared stale, asks for them with a `GETATTR` that names the file handle and whose error the writer
//! gets. `stat` names no handle, and a reader needs nothing but the size, which the cache owns. So for a file
//! whose attributes are stale, a `GETATTR` with a handle is the announcement of a write:
//!
//! * *A page was refused.* The error is owed: whoever had the file open gets it for the next write.
//! * *Room is short*: what is free may be less than what the kernel can hold. From then on each write to a
//!   file announces itself, and what the kernel holds of the file is written back before the answer.
//!   So everything that is promised has its place, but for one `write(2)` of each writer. It may take from a small
//!   reserve that `df` does not count as available; the writer's next one is then refused. As long as the
//!   reserve holds, nothing that `write(2)` took is lost, and a file is as long as what is stored of it.
//! * *Only the reserve is left*: what is opened for writing from then on goes past the cache, so that each of its writes is
//!   stored or refused before it returns.
//! * *The file was made immutable* while it was open.
//!
//! Refusing by level alone would refuse those that overwrite, and need no room: so only a file that grew into the
//! reserve is refused, and once for each time.
//!
//! Pages that are written through a mapping announce nothing; their error is that of `msync`, `fsync` and `close`.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::FileHandle;
use rustc_hash::FxHashMap;
use vfs::{Attr, Error, FileSystem, Ino, Result};

/// The reserve is 1/64 of the volume, but at least what a write of 1 MiB takes with its nodes, if that is not more than 1/8 of the
/// volume, and at most 8 MiB.
fn reserve(capacity: u64) -> u64 {
    const ONE_WRITE: u64 = 3 << 19;
    (capacity / 64).max(ONE_WRITE.min(capacity / 8)).min(8 << 20)
}

/// A program that was told to go on writes within this time, if it does.
const UNDERWAY: Duration = Duration::from_millis(500);

/// What is known of a file whose writes announce themselves.
#[derive(Debug, Default)]
struct Watched {
    /// Its size on the volume at the last announcement that was answered, in units of 512 bytes.
    blocks: Option<u64>,
    /// By how many bytes it grew between two announcements, the last time it did.
    growth: u64,
    /// When a write was admitted of which nothing is known yet.
    admitted: Option<Instant>,
    /// What could not be stored, and the number of that failure; none once a writer was told.
    owed: Option<(u64, Error)>,
    /// Something of it was not stored since the kernel came to know it: the kernel may show it longer than it is.
    cut: bool,
}

/// Decides which writes the kernel's cache may take.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    reserve: u64,
    /// How much the kernel may hold that was not written back, in bytes.
    held: AtomicU64,
    /// Bytes that can come before it must be looked whether room is short.
    unchecked: AtomicI64,
    /// Failures so far. A file handle is the count when it was opened: it hears of those that came later.
    failures: AtomicU64,
    files: Mutex<FxHashMap<u64, Watched>>,
    /// How many these are, to be asked without the lock.
    watched: AtomicUsize,
    /// The files that are open for writing, with the number of their handles.
    open: Mutex<FxHashMap<u64, u64>>,
    /// All that are open are watched.
    watches_all: AtomicBool,
}

/// The handle of a file that is opened for reading: its reads announce nothing and are owed nothing.
pub(crate) const READER: FileHandle = FileHandle(u64::MAX);

impl Admission {
    /// For a volume of so many bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Admission { reserve: reserve(capacity), ..Admission::default() }
    }

    /// The kernel may hold so many bytes that were not written back.
    pub(crate) fn kernel_may_hold(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
        self.look_again();
    }

    /// Bytes that are free, but not available.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// The handle of a file that is opened for writing now.
    fn handle(&self) -> FileHandle {
        FileHandle(self.failures.load(Ordering::Acquire))
    }

    /// Room may have gone without [`is_short`](Self::is_short) being told.
    pub(crate) fn look_again(&self) {
        self.unchecked.store(0, Ordering::Relaxed);
    }

    /// Whether room is short, after so many bytes came.
    pub(crate) fn is_short(&self, fs: &dyn FileSystem, came: usize) -> bool {
        let came = i64::try_from(came).unwrap_or(i64::MAX);
        if self.unchecked.fetch_sub(came, Ordering::Relaxed).saturating_sub(came) > 0 {
            return false;
        }
        let Some(free) = free(fs) else { return false };
        // A page by itself may take a node beside its block.
        let held = self.held.load(Ordering::Relaxed).saturating_mul(2);
        let more = free.saturating_sub(self.reserve.saturating_add(held));
        self.unchecked.store(i64::try_from(more).unwrap_or(i64::MAX), Ordering::Relaxed);
        if more > 0 {
            self.watches_all.store(false, Ordering::Relaxed);
        }
        more == 0
    }

    /// Whether no more than the reserve is left, so that what is opened for writing goes past the kernel's cache.
    pub(crate) fn is_spent(&self, fs: &dyn FileSystem) -> bool {
        free(fs).is_some_and(|free| free < self.reserve)
    }

    /// When room has become short: the files that are open for writing, which are watched from now on.
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

    /// A file was opened for writing.
    pub(crate) fn opened(&self, ino: Ino) -> FileHandle {
        *self.open().entry(ino.0).or_default() += 1;
        if self.watches(ino) {
            // By how much the file grew before is not this program's doing.
            self.change(|files| files.get_mut(&ino.0).and_then(|file| file.blocks.take()));
        }
        self.handle()
    }

    fn files(&self) -> MutexGuard<'_, FxHashMap<u64, Watched>> {
        // The map is whole after every statement, whoever panicked.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut FxHashMap<u64, Watched>) -> R) -> R {
        let mut files = self.files();
        let result = change(&mut files);
        self.watched.store(files.len(), Ordering::Release);
        result
    }

    /// From now on the file's writes are to announce themselves; the caller declares its attributes stale.
    pub(crate) fn watch(&self, ino: Ino) {
        self.change(|files| {
            files.entry(ino.0).or_default();
        });
    }

    /// Whether a file's writes announce themselves.
    pub(crate) fn watches(&self, ino: Ino) -> bool {
        self.watched.load(Ordering::Acquire) > 0 && self.files().contains_key(&ino.0)
    }

    /// Something that the kernel held of the file could not be stored. Its writes are then to announce themselves.
    pub(crate) fn not_stored(&self, ino: Ino, error: &Error) {
        let number = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
        self.change(|files| {
            let file = files.entry(ino.0).or_default();
            (file.owed, file.cut) = (Some((number, error.clone())), true);
        });
    }

    /// Whether something of the file was not stored.
    pub(crate) fn is_cut(&self, ino: Ino) -> bool {
        self.watched.load(Ordering::Acquire) > 0 && self.files().get(&ino.0).is_some_and(|file| file.cut)
    }

    /// The files of which something was not stored.
    pub(crate) fn cut(&self) -> Vec<Ino> {
        match self.watched.load(Ordering::Acquire) {
            0 => Vec::new(),
            _ => self.files().iter().filter(|(_, file)| file.cut).map(|(ino, _)| Ino(*ino)).collect(),
        }
    }

    /// Answers the announcement of a write through a handle, after all that the kernel held of the file was written back.
    ///
    /// # Errors
    /// What the writer is to be told.
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

    /// A handle is no more: whoever had it was told by `close` of what was not stored.
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

    /// The kernel knows the file no more.
    pub(crate) fn forgotten(&self, ino: Ino) {
        if self.watches(ino) {
            self.change(|files| drop(files.remove(&ino.0)));
        }
    }
}

/// What the writes take, by guess, that were just admitted: as much as those before.
fn underway(files: &FxHashMap<u64, Watched>) -> u64 {
    let lately = |file: &&Watched| file.admitted.is_some_and(|at| at.elapsed() < UNDERWAY);
    files.values().filter(lately).map(|file| file.growth).sum()
}

/// Free bytes, unless the volume cannot say.
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

    /// A volume of 128 MiB of which so many are free, so that 2 MiB are the reserve; two files, and the kernel may hold 2 MiB.
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
    fn room_is_short_once_the_kernel_may_hold_all_that_is_left_beside_the_reserve() {
        let (fs, admission, [file, _]) = volume(9 * MIB);
        assert_eq!(admission.reserve(), 2 << 20);
        for (mib, short) in [(0, false), (1, false), (2, true), (3, true)] {
            write(&fs, file, mib << 20, MIB);
            assert_eq!(admission.is_short(&fs, MIB), short, "after {mib} MiB");
        }
    }

    #[test]
    fn a_file_that_grew_into_the_reserve_is_refused_once_and_one_that_did_not_never() {
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
    fn who_grows_leaves_room_for_what_others_were_just_admitted_to_write() {
        let (fs, admission, [one, other]) = volume(4 * MIB + MIB / 2);
        let asks = |ino| admission.announced(&fs, ino, FileHandle(0)).map(drop);
        assert_eq!([admission.opened(one), admission.opened(other)], [FileHandle(0); 2]);
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
    fn an_error_is_owed_once_and_to_those_who_had_the_file_open() {
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
