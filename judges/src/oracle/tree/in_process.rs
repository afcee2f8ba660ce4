//! The listing of a file system that runs in this process.

use std::collections::BTreeMap;

use vfs::{FileKind, FileSystem, Flow, Ino, Seek};

use super::{ContentHash, Listing, Node, PIECE, READ_IN_FULL, Writer};

/// Lists the whole of `fs`, its root as `/`.
///
/// # Errors
/// The first operation that failed, with its path.
pub fn of_vfs<F: FileSystem + ?Sized>(fs: &F, what: Listing) -> Result<String, String> {
    let mut writer = Writer::new(what);
    visit(&mut writer, fs, fs.root(), b"/")?;
    Ok(writer.text)
}

fn visit<F: FileSystem + ?Sized>(writer: &mut Writer, fs: &F, ino: Ino, shown: &[u8]) -> Result<(), String> {
    let told = |operation: &str, e: vfs::Error| format!("{operation} {}: {e}", String::from_utf8_lossy(shown));
    let attr = fs.getattr(ino).map_err(|e| told("getattr", e))?;
    let hash = (attr.kind == FileKind::Regular && !writer.seen(ino.0))
        .then(|| hash_of(fs, ino, attr.size).map_err(|e| told("read", e)))
        .transpose()?;
    let target =
        (attr.kind == FileKind::Symlink).then(|| fs.readlink(ino).map_err(|e| told("readlink", e))).transpose()?;
    let mut xattrs = BTreeMap::new();
    for name in fs.listxattr(ino).map_err(|e| told("listxattr", e))? {
        let value = fs.getxattr(ino, &name).map_err(|e| told("getxattr", e))?;
        xattrs.insert(name, value);
    }
    let node = Node {
        kind: attr.kind,
        perm: attr.perm & 0o7777,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        size: attr.size,
        blocks512: attr.blocks512,
        mtime: (attr.mtime.sec, attr.mtime.nsec),
        rdev: (attr.rdev.major, attr.rdev.minor),
        target,
        hash,
        xattrs,
    };
    writer.line(shown, ino.0, &node);
    if attr.kind != FileKind::Directory {
        return Ok(());
    }
    let mut names = Vec::new();
    fs.readdir(ino, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        Flow::Continue
    })
    .map_err(|e| told("readdir", e))?;
    names.sort_unstable();
    for name in names {
        let mut below = shown.to_vec();
        if below != b"/" {
            below.push(b'/');
        }
        below.extend_from_slice(&name);
        let entry = fs.lookup(ino, &name).map_err(|e| format!("lookup {}: {e}", String::from_utf8_lossy(&below)))?;
        let visited = visit(writer, fs, entry.attr.ino, &below);
        fs.forget(entry.attr.ino, 1);
        visited?;
    }
    Ok(())
}

/// The hash of contents, or a fixed text if they are unreadable because the encryption key is missing.
fn hash_of<F: FileSystem + ?Sized>(fs: &F, ino: Ino, size: u64) -> vfs::Result<String> {
    match fs.open(ino, false) {
        Err(vfs::Error::NoKey) => return Ok("locked".to_owned()),
        opened => opened?,
    }
    let hash = hash_open(fs, ino, size);
    fs.release(ino);
    hash
}

fn hash_open<F: FileSystem + ?Sized>(fs: &F, ino: Ino, size: u64) -> vfs::Result<String> {
    let mut hash = ContentHash::default();
    let piece = PIECE as u64;
    let mut at = 0;
    while at < size {
        let mut end = size;
        if size > READ_IN_FULL {
            match fs.seek(ino, at, Seek::Data) {
                Ok(data) => at = data / piece * piece,
                Err(vfs::Error::PastEnd) => break,
                Err(e) => return Err(e),
            }
            let hole = fs.seek(ino, at, Seek::Hole)?;
            end = hole.next_multiple_of(piece).max(at + piece).min(size);
        }
        read_range(fs, ino, (at, end), &mut hash)?;
        at = end;
    }
    Ok(hash.finish())
}

fn read_range<F: FileSystem + ?Sized>(
    fs: &F,
    ino: Ino,
    (from, to): (u64, u64),
    hash: &mut ContentHash,
) -> vfs::Result<()> {
    let mut buffer = vec![0; 256 * PIECE];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).map_or(buffer.len(), |n| n.min(buffer.len()));
        let got = fs.read(ino, at, &mut buffer[..want])?;
        if got != want {
            return Err(vfs::Error::corrupt(format_args!(
                "a read of {want} bytes at {at}, inside the file, gave {got}"
            )));
        }
        hash.add(at, &buffer[..want]);
        at += want as u64;
    }
    Ok(())
}
