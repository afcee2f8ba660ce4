//! Is another program using this image?
//!
//! Checks before a file or block device is accessed: an advisory lock shared with other openers, the kernel's loop
//! devices, and its mounts. A block device on top of files (a loop device, its partitions, device mapper above it)
//! shares their bytes, so these files are locked too. The error is [`OpenError`], which names the user of the image
//! and the next step. A loop device or mount that ignores the lock and is created later is detected only at the
//! next open.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Purpose of opening an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading, shared with other readers.
    ReadOnly,
    /// Reading and writing, exclusive.
    ReadWrite,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read-only",
            Self::ReadWrite => "read-write",
        })
    }
}

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No such file.
    #[error("{path}: no such file", path = path.display())]
    NotFound {
        /// The image.
        path: PathBuf,
    },
    /// Forbidden by the file's mode or by a read-only medium.
    #[error("{path}: permission denied for {access} access; change its mode, or run as its owner", path = path.display())]
    PermissionDenied {
        /// The image.
        path: PathBuf,
        /// The requested access.
        access: Access,
    },
    /// A directory has no blocks.
    #[error("{path}: is a directory; give the image file or block device", path = path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A pipe, a socket, a character device.
    #[error("{path}: neither a regular file nor a block device", path = path.display())]
    NotADisk {
        /// The file.
        path: PathBuf,
    },
    /// Another process has it open through this library (or holds its own lock).
    #[error("{path}: in use by {by}; unmount or stop that first", path = path.display())]
    Locked {
        /// The image.
        path: PathBuf,
        /// The holder: "process 123 (name)", or "another process" if the system does not tell.
        by: String,
    },
    /// Another process has a file below it open.
    #[error("{path}: is backed by {file}, which is in use by {by}; unmount or stop that first", path = path.display(),
        file = file.display())]
    BackingLocked {
        /// The block device.
        path: PathBuf,
        /// The file below it.
        file: PathBuf,
        /// The holder of the file.
        by: String,
    },
    /// A loop device uses it.
    #[error("{path}: used by {loop_device}; detach it first (losetup -d {loop_device})", path = path.display(),
        loop_device = loop_device.display())]
    HeldByLoop {
        /// The image.
        path: PathBuf,
        /// The device, such as `/dev/loop0`.
        loop_device: PathBuf,
    },
    /// The kernel has this block device mounted.
    #[error("{path}: mounted at {at}; unmount it first (umount {at})", path = path.display())]
    Mounted {
        /// The device.
        path: PathBuf,
        /// The mount point as in the system's table.
        at: String,
    },
    /// The kernel refuses exclusive access to the block device.
    #[error("{path}: in use by the kernel (mounted elsewhere, swap, or part of another device); release it first", path = path.display())]
    InUse {
        /// The device.
        path: PathBuf,
    },
    /// Less than one block.
    #[error("{path}: {bytes} bytes, smaller than one block of 4096", path = path.display())]
    TooSmall {
        /// The image.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A sparse image cannot be written in place.
    #[error("{path}: an Android sparse image, which can only be read; expand it first (simg2img {path} raw.img)", path = path.display())]
    SparseReadOnly {
        /// The image.
        path: PathBuf,
    },
    /// A sparse image breaks its format.
    #[error("{path}: not a valid Android sparse image: {source}", path = path.display())]
    Sparse {
        /// The image.
        path: PathBuf,
        /// What is wrong, and where.
        source: crate::SparseError,
    },
    /// Any other system error.
    #[error("{path}: {action}: {source}", path = path.display())]
    Io {
        /// The image.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    /// Converts the system's error for opening or changing `path`.
    pub(crate) fn from_io(path: &Path, access: Access, action: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::NotFound { path },
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::PermissionDenied { path, access },
            Some(Errno::ISDIR) => Self::IsDirectory { path },
            Some(Errno::BUSY) => Self::InUse { path },
            _ => Self::Io { path, action, source },
        }
    }
}

/// Rejects a file that is not a disk. Called before opening, because opening a pipe would block.
pub(crate) fn check_kind(path: &Path, meta: &Metadata) -> Result<(), OpenError> {
    let kind = meta.file_type();
    if kind.is_dir() {
        Err(OpenError::IsDirectory { path: path.to_owned() })
    } else if kind.is_file() || kind.is_block_device() {
        Ok(())
    } else {
        Err(OpenError::NotADisk { path: path.to_owned() })
    }
}

