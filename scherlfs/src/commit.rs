//! Writes waiting changes as one transaction at the end of the log.
//!
//! Each inode is a piece: its block, continuations and contents, in a row. Inodes of files come first, in the order
//! of their changes, then those of directories, so that a directory's blocks are contiguous. All of it is one
//! request unless the path has a gap. Memory does not change before the write; if the write fails, everything keeps
//! waiting and will be written over.

use scherlfs_format::chain::GONE_MAX;
use scherlfs_format::history::Change;
use scherlfs_format::{Ino, Run, ifile};
use vfs::{Error, Result};

use crate::inode::{self, Inode};
use crate::path::Slot;
use crate::placement::Piece;
use crate::plan::{Laid, Plan, Written};
use crate::volume::State;

/// A piece of a transaction.
enum One {
    /// The first piece, of a file that continues its series.
    InSeries(Box<Piece>),
    Laid(Laid),
}

impl State {
    /// Removes the written blocks from the free ones.
    pub(crate) fn take_slots(&mut self, written: &Written) -> Result<()> {
        for run in written.slots.chunk_by(|a, b| a.addr().0 + 1 == b.addr().0) {
            let first = run[0].addr();
            if !self.free.take(first.0, run.len() as u64) {
                return Err(Error::corrupt(format_args!("blocks from {first} on, of the log's path, are not free")));
            }
            self.note_written(first, run.len() as u64);
        }
        self.logged += written.slots.len() as u64;
        Ok(())
    }

    /// Remains of a failed attempt must not count for the next.
    pub(crate) fn next_attempt(&mut self) -> Result<()> {
        match self.attempt.checked_add(1) {
            Some(next) => self.attempt = next,
            None => {
                let why = format!("a transaction could not be written {} times", u8::MAX);
                self.fail_for_good(why.clone());
                return Err(Error::Device(why));
            }
        }
        Ok(())
    }

    /// Updates an inode that was written according to the plan.
    pub(crate) fn apply(&mut self, inode: &mut Inode, laid: Laid, slots: &[Slot]) -> Result<()> {
        let old =
            inode.addr.into_iter().chain(std::mem::take(&mut inode.indexes)).chain(laid.extents().stale().to_vec());
        let old = old.map(|start| Run { start, blocks: 1 });
        let replaced = laid.replaced(slots);
        inode.addr = Some(laid.at());
        inode.indexes = laid.indexes(slots).collect();
        inode.a.blocks = laid.extents().blocks();
        self.promised = self.promised.saturating_sub(laid.promised());
        inode.extents = laid.into_extents();
        replaced.into_iter().chain(old).try_for_each(|run| self.die(run))
    }

