//! A regular file or a block device of the host as a device.
//!
//! Positioned reads and writes, `fdatasync` for a flush, holes for discards. Left out: locks against other users of
//! the file ([`claim`](crate::claim)).

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::bounds::{check, check_blocks, check_parts};
use crate::claim::{Claim, check_kind, claim, is_frozen};
use crate::host_room::FileHost;
use crate::stripes::Stripes;
use crate::{Access, BLOCK, BlockDevice, DeviceError, Lba, OpenError, Result, Retained, Tag};

/// Most parts in one vectored write (`UIO_MAXIOV` in Linux).
const MAX_PARTS: usize = 1024;

/// A regular file or block device of the host, locked against other openers while the value lives.
///
/// The size is rounded down to whole blocks. If the host can punch holes, discarded blocks read as zeroes and free
/// their space; otherwise a discard does nothing. After one failed flush all later flushes fail: the host may have
/// dropped the data that it could not write, so a later success would be false. Behind [`Self::retained`] a flush
/// can be repeated.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    _claim: Claim,
    path: PathBuf,
    blocks: u64,
    access: Access,
    /// Keep readers out of an incomplete write, which the host does not.
    stripes: Stripes,
    no_holes: AtomicBool,
    flush_failed: AtomicBool,
    /// True if the caller repeats its writes before it repeats a failed flush.
    retained: bool,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // Closing is not enough: a process forked by another thread keeps a copy of the descriptor, and with it the
        // lock, until it executes its program. A failure cannot be reported here.
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }
}

impl FileDevice {
    /// Opens an existing image.
    pub fn open(path: impl AsRef<Path>, access: Access) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let failed = |action, e| OpenError::from_io(path, access, action, e);
        let meta = fs::metadata(path).map_err(|e| failed("stat", e))?;
        check_kind(path, &meta)?;
        let write = access == Access::ReadWrite;
        if write && meta.file_type().is_block_device() && is_frozen(&meta) {
            return Err(OpenError::PermissionDenied { path: path.to_owned(), access });
        }
        // Exclusive opening of a block device excludes mounts in other namespaces, and swap.
        let exclusive = if write && meta.file_type().is_block_device() { OFlags::EXCL } else { OFlags::empty() };
        let opened = OpenOptions::new().read(true).write(write).custom_flags(exclusive.bits().cast_signed()).open(path);
        let mut file = match opened {
            Ok(file) => file,
            // Busy: a reader's handle reveals the holder, while the kernel only reports that there is one.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => {
                if let Ok(file) = File::open(path) {
                    claim(path, &file, access)?;
                }
                return Err(failed("open", e));
            }
            Err(e) => return Err(failed("open", e)),
        };
        let claim = claim(path, &file, access)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|e| failed("find the size", e))?;
        Self::with_claim(file, claim, path, bytes, access)
    }

    /// Creates an image of `bytes` bytes (rounded down to whole blocks), all zeroes and without allocated space. An
    /// existing regular file is truncated if no other program uses it; an existing block device is rejected as
    /// [`OpenError::NotADisk`], because its size cannot be chosen: open it.
    pub fn create(path: impl AsRef<Path>, bytes: u64) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let access = Access::ReadWrite;
        let failed = |action, e| OpenError::from_io(path, access, action, e);
        if bytes < BLOCK as u64 {
            return Err(OpenError::TooSmall { path: path.to_owned(), bytes });
        }
        if let Ok(meta) = fs::metadata(path) {
            check_kind(path, &meta)?;
            if !meta.is_file() {
                return Err(OpenError::NotADisk { path: path.to_owned() });
            }
        }
        // Truncate it only after claiming it.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| failed("create", e))?;
        let claim = claim(path, &file, access)?;
        file.set_len(0).map_err(|e| failed("empty", e))?;
        file.set_len(bytes - bytes % BLOCK as u64).map_err(|e| failed("set the size", e))?;
        Self::with_claim(file, claim, path, bytes, access)
    }

    fn with_claim(
        file: File,
        claim: Claim,
        path: &Path,
        bytes: u64,
        access: Access,
    ) -> std::result::Result<Self, OpenError> {
        let blocks = bytes / BLOCK as u64;
        if blocks == 0 {
            return Err(OpenError::TooSmall { path: path.to_owned(), bytes });
        }
        Ok(Self {
            file,
            _claim: claim,
            path: path.to_owned(),
            blocks,
            access,
            stripes: Stripes::new(),
            no_holes: AtomicBool::new(false),
            flush_failed: AtomicBool::new(false),
            retained: false,
        })
    }

    /// Adds copies of writes since the last flush (at most about `limit` bytes), so that a failed flush can be
    /// repeated.
    pub fn retained(mut self, limit: usize) -> Retained<Self> {
        self.retained = true;
        Retained::new(self, limit)
    }

    /// The path given to open it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system that holds the image, if it is a file that can grow.
    ///
    /// # Errors
    /// If the host does not provide the information.
    pub fn host(&self) -> io::Result<Option<FileHost>> {
        match self.file.metadata()?.is_file() {
            true => FileHost::new(self.file.try_clone()?, &self.path).map(Some),
            false => Ok(None),
        }
    }

    fn writable(&self, op: &'static str) -> Result<()> {
        match self.access {
            Access::ReadOnly => Err(DeviceError::ReadOnly { op }),
            Access::ReadWrite => Ok(()),
        }
    }
}

