//! How does a simulated device become a file that can hold any file system of any kernel?
//!
//! [`Files`] is a file system of two files. `disk` is the device: its size is fixed, every read and write arrives as
//! issued ([`Caching::Live`](crate::Caching::Live)), fsync is a flush, punching a hole is a discard. `ledger.json` is
//! the energy spent so far. Each lookup of its name creates a new snapshot with its own inode, so a reader sees one
//! moment from beginning to end.
//!
//! As with a block device, `O_TRUNC` does not change the disk (`cp image disk` works), but truncating to another size
//! is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::clock::{Clock, RealClock};
use device::gauge::Gauge;
use device::{BLOCK, DeviceError};
use parking_lot::Mutex;
use vfs::{
    Allocate, Attr, Caller, DeviceNumber, DirEntry, Entry, Error, FileKind, FileSystem, Flow, Ino, NewNode,
    RenameFlags, Result, Seek, SetAttr, StatFs, Timestamp, WriteFlags, XattrFlags,
};

const ROOT: Ino = Ino(1);
const DISK: Ino = Ino(2);
/// The ledger's inode number in listings; snapshots get higher numbers.
const LEDGER: Ino = Ino(3);

/// The names with number and type, in listing order.
const NAMES: [(&[u8], Ino, FileKind); 4] = [
    (b".", ROOT, FileKind::Directory),
    (b"..", ROOT, FileKind::Directory),
    (b"disk", DISK, FileKind::Regular),
    (b"ledger.json", LEDGER, FileKind::Regular),
];

const NOTHING_ELSE: Error = Error::NotPermitted("a metered device has a disk and a ledger, nothing else");

/// A snapshot of the ledger for one reader.
struct Page {
    text: Arc<[u8]>,
    references: u64,
}

#[derive(Default)]
struct Pages {
    last: u64,
    open: BTreeMap<u64, Page>,
}

/// A metered device as a file system of two files.
pub struct Files {
    gauge: Arc<Gauge>,
    made: Timestamp,
    owner: (u32, u32),
    pages: Mutex<Pages>,
}

fn failed(error: DeviceError) -> Error {
    match error {
        DeviceError::ReadOnly { .. } => Error::ReadOnly,
        DeviceError::OutOfRange { .. } => Error::NoSpace,
        other => Error::device(other),
    }
}

impl Files {
    /// The files of a device, created now and owned by this process's user.
    pub fn new(gauge: Arc<Gauge>) -> Self {
        let now = RealClock::new().now();
        Files {
            gauge,
            made: Timestamp { sec: now.secs, nsec: now.nanos },
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            pages: Mutex::default(),
        }
    }

    fn attr(&self, ino: Ino, kind: FileKind, perm: u16, size: u64) -> Attr {
        Attr {
            ino,
            generation: 0,
            kind,
            perm,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            size,
            blocks512: size.div_ceil(512),
            rdev: DeviceNumber::default(),
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: None,
        }
    }

    fn disk_attr(&self) -> Attr {
        let perm = if self.gauge.disk().read_only() { 0o400 } else { 0o600 };
        self.attr(DISK, FileKind::Regular, perm, self.gauge.disk().bytes())
    }

    /// Creates a snapshot of the ledger.
    fn new_page(&self) -> Attr {
        let text: Arc<[u8]> = format!("{:#}\n", self.gauge.report().json()).into_bytes().into();
        let size = text.len() as u64;
        let mut pages = self.pages.lock();
        pages.last += 1;
        let ino = Ino(LEDGER.0 + pages.last);
        pages.open.insert(ino.0, Page { text, references: 1 });
        self.attr(ino, FileKind::Regular, 0o444, size)
    }

    fn page(&self, ino: Ino) -> Result<Arc<[u8]>> {
        self.pages.lock().open.get(&ino.0).map(|p| p.text.clone()).ok_or(Error::Stale)
    }

    fn on_disk(&self, ino: Ino) -> Result<()> {
        match ino {
            DISK => Ok(()),
            ROOT => Err(Error::IsDirectory),
            _ => Err(Error::NotPermitted("the ledger is written by the device")),
        }
    }
}

