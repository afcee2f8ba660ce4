//! Our files as an SQLite VFS, without a kernel: those of a volume or of a recording in progress.
//!
//! One process, one connection: locks are always granted, and the index of the write-ahead log is in SQLite's own
//! memory (exclusive locking mode). Randomness comes from a seed, so that runs are reproducible.
//!
//! The VFS reports the same properties as on Android: a power cut does not damage bytes next to a write
//! (`POWERSAFE_OVERWRITE`), so SQLite assumes sectors of 512 bytes, whatever the disk reports. Atomic batch writes,
//! which F2FS offers on Android, are not offered: no writes of several blocks are atomic here.
//!
//! On Unix, SQLite's own VFS syncs the directory of a new journal or log with the file's first sync and, with
//! `synchronous=EXTRA`, after deleting a journal. Here [`Habits`] define whether and how, since both can be measured.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::{BLOCK, Rng};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlite_vfs::{DatabaseHandle, LockKind, OpenAccess, OpenKind, OpenOptions, Vfs, WalDisabled};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, SetAttr, WriteFlags};

use crate::error::LabError;
use crate::read_ahead::ReadAhead;

/// SQLite's connections share one page cache per process (it is built with `SQLITE_ENABLE_MEMORY_MANAGEMENT`): two
/// concurrent connections would affect each other's cache, and runs would not be reproducible.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Numbers the VFSs registered in this process: SQLite identifies them by name.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// How a directory is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SyncsDirectory {
    /// Not at all.
    #[default]
    Never,
    /// By a checkpoint, like Linux.
    Checkpoint,
    /// By the file system's `fsync` of the directory.
    Fsync,
}

/// When directories are synced, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    /// For a new journal or log.
    pub directory: SyncsDirectory,
    /// Whether a deletion also syncs the directory.
    pub syncs_deletions: bool,
}

/// Files in one directory, by numbers that the caller gives back with `forget`.
pub(crate) trait Files: Send + Sync {
    /// Looks up a name.
    fn find(&self, name: &str) -> Result<u64, Error>;
    /// Creates a file.
    fn make(&self, name: &str) -> Result<u64, Error>;
    /// Drops one reference to a number.
    fn forget(&self, file: u64);
    /// Unlinks the name.
    fn delete(&self, name: &str) -> Result<(), Error>;
    /// The file's size in bytes.
    fn size(&self, file: u64) -> Result<u64, Error>;
    /// Reads up to `buf.len()` bytes; 0 at the file's end.
    fn read(&self, file: u64, at: u64, buf: &mut [u8]) -> Result<usize, Error>;
    /// Writes some bytes.
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> Result<usize, Error>;
    /// Truncates or extends a file.
    fn set_size(&self, file: u64, size: u64) -> Result<(), Error>;
    /// Makes a file durable.
    fn sync(&self, file: u64, data_only: bool) -> Result<(), Error>;
    /// Makes names durable.
    fn sync_directory(&self, how: SyncsDirectory) -> Result<(), Error>;
}

/// A directory of a volume.
pub(crate) struct Directory {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    /// Read-ahead state of each file, if the host reads ahead.
    ahead: Option<Mutex<FxHashMap<u64, ReadAhead>>>,
}

impl Directory {
    /// The volume's root directory.
    pub fn root(fs: Arc<dyn FileSystem>) -> Self {
        let ino = fs.root();
        Directory { fs, ino, ahead: None }
    }

    /// A directory that the caller keeps a reference to, on a host with read-ahead and a page cache.
    pub fn reading_ahead(fs: Arc<dyn FileSystem>, ino: Ino) -> Self {
        Directory { fs, ino, ahead: Some(Mutex::default()) }
    }
}

