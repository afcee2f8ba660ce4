//! Which path has an inode? As the kernel has it in memory, without a search: `open_by_handle_at`, which takes what a
//! file server gives its clients instead of paths, and the link in `/proc` of what it opens.
//!
//! ext2, ext3, ext4 and F2FS take a handle of an inode's number and generation, and any generation for 0. Only root may
//! (`CAP_DAC_READ_SEARCH`). The call has no safe form in a library that this project uses. A file that has no name, or none in memory, has no path here.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `struct file_handle`, with the handle of a number and a generation (`FILEID_INO32_GEN`) behind it.
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
    // SAFETY: the kernel reads `handle_bytes` bytes behind the head, eight, which `Handle` has there: size, place and
    // alignment are asserted above. It writes nothing. The memory is borrowed exclusively for the whole call.
    let opened =
        unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), libc::O_PATH | libc::O_CLOEXEC) };
    // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
    (opened >= 0).then(|| unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The path of an inode of the file system that is mounted there.
pub fn path(mounted: &Path, ino: u64) -> Option<PathBuf> {
    let mount = fs::File::open(mounted).ok()?;
    let file = open(mount.as_fd(), u32::try_from(ino).ok()?)?;
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // A name that is gone, or is not known, leads elsewhere.
    let there = fs::symlink_metadata(&path).ok()?;
    (there.ino() == ino && there.dev() == mount.metadata().ok()?.dev()).then_some(path)
}
