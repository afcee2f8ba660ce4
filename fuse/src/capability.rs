//! When must a write remove a file's capabilities?
//!
//! With `FUSE_HANDLE_KILLPRIV_V2` the kernel leaves this to us: a write, a truncation or a change of owner must drop
//! the attribute `security.capability`. Reading the attribute before every write would cost more than the write, so
//! this cache holds the inodes known to have none. It is correct because every attribute of a mounted volume is set
//! through the same mount.
//!
//! The kernel's inode cache bounds the size: a forgotten inode is removed here too.

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
        // The set is consistent after every statement, even if another thread panicked.
        with(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops the file's capabilities, if it may have any.
    pub(crate) fn drop_from(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        if self.shard(ino, |bare| bare.contains(&ino.0)) {
            return Ok(());
        }
        // Marked before the removal: a `setxattr` between the two must win.
        self.bare(ino);
        match fs.removexattr(ino, NAME) {
            Ok(()) | Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => {
                self.unknown(ino);
                Err(error)
            }
        }
    }

    /// The file's capabilities. The kernel asks before the first write to each file, so the absence is cached too.
    pub(crate) fn get(&self, fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>> {
        if self.shard(ino, |bare| bare.contains(&ino.0)) {
            return Err(Error::NoAttribute);
        }
        // Marked first, for the same reason.
        self.bare(ino);
        let result = fs.getxattr(ino, NAME);
        if !matches!(result, Err(Error::NoAttribute | Error::Unsupported(_))) {
            self.unknown(ino);
        }
        result
    }

    /// A new file has no capabilities.
    pub(crate) fn bare(&self, ino: Ino) {
        self.shard(ino, |bare| bare.insert(ino.0));
    }

    /// The file may have capabilities (one was set), or is gone.
    pub(crate) fn unknown(&self, ino: Ino) {
        self.shard(ino, |bare| bare.remove(&ino.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use judges::memfs::MemFs;
    use vfs::{Caller, DeviceNumber, FileKind, NewNode, XattrFlags};

    #[test]
    fn capabilities_are_known_dropped_and_found_again() {
        let fs = MemFs::new(1 << 20);
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let ino = fs.mknod(Caller::default(), fs.root(), b"f", &new).unwrap().attr.ino;
        let set = || fs.setxattr(ino, NAME, b"value", XattrFlags::empty()).unwrap();
        let capabilities = Capabilities::default();
        set();
        assert_eq!(capabilities.get(&fs, ino).unwrap(), b"value");
        capabilities.drop_from(&fs, ino).unwrap();
        assert_eq!(fs.getxattr(ino, NAME), Err(Error::NoAttribute));
        assert_eq!(capabilities.get(&fs, ino), Err(Error::NoAttribute));
        set();
        capabilities.unknown(ino);
        assert_eq!(capabilities.get(&fs, ino).unwrap(), b"value");
    }
}
