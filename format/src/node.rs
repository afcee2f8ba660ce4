//! Node blocks: the footer of every node, direct and indirect nodes, and the shape of the tree that maps a file's
//! blocks.

pub mod delta;
pub mod kept;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, BlockAddr, Ino, Nid};

/// Block addresses in a direct node.
pub const ADDRS_PER_BLOCK: u32 = 1018;
/// Node numbers in an indirect node.
pub const NIDS_PER_BLOCK: u32 = 1018;
/// Offset of the footer in a node block.
pub const FOOTER: usize = 4072;
/// `ofs_of_node` of the node that holds extended attributes (kernel `XATTR_NODE_OFFSET`, truncated to the footer's
/// 29 bits).
pub const XATTR_NODE_OFFSET: u32 = 0x1FFF_FFFF;

const COLD_BIT: u32 = 1;
const FSYNC_BIT: u32 = 2;
const DENT_BIT: u32 = 4;

/// The last 24 bytes of every node (`node_footer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNodeFooter {
    /// The node's own number.
    pub nid: U32,
    /// The inode it belongs to.
    pub ino: U32,
    /// Bit 0 cold, 1 fsync, 2 dentry, 3.. offset in the file's node tree.
    pub flag: U32,
    /// Checkpoint version it was written under, with that checkpoint's CRC in the upper half.
    pub cp_ver: U64,
    /// The free block of the log that follows this node in allocation order.
    pub next_blkaddr: U32,
}
const _: () = assert!(size_of::<RawNodeFooter>() == 24);

/// A node's footer with our field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The node's own number.
    pub nid: Nid,
    /// The inode it belongs to.
    pub ino: Ino,
    /// Set for every node that does not belong to a directory.
    pub cold: bool,
    /// Written by fsync: roll-forward replays it.
    pub fsync: bool,
    /// Roll-forward must restore its name.
    pub dentry: bool,
    /// Position in the file's node tree, 29 bits; 0 is the inode.
    pub offset: u32,
    /// Checkpoint version | CRC << 32.
    pub cp_ver: u64,
    /// Next block in the node chain.
    pub next: BlockAddr,
}

/// Reads a node's footer; every bit pattern is valid.
pub fn footer(block: &Block) -> Footer {
    // OK to unwrap: the slice is exactly the footer's 24 bytes.
    let r = RawNodeFooter::ref_from_bytes(&block[FOOTER..]).unwrap();
    let flag = r.flag.get();
    Footer {
        nid: Nid(r.nid.get()),
        ino: Ino(r.ino.get()),
        cold: flag & COLD_BIT != 0,
        fsync: flag & FSYNC_BIT != 0,
        dentry: flag & DENT_BIT != 0,
        offset: flag >> 3,
        cp_ver: r.cp_ver.get(),
        next: BlockAddr(r.next_blkaddr.get()),
    }
}

/// Writes a node's footer.
pub fn set_footer(block: &mut Block, f: &Footer) {
    let flag = (f.offset << 3)
        | if f.cold { COLD_BIT } else { 0 }
        | if f.fsync { FSYNC_BIT } else { 0 }
        | if f.dentry { DENT_BIT } else { 0 };
    let raw = RawNodeFooter {
        nid: f.nid.0.into(),
        ino: f.ino.0.into(),
        flag: flag.into(),
        cp_ver: f.cp_ver.into(),
        next_blkaddr: f.next.0.into(),
    };
    block[FOOTER..].copy_from_slice(raw.as_bytes());
}

/// Word `i` of a direct or indirect node (0..1018); 0 past the end.
#[inline]
pub fn word(block: &Block, i: usize) -> u32 {
    let at = i.min(ADDRS_PER_BLOCK as usize) * 4;
    match block.get(at..at + 4) {
        Some(b) if i < ADDRS_PER_BLOCK as usize => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        _ => 0,
    }
}

