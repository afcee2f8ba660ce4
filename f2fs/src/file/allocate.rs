//! How does `fallocate` reserve blocks and make holes?
//!
//! A range may be as long as the longest file. So the work is done in steps, each with its own guard: between two steps
//! other operations run, and the volume writes nodes and cleans as before every other change. A range of few nodes
//! takes one step, so a power cut leaves it either old or new; a longer range may be left partly done.

use std::ops::Range;
use std::sync::Arc;

use format::inode::{Advise, Inline};
use format::node::ADDRS_PER_BLOCK;
use vfs::{Allocate, FileKind};

use super::BLOCK;
use crate::context::Begin;
use crate::error::Result;
use crate::fields::{Touch, put_advise, touch};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::free::STEP;
use crate::pack::PackState;

/// Bytes of a range that one step reserves: [`STEP`] full nodes.
const RESERVED: u64 = STEP * ADDRS_PER_BLOCK as u64 * BLOCK;

impl Files {
    /// `fallocate`. If space runs out, reserved blocks stay reserved and the size is unchanged.
    pub(crate) fn fallocate_file(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        what: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if inode.kind != FileKind::Regular {
            return Err(vfs::Error::Invalid("fallocate wants a regular file").into());
        }
        self.check_allocate(inode, what)?;
        if len == 0 {
            return Err(vfs::Error::Invalid("fallocate of no bytes").into());
        }
        let end = self.checked_end(inode, offset, len)?;
        let _turn = inode.steps.turn.lock();
        match what {
            Allocate::Reserve { keep_size } => self.reserve_range(volume, inode, what, offset..end, keep_size),
            Allocate::Zero { keep_size } => self.reserve_range(volume, inode, what, offset..end, keep_size),
            Allocate::PunchHole => self.punch_range(volume, inode, offset..end),
            Allocate::Collapse => self.collapse(volume, inode, offset..end),
            Allocate::Insert => self.insert(volume, inode, offset..end),
        }
    }

    fn check_allocate(&self, inode: &Inode, what: Allocate) -> Result<()> {
        self.check_plain(inode)?;
        self.check_has_room(inode)?;
        if matches!(what, Allocate::Collapse | Allocate::Insert) && self.clusters(inode)?.is_some() {
            return Err(vfs::Error::Unsupported("shifting the blocks of a compressed file".into()).into());
        }
        if matches!(what, Allocate::Reserve { .. }) {
            return Ok(());
        }
        inode.check_unsealed()?;
        if inode.node.inode(|r| r.inline().contains(Inline::PIN_FILE)) {
            // As in Linux: users of a pinned file rely on its block addresses.
            return Err(vfs::Error::Unsupported("holes in a pinned file, and shifting its blocks".into()).into());
        }
        Ok(())
    }

