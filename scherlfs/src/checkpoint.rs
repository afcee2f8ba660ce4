//! The state of the whole volume at one moment, from which a mount continues.
//!
//! A checkpoint writes waiting blocks, changed blocks of the inode map, the future list of free blocks, and used
//! inodes without a name; flushes; and then records all this in the superblock copy that does not hold the previous
//! checkpoint. Blocks that were dead until then become free.

use device::{Lba, Tag};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Ino, Run, Seq, history, lists};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::extents::Extents;
use crate::inode::{self, Inode, own_blocks_but};
use crate::page::Page;
use crate::path::{Path, Slot};
use crate::plan::{Laid, Plan, Written};
use crate::space::Blocks;
use crate::volume::State;

/// Spare runs in a list beyond those counted: places between slots, and their ends.
const MORE_RUNS: usize = 64;

/// Bytes as whole blocks.
fn pages(bytes: &[u8], count: u64) -> Vec<Page> {
    (0..count as usize)
        .map(|n| {
            let mut block = [0; BLOCK];
            let some = bytes.get(n * BLOCK..).unwrap_or(&[]);
            let some = &some[..some.len().min(BLOCK)];
            block[..some.len()].copy_from_slice(some);
            Page::new(block)
        })
        .collect()
}

impl State {
    pub(crate) fn tag(cause: Cause) -> Tag {
        Tag { cause: cause as u8, owner: 0 }
    }

    fn flush(&mut self, cause: Cause) -> Result<()> {
        self.dev.flush(Self::tag(cause)).map_err(|e| {
            let why = format!("a flush failed: {e}");
            self.fail(why.clone());
            Error::Device(why)
        })
    }

    /// Writes the superblock to its place and flushes.
    fn write_superblock(&mut self, sb: Superblock) -> Result<()> {
        if let Some(archive) = &self.archive {
            archive.before(&sb)?;
        }
        let (at, block) = (sb.place(), sb.write());
        // If this fails, it is unknown which checkpoint is current.
        self.torn_superblock = true;
        self.dev.write(Lba(at.0), &block[..], Self::tag(Cause::Superblock)).map_err(|e| {
            let why = format!("a superblock could not be written: {e}");
            self.fail(why.clone());
            Error::Device(why)
        })?;
        self.flush(Cause::Superblock)?;
        self.torn_superblock = false;
        self.unflushed = None;
        self.sb = sb;
        self.begun = true;
        Ok(())
    }

    /// Called before the log continues after a superblock that may or may not have reached the disk: it must become
    /// invalid, because the blocks it refers to are overwritten.
    pub(crate) fn forget_torn_superblock(&mut self) -> Result<()> {
        if self.torn_superblock {
            let at = Superblock { checkpoint: self.sb.checkpoint + 1, ..self.sb.clone() }.place();
            let written = self.dev.write(Lba(at.0), &[0; BLOCK], Self::tag(Cause::Superblock));
            written.map_err(|e| {
                let why = format!("a superblock could not be written: {e}");
                self.fail(why.clone());
                Error::Device(why)
            })?;
            self.flush(Cause::Superblock)?;
            self.torn_superblock = false;
        }
        Ok(())
    }

