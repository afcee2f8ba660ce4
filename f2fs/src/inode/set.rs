//! What does a file in memory know of writes that become durable together? How they are written and end is in
//! [`crate::file::set`].

use std::collections::BTreeMap;

use format::Block;

use crate::error::Result;
use crate::inode::Content;

/// Uncommitted writes of one file.
pub struct WriteSet {
    pub(crate) owner: u64,
    /// Whole pages, by file block. Bytes behind `size` are zero.
    pub(crate) pages: BTreeMap<u64, Box<Block>>,
    /// Size of the file in bytes after a commit.
    pub(crate) size: u64,
    /// Why a write is missing: the commit fails.
    pub(crate) failed: Option<vfs::Error>,
}

impl Content {
    /// Refuses an operation that a set could not undo.
    pub(crate) fn check_no_set(&self) -> Result<()> {
        match self.set {
            Some(_) => {
                Err(vfs::Error::Busy("the file has uncommitted atomic writes: commit or abort them first").into())
            }
            None => Ok(()),
        }
    }

    /// The file's set if it is the owner's.
    pub(crate) fn set_of(&mut self, owner: u64) -> Result<Option<&mut WriteSet>> {
        match &mut self.set {
            Some(set) if set.owner != owner => {
                Err(vfs::Error::Busy("another descriptor has begun atomic writes to the file").into())
            }
            set => Ok(set.as_deref_mut()),
        }
    }
}