    /// Writes waiting changes. Not durable before the next flush.
    pub(crate) fn commit(&mut self) -> Result<bool> {
        if self.waiting.is_empty() && self.gone.is_empty() {
            self.since = None;
            return Ok(false);
        }
        self.begin_epoch()?;
        let is_dir = |ino: &Ino| self.inodes.get(ino).is_some_and(|i| i.is_dir());
        let (dirs, files): (Vec<Ino>, Vec<Ino>) = self.waiting.values().copied().partition(is_dir);
        let mut order: Vec<Ino> = files.into_iter().chain(dirs).collect();
        let lists = self.gone.chunks(GONE_MAX).count();
        let pieces = u16::try_from(order.len() + lists).map_err(|_| Error::device("too many inodes wait"))?;
        // The needed map blocks are in memory from here on, so nothing can fail after the write.
        let dev = self.dev.clone();
        order.iter().chain(&self.gone).try_for_each(|ino| self.imap.touch(&*dev, ifile::at(*ino).0))?;
        let mut plan = Plan::new(self);
        plan.header.pieces = pieces;
        let mut piece = None;
        if let Some(series) = self.series_for(&order)? {
            // It comes first: the blocks next to its old place are where the log continues.
            order.retain(|ino| *ino != series.ino);
            order.insert(0, series.ino);
            let inode = self.inodes.get(&series.ino).ok_or_else(|| Error::corrupt("an inode that waits is gone"))?;
            let pages: Vec<u64> = inode.pages.keys().copied().collect();
            piece = self.piece(&mut plan, &series, inode, &pages)?.map(Box::new);
            if piece.is_none() {
                self.end_series()?;
                plan = Plan::new(self);
                plan.header.pieces = pieces;
            }
        }
        let mut laid = Vec::with_capacity(order.len());
        for ino in order.iter().skip(usize::from(piece.is_some())) {
            let inode = self.inodes.get(ino).ok_or_else(|| Error::corrupt("an inode that waits is gone"))?;
            let pages: Vec<u64> = inode.pages.keys().copied().collect();
            let one = plan.lay(inode, &pages)?;
            plan.encode(&one, inode, |n| inode.pages.get(&n).cloned())?;
            laid.push(one);
        }
        for some in self.gone.chunks(GONE_MAX) {
            plan.gone(some)?;
        }
        let listed: Vec<usize> = plan.unowned_slots();
        let seq = plan.header.seq;
        let written = plan.finish();
        self.next_attempt()?;
        if let Err(e) = written.write(self, self.care.cause) {
            if piece.is_some() {
                self.spoil_series()?;
            }
            return Err(e);
        }

        if let Some(piece) = &piece {
            self.give_back(piece)?;
        }
        self.take_slots(&written)?;
        (self.seq, self.attempt) = (seq, 0);
        self.path = written.path.clone();
        let mut changes = Vec::with_capacity(order.len() + self.gone.len());
        let mut now = i64::MIN;
        let alone = piece.is_some() && pieces == 1;
        for (ino, one) in order.iter().zip(piece.map(One::InSeries).into_iter().chain(laid.into_iter().map(One::Laid)))
        {
            let was = match &one {
                One::InSeries(piece) if piece.address_before().is_some() => piece.address_before().flatten(),
                _ => self.imap.get(&*dev, *ino)?.addr,
            };
            let Some(mut inode) = self.inodes.remove(ino) else { continue };
            let applied = match one {
                One::InSeries(piece) => self.apply_piece(&mut inode, *piece, &written.slots, alone),
                One::Laid(laid) => self.apply(&mut inode, laid, &written.slots),
            };
            self.drop_wait(&mut inode);
            now = now.max(inode.a.times[inode::CHANGED].secs);
            let (ino, addr, generation) = (inode.ino, inode.addr.unwrap_or_default(), inode.a.generation);
            self.pages_written(&mut inode);
            self.inodes.insert(ino, inode);
            applied?;
            changes.push(Change { ino, was, is: Some(addr) });
            self.imap.written(&*dev, ino, addr, generation)?;
        }
        for ino in std::mem::take(&mut self.gone) {
            changes.push(Change { ino, was: self.imap.get(&*dev, ino)?.addr, is: None });
            self.imap.gone(&*dev, ino)?;
        }
        // An inode that was created and deleted without reaching the disk is not a change.
        changes.retain(|c| c.was.is_some() || c.is.is_some());
        self.remember(self.seq, now, changes)?;
        let notes = written.paths().chain(listed.into_iter().map(|s| written.slots[s].addr()));
        for start in notes.collect::<Vec<_>>() {
            self.die_for_good(Run { start, blocks: 1 })?;
        }
        self.unflushed = self.unflushed.or(self.since);
        self.since = None;
        Ok(true)
    }

    /// Pages of a directory stay in memory while there is room; those of a file are dropped.
    pub(crate) fn pages_written(&mut self, inode: &mut Inode) {
        let pages = std::mem::take(&mut inode.pages);
        if let Some(names) = &mut inode.names {
            self.dir_blocks += names.written(pages);
        }
        if self.dir_blocks > self.dir_cache {
            self.dir_blocks -= inode.names.take().map_or(0, |n| n.blocks());
        }
    }
}