/// Locks on the files below a block device, held until drop.
#[derive(Debug)]
pub(crate) struct Claim {
    below: Vec<File>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing is not enough: a process forked by another thread keeps a copy of the descriptor for a while.
        for file in &self.below {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// Claims an open image until `file` is closed and the claim is dropped: shared for reading, exclusive for writing.
pub(crate) fn claim(path: &Path, file: &File, access: Access) -> Result<Claim, OpenError> {
    let meta = file.metadata().map_err(|e| OpenError::from_io(path, access, "stat", e))?;
    if let Some(loop_device) = holding_loop(&meta, access) {
        return Err(OpenError::HeldByLoop { path: path.to_owned(), loop_device });
    }
    if meta.file_type().is_block_device()
        && let Some(at) = mount_point(&meta)
    {
        return Err(OpenError::Mounted { path: path.to_owned(), at });
    }
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(OpenError::Locked { path: path.to_owned(), by: lock_holder(&meta) }),
        Err(e) => return Err(OpenError::from_io(path, access, "lock", e.into())),
    }
    let mut below = Vec::new();
    if meta.file_type().is_block_device() {
        for backing in backing_files(meta.rdev()) {
            let locked = |by| OpenError::BackingLocked { path: path.to_owned(), file: backing.clone(), by };
            let Ok(meta) = fs::metadata(&backing) else { continue };
            // A user of the device may lack permission to read the file; the system's table of locks then names the
            // holder.
            let Ok(file) = File::open(&backing) else {
                match find_lock_holder(&meta) {
                    None => continue,
                    Some(by) => return Err(locked(by)),
                }
            };
            match rustix::fs::flock(&file, operation) {
                Ok(()) => below.push(file),
                Err(Errno::WOULDBLOCK) => return Err(locked(lock_holder(&meta))),
                // On a file system without locks there is no protection.
                Err(_) => {}
            }
        }
    }
    Ok(Claim { below })
}

/// Most block devices on top of each other that are followed.
const DEEPEST: usize = 16;

/// The regular files below a block device, through loop devices, partitions and device mapper.
fn backing_files(rdev: u64) -> Vec<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let mut out = Vec::new();
    if let Ok(device) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
        backing_of(&device, DEEPEST, &mut out);
    }
    out.sort();
    out.dedup();
    out
}

/// The same for a device's directory in sysfs.
fn backing_of(device: &Path, deeper: usize, out: &mut Vec<PathBuf>) {
    if deeper == 0 {
        return;
    }
    if let Ok(file) = fs::read_to_string(device.join("loop/backing_file")) {
        let file = PathBuf::from(file.strip_suffix('\n').unwrap_or(&file));
        // A loop device may stand on a block device, too.
        match fs::metadata(&file) {
            Ok(meta) if meta.file_type().is_block_device() => {
                let id = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
                if let Ok(below) = fs::canonicalize(format!("/sys/dev/block/{}:{}", id.0, id.1)) {
                    backing_of(&below, deeper - 1, out);
                }
            }
            _ => out.push(file),
        }
    }
    // A partition's directory is inside that of its disk.
    if device.join("partition").exists()
        && let Some(disk) = device.parent()
    {
        backing_of(disk, deeper - 1, out);
    }
    for below in fs::read_dir(device.join("slaves")).into_iter().flatten().flatten() {
        if let Ok(below) = fs::canonicalize(below.path()) {
            backing_of(&below, deeper - 1, out);
        }
    }
}

/// True if the kernel rejects writes to the block device; opening it for writing may still succeed.
pub(crate) fn is_frozen(meta: &Metadata) -> bool {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|s| s.trim() == "1")
}

/// The loop device that uses the file. A read-only loop device does not disturb a reader.
fn holding_loop(meta: &Metadata, access: Access) -> Option<PathBuf> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"loop") {
            continue;
        }
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = backing.strip_suffix('\n').unwrap_or(&backing);
        let Ok(held) = fs::metadata(backing) else {
            continue;
        };
        if (held.dev(), held.ino()) != (meta.dev(), meta.ino()) {
            continue;
        }
        let frozen = fs::read_to_string(entry.path().join("ro")).is_ok_and(|s| s.trim() == "1");
        if !(frozen && access == Access::ReadOnly) {
            return Some(Path::new("/dev").join(name));
        }
    }
    None
}

/// Mount point of the block device, in this process's view of mounts.
fn mount_point(meta: &Metadata) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mounts").ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (source, at) = (words.next()?, words.next()?);
        let source = fs::metadata(source).ok().filter(|_| source.starts_with('/'))?;
        (source.file_type().is_block_device() && source.rdev() == meta.rdev()).then(|| at.to_owned())
    })
}

/// The holder of the lock.
fn lock_holder(meta: &Metadata) -> String {
    find_lock_holder(meta).unwrap_or_else(|| "another process".to_owned())
}

/// The same, if found in /proc/locks: lines such as `1: FLOCK ADVISORY WRITE 708 00:1a:123 0 EOF`.
fn find_lock_holder(meta: &Metadata) -> Option<String> {
    let dev = meta.dev();
    let id = format!("{:02x}:{:02x}:{}", rustix::fs::major(dev), rustix::fs::minor(dev), meta.ino());
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == id => pid.parse::<u32>().ok().filter(|pid| *pid != 0),
            _ => None,
        }
    })?;
    Some(match pid {
        pid if pid == std::process::id() => "this process".to_owned(),
        pid => match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim_end()),
            Err(_) => format!("process {pid}"),
        },
    })
}
