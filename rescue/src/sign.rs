//! Is this block a node?
//!
//! A node describes itself in its footer: its own number, its inode's, its position in the file, and its
//! checkpoint. Each number has bounds, and the numbers must be consistent; an inode must also be valid as an inode.
//! A block that passes is only a candidate. Most nodes also reveal their own address, since the log continued with
//! the block behind them ([`Sign::located`]); contents that look like nodes, such as an image inside a file, do
//! not.

use format::inode::{Inline, RawInode, extra_end};
use format::node::{self, NodeKind};
use format::{Block, BlockAddr, Ino, Nid};

/// Fields in a node's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// Its number.
    pub nid: Nid,
    /// Its inode.
    pub ino: Ino,
    /// Its position in the file.
    pub offset: u32,
    /// Its checkpoint version.
    pub version: u32,
    /// The next block of its log.
    pub next: BlockAddr,
}

/// Smallest number of a node in the main area: 1 and 2 are the node inode and the meta inode.
const FIRST_NID: u32 = 3;
/// Upper bound of node numbers on any volume.
const MOST_NIDS: u32 = 1 << 30;

impl Sign {
    /// The footer of a block, if it can be a node.
    pub fn read(block: &Block) -> Option<Sign> {
        let f = node::footer(block);
        let lawful = |n: u32| (FIRST_NID..MOST_NIDS).contains(&n);
        if !lawful(f.nid.0) || !lawful(f.ino.0) || f.cp_ver == 0 {
            return None;
        }
        let is_inode = f.nid == f.ino.nid();
        let fits = match node::kind_of(f.offset) {
            NodeKind::Inode => is_inode && is_inode_block(RawInode::of(block)),
            NodeKind::Nothing => false,
            _ => !is_inode,
        };
        // The upper half is the checkpoint's checksum.
        let version = f.cp_ver as u32;
        fits.then_some(Sign { nid: f.nid, ino: f.ino, offset: f.offset, version, next: f.next })
    }

    /// True if it is an inode.
    pub fn is_inode(&self) -> bool {
        self.nid == self.ino.nid()
    }

    /// True if its next address implies that it lies at `at`: a log continues with the adjacent block.
    pub fn located(&self, at: BlockAddr) -> bool {
        self.next == at.plus(1)
    }
}

/// The dentry type of a mode.
pub fn kind_of_mode(mode: u16) -> Option<u8> {
    Some(match mode & 0o170_000 {
        0o100_000 => 1,
        0o040_000 => 2,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        0o120_000 => 7,
        _ => return None,
    })
}

fn is_inode_block(raw: &RawInode) -> bool {
    let extra = raw.extra_isize();
    let extra_fits = !raw.inline().contains(Inline::EXTRA_ATTR)
        || (4..=u32::from(format::inode::EXTRA_FULL)).contains(&extra) && extra.is_multiple_of(4);
    kind_of_mode(raw.i_mode.get()).is_some()
        && extra_fits
        && raw.i_namelen.get() <= format::inode::NAME_LEN as u32
        && raw.i_size.get() < 1 << 44
        && (0..5).all(|k| raw.nid(k).0 < MOST_NIDS)
        && raw.i_xattr_nid.get() < MOST_NIDS
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut c = n as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 };
            bit += 1;
        }
        table[n] = c;
        n += 1;
    }
    table
}

const fn by_top_byte(table: [u32; 256]) -> [u8; 256] {
    let mut by = [0; 256];
    let mut n = 0;
    while n < 256 {
        by[(table[n] >> 24) as usize] = n as u8;
        n += 1;
    }
    by
}

static CRC: [u32; 256] = crc_table();
/// Index of the entry of [`CRC`] with a given top byte; top bytes are unique.
static BY_TOP_BYTE: [u8; 256] = by_top_byte(crc_table());

/// The register before `bytes` were processed, given the register after.
fn crc_before(after: u32, bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(after, |c, &byte| {
        let entry = BY_TOP_BYTE[(c >> 24) as usize];
        (c ^ CRC[usize::from(entry)]) << 8 | u32::from(entry ^ byte)
    })
}

/// The seed under which an inode's checksum is valid, if such an inode may have a checksum. It is the same for all
/// inodes of a volume, and is computed without the volume's UUID.
pub fn checksum_seed(block: &Block) -> Option<u32> {
    let raw = RawInode::of(block);
    let extra = raw.extra().filter(|_| raw.extra_isize() >= extra_end::CHECKSUM)?;
    let at = format::inode::ADDR_OFFSET + 8;
    let sum = extra.i_inode_checksum.get();
    let parts = [&raw.footer.ino.get().to_le_bytes()[..], &raw.i_generation.get().to_le_bytes(), &block[..at], &[0; 4]];
    let before = crc_before(sum, &block[at + 4..]);
    (sum != 0).then(|| parts.iter().rev().fold(before, |c, part| crc_before(c, part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_checksum_is_found_from_an_inode_alone() {
        let mut block: Block = std::array::from_fn(|i| (i * 7 % 251) as u8);
        let raw = RawInode::of_mut(&mut block);
        raw.i_inline = Inline::EXTRA_ATTR.bits();
        raw.i_addr[0] = 24.into();
        let sum = format::inode::checksum(0x1234_5678, &block);
        RawInode::of_mut(&mut block).extra_mut().unwrap().i_inode_checksum = sum.into();
        assert_eq!(checksum_seed(&block), Some(0x1234_5678));
    }

    #[test]
    fn blocks_of_one_byte_are_no_nodes() {
        for byte in 0..=255 {
            assert_eq!(Sign::read(&[byte; 4096]), None, "{byte:#x}");
        }
    }
}
