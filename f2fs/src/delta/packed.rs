//! Which new pages of a small file lie packed in its delta nodes?
//!
//! A page that has no block yet has no base either: what is stored of it is all of it, compressed by itself. Several of them
//! share a block, the delta node, which lies beside the inode that an fsync of a new file writes anyway; so the file takes
//! fewer blocks and one request fewer. Such a page has no block on the device, only room for one.
//!
//! Pages that change again stay packed while they are short or share one node; else they get blocks, which are then their
//! bases. Large files are left alone: their nodes would be read one by one where their blocks are read in one request.

use format::delta::codec::{self, Codec};
use format::node::delta::{self as in_node, LONGEST, LONGEST_WHOLE};
use format::{Block, BlockAddr};

use super::encoded::Encoded;
use super::index::Index;
use crate::cause::Cause;
use crate::inode::Inode;
use crate::node::map::{Lookup, addr_in};
use crate::volume::Volume;

/// A file of more blocks has no page packed.
const MOST_BLOCKS: u64 = 16;

/// Whether packing so many pages in so many bytes of entries takes fewer blocks than writing them. `nodes`: the file has
/// delta nodes already.
fn pays(pages: usize, bytes: usize, nodes: bool) -> bool {
    let blocks = bytes.div_ceil(in_node::ROOT_CAPACITY);
    if nodes { blocks <= pages } else { blocks < pages }
}

impl Volume {
    /// Entries for dirty pages that have no block, if they take fewer blocks than the pages. The caller holds the inode's
    /// lock exclusively.
    pub(super) fn plan_packed(&self, inode: &Inode, known: &Index, dirty: &[(u64, &Block)]) -> Vec<(u64, Encoded)> {
        let node = &inode.node;
        let mut out = Vec::new();
        if node.inode(|r| r.i_size.get()).div_ceil(4096) > MOST_BLOCKS {
            return out;
        }
        for &(index, page) in dirty {
            let Ok(Lookup::At(place)) = self.find(node, index) else { continue };
            let addr = {
                let bytes = place.node.read();
                addr_in(self, &place.node, &bytes, place.slot)
            };
            if addr != BlockAddr::NEW {
                continue;
            }
            self.compute(self.options.delta_costs.encode, Cause::DeltaEncode.of(node.ino));
            if let Some(payload) = codec::encode_alone(page, LONGEST_WHOLE) {
                // OK to cast: the file is small.
                let check = self.page_check(node, index as u32, page);
                out.push((index, Encoded::new(Codec::Alone, check, payload)));
            }
        }
        let bytes = |out: &[(u64, Encoded)]| out.iter().map(|(_, e)| in_node::HEADER + e.payload.len()).sum();
        if bytes(&out) > in_node::ROOT_CAPACITY {
            // With blocks as bases these pages' next changes share a node.
            out.retain(|(index, e)| !known.has(*index) || e.payload.len() <= LONGEST);
        }
        let bytes = bytes(&out);
        if !pays(out.len(), bytes, !known.is_empty()) {
            out.clear();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_packed_if_that_takes_fewer_blocks() {
        assert!(pays(3, 2 * in_node::ROOT_CAPACITY, false));
        assert!(!pays(2, in_node::ROOT_CAPACITY + 1, false));
        assert!(!pays(1, 100, false), "a node as large as the page's block");
        assert!(pays(1, 100, true), "the node is there");
        assert!(!pays(1, in_node::ROOT_CAPACITY + 1, true));
    }
}