    /// One step: `f` changes the file under its own guard. The caller holds `steps.turn`.
    pub(super) fn step<T>(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        what: Allocate,
        f: impl FnOnce(&PackState, &mut Content) -> Result<T>,
    ) -> Result<T> {
        let change = match what {
            Allocate::Reserve { .. } | Allocate::Zero { .. } | Allocate::Insert => volume.begin()?,
            Allocate::PunchHole | Allocate::Collapse => volume.begin_modest()?,
        };
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        self.check_allocate(inode, what)?;
        content.check_no_set()?;
        self.leave_inline(inode, &mut content)?;
        // From now on the blocks behind the end belong to the caller of `fallocate`.
        content.frames.take_ahead();
        if matches!(what, Allocate::Collapse | Allocate::Insert) {
            // Blocks move to other slots.
            self.fold_all(&inode.node)?;
        }
        let out = f(&change, &mut content)?;
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Modified, now));
        self.limit_dirty(&change, inode, &mut content)?;
        Ok(out)
    }

    /// Reserves the blocks of a range, zeroed if `what` requires it. The size grows in the last step. Until then the
    /// inode is marked as having blocks behind its end (`KEEP_SIZE`); otherwise roll-forward would take them for a
    /// longer file.
    fn reserve_range(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        what: Allocate,
        range: Range<u64>,
        keep: bool,
    ) -> Result<()> {
        let (mut at, end) = (range.start, range.end);
        let mut marked = false;
        while at < end {
            let to = end.min((at / RESERVED + 1) * RESERVED);
            self.step(volume, inode, what, |_, content| {
                // A log may have got preallocated blocks behind the end meanwhile.
                marked &= !content.frames.has_records();
                let size = inode.size();
                if end > size && !keep {
                    // Do this read before any block behind the end is reserved.
                    self.clear_tail(inode, content, size)?;
                }
                if matches!(what, Allocate::Zero { .. }) {
                    self.clear_edges(inode, content, at..to)?;
                    self.free_whole_blocks(inode, content, at..to, u64::MAX)?;
                }
                let reserved = self.reserve_blocks(inode, at / BLOCK..to.div_ceil(BLOCK));
                let grows = reserved.is_ok() && to == end && !keep;
                let behind = to > size;
                marked |= behind && !grows && !inode.node.inode(|r| r.advise().contains(Advise::KEEP_SIZE));
                self.nodes.edit_inode(&inode.node, |r| {
                    if grows {
                        r.i_size = size.max(end).into();
                        if marked {
                            put_advise(r, Advise::KEEP_SIZE, false);
                        }
                    } else if behind {
                        put_advise(r, Advise::KEEP_SIZE, true);
                    }
                });
                reserved
            })?;
            at = to;
        }
        Ok(())
    }

    fn reserve_blocks(&self, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            at += self.reserve_run(&inode.node, at, blocks.end - at)?;
        }
        Ok(())
    }

    /// Makes a range read as zeroes and frees its whole blocks.
    fn punch_range(&self, volume: &dyn Begin, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let mut rest = range.clone();
        while !rest.is_empty() {
            rest.start = self.step(volume, inode, Allocate::PunchHole, |_, content| {
                if rest == range {
                    self.clear_edges(inode, content, rest.clone())?;
                }
                self.free_whole_blocks(inode, content, rest.clone(), STEP)
            })?;
        }
        Ok(())
    }

    /// Zeroes the parts of the range in blocks that it only partly covers.
    fn clear_edges(&self, inode: &Arc<Inode>, content: &mut Content, range: Range<u64>) -> Result<()> {
        let (from, to) = (range.start, range.end);
        if from.div_ceil(BLOCK) > to / BLOCK {
            // The range lies inside one block.
            return self.zero_part(inode, content, from / BLOCK, from % BLOCK, to % BLOCK);
        }
        if !from.is_multiple_of(BLOCK) {
            self.zero_part(inode, content, from / BLOCK, from % BLOCK, BLOCK)?;
        }
        if !to.is_multiple_of(BLOCK) {
            self.zero_part(inode, content, to / BLOCK, 0, to % BLOCK)?;
        }
        Ok(())
    }

    /// Frees the whole blocks of a byte range, over at most `stretches` stretches; returns how far it got.
    fn free_whole_blocks(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        range: Range<u64>,
        mut stretches: u64,
    ) -> Result<u64> {
        let blocks = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        let at = self.punch(inode, content, blocks.clone(), &mut stretches)?;
        Ok(if at < blocks.end { at * BLOCK } else { range.end })
    }

    /// Makes holes of blocks (in a packed cluster only zeroes), counting down `stretches`; returns the first block
    /// left.
    pub(super) fn punch(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        blocks: Range<u64>,
        stretches: &mut u64,
    ) -> Result<u64> {
        let mut at = blocks.start;
        while at < blocks.end && *stretches > 0 {
            *stretches -= 1;
            let (to, zeroed) = self.zero_packed(inode, content, at..blocks.end)?;
            if zeroed {
                at = to;
                continue;
            }
            let next = self.free_stretch(&inode.node, at, to)?;
            self.drop_pages(inode, content, at, next);
            at = next;
        }
        Ok(at)
    }

    fn drop_pages(&self, inode: &Arc<Inode>, content: &mut Content, first: u64, last: u64) {
        let gone: Vec<u64> = content.pages.range(first..last.max(first)).map(|(i, _)| *i).collect();
        for i in &gone {
            content.pages.remove(i);
        }
        inode.lost_dirty(&self.inodes, gone.len());
    }

    fn zero_part(&self, inode: &Arc<Inode>, content: &mut Content, index: u64, from: u64, to: u64) -> Result<()> {
        self.open_cluster(inode, content, index)?;
        let Some(mut page) = self.load_page(inode, content, index)? else { return Ok(()) };
        page[from as usize..to as usize].fill(0);
        if content.pages.insert(index, page).is_none() {
            inode.gained_dirty(&self.inodes, 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};
    use std::time::Duration;

    use crate::volume::Volume;
    use device::clock::{Clock, Time};
    use device::{Memory, VirtualClock};
    use vfs::{FileSystem, WriteFlags};

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    /// A clock that checks, on each read, how many nodes of a volume are dirty.
    #[derive(Default)]
    struct Watch {
        vol: OnceLock<Weak<Volume>>,
        most: AtomicU64,
    }

    impl Clock for Watch {
        fn now(&self) -> Time {
            if let Some(vol) = self.vol.get().and_then(Weak::upgrade) {
                self.most.fetch_max(vol.nodes.cache.dirty_count(), Ordering::Relaxed);
            }
            Time::new(1_700_000_000, 0)
        }
        fn monotonic(&self) -> Duration {
            self.now();
            Duration::ZERO
        }
    }

    #[test]
    fn whatever_is_reserved_punched_or_shifted_dirties_a_bounded_number_of_nodes() {
        const GIB: u64 = 1 << 30;
        let dev = Arc::new(Memory::new(6 * GIB / BLOCK));
        let clock = VirtualClock::new(Time::new(1_700_000_000, 0));
        let options = crate::mkfs::Options { assume_zeroed: true, ..crate::mkfs::Options::default() };
        crate::mkfs::format(&*dev, &clock, &options).unwrap();
        let watch = Arc::new(Watch::default());
        let options = MountOptions { node_cache: 256, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), watch.clone(), options).unwrap();
        watch.vol.set(Arc::downgrade(&vol)).unwrap();
        let f = file(&vol, "f");
        // More nodes than a step may dirty, and more than the volume caches.
        vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 4 * GIB).unwrap();
        vol.fallocate(f, Allocate::Zero { keep_size: false }, 0, 4 * GIB).unwrap();
        vol.fallocate(f, Allocate::PunchHole, 0, 4 * GIB).unwrap();
        for i in 0..900 {
            vol.write(f, (2000 + i * 1018) * BLOCK, b"a node for each", WriteFlags::empty()).unwrap();
        }
        // The number of nodes dirtied by a checkpoint depends on the contents waiting for it.
        let before = watch.most.load(Ordering::Relaxed);
        vol.sync().unwrap();
        watch.most.store(before, Ordering::Relaxed);
        vol.fallocate(f, Allocate::Insert, BLOCK, BLOCK).unwrap();
        vol.fallocate(f, Allocate::Collapse, 0, 2000 * BLOCK).unwrap();
        vol.setattr(f, &vfs::SetAttr { size: Some(0), ..vfs::SetAttr::default() }).unwrap();
        let most = watch.most.load(Ordering::Relaxed);
        // Half the cache plus what one step dirties: a node for each stretch that it visits, and the nodes that these
        // move to.
        assert!(most <= 128 + 4 * STEP, "{most} dirty nodes");
        judge(&dev, &vol);
    }

    #[test]
    fn whatever_sets_sizes_or_changes_maps_waits_for_its_turn() {
        let works: [fn(&Volume, vfs::Ino); 4] = [
            |vol, f| vol.fallocate(f, Allocate::Reserve { keep_size: true }, 0, 1 << 20).unwrap(),
            |vol, f| vol.fallocate(f, Allocate::PunchHole, BLOCK, BLOCK).unwrap(),
            |vol, f| vol.fallocate(f, Allocate::Insert, 0, BLOCK).unwrap(),
            |vol, f| _ = vol.setattr(f, &vfs::SetAttr { size: Some(5), ..vfs::SetAttr::default() }).unwrap(),
        ];
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(8));
        let inode = vol.names.outer(f).unwrap();
        for (n, work) in works.into_iter().enumerate() {
            let waited = std::thread::scope(|s| {
                let turn = inode.steps.turn.lock();
                let worker = s.spawn(|| work(&vol, f));
                std::thread::sleep(A_WHILE);
                let waited = !worker.is_finished();
                drop(turn);
                worker.join().unwrap();
                waited
            });
            assert!(waited, "{n}");
        }
        drop(inode);
        judge(&dev, &vol);
    }
}
