//! Fills index and keep: scans inode by inode while the volume is in use; the device below stores what is read.
//! Index and keep record the progress, so that the next mount continues there.
//!
//! The index gets all metadata. The keep gets small files while it has room without evictions: a wake costs the
//! same for the smallest file, and more small files fit.

use std::time::Duration;

use scherlfs_format::{BLOCK, FIRST_INO, Ino, ROOT, Run, ifile};
use vfs::{Error, FileKind, Result};

use crate::archive::index::ALL;
use crate::archive::wakes::{Why, because};
use crate::cause::Cause;
use crate::inode::Inode;
use crate::load;
use crate::volume::{State, Volume};

/// Inodes scanned per lock.
const STEP: u64 = 64;
/// Steps per tick.
const STEPS: usize = 16;
/// Blocks of a small file: 64 KiB.
const SMALL: u64 = 16;
/// Delay before the next tick while there is more.
const SOON: Duration = Duration::from_millis(20);

impl State {
    fn fill_inode(&mut self, ino: Ino) -> Result<()> {
        let dev = self.dev.clone();
        let Some(at) = self.imap.get(&*dev, ino)?.addr else { return Ok(()) };
        let inode = load::inode_at(&*dev, ino, at, Cause::Inode)?;
        let all = match inode.kind() {
            Some(FileKind::Directory) => true,
            // Its target is stored like contents.
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

    /// Scans some more inodes. False if there are no more.
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
            // The index ignores unreadable inodes; their users get the error.
            if let Err(e) = self.fill_inode(Ino(ino as u32)) {
                log::debug!("inode {ino}: not put into the index: {e}");
            }
        }
        index.fill(if until >= end { ALL } else { until });
        Ok(until < end)
    }

    fn keep_inode(&mut self, ino: Ino) -> Result<()> {
        let dev = self.dev.clone();
        let Some(at) = self.imap.get(&*dev, ino)?.addr else { return Ok(()) };
        let inode = load::inode_at(&*dev, ino, at, Cause::Inode)?;
        let Some(keep) = self.archive.as_ref().and_then(|a| a.contents.as_ref()) else { return Ok(()) };
        let blocks: u64 = inode.extents.stored(0).map(|(.., blocks)| blocks).sum();
        if inode.kind() != Some(FileKind::Regular) || blocks > SMALL || !keep.has_room(blocks) {
            return Ok(());
        }
        for (_, start, blocks) in inode.extents.stored(0) {
            // OK to truncate: at most SMALL.
            if !keep.has_all(Run { start, blocks: blocks as u32 }) {
                let mut bytes = vec![0; blocks as usize * BLOCK];
                because(Why::Waiting, || self.read_blocks(&inode, start, &mut bytes))?;
            }
        }
        Ok(())
    }

    /// Scans some more inodes for small files. False if there are no more, or no room.
    fn keep_some(&mut self) -> Result<bool> {
        let Some(archive) = self.archive.clone() else { return Ok(false) };
        let Some(keep) = &archive.contents else { return Ok(false) };
        let from = keep.filled();
        if from == ALL {
            return Ok(false);
        }
        let end = self.imap.inode.a.size / BLOCK as u64 * ifile::ENTRIES as u64;
        let until = (from + STEP).min(end);
        for ino in from.max(u64::from(FIRST_INO.0))..until {
            if let Err(e) = self.keep_inode(Ino(ino as u32)) {
                log::debug!("inode {ino}: not put into the keep: {e}");
            }
        }
        let more = until < end && keep.has_room(1);
        keep.fill(if more { until } else { ALL });
        Ok(more)
    }

    /// Repeats an operation without the index if the data read contradicts the volume. If that succeeds, the index
    /// was wrong and is disabled.
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
    /// True if its blocks are metadata: names, a symlink's target, the volume's own lists.
    pub(crate) fn is_metadata(&self) -> bool {
        self.kind() != Some(FileKind::Regular) || self.ino < scherlfs_format::FIRST_INO
    }
}

impl Volume {
    /// Fills index and keep a little; returns when to continue, if there is more.
    pub(crate) fn fill_in_background(&self) -> Result<Option<Duration>> {
        let Some(archive) = &self.archive else { return Ok(None) };
        for _ in 0..STEPS {
            let (index, keep) = (archive.index.as_ref(), archive.contents.as_ref());
            let more = if index.is_some_and(|index| index.filled() != ALL) {
                self.state.write().fill_some()? || keep.is_some()
            } else if keep.is_some_and(|keep| keep.filled() != ALL) {
                self.state.write().keep_some()?
            } else {
                false
            };
            if !more {
                return Ok(None);
            }
        }
        Ok(Some(SOON))
    }
}
