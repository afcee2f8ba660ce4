//! Which deltas of a file are current, and where are their bases?
//!
//! Reads only the requested blocks of the image; checks nothing else.

use std::collections::BTreeMap;

use format::delta::{self, Codec};
use format::inode::{Division, Inline, RawInode};
use format::node::kept::{self, Find};
use format::node::{self, Shape};
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, Nid};

use super::FsckError;
use super::kind::kind_of;
use super::load::Image;

/// Locates the bases of a file.
pub struct Bases<'f, 'i, 'd> {
    img: &'i Image<'d>,
    raw: &'f RawInode,
    ino: Ino,
    division: Division,
    shape: Shape,
    /// The nodes read last, by depth below the inode.
    last: [Option<(Nid, Box<Block>)>; 3],
}

impl<'f, 'i, 'd> Bases<'f, 'i, 'd> {
    /// For one inode.
    pub fn new(img: &'i Image<'d>, raw: &'f RawInode, division: Division, shape: Shape) -> Self {
        Bases { img, raw, ino: Ino(raw.footer.ino.get()), division, shape, last: [const { None }; 3] }
    }

    /// The address of a file block; `None` if the node that holds it cannot be used.
    pub fn address(&mut self, index: u64) -> Result<Option<BlockAddr>, FsckError> {
        let Some(path) = self.shape.path(index) else { return Ok(Some(BlockAddr::NULL)) };
        if path.depth == 0 {
            return Ok(Some(self.raw.addr(self.division, path.slots[0])));
        }
        let mut word = self.raw.nid(path.slots[0] as usize).0;
        for k in 0..path.depth {
            let nid = Nid(word);
            if nid == Nid(0) {
                return Ok(Some(BlockAddr::NULL));
            }
            let last = &mut self.last[k];
            if last.as_ref().is_none_or(|(known, _)| *known != nid) {
                let addr = self.img.nat(nid)?.addr;
                if self.img.sb.locate(addr).is_none() {
                    return Ok(None);
                }
                let block = self.img.block(addr)?;
                let f = node::footer(&block);
                if (f.nid, f.ino, f.offset) != (nid, self.ino, path.offsets[k]) {
                    return Ok(None);
                }
                *last = Some((nid, block));
            }
            word = last.as_ref().map_or(0, |(_, block)| node::word(block, path.slots[k + 1] as usize));
        }
        Ok(Some(BlockAddr(word)))
    }

    /// True if a delta turns the block at an address into the page with its check. Also true if the block cannot be
    /// read: unreadable contents are not a finding, as everywhere.
    pub fn fits(&self, addr: BlockAddr, index: u32, (codec, payload, check): (Codec, &[u8], u32)) -> bool {
        let Ok(base) = self.img.block(addr) else { return true };
        delta::codec::decode(codec, payload, &base).is_some_and(|page| self.is_right(index, &page, check))
    }

    /// True if an entry without a base gives the page with its check, using the kept pages.
    pub fn is_made(&self, kept: &Find<'_>, index: u32, e: &node::delta::Entry<'_>) -> bool {
        kept::decode(kept, e.codec, e.payload, None).is_some_and(|page| self.is_right(index, &page, e.check))
    }

    /// True if a page has this check.
    pub fn is_right(&self, index: u32, page: &Block, check: u32) -> bool {
        delta::check(self.img.seed, self.ino, self.raw.i_generation.get(), index, page) == check
    }
}

/// The current entries, by file block: of several for one block, the one in the node with the highest age. Of nodes
/// with equal ages the first wins.
pub fn current_entries(nodes: &[Box<Block>]) -> BTreeMap<u32, node::delta::Entry<'_>> {
    let mut by_age: Vec<&Block> = nodes.iter().rev().map(|b| &**b).collect();
    by_age.sort_by_key(|b| node::delta::age(b));
    by_age.into_iter().flat_map(node::delta::entries).map(|e| (e.block, e)).collect()
}

/// True if a file may have delta nodes.
pub fn may_have_nodes(raw: &RawInode) -> bool {
    kind_of(raw.i_mode.get()) == Some(1) && !raw.inline().intersects(Inline::DATA | Inline::DENTRY)
}

/// Features without deltas, to divide an inode as if it had no zone.
pub fn without_deltas(features: Features) -> Features {
    features.difference(Features::DELTA)
}
