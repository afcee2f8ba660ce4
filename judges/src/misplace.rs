//! What if a whole block differs from what was written? A block is copied over another, swapped with it, emptied,
//! shifted by some bytes, torn at a sector or filled with noise, as by a device that loses a write or sends it to the
//! wrong place.
//!
//! Left out: single fields and bits (`forge`, `damage`), and the code that must survive it (the tests).

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};
use format::superblock::SuperBlock;
use format::{Block, inode, node};

use crate::damage::{Targets, block};

/// Size of a device's atomic write.
const SECTOR: usize = 512;

/// Nodes and directories are the most effective; tables have a second copy.
const KINDS: &[&str] = &["node", "node", "node", "node", "dentry", "dentry", "NAT", "SIT", "SSA", "checkpoint"];

/// Damages whole blocks.
pub struct Misplacer {
    sb: SuperBlock,
    seed: u32,
    kinds: Vec<(&'static str, Vec<u64>)>,
    /// Every nonempty block.
    filled: Vec<u64>,
}

impl Misplacer {
    /// For copies of this volume.
    ///
    /// # Panics
    /// If it is not a volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&block(mem, 0)).expect("an undamaged volume");
        let mut kinds: Vec<(&'static str, Vec<u64>)> = Vec::new();
        for (kind, at) in Targets::of(mem).all() {
            match kinds.last_mut().filter(|(last, _)| *last == kind) {
                Some((_, blocks)) => blocks.push(at),
                None => kinds.push((kind, vec![at])),
            }
        }
        let filled = (0..mem.blocks()).filter(|at| block(mem, *at).iter().any(|b| *b != 0)).collect();
        Misplacer { seed: inode::checksum_seed(&sb.uuid), sb, kinds, filled }
    }

    /// Damages one block; returns a description.
    ///
    /// # Panics
    /// If the image is not a copy of the volume.
    pub fn misplace(&self, mem: &Memory, rng: &mut Rng) -> String {
        let kind = KINDS[rng.index(KINDS.len())];
        let at = self.one_of(kind, rng);
        let from = match rng.index(3) {
            0 => self.filled[rng.index(self.filled.len())],
            1 => self.one_of("node", rng),
            _ => self.one_of(kind, rng),
        };
        let (was, other) = (block(mem, at), block(mem, from));
        let mut bytes = was.clone();
        let how = match rng.index(8) {
            0 => {
                bytes.fill(0);
                "zeroed".into()
            }
            1 => {
                self.write(mem, from, &was);
                *bytes = *other;
                format!("swapped with {from}")
            }
            2 => {
                let by = 1 + rng.index(BLOCK - 1);
                bytes.rotate_right(by);
                bytes[..by].fill(0);
                format!("shifted by {by} bytes")
            }
            3 => {
                let by = 4 * (1 + rng.index(64));
                bytes.rotate_left(by);
                format!("rotated by {by} bytes")
            }
            4 => {
                let end = SECTOR * (1 + rng.index(BLOCK / SECTOR - 1));
                bytes[..end].copy_from_slice(&other[..end]);
                format!("first {end} bytes are those of {from}")
            }
            5 => {
                rng.fill(&mut bytes[..]);
                "noise".into()
            }
            // The footer makes it look like the original node.
            6 => {
                bytes[..node::FOOTER].copy_from_slice(&other[..node::FOOTER]);
                self.seal(&mut bytes, rng);
                format!("all but the footer is {from}'s")
            }
            _ => {
                *bytes = *other;
                format!("is {from}")
            }
        };
        self.write(mem, at, &bytes);
        format!("{kind} block {at} {how}")
    }

    fn one_of(&self, kind: &str, rng: &mut Rng) -> u64 {
        let blocks = self.kinds.iter().find(|(k, _)| *k == kind).map_or(&self.filled, |(_, blocks)| blocks);
        blocks[rng.index(blocks.len())]
    }

    /// Half of the inodes get a valid checksum.
    fn seal(&self, bytes: &mut Block, rng: &mut Rng) {
        let footer = node::footer(bytes);
        if footer.nid == footer.ino.nid() && rng.chance(1, 2) {
            inode::seal(self.sb.features, self.seed, bytes);
        }
    }

    fn write(&self, mem: &Memory, at: u64, bytes: &Block) {
        mem.write(Lba(at), bytes, Tag::default()).expect("a block of the image");
    }
}