impl FileSystem for Files {
    fn root(&self) -> Ino {
        ROOT
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_size: BLOCK as u32,
            blocks: self.gauge.disk().bytes() / BLOCK as u64,
            blocks_free: 0,
            blocks_available: 0,
            files: 2,
            files_free: 0,
            name_max: 255,
        })
    }
    fn read_only(&self) -> bool {
        self.gauge.disk().read_only()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        if parent != ROOT {
            return Err(Error::NotDirectory);
        }
        let attr = match NAMES.iter().find(|(n, ..)| *n == name).ok_or(Error::NotFound)?.1 {
            ROOT => self.getattr(ROOT)?,
            DISK => self.disk_attr(),
            _ => self.new_page(),
        };
        Ok(Entry { attr })
    }
    fn forget(&self, ino: Ino, count: u64) {
        let mut pages = self.pages.lock();
        if let Some(page) = pages.open.get_mut(&ino.0) {
            page.references = page.references.saturating_sub(count);
            if page.references == 0 {
                pages.open.remove(&ino.0);
            }
        }
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(match ino {
            ROOT => self.attr(ROOT, FileKind::Directory, 0o755, 0),
            DISK => self.disk_attr(),
            _ => self.attr(ino, FileKind::Regular, 0o444, self.page(ino)?.len() as u64),
        })
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        match set.size {
            Some(size) if ino != DISK || size != self.gauge.disk().bytes() => {
                Err(Error::Invalid("a metered device's size is fixed"))
            }
            _ if set.perm.is_some() || set.uid.is_some() || set.gid.is_some() => Err(NOTHING_ELSE),
            // Times are fixed at creation; setting them has no effect.
            _ => self.getattr(ino),
        }
    }
    fn readlink(&self, _: Ino) -> Result<Vec<u8>> {
        Err(Error::Invalid("not a symlink"))
    }

    fn mknod(&self, _: Caller, _: Ino, _: &[u8], _: &NewNode) -> Result<Entry> {
        Err(NOTHING_ELSE)
    }
    fn mkdir(&self, _: Caller, _: Ino, _: &[u8], _: u16, _: u16) -> Result<Entry> {
        Err(NOTHING_ELSE)
    }
    fn symlink(&self, _: Caller, _: Ino, _: &[u8], _: &[u8]) -> Result<Entry> {
        Err(NOTHING_ELSE)
    }
    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> Result<Entry> {
        Err(NOTHING_ELSE)
    }
    fn unlink(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(NOTHING_ELSE)
    }
    fn rmdir(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(NOTHING_ELSE)
    }
    fn rename(&self, _: Caller, _: (Ino, &[u8]), _: (Ino, &[u8]), _: RenameFlags) -> Result<()> {
        Err(NOTHING_ELSE)
    }
    fn tmpfile(&self, _: Caller, _: Ino, _: u16, _: u16) -> Result<Entry> {
        Err(NOTHING_ELSE)
    }

    fn open(&self, ino: Ino, truncate: bool) -> Result<()> {
        match ino {
            ROOT | DISK => Ok(()),
            _ if truncate => self.on_disk(ino),
            _ => self.page(ino).map(drop),
        }
    }
    fn release(&self, _: Ino) {}
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match ino {
            ROOT => Err(Error::IsDirectory),
            DISK => self.gauge.disk().read(offset, buf).map_err(failed),
            _ => {
                let text = self.page(ino)?;
                let rest = usize::try_from(offset).ok().and_then(|at| text.get(at..)).unwrap_or_default();
                let n = rest.len().min(buf.len());
                buf[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8], _: WriteFlags) -> Result<usize> {
        self.on_disk(ino)?;
        match self.gauge.disk().write(offset, data).map_err(failed)? {
            0 if !data.is_empty() => Err(Error::NoSpace),
            n => Ok(n),
        }
    }
    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        self.on_disk(ino)?;
        let disk = self.gauge.disk();
        match what {
            Allocate::PunchHole => disk.discard(offset, len).map_err(failed),
            Allocate::Zero { .. } => disk.zero(offset, len).map_err(failed),
            // The whole device is always allocated.
            Allocate::Reserve { .. } if disk.holds(offset, len) => Ok(()),
            Allocate::Reserve { .. } => Err(Error::NoSpace),
            Allocate::Collapse | Allocate::Insert => Err(Error::Unsupported("a device's blocks do not move".into())),
        }
    }
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let size = self.getattr(ino)?.size;
        match what {
            _ if offset >= size => Err(Error::PastEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        if ino != ROOT {
            return Err(Error::NotDirectory);
        }
        for (next, (name, ino, kind)) in (1..).zip(NAMES) {
            if next > cookie && each(DirEntry { ino, kind, name, next }) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        if ino == DISK { self.gauge.disk().flush().map_err(failed) } else { Ok(()) }
    }
    fn fsyncdir(&self, _: Ino, _: bool) -> Result<()> {
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.gauge.disk().flush().map_err(failed)
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NoAttribute)
    }
    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(Error::Unsupported("attributes of a metered device".into()))
    }
    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(Error::NoAttribute)
    }

    fn tick(&self) -> Result<Duration> {
        self.gauge.sample();
        Ok(Duration::from_secs(1))
    }
    fn unmount(&self) -> Result<()> {
        // Unflushed writes are kept too, without cost: the device's users are gone, the image stays.
        self.gauge.disk().keep().map_err(failed)
    }
}
