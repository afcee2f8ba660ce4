//! What are the addresses of a file's blocks?
//!
//! Answered from memory: blocks moved since the last checkpoint are reported at their new places. Left out: the cost of
//! reading them (the `inspect` crate, which evaluates images).

use format::compress::Method;
use vfs::{Extent, FileKind};

use crate::error::Result;
use crate::file::Files;
use crate::inode::Inode;
use crate::node::free::LOOKED;
use crate::node::map::addr_in;

/// True if there is no hole between a stored block that ends at `end` and one that begins at `from`. A packed cluster
/// has fewer stored blocks than file blocks; a whole cluster without a stored block is a hole.
pub(super) fn goes_on(clusters: Option<Method>, end: u64, from: u64) -> bool {
    match clusters.map(|m| u64::from(m.cluster_blocks())) {
        None => end == from,
        Some(n) => from / n <= end.div_ceil(n),
    }
}

impl Files {
    /// The runs of a file's blocks at adjacent addresses, from block `from` on, at most `most`. Every address counts,
    /// even behind the end. On long files the inode's lock is released now and then, so that writers continue: their
    /// changes are reported either old or new.
    pub(crate) fn file_extents(&self, inode: &Inode, from: u64, most: usize) -> Result<Vec<Extent>> {
        let mut out: Vec<Extent> = Vec::new();
        if inode.kind != FileKind::Regular || most == 0 {
            return Ok(out);
        }
        let mut at = from;
        loop {
            let _content = inode.content.read();
            if self.inline_room(inode)?.is_some() {
                return Ok(out);
            }
            let clusters = self.clusters(inode)?;
            let end = inode.node.inode(|r| self.nodes.shape(r))?.max_blocks();
            for _ in 0..LOOKED {
                if at >= end {
                    return Ok(out);
                }
                let (stretch, place) = self.nodes.stretch(&inode.node, at)?;
                let here = at..end.min(stretch.end);
                at = here.end;
                let Some(place) = place else { continue };
                let bytes = place.node.read();
                for block in here {
                    let addr = addr_in(&self.ctx, &place.node, &bytes, place.slot + (block - stretch.start) as u32);
                    if !addr.is_real() {
                        continue;
                    }
                    let addr = u64::from(addr.0);
                    let end = out.last().map(|e| e.from + e.blocks);
                    let full = out.len() == most;
                    match out.last_mut() {
                        Some(e) if end == Some(block) && e.addr + e.blocks == addr => e.blocks += 1,
                        _ if full => return Ok(out),
                        _ => {
                            let begins = !end.is_some_and(|end| goes_on(clusters, end, block));
                            out.push(Extent { from: block, addr, blocks: 1, begins });
                        }
                    }
                }
            }
        }
    }
}

/// The fragmented stretches of a file, in file blocks: what defragmentation would move. Contiguous stretches stay.
pub fn torn(extents: &[Extent]) -> Vec<std::ops::Range<u64>> {
    let mut out = Vec::new();
    for stretch in extents.chunk_by(|_, next| !next.begins) {
        // Stored blocks of a compressed file have gaps in their numbers and may still be contiguous.
        let pieces = stretch.windows(2).filter(|w| w[0].addr + w[0].blocks != w[1].addr).count() + 1;
        if let (true, Some(first), Some(last)) = (pieces > 1, stretch.first(), stretch.last()) {
            out.push(first.from..last.from + last.blocks);
        }
    }
    out
}
