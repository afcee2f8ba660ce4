//! The listing of a directory mounted on the host (or in the kernel that runs this).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;

use super::{ContentHash, Listing, Node, PIECE, READ_IN_FULL, Writer};

/// Lists the tree at `root`, the root itself as `/`. Symlinks are not followed.
///
/// # Errors
/// The first operation that failed, with its path.
pub fn of_host(root: &Path, what: Listing) -> io::Result<String> {
    let mut writer = Writer::new(what);
    visit(&mut writer, root, b"/")?;
    Ok(writer.text)
}

fn visit(writer: &mut Writer, at: &Path, shown: &[u8]) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(at).map_err(|e| told("lstat", at, e))?;
    let kind = kind_of(&meta);
    let regular = kind == vfs::FileKind::Regular;
    let hash = (regular && !writer.seen(meta.ino()))
        .then(|| hash_of(at, meta.len()).map_err(|e| told("read", at, e)))
        .transpose()?;
    let target = (kind == vfs::FileKind::Symlink)
        .then(|| std::fs::read_link(at).map_err(|e| told("readlink", at, e)))
        .transpose()?
        .map(|target| target.into_os_string().into_vec());
    let node = Node {
        kind,
        perm: u16::try_from(meta.mode() & 0o7777).unwrap_or_default(),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink(),
        size: meta.len(),
        blocks512: meta.blocks(),
        mtime: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(u32::MAX)),
        rdev: (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())),
        target,
        hash,
        xattrs: xattrs_of(at)?,
    };
    writer.line(shown, meta.ino(), &node);
    if kind != vfs::FileKind::Directory {
        return Ok(());
    }
    let mut names = std::fs::read_dir(at)
        .and_then(|entries| entries.map(|e| Ok(e?.file_name().into_vec())).collect::<io::Result<Vec<_>>>())
        .map_err(|e| told("readdir", at, e))?;
    names.sort_unstable();
    for name in names {
        let mut below = shown.to_vec();
        if below != b"/" {
            below.push(b'/');
        }
        below.extend_from_slice(&name);
        visit(writer, &at.join(OsStr::from_bytes(&name)), &below)?;
    }
    Ok(())
}

fn told(operation: &str, at: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{operation} {}: {e}", at.display()))
}

fn kind_of(meta: &std::fs::Metadata) -> vfs::FileKind {
    let t = meta.file_type();
    if t.is_dir() {
        vfs::FileKind::Directory
    } else if t.is_symlink() {
        vfs::FileKind::Symlink
    } else if t.is_char_device() {
        vfs::FileKind::CharDevice
    } else if t.is_block_device() {
        vfs::FileKind::BlockDevice
    } else if t.is_fifo() {
        vfs::FileKind::Fifo
    } else if t.is_socket() {
        vfs::FileKind::Socket
    } else {
        vfs::FileKind::Regular
    }
}

fn hash_of(path: &Path, size: u64) -> io::Result<String> {
    let file = File::open(path)?;
    let mut hash = ContentHash::default();
    let piece = PIECE as u64;
    let mut at = 0;
    while at < size {
        let mut end = size;
        if size > READ_IN_FULL {
            match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => at = data / piece * piece,
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            }
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(at))?;
            end = hole.next_multiple_of(piece).max(at + piece).min(size);
        }
        read_range(&file, at, end, &mut hash)?;
        at = end;
    }
    Ok(hash.finish())
}

fn read_range(file: &File, from: u64, to: u64, hash: &mut ContentHash) -> io::Result<()> {
    let mut buffer = vec![0; 256 * PIECE];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).map_or(buffer.len(), |n| n.min(buffer.len()));
        file.read_exact_at(&mut buffer[..want], at)?;
        hash.add(at, &buffer[..want]);
        at += want as u64;
    }
    Ok(())
}

fn xattrs_of(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 65536];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(told("llistxattr", path, e.into())),
    };
    let mut found = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])
            .map_err(|e| told("lgetxattr", path, e.into()))?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
