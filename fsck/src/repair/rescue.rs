//! Which blocks can be found although their pointer is damaged?
//!
//! Blocks record their owners: nodes in their footers, data blocks in the summaries. A checksum reveals a flipped
//! bit of an inode.

use std::collections::BTreeMap;

use format::inode::{self, RawInode};
use format::node::{self, NodeKind};
use format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, Nid, SegNo, bits};

use crate::FsckError;
use crate::kind::kind_of;
use crate::load::{Image, log_type};
use crate::report::Class;
use crate::report::Slot;
use crate::tables::class;
use crate::walk::Walked;

/// An unreachable node.
struct Node {
    /// The lower half of the footer's checkpoint version; the upper half is a checksum.
    version: u32,
    addr: BlockAddr,
    /// Its position in the file according to its footer.
    offset: u32,
}

/// Blocks that are valid in the SIT but unreached by the walk: nodes by footer, data by summary.
#[derive(Default)]
pub struct Unreached {
    nodes: BTreeMap<(Nid, Ino), Node>,
    data: BTreeMap<(Nid, u16), BlockAddr>,
    /// Inodes by their recorded directory and name.
    names: BTreeMap<(Ino, Vec<u8>), (Ino, u8)>,
}

impl Unreached {
    /// Searches the whole volume.
    pub fn search(img: &Image<'_>, walked: &Walked) -> Result<Self, FsckError> {
        let mut out = Unreached::default();
        for (&seg, entry) in &img.sit {
            let reached = walked.reached.segment(seg);
            if entry.map == reached {
                continue;
            }
            for off in 0..BLOCKS_PER_SEG as u16 {
                let i = usize::from(off);
                if bits::msb_test(&entry.map, i) && !bits::msb_test(&reached, i) {
                    out.add(img, walked, seg, off, entry.kind)?;
                }
            }
        }
        Ok(out)
    }

    fn add(&mut self, img: &Image<'_>, walked: &Walked, seg: SegNo, off: u16, kind: u16) -> Result<(), FsckError> {
        let addr = img.sb.seg_start(seg).plus(u32::from(off));
        let holds = walked.classes.get(&seg).copied().or(log_type(kind).map(class));
        if holds != Some(Class::Data) {
            let block = img.block(addr)?;
            let f = node::footer(&block);
            let raw = RawInode::of(&block);
            if f.nid == f.ino.nid()
                && img.nat(f.nid)?.addr == addr
                && let Some(kind) = kind_of(raw.i_mode.get())
            {
                self.names.insert((Ino(raw.i_pino.get()), raw.name().to_vec()), (f.ino, kind));
            }
            let known = self.nodes.get(&(f.nid, f.ino));
            let version = f.cp_ver as u32;
            if known.is_none_or(|known| known.version < version) {
                self.nodes.insert((f.nid, f.ino), Node { version, addr, offset: f.offset });
            }
        }
        if holds != Some(Class::Node)
            && let Some(s) = img.summary(seg, off)?
            && s.version == img.nat(s.nid)?.version
        {
            self.data.insert((s.nid, s.slot), addr);
        }
        Ok(())
    }

    /// True if the owner of an unreached node or data block is this inode.
    pub fn has_any_of(&self, ino: Ino) -> bool {
        let node = self.nodes.keys().any(|(nid, owner)| *owner == ino && *nid != ino.nid());
        node || self.data.range((ino.nid(), 0)..=(ino.nid(), u16::MAX)).next().is_some()
    }

    /// True if an unreached inode records this one as its parent.
    pub fn records_parent(&self, dir: Ino) -> bool {
        self.names.range((dir, Vec::new())..).next().is_some_and(|((parent, _), _)| *parent == dir)
    }

    /// Takes the unreached blocks whose summaries have slots of this inode itself, if the SIT's counts are right.
    pub fn blocks_of(&mut self, img: &Image<'_>, ino: Ino) -> Vec<(u16, BlockAddr)> {
        let right = |addr: BlockAddr| img.sb.locate(addr).is_some_and(|(seg, _)| has_right_count(img, seg));
        let of = self.data.range((ino.nid(), 0)..=(ino.nid(), u16::MAX));
        let blocks: Vec<_> = of.map(|((_, slot), addr)| (*slot, *addr)).filter(|(_, addr)| right(*addr)).collect();
        for (slot, _) in &blocks {
            self.data.remove(&(ino.nid(), *slot));
        }
        blocks
    }

