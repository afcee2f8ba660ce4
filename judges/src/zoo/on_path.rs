//! Performs a plan below a directory of any mounted file system, by system calls.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dev, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::{FileKind, RenameFlags, ZooOp, fill};

/// Performs `ops` below `root`. Needs permission to change owners and create device nodes, and a umask that leaves 0755
/// unchanged (such as the usual 022; it is not changed here, since it belongs to the whole process).
///
/// # Errors
/// The first operation that failed, in words.
pub fn perform(root: &Path, ops: &[ZooOp]) -> io::Result<()> {
    for (index, op) in ops.iter().enumerate() {
        one(root, op).map_err(|e| {
            let mut shown = format!("{op:?}");
            shown.truncate(300);
            io::Error::new(e.kind(), format!("operation {index}, {shown}: {e}"))
        })?;
    }
    Ok(())
}

fn one(root: &Path, op: &ZooOp) -> io::Result<()> {
    let at =
        |path: &[u8]| -> PathBuf { if path.is_empty() { root.into() } else { root.join(OsStr::from_bytes(path)) } };
    let mode = |perm: &u16| Mode::from_raw_mode(u32::from(*perm));
    match op {
        ZooOp::Mkdir { path, perm } => rustix::fs::mkdir(at(path), mode(perm))?,
        ZooOp::Create { path, perm } => {
            rustix::fs::mknodat(CWD, at(path), FileType::RegularFile, mode(perm), 0)?;
        }
        ZooOp::Mknod { path, kind, perm, major, minor } => {
            rustix::fs::mknodat(CWD, at(path), type_of(*kind), mode(perm), device(*major, *minor))?;
        }
        ZooOp::Symlink { path, target } => {
            rustix::fs::symlink(OsStr::from_bytes(target), at(path))?;
        }
        ZooOp::Link { from, to } => {
            rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty())?;
        }
        ZooOp::Write { path, offset, len, stream } => {
            let file = writable(&at(path))?;
            write(&file, (*offset, *len), *stream)?;
        }
        ZooOp::Truncate { path, size } => writable(&at(path))?.set_len(*size)?,
        ZooOp::Reserve { path, offset, len, keep_size } => {
            let flags = if *keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            rustix::fs::fallocate(writable(&at(path))?, flags, *offset, *len)?;
        }
        ZooOp::PunchHole { path, offset, len } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(writable(&at(path))?, flags, *offset, *len)?;
        }
        ZooOp::SetXattr { path, name, value } => {
            rustix::fs::lsetxattr(at(path), name.as_str(), value, XattrFlags::empty())?;
        }
        ZooOp::RemoveXattr { path, name } => {
            rustix::fs::lremovexattr(at(path), name.as_str())?;
        }
        ZooOp::Chown { path, uid, gid } => {
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            rustix::fs::chownat(CWD, at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        ZooOp::Chmod { path, perm } => rustix::fs::chmod(at(path), mode(perm))?,
        ZooOp::SetTimes { path, sec, nsec } => {
            let time = Timespec { tv_sec: *sec, tv_nsec: i64::from(*nsec) };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        ZooOp::Rename { from, to, flags } => {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), rename_flags(*flags))?;
        }
        ZooOp::Unlink { path } => rustix::fs::unlink(at(path))?,
        ZooOp::Rmdir { path } => rustix::fs::rmdir(at(path))?,
        ZooOp::Fsync { path } => File::open(at(path))?.sync_all()?,
    }
    Ok(())
}

fn writable(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn write(file: &File, (offset, len): (u64, usize), stream: u64) -> io::Result<()> {
    let mut buffer = vec![0; len.min(1 << 20)];
    let mut done = 0;
    while done < len {
        let now = (len - done).min(buffer.len());
        fill(stream, offset + done as u64, &mut buffer[..now]);
        file.write_all_at(&buffer[..now], offset + done as u64)?;
        done += now;
    }
    Ok(())
}

fn type_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

fn device(major: u32, minor: u32) -> Dev {
    rustix::fs::makedev(major, minor)
}

fn rename_flags(flags: RenameFlags) -> rustix::fs::RenameFlags {
    use rustix::fs::RenameFlags as Host;
    let mut host = Host::empty();
    host.set(Host::NOREPLACE, flags.contains(RenameFlags::NO_REPLACE));
    host.set(Host::EXCHANGE, flags.contains(RenameFlags::EXCHANGE));
    host.set(Host::WHITEOUT, flags.contains(RenameFlags::WHITEOUT));
    host
}
