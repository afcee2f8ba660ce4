//! Which path has an inode? Looked up in the kernel's caches, without a search: `open_by_handle_at` opens a file by the
//! kind of handle that file servers give to clients, and the link in `/proc` of the opened file has the path.
//!
//! ext2, ext3, ext4 and F2FS accept a handle of inode number and generation; generation 0 matches any. The call needs
//! root (`CAP_DAC_READ_SEARCH`), and no library used by this project wraps it safely. A file without a name, or whose
//! name is not cached, has no path here.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `struct file_handle`, followed by a handle of inode number and generation (`FILEID_INO32_GEN`).
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    ino: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Handle>() == size_of::<libc::file_handle>() + 8);
const _: () = assert!(std::mem::offset_of!(Handle, ino) == std::mem::offset_of!(libc::file_handle, f_handle));
const _: () = assert!(align_of::<Handle>() >= align_of::<libc::file_handle>());

fn open(mount: BorrowedFd<'_>, ino: u32) -> Option<OwnedFd> {
    let mut handle = Handle { bytes: 8, kind: 1, ino, generation: 0 };
    // SAFETY: the kernel reads `handle_bytes` (eight) bytes after the header, which `Handle` has: size, position and
    // alignment are asserted above. It writes nothing. The memory is borrowed exclusively for the whole call.
    let opened =
        unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), libc::O_PATH | libc::O_CLOEXEC) };
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    (opened >= 0).then(|| unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The path of an inode of the file system mounted at `mounted`.
pub fn path(mounted: &Path, ino: u64) -> Option<PathBuf> {
    let mount = fs::File::open(mounted).ok()?;
    let file = open(mount.as_fd(), u32::try_from(ino).ok()?)?;
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // A deleted or unknown name leads to another inode.
    let there = fs::symlink_metadata(&path).ok()?;
    (there.ino() == ino && there.dev() == mount.metadata().ok()?.dev()).then_some(path)
}