/// Writes word `i` of a direct or indirect node; does nothing past the end.
#[inline]
pub fn set_word(block: &mut Block, i: usize, value: u32) {
    if i < ADDRS_PER_BLOCK as usize {
        block[i * 4..i * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// The path from an inode to the address slot of one file block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePath {
    /// Nodes below the inode: 0 (slot in the inode) to 3 (double indirect).
    pub depth: usize,
    /// `slots[0]` is an index into `i_nid` (or, at depth 0, the address slot past the inode's base);
    /// `slots[k]` an index into the k-th node below the inode. The last is the address slot.
    pub slots: [u32; 4],
    /// Node offsets (footer numbering) of the nodes below the inode, `offsets[k - 1]` for the k-th.
    pub offsets: [u32; 3],
}

/// Number of file blocks that the inode and each direct node of one file address. Computed by
/// [`crate::inode::RawInode::shape`]: compressed files use fewer slots of their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Addresses in the inode.
    pub direct_slots: u32,
    /// Addresses in a direct node, at most [`ADDRS_PER_BLOCK`].
    pub per_node: u32,
}

impl Shape {
    /// The shape of an uncompressed file with `direct_slots` addresses in its inode.
    #[inline]
    pub fn plain(direct_slots: u32) -> Shape {
        Shape { direct_slots, per_node: ADDRS_PER_BLOCK }
    }

    /// File blocks mapped by one node `level` levels above the direct nodes (0: a direct node).
    #[inline]
    pub fn span(self, level: u32) -> u64 {
        u64::from(self.per_node) * u64::from(NIDS_PER_BLOCK).pow(level.min(2))
    }

    /// Largest number of blocks of such a file.
    pub fn max_blocks(self) -> u64 {
        u64::from(self.direct_slots) + 2 * self.span(0) + 2 * self.span(1) + self.span(2)
    }

    /// The path to file block `index`; `None` past the double indirect limit.
    #[inline]
    pub fn path(self, index: u64) -> Option<NodePath> {
        let (n, per) = (u64::from(NIDS_PER_BLOCK), u64::from(self.per_node));
        let p = |depth, slots, offsets| Some(NodePath { depth, slots, offsets });
        let mut i = index;
        if i < u64::from(self.direct_slots) {
            return p(0, [i as u32, 0, 0, 0], [0; 3]);
        }
        i -= u64::from(self.direct_slots);
        for k in 0..2u32 {
            if i < per {
                return p(1, [k, i as u32, 0, 0], [1 + k, 0, 0]);
            }
            i -= per;
        }
        for k in 0..2u32 {
            if i < n * per {
                let (d, s) = ((i / per) as u32, (i % per) as u32);
                let at = 3 + k * (NIDS_PER_BLOCK + 1);
                return p(2, [2 + k, d, s, 0], [at, at + 1 + d, 0]);
            }
            i -= n * per;
        }
        if i < n * n * per {
            let (a, b, s) = ((i / (n * per)) as u32, (i / per % n) as u32, (i % per) as u32);
            let at = 5 + 2 * NIDS_PER_BLOCK;
            let ind = at + 1 + a * (NIDS_PER_BLOCK + 1);
            return p(3, [4, a, b, s], [at, ind, ind + 1 + b]);
        }
        None
    }

    /// Kind of the node at footer offset `offset`.
    pub fn kind_of(self, offset: u32) -> NodeKind {
        let (n, per_node) = (u64::from(NIDS_PER_BLOCK), u64::from(self.per_node));
        // The index of a direct node among all direct nodes of the file.
        let direct = |number: u64| NodeKind::Direct { first: number * per_node };
        let per = NIDS_PER_BLOCK + 1;
        match offset {
            XATTR_NODE_OFFSET => NodeKind::Xattr,
            _ if delta::number(offset).is_some() => NodeKind::Delta,
            0 => NodeKind::Inode,
            1 | 2 => direct(u64::from(offset - 1)),
            _ => {
                let o = offset - 3;
                if o < 2 * per {
                    let (k, d) = (o / per, o % per);
                    return match d {
                        0 => NodeKind::Indirect,
                        d => direct(2 + u64::from(k) * n + u64::from(d - 1)),
                    };
                }
                let o = o - 2 * per;
                if o == 0 {
                    return NodeKind::DoubleIndirect;
                }
                let (a, b) = ((o - 1) / per, (o - 1) % per);
                if a >= NIDS_PER_BLOCK {
                    return NodeKind::Nothing;
                }
                match b {
                    0 => NodeKind::Indirect,
                    b => direct(2 + 2 * n + u64::from(a) * n + u64::from(b - 1)),
                }
            }
        }
    }
}

/// Largest number of blocks of an uncompressed file, given the direct slots of its inode.
pub fn max_blocks(direct_slots: u32) -> u64 {
    Shape::plain(direct_slots).max_blocks()
}

/// The path to file block `index` of an uncompressed file whose inode has `direct_slots` addresses. `None` past the
/// double indirect limit.
#[inline]
pub fn path(index: u64, direct_slots: u32) -> Option<NodePath> {
    Shape::plain(direct_slots).path(index)
}

/// Kind of the node at footer offset `offset` of an uncompressed file.
pub fn kind_of(offset: u32) -> NodeKind {
    Shape::plain(0).kind_of(offset)
}

/// Kind of node at a footer offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The inode itself.
    Inode,
    /// A direct node; the file block of its first slot is `direct_slots + first`.
    Direct {
        /// File block of slot 0, counted from the end of the inode's own slots.
        first: u64,
    },
    /// An indirect node (its children are direct nodes).
    Indirect,
    /// The double indirect node.
    DoubleIndirect,
    /// The node of extended attributes.
    Xattr,
    /// A delta node ([`delta`]), on a volume with deltas.
    Delta,
    /// No node has this offset.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_every_direct_node_on_a_path_names_its_first_block() {
        let direct = 923;
        for index in (0..max_blocks(direct)).step_by(104_729 * 97).chain(0..5_000_000) {
            let p = path(index, direct).unwrap();
            if p.depth > 0 {
                let NodeKind::Direct { first } = kind_of(p.offsets[p.depth - 1]) else {
                    panic!("block {index}: not a direct node: {p:?}");
                };
                assert_eq!(u64::from(direct) + first + u64::from(p.slots[p.depth]), index);
            }
        }
        assert_eq!(path(max_blocks(direct), direct), None);
    }
}