impl Files for Directory {
    fn find(&self, name: &str) -> Result<u64, Error> {
        Ok(self.fs.lookup(self.ino, name.as_bytes()).map_err(error)?.attr.ino.0)
    }
    fn make(&self, name: &str) -> Result<u64, Error> {
        let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
        let made = self.fs.mknod(Caller::default(), self.ino, name.as_bytes(), &new).map_err(error)?.attr.ino.0;
        // The number may be reused.
        self.ahead.iter().for_each(|a| _ = a.lock().remove(&made));
        Ok(made)
    }
    fn forget(&self, file: u64) {
        self.fs.forget(Ino(file), 1);
    }
    fn delete(&self, name: &str) -> Result<(), Error> {
        self.fs.unlink(self.ino, name.as_bytes()).map_err(error)
    }
    fn size(&self, file: u64) -> Result<u64, Error> {
        Ok(self.fs.getattr(Ino(file)).map_err(error)?.size)
    }
    fn read(&self, file: u64, at: u64, buf: &mut [u8]) -> Result<usize, Error> {
        if let Some(mut ahead) = self.ahead.as_ref().map(Mutex::lock) {
            let end = self.size(file)?.div_ceil(BLOCK as u64);
            let pages = at / BLOCK as u64..(at + buf.len() as u64).div_ceil(BLOCK as u64);
            for asked in ahead.entry(file).or_default().read(pages, end) {
                let mut room = vec![0; (asked.end - asked.start) as usize * BLOCK];
                self.fs.read(Ino(file), asked.start * BLOCK as u64, &mut room).map_err(error)?;
            }
        }
        self.fs.read(Ino(file), at, buf).map_err(error)
    }
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> Result<usize, Error> {
        if let Some(mut ahead) = self.ahead.as_ref().map(Mutex::lock) {
            let pages = at / BLOCK as u64..(at + bytes.len() as u64).div_ceil(BLOCK as u64);
            ahead.entry(file).or_default().written(pages);
        }
        self.fs.write(Ino(file), at, bytes, WriteFlags::empty()).map_err(error)
    }
    fn set_size(&self, file: u64, size: u64) -> Result<(), Error> {
        if let Some(mut ahead) = self.ahead.as_ref().map(Mutex::lock) {
            ahead.entry(file).or_default().cut(size / BLOCK as u64);
        }
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(Ino(file), &set).map(drop).map_err(error)
    }
    fn sync(&self, file: u64, data_only: bool) -> Result<(), Error> {
        self.fs.fsync(Ino(file), data_only).map_err(error)
    }
    fn sync_directory(&self, how: SyncsDirectory) -> Result<(), Error> {
        match how {
            SyncsDirectory::Never => Ok(()),
            SyncsDirectory::Checkpoint => self.fs.sync().map_err(error),
            SyncsDirectory::Fsync => self.fs.fsyncdir(self.ino, false).map_err(error),
        }
    }
}

/// Files used by SQLite.
struct Disk {
    files: Box<dyn Files>,
    habits: Habits,
    rng: Mutex<Rng>,
    syncs: AtomicU64,
}

/// A VFS that SQLite knows by [`name`](Self::name) while this exists. Drop its connections first.
pub(crate) struct Registered {
    name: String,
    disk: Arc<Slot>,
}

/// SQLite never frees a registered VFS: only an empty slot remains.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Disk>>>);

impl Registered {
    /// Registers files with SQLite; `seed` is the source of their randomness.
    pub fn new(files: Box<dyn Files>, seed: u64, habits: Habits) -> Result<Self, LabError> {
        let name = format!("joulefs-{}", REGISTERED.fetch_add(1, Relaxed));
        let disk = Disk { files, habits, rng: Mutex::new(Rng::new(seed)), syncs: AtomicU64::new(0) };
        let slot = Arc::new(Slot(Mutex::new(Some(Arc::new(disk)))));
        sqlite_vfs::register(&name, Shared(slot.clone()), false).map_err(|e| LabError::Register(e.to_string()))?;
        Ok(Registered { name, disk: slot })
    }

    /// Its name in SQLite.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Syncs that SQLite has requested so far.
    pub fn syncs(&self) -> u64 {
        self.disk.0.lock().as_ref().map_or(0, |d| d.syncs.load(Relaxed))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        *self.disk.0.lock() = None;
    }
}

/// The reference that SQLite holds.
struct Shared(Arc<Slot>);

impl Shared {
    fn disk(&self) -> Result<Arc<Disk>, Error> {
        self.0.0.lock().clone().ok_or_else(|| Error::other("the volume is gone"))
    }
}