    /// Unreached nodes of this inode: position in the file according to the footer, and address.
    pub fn nodes_of(&self, ino: Ino) -> impl Iterator<Item = (u32, BlockAddr)> + '_ {
        self.nodes.iter().filter(move |((_, owner), _)| *owner == ino).map(|(_, node)| (node.offset, node.addr))
    }

    /// Takes an unreached block with this node.
    pub fn node(&mut self, nid: Nid, ino: Ino) -> Option<BlockAddr> {
        self.nodes.remove(&(nid, ino)).map(|node| node.addr)
    }

    /// Nodes in SIT and summaries that the NAT lacks: the NAT has no block for their number, or one that is free in
    /// the SIT.
    pub fn unknown_to_nat(&self, img: &Image<'_>) -> Result<Vec<(Nid, Ino, BlockAddr)>, FsckError> {
        let mut out = Vec::new();
        for ((nid, ino), node) in &self.nodes {
            let lawful = |n: u32| (3..img.sb.max_nid()).contains(&n);
            let Some((seg, off)) = img.sb.locate(node.addr).filter(|_| lawful(nid.0) && lawful(ino.0)) else {
                continue;
            };
            let summary_agrees = img.summary(seg, off)?.is_none_or(|s| s.nid == *nid);
            if summary_agrees && has_right_count(img, seg) && !img.marked(img.nat(*nid)?.addr) {
                out.push((*nid, *ino, node.addr));
            }
        }
        // A block that the NAT has under another number belongs to that number, whatever its footer.
        if !out.is_empty() {
            for n in 0..img.sb.nat_blocks() {
                let known: Vec<_> = img.nat_live(n)?.into_iter().map(|(_, entry)| entry.addr).collect();
                out.retain(|(_, _, addr)| !known.contains(addr));
            }
        }
        Ok(out)
    }

    /// The unreached node of an inode with this footer offset, if it is still in the NAT.
    pub fn node_at(&self, img: &Image<'_>, ino: Ino, offset: u32) -> Result<Option<Nid>, FsckError> {
        for ((nid, _), node) in self.nodes.iter().filter(|((_, owner), _)| *owner == ino) {
            if node.offset == offset && img.nat(*nid)?.addr == node.addr {
                return Ok(Some(*nid));
            }
        }
        Ok(None)
    }

    /// Takes the unreached inode that records this name, with its dentry type.
    pub fn inode_named(&mut self, dir: Ino, name: &[u8]) -> Option<(Ino, u8)> {
        self.names.remove(&(dir, name.to_vec()))
    }

    /// True if the summary of an unreached block has this slot.
    pub fn has_data(&self, nid: Nid, slot: u16) -> bool {
        self.data.contains_key(&(nid, slot))
    }

    /// Every unreached data block with its slot.
    pub fn all_data(&self) -> impl Iterator<Item = (Nid, u16, BlockAddr)> + '_ {
        self.data.iter().map(|((nid, slot), addr)| (*nid, *slot, *addr))
    }

    /// Takes an unreached data block of this slot.
    pub fn data(&mut self, at: Slot) -> Option<BlockAddr> {
        self.data.remove(&(at.nid, u16::try_from(at.index).ok()?))
    }
}

/// True if the count in a segment's SIT entry matches its bits. If not, a bit may have flipped: an unreached block
/// of such a segment may be free.
pub fn has_right_count(img: &Image<'_>, seg: SegNo) -> bool {
    let entry = img.segment(seg);
    u32::from(entry.valid) == bits::count(&entry.map)
}

/// The inode block before one flipped bit, if its checksum proves that.
pub fn unflip(img: &Image<'_>, block: &Block) -> Option<Box<Block>> {
    let mut trial = Box::new(*block);
    for i in 0..trial.len() {
        for bit in 0..8 {
            trial[i] ^= 1 << bit;
            let sound = inode::has_checksum(img.sb.features, RawInode::of(&trial))
                && inode::verify_checksum(img.sb.features, img.seed, &trial).is_ok();
            if sound {
                return Some(trial);
            }
            trial[i] ^= 1 << bit;
        }
    }
    None
}

/// The place of the pointer to a node, by the node's footer offset.
pub enum Home {
    /// `i_xattr_nid`.
    Xattr,
    /// `i_nid[k]`.
    Inode(u32),
    /// Slot `index` of the node of the same file with footer offset `of`.
    Node { of: u32, index: u32 },
}

/// The home of the node at a footer offset; `None` if no node below an inode has this offset.
pub fn home(offset: u32) -> Option<Home> {
    let per = node::NIDS_PER_BLOCK + 1;
    let double = 3 + 2 * per;
    match node::kind_of(offset) {
        NodeKind::Inode | NodeKind::Delta | NodeKind::Nothing => return None,
        NodeKind::Xattr => return Some(Home::Xattr),
        _ => {}
    }
    Some(match offset {
        1 | 2 => Home::Inode(offset - 1),
        3 => Home::Inode(2),
        o if o < 3 + per => Home::Node { of: 3, index: o - 4 },
        o if o == 3 + per => Home::Inode(3),
        o if o < double => Home::Node { of: 3 + per, index: o - 4 - per },
        o if o == double => Home::Inode(4),
        o => match (o - double - 1) % per {
            0 => Home::Node { of: double, index: (o - double - 1) / per },
            k => Home::Node { of: o - k, index: k - 1 },
        },
    })
}
