//! How are dirty contents written back to the log?

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::summary::Summary;
use format::{Block, BlockAddr, Ino};
use rustc_hash::{FxHashMap, FxHashSet};
use vfs::FileKind;

use super::compressed::writeback::{Pack, Which};
use super::prealloc;
use super::run::{BATCH, Run};
use crate::cause::Cause;
use crate::delta::encoded::Encoded;
use crate::delta::plan::Plan;
use crate::error::{Error, Result};
use crate::file::Files;
use crate::inode::balance::Made;
use crate::inode::overwrite::overwrites;
use crate::inode::{Content, Inode};
use crate::node::cache::Node;
use crate::node::index::Index;
use crate::node::map::{addr_in, set_addr_in};
use crate::pack::PackState;
use crate::segment::temperature::{Mode, Writeback, data_log};

/// In the background, small changes are looked for only in files with fewer dirty pages.
const FEW: usize = 32;

/// Result of a writeback, complete or not.
#[derive(Default)]
struct Written {
    /// Number of blocks, from the first, that are placed.
    given: usize,
    /// Whether a block got a new address.
    anew: bool,
    /// Whether a block was overwritten in place.
    in_place: bool,
}

/// Blocks for which the log has no space stay dirty: they are reserved, and the next checkpoint frees segments and
/// writes them.
pub(crate) fn or_wait<T: Default>(written: Result<T>) -> Result<T> {
    match written {
        Err(Error::Fs(vfs::Error::NoSpace)) => Ok(T::default()),
        other => other,
    }
}

impl Files {
    /// Writes an inode's dirty blocks to the log, or in place where the rules allow it. The caller holds the inode's
    /// lock exclusively. True if a block got a new address: the device must have that block before a node with the
    /// address becomes valid. On failure the blocks stay dirty, except blocks of a file that were placed before the log
    /// was full.
    pub(crate) fn write_back(
        &self,
        held: &PackState,
        inode: &Arc<Inode>,
        content: &mut Content,
        why: Writeback,
    ) -> Result<bool> {
        if inode.dirty.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        if why == Writeback::Background {
            self.promises.stray(inode.ino);
        }
        if inode.kind == FileKind::Directory {
            let mut dirty: Vec<(u64, &Block)> =
                content.dir.iter().filter(|(_, b)| b.dirty).map(|(i, b)| (*i, b.bytes())).collect();
            dirty.sort_unstable_by_key(|(i, _)| *i);
            self.write_whole(&inode.node, &dirty, why, Cause::Directory)?;
            let n = dirty.len();
            content.dir.values_mut().for_each(|b| b.dirty = false);
            inode.lost_dirty(&self.inodes, n);
            Ok(true)
        } else if let Some(method) = self.clusters(inode)? {
            self.write_clusters(held, inode, content, method, Which::All, Pack::Mount)
        } else {
            let Content { pages, luck, frames, balance, made, .. } = content;
            let dirty: Vec<(u64, &Block)> = pages.iter().map(|(i, b)| (*i, &**b)).collect();
            // A checkpoint makes all operations wait, so it reads few bases.
            let most = if why == Writeback::Background { FEW } else { BATCH };
            let options = &self.ctx.options;
            let pays = balance.allows() || !options.prices_deltas();
            let synced = matches!(why, Writeback::Fsync | Writeback::FsyncContents);
            let stays = synced
                && options.prices_deltas()
                && overwrites((&self.ctx, &self.nodes), &inode.node, dirty.iter().map(|(i, _)| *i), why);
            let mut plan = match pays && dirty.len() < most {
                true => self.deltas.plan_deltas(inode, (luck, frames), &dirty, why)?,
                // Deltas of the file do not pay, or there are many dirty pages: skip the search for small changes.
                false => Plan::default(),
            };
            let together = match stays {
                true => self.deltas.leave_together(inode, &dirty, &mut plan)?,
                false => FxHashSet::default(),
            };
            if stays && !pays {
                plan.fold = self.deltas.that_may_leave(inode, &dirty)?;
            }
            if let Some(bases) = &self.deltas.bases {
                bases.estrange(inode.ino, luck.is_lost());
            }
            if !plan.fold.is_empty() {
                or_wait(self.fold(&inode.node, &plan.fold))?;
            }
            let mut noted = self.deltas.note_deltas(&inode.node, &plan.noted)?;
            if noted.len() < plan.noted.len() {
                frames.found_no_room();
            }
            noted.extend(self.deltas.note_deltas(&inode.node, &plan.packed)?);
            let rest: Vec<(u64, &Block)> = dirty.into_iter().filter(|(i, _)| !noted.contains(i)).collect();
            *made = Made {
                pages: (rest.len() - plan.deltas.len().min(rest.len()) + plan.fold.len()) as u64,
                before: std::mem::take(&mut luck.spent) + std::mem::take(&mut frames.luck.spent),
                ..Made::default()
            };
            let (n, out) = self.write_blocks(&inode.node, &rest, (&plan.deltas, &together), why, Cause::UserData);
            let first_left = rest.get(n).map(|(i, _)| *i);
            let before = pages.len();
            pages.retain(|i, _| first_left.is_some_and(|first| *i >= first) && !noted.contains(i));
            inode.lost_dirty(&self.inodes, before - pages.len());
            Ok(out? || !plan.fold.is_empty())
        }
    }

