//! How are dirty pages of a compressed file written to the log?
//!
//! Cluster by cluster. A cluster is packed if all of its pages are dirty, the last of them begins before the end of the
//! file, and its stream saves a block; otherwise its dirty pages are written uncompressed, as in Linux. A cluster gets
//! all of its addresses or, if the log has no space, none. Nothing is overwritten in place, and the file's blocks are
//! cold (kernel `__get_segment_type_6`).
//!
//! An fsync of a compressed file is a checkpoint, as in Linux, and roll-forward never replays one. So either all new
//! addresses of a cluster become durable, or none.
//!
//! Unlike [`Files::write_back`] when it overwrites in place, this code does not note for fsync that contents were
//! written (`Promises::stray`): new addresses make a node dirty, and a file with a dirty node never counts as synced.
//! The writer of the node notes it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::compress::Method;
use format::sit::LogType;
use format::summary::Summary;
use format::{Block, BlockAddr};

use crate::cause::Cause;
use crate::compress::Packer;
use crate::compress::options::Mode;
use crate::error::{Error, Result};
use crate::file::BLOCK;
use crate::file::Files;
use crate::file::run::{BATCH, Run};
use crate::inode::{Content, Inode};
use crate::node::map::{addr_in, set_addr_in};
use crate::pack::PackState;
use crate::segment::temperature::data_log;

/// Which clusters are written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Clusters in which every page is dirty. A writer may be about to fill the others.
    Whole,
    /// All.
    All,
}

/// Whether clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pack {
    /// As the mount options require.
    Mount,
    /// If that saves a block.
    Yes,
    /// Never.
    No,
}

/// A cluster about to be written: its blocks and, if it is packed, the blocks of its stream.
struct Ready {
    blocks: Range<u64>,
    packed: Option<Vec<Block>>,
}

/// The result for one cluster.
struct Placed<'b> {
    at: Vec<(BlockAddr, &'b Block)>,
    /// Slots freed: blocks behind the end.
    freed: u64,
    /// Slots that had no reservation before.
    taken: u64,
    /// Change in the number of blocks saved by packing.
    saved: i64,
}

impl Files {
    /// [`Files::write_back`] for a compressed file. True if a block got a new address.
    pub(in crate::file) fn write_clusters(
        &self,
        _held: &PackState,
        inode: &Arc<Inode>,
        content: &mut Content,
        method: Method,
        which: Which,
        pack: Pack,
    ) -> Result<bool> {
        let packs = match (pack, self.ctx.options.compress.mode) {
            (Pack::Yes, _) | (Pack::Mount, Mode::Fs) => true,
            (Pack::No, _) | (Pack::Mount, Mode::User) => false,
        };
        let mut packer = if packs { Some(Packer::new(method)?) } else { None };
        let log = if packs { LogType::ColdData } else { inode.node.inode(|r| data_log(r, content.pages.len())) };
        let n = method.cluster_blocks() as usize;
        let (mut at, mut moved) = (0, false);
        loop {
            let mut ready: Vec<Ready> = Vec::new();
            let mut blocks = 0;
            while blocks < BATCH {
                let Some((&index, _)) = content.pages.range(at..).next() else { break };
                let cluster = super::cluster_of(index, method);
                at = cluster.end;
                let pages = content.pages.range(cluster.clone()).count();
                if which == Which::Whole && pages < n {
                    continue;
                }
                let inside = (cluster.end - 1) * BLOCK < inode.size();
                let packed = packer.as_mut().filter(|_| pages == n && inside).and_then(|packer| {
                    let plain: Vec<Block> = content.pages.range(cluster.clone()).map(|(_, page)| **page).collect();
                    let (work, busy) = self.ctx.options.compress_costs.pack(method);
                    self.ctx.compute(work, busy, Cause::Compress.of(inode.ino));
                    packer.pack(plain.as_flattened())
                });
                blocks += packed.as_ref().map_or(pages, Vec::len);
                ready.push(Ready { blocks: cluster, packed });
            }
            if ready.is_empty() {
                return Ok(moved);
            }
            let (placed, out) = self.place_clusters(inode, content, method, log, &ready)?;
            for cluster in &ready[..placed] {
                let gone: Vec<u64> = content.pages.range(cluster.blocks.clone()).map(|(i, _)| *i).collect();
                gone.iter().for_each(|i| drop(content.pages.remove(i)));
                inode.lost_dirty(&self.inodes, gone.len());
            }
            moved |= placed > 0;
            out?;
        }
    }

