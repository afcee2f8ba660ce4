//! Which new pages of a small file are packed into its delta nodes?
//!
//! A page without a block has no base either, so it is stored completely, compressed on its own. Several such pages
//! share one delta node next to the inode, which an fsync of a new file writes anyway; so the file takes fewer blocks
//! and one request less. A packed page has no block on the device, only a reservation.
//!
//! Pages that change again stay packed while they are short or share one node; otherwise they get blocks, which become
//! their bases. Large files are not packed: their nodes would be read one by one, while their blocks are read in one
//! request.

use device::energy::Work;
use format::delta::codec::{self, Codec};
use format::node::delta::{self as in_node, LONGEST_WHOLE};
use format::{Block, BlockAddr};

use super::encoded::Encoded;
use super::study::LONGEST;
use crate::cause::Cause;
use crate::delta::Deltas;
use crate::inode::Inode;
use crate::inode::luck::Luck;
use crate::node::index::Index;
use crate::node::map::{Lookup, addr_in};

/// Files with more blocks have no packed pages.
const MOST_BLOCKS: u64 = 16;

/// Number of nodes for entries of these sizes, including the root. An entry is not split.
fn nodes_for(entries: impl Iterator<Item = usize>) -> usize {
    let (mut nodes, mut left) = (0, 0);
    for bytes in entries {
        if bytes > left {
            left = if nodes == 0 { in_node::ROOT_CAPACITY } else { in_node::CAPACITY };
            nodes += 1;
        }
        left = left.saturating_sub(bytes);
    }
    nodes
}

/// Whether packing pages into entries of these sizes takes at least a quarter fewer blocks than writing them: a smaller
/// gain is lost by the root, which is written with each new node. `again`: all of them are already in the file's nodes,
/// so no new node and no inode are written for them.
fn pays(entries: &[usize], again: bool) -> bool {
    let nodes = nodes_for(entries.iter().copied());
    4 * nodes <= 3 * entries.len() || (again && nodes == entries.len())
}

impl Deltas {
    /// Entries for dirty pages without a block, if they take fewer blocks than the pages. The caller holds the inode's
    /// lock exclusively.
    pub(super) fn plan_packed(
        &self,
        inode: &Inode,
        luck: &mut Luck,
        known: &Index,
        dirty: &[(u64, &Block)],
    ) -> Vec<(u64, Encoded)> {
        let node = &inode.node;
        let mut out = Vec::new();
        if node.inode(|r| r.i_size.get()).div_ceil(4096) > MOST_BLOCKS {
            return out;
        }
        for &(index, page) in dirty {
            let Ok(Lookup::At(place)) = self.nodes.find(node, index) else { continue };
            let addr = {
                let bytes = place.node.read();
                addr_in(&self.ctx, &place.node, &bytes, place.slot)
            };
            if addr != BlockAddr::NEW {
                continue;
            }
            luck.spent += self.ctx.options.delta_costs.encode_pj;
            self.ctx.compute(Work::DeltaEncode, self.ctx.options.delta_costs.encode, Cause::DeltaEncode.of(node.ino));
            if let Some(payload) = codec::encode_alone(page, LONGEST_WHOLE) {
                // OK to cast: the file is small.
                let check = self.page_check(node, index as u32, page);
                out.push((index, Encoded::new(Codec::Alone, check, payload)));
            }
        }
        let again = |(index, _): &(u64, Encoded)| known.has(*index);
        let bytes = |out: &[(u64, Encoded)]| -> Vec<usize> {
            out.iter().map(|(_, e)| in_node::HEADER + e.payload.len()).collect()
        };
        if bytes(&out).iter().sum::<usize>() > in_node::ROOT_CAPACITY {
            // If these pages get blocks as bases, their next changes share a node.
            out.retain(|page| !again(page) || page.1.payload.len() <= LONGEST);
        }
        if !pays(&bytes(&out), out.iter().all(again)) {
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
        assert!(pays(&[1000; 3], false) && pays(&[2000; 4], false), "several to a node");
        assert!(!pays(&[2100; 4], false), "one to a node");
        assert!(!pays(&[3000, 3000, 3000, 3000, 3000, 500], false), "hardly any share one");
        assert!(!pays(&[100], false), "a node as large as the page's block");
        assert!(pays(&[100], true) && pays(&[3000], true), "the node is there");
    }

    #[test]
    fn an_entry_is_not_divided_among_nodes() {
        let nodes = |entries: &[usize]| nodes_for(entries.iter().copied());
        assert_eq!([nodes(&[]), nodes(&[in_node::ROOT_CAPACITY]), nodes(&[2012, 1000, 2012, 2012])], [0, 1, 2]);
        assert_eq!(nodes(&[2100, 2100, 1900, 300]), 3);
    }
}
