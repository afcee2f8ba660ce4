//! What can be found again that a damaged pointer no longer leads to?
//!
//! Blocks say themselves who owns them: nodes in their footers, data through the summaries. Checksums
//! say which bit of an inode was flipped.

use std::collections::BTreeMap;

use format::inode::{self, RawInode};
use format::node::{self, NodeKind};
use format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, Nid, SegNo, bits};

use crate::fsck::FsckError;
use crate::fsck::load::{Image, log_type};
use crate::fsck::report::Class;
use crate::fsck::report::Slot;
use crate::fsck::tables::class;
use crate::fsck::walk::Walked;

/// Blocks that are marked valid but that nothing leads to, by who they say they are.
#[derive(Default)]
pub struct Strays {
    nodes: BTreeMap<(Nid, Ino), (u64, BlockAddr)>,
    data: BTreeMap<(Nid, u16), BlockAddr>,
}

impl Strays {
    /// Searches the whole volume.
    pub fn search(img: &Image<'_>, walked: &Walked) -> Result<Self, FsckError> {
        let mut out = Strays::default();
        for (&seg, entry) in &img.sit {
            let reached = walked.reached.of(seg);
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
            let f = node::footer(&*img.block(addr)?);
            let known = self.nodes.get(&(f.nid, f.ino));
            if known.is_none_or(|(ver, _)| *ver < f.cp_ver) {
                self.nodes.insert((f.nid, f.ino), (f.cp_ver, addr));
            }
        }
        if holds != Some(Class::Node)
            && let Some(s) = img.summary(seg, off)?
        {
            self.data.insert((s.nid, s.slot), addr);
        }
        Ok(())
    }

    /// A stray block that is this node.
    pub fn node(&mut self, nid: Nid, ino: Ino) -> Option<BlockAddr> {
        self.nodes.remove(&(nid, ino)).map(|(_, addr)| addr)
    }

    /// A stray data block of this slot.
    pub fn data(&mut self, at: Slot) -> Option<BlockAddr> {
        self.data.remove(&(at.nid, u16::try_from(at.index).ok()?))
    }
}

/// The inode block as it was before one bit flipped, if its checksum proves that.
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

/// Where the pointer to a node belongs, by the node's footer offset.
pub enum Home {
    /// `i_xattr_nid`.
    Xattr,
    /// `i_nid[k]`.
    Inode(u32),
    /// Slot `index` of the node of the same file with footer offset `of`.
    Node { of: u32, index: u32 },
}

/// The home of the node at a footer offset; `None` for offsets no node below an inode has.
pub fn home(offset: u32) -> Option<Home> {
    let per = node::NIDS_PER_BLOCK + 1;
    let double = 3 + 2 * per;
    match node::kind_of(offset) {
        NodeKind::Inode | NodeKind::Nothing => return None,
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