    /// Writes what is worth writing now, although a writer may continue: in a compressed file only whole clusters.
    pub(super) fn write_back_early(&self, held: &PackState, inode: &Arc<Inode>, content: &mut Content) -> Result<bool> {
        match self.clusters(inode)? {
            Some(method) => self.write_clusters(held, inode, content, method, Which::Whole, Pack::Mount),
            None => self.write_back(held, inode, content, Writeback::Background),
        }
    }

    /// Writes `blocks`, the file's blocks from `first` on, together with dirty blocks next to them; drops dirty blocks
    /// that they replace. The caller holds the locks that [`Self::write_back`] requires. On failure, dirty blocks stay
    /// dirty.
    pub(super) fn write_out(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        first: u64,
        blocks: &[Block],
    ) -> Result<()> {
        self.promises.stray(inode.ino);
        let end = first + blocks.len() as u64;
        let dirty = |from: u64, to: u64| content.pages.range(from..to).map(|(i, b)| (*i, &**b));
        let all: Vec<(u64, &Block)> =
            dirty(0, first).chain((first..).zip(blocks)).chain(dirty(end, u64::MAX)).collect();
        self.write_whole(&inode.node, &all, Writeback::Background, Cause::UserData)?;
        let n = content.pages.len();
        content.pages.clear();
        inode.lost_dirty(&self.inodes, n);
        Ok(())
    }

    /// Writes whole blocks of a file or directory, without deltas.
    pub(super) fn write_whole(
        &self,
        node: &Arc<Node>,
        blocks: &[(u64, &Block)],
        why: Writeback,
        cause: Cause,
    ) -> Result<()> {
        self.write_blocks(node, blocks, (&FxHashMap::default(), &FxHashSet::default()), why, cause).1.map(drop)
    }

    /// Writes blocks, or puts their deltas into the inode. Blocks of `together` are not overwritten in place. Returns how
    /// many, from the first, are placed; and whether one got a new address, or why not all were placed.
    fn write_blocks(
        &self,
        node: &Arc<Node>,
        dirty: &[(u64, &Block)],
        (deltas, together): (&FxHashMap<u64, Encoded>, &FxHashSet<u64>),
        why: Writeback,
        cause: Cause,
    ) -> (usize, Result<bool>) {
        let known = match self.deltas.deltas(node) {
            Ok(known) => known,
            Err(e) => return (0, Err(e)),
        };
        let mut done = Written::default();
        let mut out = self.place_blocks(node, dirty, (deltas, together, &known), why, cause, &mut done);
        let given = &dirty[..done.given];
        if given.iter().any(|(block, _)| known.has(*block)) {
            let is_given = |block| given.binary_search_by_key(&block, |(index, _)| *index).is_ok();
            // OK to report instead of another error: the placed blocks are correct, but the file is not.
            out = self.deltas.delta_nodes(node).map(|nodes| self.deltas.drop_noted(&nodes, is_given)).and(out);
        }
        if done.in_place && self.ctx.may_hold_deltas() {
            // Only now that the device has the blocks: a flush that completed earlier, and clears this note, does not
            // cover them.
            self.promises.overwrote(node.ino);
        }
        match out {
            // Every block that got an address has reached the device.
            Ok(()) | Err(Error::Fs(vfs::Error::NoSpace)) => (done.given, out.map(|()| done.anew)),
            Err(e) => (0, Err(e)),
        }
    }

