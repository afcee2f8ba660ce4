//! What did files hold before the recording began? This side copies it into the recording.
//!
//! A delta is a difference from the old contents of a block. So a recording with contents must also have what a file
//! held before its first recorded change. For every file that a call finds, the recorder copies attributes, symlink
//! target and extended attributes; before the first change of a regular file, its contents. It does not search for
//! files that no call finds, and does not copy files that are only read: for those a replay generates contents of the
//! same length.

use std::collections::BTreeMap;

use vfs::{FileKind, FileSystem, Ino, Seek};

use super::call::{Call, OldFile};
use super::{MOST, PART};

/// Inodes known to the recorder, and whether their contents may still have to be copied.
#[derive(Default)]
pub(super) struct Before {
    known: BTreeMap<u64, Contents>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Recorded from the beginning, already copied, or irrelevant.
    Settled,
    /// To copy before they change.
    Old,
}

impl Before {
    /// Everything that the file holds from now on is recorded: it is new, or was truncated to zero.
    pub(super) fn settled(&mut self, ino: Ino) {
        self.known.insert(ino.0, Contents::Settled);
    }

    /// Records an inode that a call found, unless it is known. What cannot be read is left out; the call itself reports
    /// the error.
    pub(super) fn found(&mut self, fs: &(impl FileSystem + ?Sized), ino: Ino, say: &mut dyn FnMut(Call)) {
        if ino == fs.root() || self.known.contains_key(&ino.0) {
            return;
        }
        let Ok(attr) = fs.getattr(ino) else { return };
        let target = if attr.kind == FileKind::Symlink { fs.readlink(ino).unwrap_or_default() } else { Vec::new() };
        let regular = attr.kind == FileKind::Regular;
        self.known.insert(ino.0, if regular { Contents::Old } else { Contents::Settled });
        let was = OldFile {
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

    /// Copies the contents of an inode that is about to change, unless already copied. The caller makes the change
    /// after this returns, and other changes wait for `self`, so the copy has the old contents.
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
            // A file system that does not support this has data everywhere.
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
