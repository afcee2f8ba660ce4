//! Who removes a file's capabilities when somebody writes to it?
//!
//! With `FUSE_HANDLE_KILLPRIV_V2` the kernel leaves that to us: a write, a truncation or a change of
//! owner must drop the attribute `security.capability`. Asking the file system before every write
//! would cost more than the write, so this remembers which inodes are known to have none. It is
//! right because every attribute of a mounted volume is set through the same mount.
//!
//! The memory is bounded by the kernel's own inode cache: a forgotten inode is forgotten here.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;
use vfs::{Error, FileSystem, Ino, Result};

/// The attribute that holds a file's capabilities.
pub(crate) const NAME: &[u8] = b"security.capability";

const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct Capabilities {
    known_bare: [Mutex<FxHashSet<u64>>; SHARDS],
}

impl Capabilities {
    fn shard<R>(&self, ino: Ino, with: impl FnOnce(&mut FxHashSet<u64>) -> R) -> R {
        let shard = &self.known_bare[(ino.0 % SHARDS as u64) as usize];
        // The set is valid after every statement, so a panic elsewhere does not spoil it.
        with(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops the file's capabilities, if it may have any.
    pub(crate) fn drop_from(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        if self.shard(ino, |bare| bare.contains(&ino.0)) {
            return Ok(());
        }
        // Marked first: a `setxattr` that comes between the removal and the mark must win.
        self.shard(ino, |bare| bare.insert(ino.0));
        match fs.removexattr(ino, NAME) {
            Ok(()) | Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => {
                self.unknown(ino);
                Err(error)
            }
        }
    }

    /// The file may have capabilities again (one was set), or is gone.
    pub(crate) fn unknown(&self, ino: Ino) {
        self.shard(ino, |bare| bare.remove(&ino.0));
    }
}