    fn place_blocks(
        &self,
        inode: &Arc<Node>,
        dirty: &[(u64, &Block)],
        (deltas, together, known): (&FxHashMap<u64, Encoded>, &FxHashSet<u64>, &Index),
        why: Writeback,
        cause: Cause,
        done: &mut Written,
    ) -> Result<()> {
        let stay = overwrites((&self.ctx, &self.nodes), inode, dirty.iter().map(|(i, _)| *i), why);
        let (log, ahead) = inode.inode(|r| {
            let log = data_log(r, dirty.len());
            // Preallocated blocks are written out of order, and the unused ones are holes.
            let none = cause == Cause::Directory || self.ctx.options.mode == Mode::Lfs;
            let ahead = if none { None } else { prealloc::ahead(r, log, self.ctx.options.prealloc) };
            (log, ahead)
        });
        let tag = cause.of(Ino(inode.ino.0));
        let age = self.ctx.mounted_seconds();
        let _order = self.logs.in_order();
        let mut run = Run::default();
        self.logs.seg.lock().begin_request();
        let mut rest = dirty;
        while let Some(&(first, _)) = rest.first() {
            let place = match self.nodes.make(inode, first) {
                Ok(place) => place,
                Err(e) => return run.write(&self.logs, tag).and(Err(e)),
            };
            let covered = first + place.run();
            let here = rest.partition_point(|(i, _)| *i < covered);
            let (now, later) = rest.split_at(here);
            rest = later;
            let version = match self.nodes.nat.get(place.node.nid) {
                Ok(entry) => entry.version,
                Err(e) => return run.write(&self.logs, tag).and(Err(e)),
            };
            let mut reserved = 0;
            let mut placed = Vec::with_capacity(now.len());
            let mut out = Ok(());
            let (mut moved, mut in_zone) = (false, 0);
            {
                let mut bytes = place.node.write();
                let mut seg = self.logs.seg.lock();
                for &(index, block) in now {
                    let slot = place.slot + (index - first) as u32;
                    let old = addr_in(&self.ctx, &place.node, &bytes, slot);
                    if old.is_real() {
                        out = self.ctx.check_data_addr(old, inode.ino, index);
                    } else if old == BlockAddr::NULL {
                        out = self.nodes.space.take(1);
                        reserved += i64::from(out.is_ok());
                    }
                    if out.is_err() {
                        break;
                    }
                    if old.is_real()
                        && let Some(delta) = deltas.get(&index)
                        && self.deltas.put_delta(&place.node, &mut bytes, &delta.entry(slot))
                    {
                        in_zone += 1;
                        continue;
                    }
                    // The inode on the device may need the block as base of a delta.
                    let is_base = known.has(index) || self.deltas.is_in_zone(&place.node, &bytes, slot);
                    if stay && old.is_real() && !is_base && !together.contains(&index) {
                        self.ctx.counters.in_place.fetch_add(1, Ordering::Relaxed);
                        done.in_place = true;
                        placed.push((old, block));
                        continue;
                    }
                    let owner = Summary { nid: place.node.nid, version, slot: slot as u16 };
                    let set_aside = match ahead {
                        Some(blocks) if !old.is_real() => {
                            seg.allocate_ahead((Ino(inode.ino.0), log), blocks, owner, age)
                        }
                        _ => Ok(None),
                    };
                    let got = set_aside.and_then(|p| p.map_or_else(|| seg.allocate(log, owner, old, age), Ok));
                    match got {
                        Ok(p) => {
                            set_addr_in(&self.nodes, &place.node, &mut bytes, slot, p.addr);
                            moved = true;
                            placed.push((p.addr, block));
                        }
                        Err(e) => {
                            if old == BlockAddr::NULL {
                                self.nodes.space.give(1);
                                reserved -= 1;
                            }
                            out = Err(e);
                            break;
                        }
                    }
                }
                if moved || in_zone > 0 {
                    self.nodes.cache.mark_dirty(&place.node);
                }
            }
            // The device write needs no lock that other threads need: they cannot see the new addresses before the
            // inode's lock is released.
            self.nodes.add_blocks(inode, reserved);
            done.given += placed.len() + in_zone;
            done.anew |= moved;
            if moved {
                self.nodes.forget_extent(inode);
            }
            for (addr, block) in placed {
                run.push(&self.logs, addr, block, tag)?;
            }
            if out.is_err() {
                run.write(&self.logs, tag)?;
            }
            out?;
        }
        run.write(&self.logs, tag)
    }

