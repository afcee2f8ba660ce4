//! How does a user release the blocks saved by compression, and reserve them again before changes?
//!
//! A packed cluster keeps room for all of its blocks, so that contents that compress less well can replace it.
//! *Releasing* a file returns that room to the volume; from then on the file cannot be changed, only truncated between
//! two clusters or deleted. *Reserving* takes the room again. Both are Linux operations
//! (`F2FS_IOC_RELEASE_COMPRESS_BLOCKS`, `_RESERVE_`), with the same results.
//!
//! An inode's flag says whether the marks of its clusters count as used, so each runs in one step and dirties all nodes
//! of the file under one guard. Unlike in Linux, reserving changes nothing if the volume has too little room.

use std::sync::Arc;

use format::compress::{Algorithm, Method};
use format::inode::Inline;
use format::{BlockAddr, Nid};
use vfs::Compression;

use super::method_of;
use super::writeback::{Pack, Which};
use crate::context::Begin;
use crate::error::Result;
use crate::fields::{Touch, put_inline, touch};
use crate::file::Files;
use crate::inode::Inode;
use crate::node::cache::Node;
use crate::node::map::{addr_in, set_addr_in};

/// A packed cluster: the place of its mark, and the number of blocks that follow.
struct Packed {
    node: Arc<Node>,
    slot: u32,
    blocks: u32,
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Lzo => "lzo",
        Algorithm::Lz4 => "lz4",
        Algorithm::Zstd => "zstd",
        Algorithm::LzoRle => "lzo-rle",
    }
}

/// Totals for the compressed files of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressedCount {
    /// Number of files, including empty ones.
    pub files: u64,
    /// Blocks saved by compression that are still reserved.
    pub saved: u64,
    /// Files whose saved blocks were released.
    pub released: u64,
}

impl Files {
    /// Counts the compressed files of the volume. Reads every inode.
    pub(crate) fn count_compressed(&self) -> Result<CompressedCount> {
        let mut count = CompressedCount::default();
        for nid in (self.ctx.sb.root.0..self.ctx.sb.max_nid()).map(Nid) {
            let Some(node) = self.nodes.inode_node(nid)? else { continue };
            node.inode(|r| {
                if method_of(&self.ctx, r)?.is_some() {
                    count.files += 1;
                    count.saved += r.saved_blocks();
                    count.released += u64::from(r.inline().contains(Inline::COMPRESS_RELEASED));
                }
                Ok::<_, crate::error::Error>(())
            })?;
        }
        Ok(count)
    }

    /// A file's compression method and savings.
    pub(crate) fn compression_of(&self, inode: &Inode) -> Result<Option<Compression>> {
        let Some(method) = self.clusters(inode)? else { return Ok(None) };
        let (algorithm, log_cluster, _) = method.for_inode();
        let released = inode.node.inode(|r| r.inline().contains(Inline::COMPRESS_RELEASED));
        let saved = inode.node.inode(format::inode::RawInode::saved_blocks);
        Ok(Some(Compression { algorithm, name: name(method.algorithm), log_cluster, saved, released }))
    }

    fn packed_clusters(&self, inode: &Inode, method: Method) -> Result<Vec<Packed>> {
        let n = method.cluster_blocks();
        let (mut at, end) = (0, inode.size().div_ceil(super::BLOCK));
        let mut out = Vec::new();
        while at < end {
            let (blocks, place) = self.nodes.stretch(&inode.node, at)?;
            at = blocks.end;
            let Some(place) = place else { continue };
            let bytes = place.node.read();
            for slot in (0..place.slots).step_by(n as usize) {
                let addr = |k| addr_in(&self.ctx, &place.node, &bytes, slot + k);
                if addr(0) == BlockAddr::COMPRESS {
                    let blocks = (1..n).take_while(|k| addr(*k).is_real()).count() as u32;
                    out.push(Packed { node: place.node.clone(), slot, blocks });
                }
            }
        }
        Ok(out)
    }

    /// One step on a compressed file; writes its contents back first.
    fn with_clusters<T>(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        f: impl FnOnce(Method) -> Result<T>,
    ) -> Result<T> {
        let _turn = inode.steps.turn.lock();
        self.check_plain(inode)?;
        let change = volume.begin()?;
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        let Some(method) = self.clusters(inode)? else {
            return Err(vfs::Error::Invalid("the file is not a compressed one").into());
        };
        self.write_clusters(&change, inode, &mut content, method, Which::All, Pack::Mount)?;
        let out = f(method)?;
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        Ok(out)
    }

    /// Releases the blocks saved by packing; returns their number.
    pub(crate) fn release_saved(&self, volume: &dyn Begin, inode: &Arc<Inode>) -> Result<u64> {
        self.with_clusters(volume, inode, |method| {
            let (inline, saved) = inode.node.inode(|r| (r.inline(), r.saved_blocks()));
            if inline.contains(Inline::COMPRESS_RELEASED) {
                return Err(vfs::Error::Invalid("the file's compressed blocks are released already").into());
            }
            if saved == 0 {
                return Err(vfs::Error::NotPermitted("compression saves no block of the file").into());
            }
            let mut given = 0;
            for packed in self.packed_clusters(inode, method)? {
                let mut bytes = packed.node.write();
                for slot in packed.slot + packed.blocks + 1..packed.slot + method.cluster_blocks() {
                    if addr_in(&self.ctx, &packed.node, &bytes, slot) != BlockAddr::NULL {
                        set_addr_in(&self.nodes, &packed.node, &mut bytes, slot, BlockAddr::NULL);
                        given += 1;
                    }
                }
                // The mark stays but no longer counts.
                self.nodes.space.unwritten_by(-1);
                given += 1;
                self.nodes.cache.mark_dirty(&packed.node);
            }
            self.nodes.space.give(given);
            self.nodes.add_blocks(&inode.node, -(given as i64));
            self.nodes.edit_inode(&inode.node, |r| {
                r.add_saved_blocks(-(saved as i64));
                put_inline(r, Inline::COMPRESS_RELEASED, true);
            });
            Ok(given)
        })
    }

    /// Reserves the blocks again that [`Self::release_saved`] released; returns their number.
    pub(crate) fn reserve_saved(&self, volume: &dyn Begin, inode: &Arc<Inode>) -> Result<u64> {
        self.with_clusters(volume, inode, |method| {
            if !inode.node.inode(|r| r.inline().contains(Inline::COMPRESS_RELEASED)) {
                return Err(vfs::Error::Invalid("the file's compressed blocks are not released").into());
            }
            let n = method.cluster_blocks();
            let all = self.packed_clusters(inode, method)?;
            let taken = all.iter().map(|packed| u64::from(n - packed.blocks)).sum();
            self.nodes.space.take(taken)?;
            for packed in &all {
                let mut bytes = packed.node.write();
                for slot in packed.slot + packed.blocks + 1..packed.slot + n {
                    set_addr_in(&self.nodes, &packed.node, &mut bytes, slot, BlockAddr::NEW);
                }
                self.nodes.space.unwritten_by(1);
                self.nodes.cache.mark_dirty(&packed.node);
            }
            self.nodes.add_blocks(&inode.node, taken as i64);
            self.nodes.edit_inode(&inode.node, |r| {
                r.add_saved_blocks(taken as i64);
                put_inline(r, Inline::COMPRESS_RELEASED, false);
            });
            Ok(taken)
        })
    }
}