fn io_error(op: &'static str, at: Lba) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| DeviceError::Io { op, at, source }
}

/// The byte offset of a block. For checked blocks only, whose offsets fit 63 bits.
fn offset(at: Lba) -> u64 {
    at.0 * BLOCK as u64
}

/// Writes all parts; the host may accept fewer bytes at any boundary.
fn write_parts(file: &File, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
    for batch in parts.chunks(MAX_PARTS) {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|p| IoSlice::new(p)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    offset += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

impl BlockDevice for FileDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn read(&self, at: Lba, buf: &mut [u8], _: Tag) -> Result<()> {
        let blocks = check("read", at, buf.len(), self.blocks)?;
        if self.read_only() {
            // No writer can exist.
            return self.file.read_exact_at(buf, offset(at)).map_err(io_error("read", at));
        }
        let _guard = self.stripes.shared(at, blocks);
        self.file.read_exact_at(buf, offset(at)).map_err(io_error("read", at))
    }

    fn write(&self, at: Lba, data: &[u8], _: Tag) -> Result<()> {
        self.writable("write")?;
        let blocks = check("write", at, data.len(), self.blocks)?;
        let _guard = self.stripes.exclusive(at, blocks);
        self.file.write_all_at(data, offset(at)).map_err(io_error("write", at))
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], _: Tag) -> Result<()> {
        self.writable("write")?;
        let blocks = check_parts("write", at, parts, self.blocks)?;
        let _guard = self.stripes.exclusive(at, blocks);
        write_parts(&self.file, offset(at), parts).map_err(io_error("write", at))
    }

    /// The host takes the parts from their places in memory, and no owners.
    fn write_parts_for(
        &self,
        at: Lba,
        parts: &[&[u8]],
        (owners, cause): (&[u64], u8),
        _room: &mut Vec<u8>,
    ) -> Result<()> {
        self.write_gather(at, parts, Tag { cause, owner: owners.last().copied().unwrap_or_default() })
    }

    fn flush(&self, _: Tag) -> Result<()> {
        self.writable("flush")?;
        if !self.retained && self.flush_failed.load(Relaxed) {
            let source = io::Error::other("an earlier flush failed; what was written before it may be lost");
            return Err(DeviceError::Io { op: "flush", at: Lba(0), source });
        }
        self.file.sync_data().map_err(|source| {
            self.flush_failed.store(true, Relaxed);
            DeviceError::Io { op: "flush", at: Lba(0), source }
        })
    }

    fn discard(&self, at: Lba, blocks: u64, _: Tag) -> Result<()> {
        self.writable("discard")?;
        check_blocks("discard", at, blocks, self.blocks)?;
        if blocks == 0 || self.no_holes.load(Relaxed) {
            return Ok(());
        }
        let _guard = self.stripes.exclusive(at, blocks);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, how, offset(at), blocks * BLOCK as u64) {
            Ok(()) => Ok(()),
            // A discard is only advice: if the host does not support it, stop sending it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => {
                self.no_holes.store(true, Relaxed);
                Ok(())
            }
            Err(e) => Err(DeviceError::Io { op: "discard", at, source: e.into() }),
        }
    }
}
