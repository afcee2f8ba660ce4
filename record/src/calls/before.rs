//! What was there before a recording began? Seen from the recorder, which copies it into the recording.
//!
//! A delta is a difference from what a block held. So a recording with contents must also have what a file held before
//! its first recorded change. Of every file that a call finds, the recorder keeps attributes, target and extended
//! attributes; before the first change of a regular file, its contents. It does not look for files that no call
//! finds, and does not keep the contents of files that are only read: a replay makes those as long as they were.

use std::collections::BTreeMap;

use vfs::{FileKind, FileSystem, Ino, Seek};

use super::call::{Call, Was};
use super::{MOST, PART};

/// What the recorder knows of inodes: whether it may still have to copy their contents.
#[derive(Default)]
pub(super) struct Before {
    known: BTreeMap<u64, Contents>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Recorded from the beginning, or copied, or of no importance.
    Settled,
    /// To be copied before they change.
    Old,
}

impl Before {
    /// All that the file will ever hold from now on is recorded: it is new, or was emptied.
    pub(super) fn settled(&mut self, ino: Ino) {
        self.known.insert(ino.0, Contents::Settled);
    }

    /// A call found this inode: says what it is, if nothing has yet. A failure to look at it leaves out what could
    /// not be seen; the call itself will say why.
    pub(super) fn found(&mut self, fs: &(impl FileSystem + ?Sized), ino: Ino, say: &mut dyn FnMut(Call)) {
        if ino == fs.root() || self.known.contains_key(&ino.0) {
            return;
        }
        let Ok(attr) = fs.getattr(ino) else { return };
        let target = if attr.kind == FileKind::Symlink { fs.readlink(ino).unwrap_or_default() } else { Vec::new() };
        let regular = attr.kind == FileKind::Regular;
        self.known.insert(ino.0, if regular { Contents::Old } else { Contents::Settled });
        let was = Was {
            kind: attr.kind,
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks512: attr.blocks512,
            mtime: attr.mtime,
            target,
        };
        say(Call::Was { ino, was });
        for name in fs.listxattr(ino).unwrap_or_default() {
            if let Ok(value) = fs.getxattr(ino, &name) {
                say(Call::WasAttribute { ino, name, value });
            }
        }
    }

    /// The contents of an inode are about to change: copies what it holds, if nothing has yet. The caller makes the
    /// change after this returned, whoever else wants one waits for `self`, and so the copy is of before.
    pub(super) fn changes(&mut self, fs: &(impl FileSystem + ?Sized), ino: Ino, say: &mut dyn FnMut(Call)) {
        self.found(fs, ino, say);
        let Some(contents @ Contents::Old) = self.known.get_mut(&ino.0) else { return };
        *contents = Contents::Settled;
        let Ok(size) = fs.getattr(ino).map(|attr| attr.size) else { return };
        if size > MOST {
            return;
        }
        let mut at = 0;
        while at < size {
            // A file system that cannot tell has data everywhere.
            let (from, to) = match fs.seek(ino, at, Seek::Data) {
                Err(vfs::Error::PastEnd) => return,
                Err(_) => (at, size),
                Ok(from) => (from, fs.seek(ino, from, Seek::Hole).unwrap_or(size).min(size)),
            };
            at = from;
            while at < to {
                let mut bytes = vec![0; (to - at).min(PART as u64) as usize];
                match fs.read(ino, at, &mut bytes) {
                    Ok(n) if n > 0 => bytes.truncate(n),
                    _ => return,
                }
                let offset = at;
                at += bytes.len() as u64;
                say(Call::WasContents { ino, offset, bytes });
            }
            if to <= from {
                return;
            }
        }
    }
}
