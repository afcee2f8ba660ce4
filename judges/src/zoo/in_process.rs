//! Performs a plan on a file system in this process.

use vfs::path::{walk, walk_parent};
use vfs::{
    Allocate, Caller, DeviceNumber, Entry, FileKind, FileSystem, NewNode, Result, SetAttr, SetTime, Timestamp,
    WriteFlags, XattrFlags,
};

use super::{ZooOp, fill};

/// Performs `ops` on `fs`, as user and group 0 with umask 0.
///
/// # Errors
/// The first operation that failed, in words.
pub fn perform<F: FileSystem + ?Sized>(fs: &F, ops: &[ZooOp]) -> std::result::Result<(), String> {
    for (index, op) in ops.iter().enumerate() {
        one(fs, op).map_err(|e| {
            let mut shown = format!("{op:?}");
            shown.truncate(300);
            format!("operation {index}, {shown}: {e}")
        })?;
    }
    Ok(())
}

const ROOT: Caller = Caller { uid: 0, gid: 0 };

fn one<F: FileSystem + ?Sized>(fs: &F, op: &ZooOp) -> Result<()> {
    // Every call that returns an entry takes a reference, which is released at once.
    let drop_reference = |entry: Entry| fs.forget(entry.attr.ino, 1);
    let regular = |path: &[u8], allocate| -> Result<()> { allocated(fs, path, allocate) };
    match op {
        ZooOp::Mkdir { path, perm } => {
            let (parent, name) = walk_parent(fs, path)?;
            fs.mkdir(ROOT, parent.ino(), name, *perm, 0).map(drop_reference)
        }
        ZooOp::Create { path, perm } => {
            let (parent, name) = walk_parent(fs, path)?;
            let rdev = DeviceNumber::default();
            let new = NewNode { kind: FileKind::Regular, perm: *perm, umask: 0, rdev };
            fs.mknod(ROOT, parent.ino(), name, &new).map(drop_reference)
        }
        ZooOp::Mknod { path, kind, perm, major, minor } => {
            let (parent, name) = walk_parent(fs, path)?;
            let rdev = DeviceNumber { major: *major, minor: *minor };
            let new = NewNode { kind: *kind, perm: *perm, umask: 0, rdev };
            fs.mknod(ROOT, parent.ino(), name, &new).map(drop_reference)
        }
        ZooOp::Symlink { path, target } => {
            let (parent, name) = walk_parent(fs, path)?;
            fs.symlink(ROOT, parent.ino(), name, target).map(drop_reference)
        }
        ZooOp::Link { from, to } => {
            let from = walk(fs, from)?;
            let (parent, name) = walk_parent(fs, to)?;
            fs.link(from.ino(), parent.ino(), name).map(drop_reference)
        }
        ZooOp::Write { path, offset, len, stream } => write(fs, path, (*offset, *len), *stream),
        ZooOp::Truncate { path, size } => set(fs, path, &SetAttr { size: Some(*size), ..SetAttr::default() }),
        ZooOp::Reserve { path, offset, len, keep_size } => {
            regular(path, (Allocate::Reserve { keep_size: *keep_size }, *offset, *len))
        }
        ZooOp::PunchHole { path, offset, len } => regular(path, (Allocate::PunchHole, *offset, *len)),
        ZooOp::SetXattr { path, name, value } => {
            fs.setxattr(walk(fs, path)?.ino(), name.as_bytes(), value, XattrFlags::empty())
        }
        ZooOp::RemoveXattr { path, name } => fs.removexattr(walk(fs, path)?.ino(), name.as_bytes()),
        ZooOp::Chown { path, uid, gid } => {
            set(fs, path, &SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() })
        }
        ZooOp::Chmod { path, perm } => set(fs, path, &SetAttr { perm: Some(*perm), ..SetAttr::default() }),
        ZooOp::SetTimes { path, sec, nsec } => {
            let time = Some(SetTime::At(Timestamp { sec: *sec, nsec: *nsec }));
            set(fs, path, &SetAttr { atime: time, mtime: time, ..SetAttr::default() })
        }
        ZooOp::Rename { from, to, flags } => {
            let (from, old) = walk_parent(fs, from)?;
            let (to, new) = walk_parent(fs, to)?;
            fs.rename(ROOT, (from.ino(), old), (to.ino(), new), *flags)
        }
        ZooOp::Unlink { path } => {
            let (parent, name) = walk_parent(fs, path)?;
            fs.unlink(parent.ino(), name)
        }
        ZooOp::Rmdir { path } => {
            let (parent, name) = walk_parent(fs, path)?;
            fs.rmdir(parent.ino(), name)
        }
        ZooOp::Fsync { path } => fs.fsync(walk(fs, path)?.ino(), false),
    }
}

fn set<F: FileSystem + ?Sized>(fs: &F, path: &[u8], set: &SetAttr) -> Result<()> {
    fs.setattr(walk(fs, path)?.ino(), set).map(|_| ())
}

fn allocated<F: FileSystem + ?Sized>(fs: &F, path: &[u8], (what, offset, len): (Allocate, u64, u64)) -> Result<()> {
    let file = walk(fs, path)?;
    fs.open(file.ino(), false)?;
    let result = fs.fallocate(file.ino(), what, offset, len);
    fs.release(file.ino());
    result
}

fn write<F: FileSystem + ?Sized>(fs: &F, path: &[u8], (offset, len): (u64, usize), stream: u64) -> Result<()> {
    let file = walk(fs, path)?;
    fs.open(file.ino(), false)?;
    let mut buffer = vec![0; len.min(1 << 20)];
    let mut done = 0;
    let mut result = Ok(());
    while done < len && result.is_ok() {
        let now = (len - done).min(buffer.len());
        fill(stream, offset + done as u64, &mut buffer[..now]);
        match fs.write(file.ino(), offset + done as u64, &buffer[..now], WriteFlags::empty()) {
            Ok(0) => result = Err(vfs::Error::NoSpace),
            Ok(written) => done += written,
            Err(e) => result = Err(e),
        }
    }
    fs.release(file.ino());
    result
}
