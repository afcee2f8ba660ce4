//! Our file system as SQLite's disk, without a kernel between.
//!
//! One process, one connection: locks are granted, and the index of the write-ahead log lives in SQLite's
//! own memory (exclusive locking mode). Randomness comes from a seed, so that runs repeat.
//!
//! SQLite's own disk on Unix syncs the directory of a new journal or log with the file's first sync, and with
//! `synchronous=EXTRA` that of a deleted journal. Here [`Habits`] say whether and how, since both can be measured.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::Rng;
use parking_lot::Mutex;
use serde::Deserialize;
use sqlite_vfs::{DatabaseHandle, LockKind, OpenAccess, OpenKind, OpenOptions, Vfs, WalDisabled};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, SetAttr, WriteFlags};

use crate::error::LabError;

/// Numbers disks registered in this process: SQLite knows them by name.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// How a directory is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SyncsDirectory {
    /// Not at all.
    #[default]
    Never,
    /// By a checkpoint, as Linux does.
    Checkpoint,
    /// By the file system's `fsync` of it.
    Fsync,
}

/// When directories are synced, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// That of a new journal or log.
    pub directory: SyncsDirectory,
    /// So is that of a deleted file.
    pub syncs_deletions: bool,
}

/// A file system under SQLite.
struct Disk {
    fs: Arc<dyn FileSystem>,
    habits: Habits,
    rng: Mutex<Rng>,
    syncs: AtomicU64,
}

/// A disk SQLite knows by [`name`](Self::name) as long as this lives. Connections to it must end first.
pub(super) struct Registered {
    name: String,
    disk: Arc<Slot>,
}

/// SQLite never forgets a disk it was told of: what stays behind is an empty slot.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Disk>>>);

impl Registered {
    /// Tells SQLite of a file system; `seed` is where its randomness comes from.
    pub fn new(fs: Arc<dyn FileSystem>, seed: u64, habits: Habits) -> Result<Self, LabError> {
        let name = format!("joulefs-{}", REGISTERED.fetch_add(1, Relaxed));
        let disk = Disk { fs, habits, rng: Mutex::new(Rng::new(seed)), syncs: AtomicU64::new(0) };
        let slot = Arc::new(Slot(Mutex::new(Some(Arc::new(disk)))));
        sqlite_vfs::register(&name, Shared(slot.clone()), false).map_err(|e| LabError::Register(e.to_string()))?;
        Ok(Registered { name, disk: slot })
    }

    /// What SQLite calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often SQLite wanted its writes durable so far.
    pub fn syncs(&self) -> u64 {
        self.disk.0.lock().as_ref().map_or(0, |d| d.syncs.load(Relaxed))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        *self.disk.0.lock() = None;
    }
}

/// What SQLite holds on to.
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

/// A name in the root directory; SQLite's path is its name.
fn name(path: &str) -> &[u8] {
    path.trim_start_matches('/').as_bytes()
}

impl Disk {
    fn find(&self, path: &str) -> Result<Ino, Error> {
        Ok(self.fs.lookup(self.fs.root(), name(path)).map_err(error)?.attr.ino)
    }

    fn sync_directory(&self) -> Result<(), Error> {
        match self.habits.directory {
            SyncsDirectory::Never => Ok(()),
            SyncsDirectory::Checkpoint => self.fs.sync().map_err(error),
            SyncsDirectory::Fsync => self.fs.fsyncdir(self.fs.root(), false).map_err(error),
        }
    }

    fn make(&self, path: &str) -> Result<Ino, Error> {
        let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
        let made = self.fs.mknod(Caller::default(), self.fs.root(), name(path), &new);
        Ok(made.map_err(error)?.attr.ino)
    }
}

impl Vfs for Shared {
    type Handle = File;

    fn open(&self, db: &str, opts: OpenOptions) -> Result<File, Error> {
        let disk = self.disk()?;
        let (ino, new) = match (disk.find(db), opts.access) {
            (Ok(_), OpenAccess::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Err(e), OpenAccess::Create | OpenAccess::CreateNew) if e.kind() == ErrorKind::NotFound => {
                (disk.make(db)?, true)
            }
            (found, _) => (found?, false),
        };
        let journal = matches!(opts.kind, OpenKind::MainJournal | OpenKind::SuperJournal | OpenKind::Wal);
        Ok(File { disk, ino, lock: LockKind::None, new_name: new && journal })
    }

    fn delete(&self, db: &str) -> Result<(), Error> {
        let disk = self.disk()?;
        disk.fs.unlink(disk.fs.root(), name(db)).map_err(error)?;
        if disk.habits.syncs_deletions { disk.sync_directory() } else { Ok(()) }
    }

    fn exists(&self, db: &str) -> Result<bool, Error> {
        let disk = self.disk()?;
        match disk.find(db) {
            Ok(ino) => {
                disk.fs.forget(ino, 1);
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
        // SQLite sleeps to let others go first; there are none.
        duration
    }
}

/// An open file.
struct File {
    disk: Arc<Disk>,
    ino: Ino,
    lock: LockKind,
    /// The first sync is of the directory, too.
    new_name: bool,
}

impl Drop for File {
    fn drop(&mut self) {
        self.disk.fs.forget(self.ino, 1);
    }
}

impl DatabaseHandle for File {
    type WalIndex = WalDisabled;

    fn size(&self) -> Result<u64, Error> {
        Ok(self.disk.fs.getattr(self.ino).map_err(error)?.size)
    }

    fn read_exact_at(&mut self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            match self.disk.fs.read(self.ino, offset + done as u64, &mut buf[done..]).map_err(error)? {
                0 => {
                    // SQLite takes what is missing for zeroes, and wants it to be.
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
            match self.disk.fs.write(self.ino, offset + done as u64, &buf[done..], WriteFlags::empty()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) => return Err(error(e)),
            }
        }
        Ok(())
    }

    fn sync(&mut self, data_only: bool) -> Result<(), Error> {
        self.disk.syncs.fetch_add(1, Relaxed);
        self.disk.fs.fsync(self.ino, data_only).map_err(error)?;
        if std::mem::take(&mut self.new_name) { self.disk.sync_directory() } else { Ok(()) }
    }

    fn set_len(&mut self, size: u64) -> Result<(), Error> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.disk.fs.setattr(self.ino, &set).map(drop).map_err(error)
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
