//! Reserves room on the file system of an image in an unnamed file next to it, which disappears with the process.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, StatVfs};
use rustix::io::Errno;

use super::Host;

/// Magic numbers of Linux's `statfs`.
const TMPFS: u64 = 0x0102_1994;
/// File systems that write changed blocks to new places: btrfs, bcachefs, ZFS.
const COPY_ON_WRITE: [u64; 3] = [0x9123_683E, 0xCA45_1A4E, 0x2FC1_2FC1];

/// Largest ballast, on disk and in memory.
const MOST: u64 = 256 << 20;
const MOST_IN_MEMORY: u64 = 64 << 20;

/// The file system that holds an image file.
pub struct FileHost {
    image: File,
    /// The directory of the image, in which a new unnamed file can be made.
    dir: Option<OwnedFd>,
    /// The unnamed file, unless the host does not support it or cannot reserve its blocks.
    ballast: Option<File>,
    held: u64,
    kind: u64,
}

/// A new file without a name in a directory.
fn unnamed(dir: &OwnedFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

impl FileHost {
    /// The host of the regular file `image`, opened as `path`.
    ///
    /// # Errors
    /// If the host does not report its kind.
    pub fn new(image: File, path: &Path) -> io::Result<Self> {
        let kind = rustix::fs::fstatfs(&image)?.f_type as u64;
        let dir = fs::canonicalize(path).ok().and_then(|path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()
        });
        let mut host = Self { image, ballast: dir.as_ref().and_then(unnamed), dir, held: 0, kind };
        // A host without fallocate fails immediately.
        if host.ballast.is_some() && host.hold(4096).is_ok() {
            host.hold(0)?;
        }
        Ok(host)
    }

    fn numbers(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(&self.image)?)
    }

    /// Drops the ballast and holds `bytes` bytes by a new file.
    fn hold_in_another(&mut self, bytes: u64) -> io::Result<()> {
        (self.ballast, self.held) = (None, 0);
        self.ballast = self.dir.as_ref().and_then(unnamed);
        let ballast = self.ballast.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if bytes > 0 {
            rustix::fs::fallocate(ballast, FallocateFlags::empty(), 0, bytes)?;
        }
        self.held = bytes;
        Ok(())
    }
}

impl Host for FileHost {
    fn hold(&mut self, bytes: u64) -> io::Result<()> {
        let Some(ballast) = &self.ballast else { return Err(io::ErrorKind::Unsupported.into()) };
        let resized = match bytes.checked_sub(self.held) {
            Some(0) => Ok(()),
            Some(more) => rustix::fs::fallocate(ballast, FallocateFlags::empty(), self.held, more).map_err(|e| {
                // Some hosts keep the part that they could reserve.
                _ = ballast.set_len(self.held);
                e.into()
            }),
            None => ballast.set_len(bytes),
        };
        match resized {
            Ok(()) => self.held = bytes,
            Err(ref e) if matches!(Errno::from_io_error(e), Some(Errno::OPNOTSUPP | Errno::NOSYS)) => {
                self.ballast = None;
            }
            // A full btrfs, or one whose quota is used up, may fail to truncate a file, but not to drop it.
            Err(_) if bytes < self.held => return self.hold_in_another(bytes),
            Err(_) => {}
        }
        resized
    }

    fn can_hold(&self) -> bool {
        self.ballast.is_some()
    }

    fn free(&self) -> io::Result<u64> {
        let host = self.numbers()?;
        // Root may use blocks that are reserved from others.
        let blocks = if rustix::process::geteuid().is_root() { host.f_bfree } else { host.f_bavail };
        Ok(blocks.saturating_mul(host.f_frsize))
    }

    fn growth(&self) -> io::Result<u64> {
        if COPY_ON_WRITE.contains(&self.kind) {
            return Ok(u64::MAX);
        }
        let image = self.image.metadata()?;
        let taken = image.blocks() * 512;
        // Allocated space includes the host's own tables of the file.
        Ok(if taken >= image.len() { 0 } else { image.len() - taken + image.len() / 256 })
    }

    fn most(&self) -> u64 {
        if self.kind == TMPFS { MOST_IN_MEMORY } else { MOST }
    }

    fn has_name(&self) -> bool {
        self.image.metadata().is_ok_and(|image| image.nlink() > 0)
    }
}