    /// Allocates addresses for clusters and writes them. Returns how many, from the first, were placed, and why not
    /// all. If the device fails, all pages stay dirty.
    fn place_clusters(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        method: Method,
        log: LogType,
        ready: &[Ready],
    ) -> Result<(usize, Result<()>)> {
        let _order = self.logs.in_order();
        let mut run = Run::default();
        let mut out = Ok(());
        let mut done = 0;
        for cluster in ready {
            match self.place_cluster(inode, content, method, log, cluster) {
                Ok(placed) => {
                    let cause = if cluster.packed.is_some() { Cause::Compressed } else { Cause::UserData };
                    self.nodes.add_blocks(&inode.node, placed.taken as i64 - placed.freed as i64);
                    if placed.saved != 0 {
                        self.nodes.edit_inode(&inode.node, |r| r.add_saved_blocks(placed.saved));
                    }
                    for (addr, block) in placed.at {
                        run.push(&self.logs, addr, block, cause.of(inode.ino))?;
                    }
                    done += 1;
                }
                Err(e) => {
                    out = Err(e);
                    break;
                }
            }
        }
        if done > 0 {
            self.nodes.forget_extent(&inode.node);
        }
        run.write(&self.logs, run.tag())?;
        let packed = ready[..done].iter().filter_map(|r| r.packed.as_ref());
        let (clusters, blocks) = packed.fold((0, 0), |(n, blocks), p| (n + 1, blocks + p.len() as u64));
        self.ctx.counters.packed_clusters.fetch_add(clusters, Ordering::Relaxed);
        let saved = clusters * u64::from(method.cluster_blocks()) - blocks;
        self.ctx.counters.packed_saved.fetch_add(saved, Ordering::Relaxed);
        Ok((done, out))
    }

    /// Allocates the addresses of one cluster, or changes nothing.
    fn place_cluster<'b>(
        &self,
        inode: &Arc<Inode>,
        content: &'b Content,
        method: Method,
        log: LogType,
        cluster: &'b Ready,
    ) -> Result<Placed<'b>> {
        let first = cluster.blocks.start;
        let place = self.nodes.make(&inode.node, first)?;
        let version = self.nodes.nat.get(place.node.nid)?.version;
        let age = self.ctx.mounted_seconds();
        let n = method.cluster_blocks();
        let end = inode.size().div_ceil(BLOCK);
        let mut bytes = place.node.write();
        let mut seg = self.logs.seg.lock();
        let old: Vec<BlockAddr> = (0..n).map(|k| addr_in(&self.ctx, &place.node, &bytes, place.slot + k)).collect();
        let mut real: Vec<BlockAddr> = old.iter().copied().filter(|a| a.is_real()).collect();
        real.sort_unstable();
        for addr in &real {
            self.ctx.check_data_addr(*addr, inode.ino, first)?;
            seg.check_there(*addr)?;
        }
        if real.windows(2).any(|w| w[0] == w[1]) {
            return Err(Error::corrupt(format_args!("inode {}: a block twice in the cluster at {first}", inode.ino)));
        }
        let was_packed = old[0] == BlockAddr::COMPRESS;
        // The new value of each slot: a new block, a mark or reservation, or nothing. Other slots stay.
        let pages: Vec<(u32, &Block)> =
            content.pages.range(cluster.blocks.clone()).map(|(i, page)| ((i - first) as u32, &**page)).collect();
        if was_packed && pages.len() < n as usize {
            return Err(Error::corrupt(format_args!("inode {}: a part of the cluster at {first}", inode.ino)));
        }
        let (blocks, others): (Vec<(u32, &Block)>, Vec<(u32, BlockAddr)>) = match &cluster.packed {
            Some(packed) => {
                let room = (packed.len() as u32 + 1..n).map(|k| (k, BlockAddr::NEW));
                ((1..).zip(packed).collect(), std::iter::once((0, BlockAddr::COMPRESS)).chain(room).collect())
            }
            None => {
                let (inside, behind): (Vec<_>, Vec<_>) =
                    pages.into_iter().partition(|(k, _)| !was_packed || first + u64::from(*k) < end);
                (inside, behind.into_iter().map(|(k, _)| (k, BlockAddr::NULL)).collect())
            }
        };
        let with_room = others.iter().filter(|(_, a)| *a != BlockAddr::NULL).map(|(k, _)| *k);
        let used = blocks.iter().map(|(k, _)| *k).chain(with_room);
        let taken = used.filter(|k| old[*k as usize] == BlockAddr::NULL).count() as u64;
        self.nodes.space.take(taken)?;
        let mut to = Vec::with_capacity(blocks.len());
        seg.begin_request();
        for (k, _) in &blocks {
            let owner = Summary { nid: place.node.nid, version, slot: (place.slot + k) as u16 };
            match seg.allocate(log, owner, BlockAddr::NULL, age) {
                Ok(p) => to.push(p.addr),
                Err(e) => {
                    for addr in to {
                        seg.invalidate(addr, age)?;
                    }
                    self.nodes.space.give(taken);
                    return Err(e);
                }
            }
        }
        let saved_before = if was_packed { i64::from(n) - real.len() as i64 } else { 0 };
        let mut freed = 0;
        let all = blocks.iter().zip(&to).map(|((k, _), addr)| (*k, *addr)).chain(others.iter().copied());
        for (k, addr) in all {
            let before = old[k as usize];
            if before.is_real() {
                seg.invalidate(before, age)?;
            }
            freed += u64::from(addr == BlockAddr::NULL && before != BlockAddr::NULL);
            set_addr_in(&self.nodes, &place.node, &mut bytes, place.slot + k, addr);
        }
        self.nodes.cache.mark_dirty(&place.node);
        self.nodes.space.give(freed);
        let saved = cluster.packed.as_ref().map_or(0, |packed| i64::from(n) - packed.len() as i64);
        let at = to.into_iter().zip(blocks).map(|(addr, (_, block))| (addr, block)).collect();
        Ok(Placed { at, freed, taken, saved: saved - saved_before })
    }
}