fn error(e: vfs::Error) -> Error {
    let kind = match e {
        vfs::Error::NotFound => ErrorKind::NotFound,
        vfs::Error::Exists => ErrorKind::AlreadyExists,
        _ => ErrorKind::Other,
    };
    Error::new(kind, e)
}

/// A name in the directory: SQLite's path without the leading slash.
fn name(path: &str) -> &str {
    path.trim_start_matches('/')
}

impl Disk {
    fn sync_directory(&self) -> Result<(), Error> {
        self.files.sync_directory(self.habits.directory)
    }
}

impl Vfs for Shared {
    type Handle = File;

    fn open(&self, db: &str, opts: OpenOptions) -> Result<File, Error> {
        let disk = self.disk()?;
        let (file, new) = match (disk.files.find(name(db)), opts.access) {
            (Ok(_), OpenAccess::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Err(e), OpenAccess::Create | OpenAccess::CreateNew) if e.kind() == ErrorKind::NotFound => {
                (disk.files.make(name(db))?, true)
            }
            (found, _) => (found?, false),
        };
        let journal = matches!(opts.kind, OpenKind::MainJournal | OpenKind::SuperJournal | OpenKind::Wal);
        Ok(File { disk, file, lock: LockKind::None, new_name: new && journal })
    }

    fn delete(&self, db: &str) -> Result<(), Error> {
        let disk = self.disk()?;
        disk.files.delete(name(db))?;
        if disk.habits.syncs_deletions { disk.sync_directory() } else { Ok(()) }
    }

    fn exists(&self, db: &str) -> Result<bool, Error> {
        let disk = self.disk()?;
        match disk.files.find(name(db)) {
            Ok(file) => {
                disk.files.forget(file);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn temporary_name(&self) -> String {
        let number = self.disk().map_or(0, |d| d.rng.lock().next_u64());
        format!("temporary-{number:016x}")
    }

    fn random(&self, buffer: &mut [i8]) {
        if let Ok(disk) = self.disk() {
            let mut rng = disk.rng.lock();
            buffer.iter_mut().for_each(|b| *b = rng.next_u64() as i8);
        }
    }

    fn sleep(&self, duration: Duration) -> Duration {
        // SQLite sleeps to wait for other connections; there are none.
        duration
    }
}

/// An open file.
struct File {
    disk: Arc<Disk>,
    file: u64,
    lock: LockKind,
    /// The first sync must sync the directory, too.
    new_name: bool,
}

impl Drop for File {
    fn drop(&mut self) {
        self.disk.files.forget(self.file);
    }
}

impl DatabaseHandle for File {
    type WalIndex = WalDisabled;

    fn size(&self) -> Result<u64, Error> {
        self.disk.files.size(self.file)
    }

    fn read_exact_at(&mut self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            match self.disk.files.read(self.file, offset + done as u64, &mut buf[done..])? {
                0 => {
                    // SQLite requires missing bytes to be zeroed.
                    buf[done..].fill(0);
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                n => done += n,
            }
        }
        Ok(())
    }

    fn write_all_at(&mut self, buf: &[u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            match self.disk.files.write(self.file, offset + done as u64, &buf[done..])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn sync(&mut self, data_only: bool) -> Result<(), Error> {
        self.disk.syncs.fetch_add(1, Relaxed);
        self.disk.files.sync(self.file, data_only)?;
        if std::mem::take(&mut self.new_name) { self.disk.sync_directory() } else { Ok(()) }
    }

    fn set_len(&mut self, size: u64) -> Result<(), Error> {
        self.disk.files.set_size(self.file, size)
    }

    fn lock(&mut self, lock: LockKind) -> Result<bool, Error> {
        self.lock = lock;
        Ok(true)
    }

    fn reserved(&mut self) -> Result<bool, Error> {
        Ok(self.lock >= LockKind::Reserved)
    }

    fn current_lock(&self) -> Result<LockKind, Error> {
        Ok(self.lock)
    }

    fn wal_index(&self, _readonly: bool) -> Result<WalDisabled, Error> {
        Ok(WalDisabled)
    }
}
