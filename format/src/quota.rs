//! The contents of a fresh quota file.
//!
//! Linux's format v1 of "vfsv1" (r1): blocks of 1 KiB; a header, a radix tree of four levels over the bytes of the
//! id, most significant first, and a leaf of entries.

use crate::{BLOCK, Block};

/// Bytes of a fresh quota file.
pub const FILE_BYTES: u64 = (BLOCKS * QUOTA_BLOCK) as u64;
/// 4 KiB blocks of a fresh quota file.
pub const FILE_BLOCKS: usize = (FILE_BYTES as usize).div_ceil(BLOCK);

const QUOTA_BLOCK: usize = 1024;
/// Header, four levels of tree, one leaf.
const BLOCKS: usize = 6;
const LEAF: usize = 5;
/// Seconds that a user may exceed a soft limit: a week.
const GRACE: u32 = 604_800;
const LEAF_HEADER: usize = 16;

/// Whose blocks a quota file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of users.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl Kind {
    /// All kinds, in the order of the superblock's `qf_ino`.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    fn magic(self) -> u32 {
        match self {
            Kind::User => 0xD9C0_1F11,
            Kind::Group => 0xD9C0_1927,
            Kind::Project => 0xD9C0_3F14,
        }
    }
}

/// The file's blocks, with one entry: `id` owns `inodes` inodes and `bytes` bytes.
pub fn fresh_file(kind: Kind, id: u32, inodes: u64, bytes: u64) -> Vec<Block> {
    let mut file = vec![[0u8; BLOCK]; FILE_BLOCKS];
    let flat = file.as_flattened_mut();
    let mut put = |at: usize, value: &[u8]| flat[at..at + value.len()].copy_from_slice(value);
    put(0, &kind.magic().to_le_bytes());
    put(4, &1u32.to_le_bytes());
    put(8, &GRACE.to_le_bytes());
    put(12, &GRACE.to_le_bytes());
    put(20, &(BLOCKS as u32).to_le_bytes());
    // Word 24, the first free block, is 0 (none). The leaf has room for more entries.
    put(28, &(LEAF as u32).to_le_bytes());
    // Tree block 1 is the root; each block leads to the next by one byte of the id.
    for (level, byte) in id.to_be_bytes().into_iter().enumerate() {
        let block = level + 1;
        put(block * QUOTA_BLOCK + usize::from(byte) * 4, &(block as u32 + 1).to_le_bytes());
    }
    let leaf = LEAF * QUOTA_BLOCK;
    put(leaf + 8, &1u16.to_le_bytes());
    let entry = leaf + LEAF_HEADER;
    put(entry, &id.to_le_bytes());
    put(entry + 24, &inodes.to_le_bytes());
    put(entry + 48, &bytes.to_le_bytes());
    file
}