    /// Writes back every inode with dirty contents, files as far as the log has space; returns how many of their blocks
    /// are left. `alone` proves that no other thread makes changes meanwhile, so no holder of an inode's lock can be
    /// waiting for this call.
    pub(crate) fn flush_all_contents(&self, alone: &mut PackState) -> Result<u64> {
        let dirty: Vec<Arc<Inode>> = self.inodes.table.dirty.lock().values().cloned().collect();
        // Directories and nodes must be placed in any case.
        let (files, dirs): (Vec<_>, Vec<_>) = match self.logs.seg.lock().are_files_last() {
            true => dirty.into_iter().partition(|i| i.kind != FileKind::Directory),
            false => (Vec::new(), dirty),
        };
        for inode in dirs.iter().chain(&files) {
            if inode.kind != FileKind::Directory && self.logs.seg.lock().must_files_wait() {
                continue;
            }
            let mut content = inode.content.write();
            let written = self.write_back(alone, inode, &mut content, Writeback::Background);
            if inode.kind == FileKind::Directory { written } else { or_wait(written) }?;
        }
        Ok(self.logs.pressure.data.load(Ordering::Relaxed))
    }

    /// Drops an inode's contents from memory, written or not.
    pub(crate) fn drop_contents(&self, inode: &Arc<Inode>, content: &mut Content) {
        let n = inode.dirty.load(Ordering::Acquire);
        content.pages.clear();
        self.end_set(inode, content);
        self.inodes.table.dir_blocks.fetch_sub(content.dir.len() as u64, Ordering::Relaxed);
        content.dir.clear();
        inode.lost_dirty(&self.inodes, n);
    }

    /// Makes room for more dirty contents: above the limit, writes this inode's, then those of other unlocked inodes.
    /// Contents for which the log has no space stay dirty. If the device refuses another inode's contents, that inode's
    /// users get the error, not this caller. The caller holds the inode's lock exclusively.
    pub(super) fn limit_dirty(&self, held: &PackState, inode: &Arc<Inode>, content: &mut Content) -> Result<()> {
        let limit = self.ctx.options.dirty_limit as u64;
        let over = || self.logs.pressure.data.load(Ordering::Relaxed) > limit;
        if !over() {
            return Ok(());
        }
        or_wait(self.write_back_early(held, inode, content))?;
        if over() {
            or_wait(self.write_back(held, inode, content, Writeback::Background))?;
        }
        while over() {
            let others: Vec<Arc<Inode>> = self.inodes.table.dirty.lock().values().cloned().collect();
            let mut progress = false;
            for other in others.iter().filter(|o| o.ino != inode.ino && o.kind != FileKind::Directory) {
                // Waiting for the lock could deadlock with a thread that waits for this inode.
                if let Some(mut c) = other.content.try_write() {
                    match self.write_back(held, other, &mut c, Writeback::Background) {
                        Ok(_) => progress = true,
                        Err(e) => log::debug!("inode {}: its contents stay unwritten: {e}", other.ino),
                    }
                }
                if !over() {
                    break;
                }
            }
            if !progress {
                break;
            }
        }
        Ok(())
    }
}
