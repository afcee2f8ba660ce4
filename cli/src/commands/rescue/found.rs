//! How do files found in a damaged image look as a tree that `cp` copies? `plan` decides which files belong to it.

use std::cell::RefCell;
use std::collections::HashMap;

use f2fs::dir::kind_of;
use format::{BLOCK, Ino};
use rescue::{Rescue, RescueError, RescuedFile};
use vfs::{DeviceNumber, FileKind, Timestamp};

use crate::commands::cp::{Glance, Item, Out, Reader, Source};

/// An entry of the tree to copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A directory created by this command.
    Made,
    File(Ino),
}

/// Names by directory.
pub type Holding = HashMap<Vec<u8>, Vec<(Vec<u8>, At)>>;

/// The tree to copy: the names of every directory are known in advance.
pub struct Found<'r> {
    rescue: &'r Rescue<'r>,
    holds: Holding,
    /// The directories on the way to the last lookup, each with a map of its names.
    open: RefCell<Vec<(Vec<u8>, HashMap<Vec<u8>, At>)>>,
    /// Directories of incomplete files: their missing parts are skipped.
    lenient: Vec<Vec<u8>>,
    /// Size of the image.
    bytes: u64,
}

pub fn say(e: RescueError) -> String {
    e.to_string()
}

impl<'r> Found<'r> {
    /// The tree to copy; below the directories in `lenient`, missing parts of files are skipped. `bytes` is the image's
    /// size.
    pub fn new(rescue: &'r Rescue<'r>, holds: Holding, lenient: Vec<Vec<u8>>, bytes: u64) -> Self {
        Found { rescue, holds, open: RefCell::default(), lenient, bytes }
    }

    fn at(&self, path: &[u8]) -> Out<At> {
        let gone = || format!("{}: not found", String::from_utf8_lossy(path));
        if path == b"/" {
            return Ok(self.rescue.root().map_or(At::Made, At::File));
        }
        let cut = path.iter().rposition(|&b| b == b'/').ok_or_else(gone)?;
        let (dir, name) = (&path[..cut.max(1)], &path[cut + 1..]);
        let mut open = self.open.borrow_mut();
        while let Some((last, _)) = open.last()
            && last != dir
            && !(dir.starts_with(last) && (last == b"/" || dir.get(last.len()) == Some(&b'/')))
        {
            open.pop();
        }
        if open.last().is_none_or(|(last, _)| last != dir) {
            let map = self.holds.get(dir).ok_or_else(gone)?.iter().cloned().collect();
            open.push((dir.to_vec(), map));
        }
        open.last().and_then(|(_, map)| map.get(name)).copied().ok_or_else(gone)
    }

    fn is_lenient(&self, path: &[u8]) -> bool {
        self.lenient.iter().any(|dir| path.strip_prefix(&dir[..]).is_some_and(|rest| rest.starts_with(b"/")))
    }

    fn file(&self, ino: Ino) -> Out<RescuedFile<'_>> {
        self.rescue.file(ino).map_err(say)?.ok_or_else(|| format!("inode {ino}: not found"))
    }
}

/// A directory without an inode.
fn new_directory() -> Item {
    Item::made(FileKind::Directory, 0o700)
}

impl Source for Found<'_> {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        let At::File(ino) = self.at(path)? else {
            // Directories created by this command get numbers that no inode has.
            let number = path.iter().fold(1u64 << 40, |n, &b| n.wrapping_mul(31).wrapping_add(b.into()) | 1 << 40);
            return Ok(Glance { kind: FileKind::Directory, size: 0, file: (0, number) });
        };
        let file = self.file(ino)?;
        let kind = kind_of(file.kind()).ok_or("of no known kind")?;
        Ok(Glance { kind, size: file.raw().i_size.get(), file: (0, ino.0.into()) })
    }

    fn item(&self, path: &[u8]) -> Out<Item> {
        let At::File(ino) = self.at(path)? else { return Ok(new_directory()) };
        let place = |what: String| format!("{}: {what}", String::from_utf8_lossy(path));
        let mut file = self.file(ino)?;
        let kind = kind_of(file.kind()).ok_or_else(|| place("of no known kind".into()))?;
        let target = match kind {
            FileKind::Symlink => file.target().map_err(say).map_err(place)?,
            _ => Vec::new(),
        };
        let (xattrs, amiss) = match file.xattrs() {
            Ok(xattrs) => (xattrs, None),
            Err(_) if self.is_lenient(path) => (Vec::new(), None),
            // The directory is copied with everything below it.
            Err(e) if kind == FileKind::Directory => {
                (Vec::new(), Some(place(format!("copied without its extended attributes: {e}"))))
            }
            Err(e) => return Err(place(say(e))),
        };
        let raw = file.raw();
        let time = |sec: u64, nsec: u32| Timestamp { sec: sec as i64, nsec: nsec.min(999_999_999) };
        let (major, minor) = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => file.device_number(),
            _ => (0, 0),
        };
        Ok(Item {
            kind,
            perm: raw.i_mode.get() & 0o7777,
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            size: raw.i_size.get(),
            atime: time(raw.i_atime.get(), raw.i_atime_nsec.get()),
            mtime: time(raw.i_mtime.get(), raw.i_mtime_nsec.get()),
            rdev: DeviceNumber { major, minor },
            identity: (raw.i_links.get() > 1 && kind != FileKind::Directory).then_some((0, ino.0.into())),
            target,
            xattrs,
            amiss,
        })
    }

    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let mut out: Vec<_> = self.holds.get(path).into_iter().flatten().map(|(name, _)| name.clone()).collect();
        out.sort();
        (out, Ok(()))
    }

    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>> {
        let At::File(ino) = self.at(path)? else { return Err("a directory".into()) };
        let mut file = self.file(ino)?;
        file.lenient = self.is_lenient(path);
        let end = file.raw().i_size.get().div_ceil(BLOCK as u64);
        Ok(Box::new(Contents { file, end, place: path.to_vec() }))
    }

    fn holds(&self) -> Option<u64> {
        Some(self.bytes)
    }
}

struct Contents<'r> {
    file: RescuedFile<'r>,
    end: u64,
    place: Vec<u8>,
}

impl Reader for Contents<'_> {
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>> {
        let block = BLOCK as u64;
        let Some(start) = self.file.next_data(offset / block, self.end).map_err(say)? else { return Ok(None) };
        let mut end = start + 1;
        while end < self.end && end - start < 256 && self.file.next_data(end, end + 1).map_err(say)?.is_some() {
            end += 1;
        }
        Ok(Some((offset.max(start * block), end * block)))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize> {
        let mut block = [0; BLOCK];
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_block(at / BLOCK as u64, &mut block) {
                Err(RescueError::Contents { .. } | RescueError::Device(_)) if self.file.lenient => block.fill(0),
                other => other.map_err(|e| format!("{}: {e}", String::from_utf8_lossy(&self.place)))?,
            }
            let from = (at % BLOCK as u64) as usize;
            let n = (BLOCK - from).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&block[from..from + n]);
            done += n;
        }
        Ok(done)
    }
}