    /// Called before the first log block of this mount: remains of earlier mounts behind the checkpoint must not
    /// count.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        self.write_path()
    }

    /// Records where the log goes, while no log follows the checkpoint.
    pub(crate) fn write_path(&mut self) -> Result<()> {
        let sb = Superblock {
            clean: false,
            checkpoint: self.sb.checkpoint + 1,
            epoch: self.epoch,
            path: self.path.runs(),
            ..self.sb.clone()
        };
        self.write_superblock(sb)
    }

    /// The free blocks after checkpoint `written`.
    fn free_after(&self, slots: &[Slot], replaced: &[Run], kept: &[Addr]) -> Result<Blocks> {
        let mut free = self.free.clone();
        let lost = || Error::corrupt("the free blocks of the checkpoint contradict themselves");
        let hidden = [&self.imap.inode, &self.free_list, &self.orphan_list, &self.history_list];
        for slot in slots {
            if !free.take(slot.addr().0, 1) {
                return Err(lost());
            }
        }
        let mut whole = free.add_spans(&self.dead.spans()) & replaced.iter().all(|run| free.add_run(*run));
        for inode in hidden {
            whole &= own_blocks_but(inode, kept).into_iter().all(|run| free.add_run(run));
        }
        for inode in [&self.free_list, &self.orphan_list, &self.history_list] {
            whole &= inode.extents.runs().all(|run| free.add_run(run));
        }
        for slot in slots {
            if let Slot::Path(at, _) = slot {
                whole &= free.add(at.0, 1);
            }
        }
        if whole { Ok(free) } else { Err(lost()) }
    }

    /// Writes a checkpoint; with `clean`, no log will follow it.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.writable()?;
        self.commit()?;
        self.end_series()?;
        let idle = self.logged == 0 && self.dead.count() == 0 && self.imap.dirty() == 0;
        if idle && (!self.begun || self.sb.clean == clean) {
            return Ok(());
        }
        self.begin_epoch()?;

        let map_blocks = self.imap.dirty_blocks();
        let orphans: Vec<Ino> = self.orphans.iter().copied().collect();
        let orphan_bytes = lists::write_orphans(&orphans);
        let orphan_blocks = if orphans.is_empty() { 0 } else { orphan_bytes.len().div_ceil(BLOCK) as u64 };
        let mut orphan_list = Inode { extents: Extents::default(), ..self.orphan_list.clone() };
        let history_bytes = history::write(&self.history.all);
        let history_blocks = if self.history.all.is_empty() { 0 } else { history_bytes.len().div_ceil(BLOCK) as u64 };
        let mut history_list = Inode { extents: Extents::default(), ..self.history_list.clone() };
        let mut free_list = Inode { extents: Extents::default(), ..self.free_list.clone() };
        let runs = self.free.runs() + self.dead.runs() + map_blocks.len() + orphan_blocks as usize;
        let own = inode::lists(&self.imap.inode).count() + inode::lists(&self.free_list).count();
        let runs = runs + own + MORE_RUNS + history_blocks as usize;
        let list_blocks = lists::free_bytes(runs + runs / 300).div_ceil(BLOCK) as u64;

        let mut plan = Plan::new(self);
        plan.header.pieces = 2 + u16::from(orphan_blocks > 0) + u16::from(history_blocks > 0);
        let map = plan.lay(&self.imap.inode, &map_blocks)?;
        plan.encode(&map, &self.imap.inode, |n| self.imap.block(n).map(|block| Page::new(*block)))?;
        let orphan = match orphan_blocks {
            0 => None,
            n => {
                orphan_list.a.size = orphan_bytes.len() as u64;
                let laid = plan.lay(&orphan_list, &(0..n).collect::<Vec<_>>())?;
                let blocks = pages(&orphan_bytes, n);
                plan.encode(&laid, &orphan_list, |n| blocks.get(n as usize).cloned())?;
                Some(laid)
            }
        };
        let past = match history_blocks {
            0 => None,
            n => {
                history_list.a.size = history_bytes.len() as u64;
                let laid = plan.lay(&history_list, &(0..n).collect::<Vec<_>>())?;
                let blocks = pages(&history_bytes, n);
                plan.encode(&laid, &history_list, |n| blocks.get(n as usize).cloned())?;
                Some(laid)
            }
        };
        let list = plan.lay(&free_list, &(0..list_blocks).collect::<Vec<_>>())?;
        let mut replaced = map.replaced(&plan.slots);
        replaced.extend(orphan.iter().chain(&past).chain([&list]).flat_map(|laid| laid.replaced(&plan.slots)));
        let kept: Vec<Addr> = map.own(&plan.slots).collect();
        let free = self.free_after(&plan.slots, &replaced, &kept)?;
        let bytes = lists::write_free(&free.iter().collect::<Vec<_>>());
        if bytes.len() as u64 > list_blocks * BLOCK as u64 {
            return Err(Error::corrupt("the list of free blocks is longer than its runs allow"));
        }
        free_list.a.size = bytes.len() as u64;
        let blocks = pages(&bytes, list_blocks);
        plan.encode(&list, &free_list, |n| blocks.get(n as usize).cloned())?;
        let (at_map, at_list) = (plan.place(&map), plan.place(&list));
        let at_orphans = orphan.as_ref().map(|o| plan.place(o));
        let at_history = past.as_ref().map(|p| plan.place(p));
        let written: Written = plan.finish();
        self.next_attempt()?;
        written.write(self, Cause::Checkpoint)?;
        self.flush(Cause::Checkpoint)?;

        let path = Path::through(self.order(&free, written.path.head()));
        let sb = Superblock {
            clean,
            checkpoint: self.sb.checkpoint + 1,
            seq: Seq(self.seq.0 + 1),
            epoch: self.epoch,
            ifile: at_map,
            free_list: at_list,
            orphans: at_orphans,
            history: at_history,
            undo_floor: self.history.floor(self.seq),
            free: free.count(),
            inodes: self.imap.used,
            promised: self.promised,
            path: path.runs(),
            ..self.sb.clone()
        };
        self.write_superblock(sb)?;

        // From here on the previous checkpoint is obsolete.
        (self.seq, self.attempt) = (Seq(self.seq.0 + 1), 0);
        if self.host_is_short() {
            self.return_to_host(self.dead.iter().chain(replaced.iter().copied()));
        }
        if let Some(archive) = &self.archive {
            archive.freed(self.dead.iter().chain(replaced));
        }
        self.dead.clear();
        self.torn = false;
        (self.free, self.path, self.logged) = (free, path, 0);
        let mut map_inode = std::mem::take(&mut self.imap.inode);
        settle(&mut map_inode, &map, &written.slots);
        self.imap.inode = map_inode;
        self.imap.clean();
        settle(&mut free_list, &list, &written.slots);
        self.free_list = free_list;
        match &orphan {
            Some(laid) => settle(&mut orphan_list, laid, &written.slots),
            None => orphan_list = Inode { ino: orphan_list.ino, a: orphan_list.a, ..Inode::default() },
        }
        self.orphan_list = orphan_list;
        match &past {
            Some(laid) => settle(&mut history_list, laid, &written.slots),
            None => history_list = Inode { ino: history_list.ino, a: history_list.a, ..Inode::default() },
        }
        self.history_list = history_list;
        Ok(())
    }
}

/// Updates a hidden file that was written according to the plan. Its old blocks are already free.
fn settle(inode: &mut Inode, laid: &Laid, slots: &[Slot]) {
    inode.addr = Some(laid.at());
    inode.indexes = laid.indexes(slots).collect();
    inode.extents = laid.extents().clone();
    inode.extents.written();
    inode.a.blocks = inode.extents.blocks();
}
