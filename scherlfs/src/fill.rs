//! What does the index not have yet? Looked through inode by inode while others use the volume; what is read on the way is put
//! into the index by the device below. How far this went, the index itself says, so that the next mount goes on there.

use std::time::Duration;

use scherlfs_format::{BLOCK, Ino, ROOT, ifile};
use vfs::{Error, FileKind, Result};

use crate::archive::index::ALL;
use crate::cause::Cause;
use crate::inode::Inode;
use crate::load;
use crate::volume::{State, Volume};

/// Inodes looked through while the volume's lock is held.
const STEP: u64 = 64;
/// Steps of one tick.
const STEPS: usize = 16;
/// When the next tick should come while there is more.
const SOON: Duration = Duration::from_millis(20);

impl State {
    fn fill_inode(&mut self, ino: Ino) -> Result<()> {
        let dev = self.dev.clone();
        let Some(at) = self.imap.get(&*dev, ino)?.addr else { return Ok(()) };
        let inode = load::inode_at(&*dev, ino, at, Cause::Inode)?;
        let all = match inode.kind() {
            Some(FileKind::Directory) => true,
            // Its target is where contents are.
            Some(FileKind::Symlink) => false,
            _ => return Ok(()),
        };
        for (_, start, blocks) in inode.extents.stored(0) {
            for at in (start.0..start.0 + blocks).map(scherlfs_format::Addr) {
                let cause = if all { Cause::Directory } else { Cause::Contents };
                let block = load::block(&*dev, at, cause, ino)?;
                if !all && let Some(archive) = &self.archive {
                    archive.keep(at, &block);
                }
            }
        }
        Ok(())
    }

    /// Looks through some more inodes. False: there are no more.
    fn fill_some(&mut self) -> Result<bool> {
        let Some(archive) = self.archive.clone() else { return Ok(false) };
        let Some(index) = &archive.index else { return Ok(false) };
        let from = index.filled();
        if from == ALL {
            return Ok(false);
        }
        let end = self.imap.inode.a.size / BLOCK as u64 * ifile::ENTRIES as u64;
        let until = (from + STEP).min(end);
        for ino in from.max(u64::from(ROOT.0))..until {
            // What cannot be read is no matter of the index; who asks for it gets the error.
            if let Err(e) = self.fill_inode(Ino(ino as u32)) {
                log::debug!("inode {ino}: not put into the index: {e}");
            }
        }
        index.fill(if until >= end { ALL } else { until });
        Ok(until < end)
    }

    /// Does something again without the index if what was read contradicts the volume. If that goes well, the index said what
    /// the disk does not, and is not asked any more.
    pub(crate) fn doubting<T>(&mut self, read: Result<T>, again: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let (Err(Error::Corrupt(why)), Some(archive)) = (&read, self.archive.clone()) else { return read };
        let Some(index) = &archive.index else { return read };
        self.imap.forget_clean();
        let second = archive.without_index(|| again(self));
        if second.is_ok() {
            index.distrust(why);
        }
        second
    }
}

impl Inode {
    /// Whether its blocks are metadata: names, where a symlink leads, the volume's own lists.
    pub(crate) fn is_metadata(&self) -> bool {
        self.kind() != Some(FileKind::Regular) || self.ino < scherlfs_format::FIRST_INO
    }
}

impl Volume {
    /// Puts some more into the index; says when to go on, if there is more.
    pub(crate) fn fill_index(&self) -> Result<Option<Duration>> {
        if self.archive.as_ref().and_then(|a| a.index.as_ref()).is_none_or(|index| index.filled() == ALL) {
            return Ok(None);
        }
        for _ in 0..STEPS {
            if !self.state.write().fill_some()? {
                return Ok(None);
            }
        }
        Ok(Some(SOON))
    }
}
