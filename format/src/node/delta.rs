//! Delta nodes: deltas of a file that do not fit its inode.
//!
//! On a volume with [`Features::DELTA`](crate::superblock::Features::DELTA) a regular file may have up to
//! [`MOST_NODES`] nodes of this kind. Their footers have the offsets from [`FIRST_OFFSET`] on. The inode points to
//! the first one, the *root* ([`root`](crate::delta::root)), which lists the others.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | checksum over volume, inode, node and everything up to the footer |
//! | 4..6 | bytes of entries |
//! | 6..8 | number of entries |
//! | 8 | version |
//! | 9 | in the root: how many other nodes there are |
//! | 10..12 | 0 |
//! | 12..16 | age, less than 2^32 - 1: of two entries for one block, that in the node of the higher age counts |
//! | 16..48 | [`Stamp`]: size, times of modification and change, their nanoseconds |
//! | 48.. | in the root: numbers of the others, 0 for one that is not there; then, in all, the entries |
//! | 4072.. | footer |
//!
//! An entry is a file block, u32; the length of its payload, u16; codec, u8; 0; [`check`](crate::delta::check) of
//! the page that results from base and payload, u32; the payload. The base is the block at the file block's
//! address. Some codecs have no base ([`Codec::has_base`]). Some entries are not contents of the file, but pages
//! from which such blocks are assembled ([`super::kept`]).
//!
//! The stamp counts if roll-forward replays a node with an fsync mark: then the inode itself was not written.
//!
//! Left out: which page becomes a delta, and reading bases.

use super::FOOTER;
use crate::delta::Codec;
use crate::{Block, FormatError, Ino, Nid, crc};

/// Footer offset of a root; the others follow it.
pub const FIRST_OFFSET: u32 = 0x1FFF_0000;
/// Most delta nodes of one file, root included.
pub const MOST_NODES: usize = 192;
/// The first block number used as the id of a kept page ([`super::kept`]). No file has so many blocks.
pub const KEPT: u32 = 1 << 31;
/// Longest payload of an entry with a base: half a page. Writers use a lower limit.
pub const LONGEST: usize = 2048;
/// Longest payload of an entry without a base: it fits an empty root.
pub const LONGEST_WHOLE: usize = ROOT_CAPACITY - HEADER;
/// Bytes of an entry without its payload.
pub const HEADER: usize = 12;
/// Most bytes of entries in a root, so that its list of the other nodes always has room.
pub const ROOT_CAPACITY: usize = FOOTER - HEAD - 4 * (MOST_NODES - 1);
/// Bytes for entries in a node that is not a root.
pub const CAPACITY: usize = FOOTER - HEAD;
const HEAD: usize = 48;
const VERSION: u8 = 1;

/// Fields of an inode, besides contents, that fsync makes durable and that change at each fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Size of the file in bytes.
    pub size: u64,
    /// Time of the last change of contents: seconds, nanoseconds.
    pub mtime: (u64, u32),
    /// Time of the last change of the inode: seconds, nanoseconds.
    pub ctime: (u64, u32),
}

/// One page's delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file block whose address leads to the base.
    pub block: u32,
    /// Encoding of the payload.
    pub codec: Codec,
    /// [`check`](crate::delta::check) of the page that results from base and payload.
    pub check: u32,
    /// The difference.
    pub payload: &'a [u8],
}

impl Entry<'_> {
    /// Size of the entry in bytes.
    pub fn bytes(&self) -> usize {
        HEADER + self.payload.len()
    }
}

/// Longest payload of an entry for this block and codec.
pub fn longest(block: u32, codec: Codec) -> usize {
    if codec.has_base() && block < KEPT { LONGEST } else { LONGEST_WHOLE }
}

/// Index of a file's delta node, by its footer offset.
pub fn number(offset: u32) -> Option<usize> {
    let n = offset.wrapping_sub(FIRST_OFFSET) as usize;
    (n < MOST_NODES).then_some(n)
}

fn u16_at(block: &Block, at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}
fn u32_at(block: &Block, at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}
fn u64_at(block: &Block, at: usize) -> u64 {
    u64::from(u32_at(block, at)) | u64::from(u32_at(block, at + 4)) << 32
}

/// Offset of the first entry.
fn start(block: &Block) -> usize {
    HEAD + 4 * usize::from(block[9]).min(MOST_NODES)
}

/// Iterator over entries; stops at the first incomplete one.
#[derive(Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;
    fn next(&mut self) -> Option<Entry<'a>> {
        let (h, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let (payload, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([h[4], h[5]])))?;
        let codec = Codec::from_number(h[6])?;
        self.rest = rest;
        let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        Some(Entry { block: word(0), codec, check: word(8), payload })
    }
}

/// A node's entries, the oldest first.
pub fn entries(block: &Block) -> Entries<'_> {
    let from = start(block);
    let to = (from + usize::from(u16_at(block, 4))).min(FOOTER);
    Entries { rest: &block[from..to] }
}

/// The entry for one file block.
pub fn find(block: &Block, file_block: u32) -> Option<Entry<'_>> {
    entries(block).find(|e| e.block == file_block)
}

/// Bytes for entries in a node.
pub fn capacity(block: &Block) -> usize {
    FOOTER - start(block)
}

/// Bytes that entries occupy.
pub fn used(block: &Block) -> usize {
    usize::from(u16_at(block, 4))
}

/// A node's age.
pub fn age(block: &Block) -> u32 {
    u32_at(block, 12)
}

/// Changes a node's age.
pub fn set_age(block: &mut Block, age: u32) {
    block[12..16].copy_from_slice(&age.to_le_bytes());
}

/// The inode fields recorded in a node.
pub fn stamp(block: &Block) -> Stamp {
    Stamp {
        size: u64_at(block, 16),
        mtime: (u64_at(block, 24), u32_at(block, 40)),
        ctime: (u64_at(block, 32), u32_at(block, 44)),
    }
}

/// Sets the inode fields recorded in a node.
pub fn set_stamp(block: &mut Block, stamp: &Stamp) {
    block[16..24].copy_from_slice(&stamp.size.to_le_bytes());
    block[24..32].copy_from_slice(&stamp.mtime.0.to_le_bytes());
    block[32..40].copy_from_slice(&stamp.ctime.0.to_le_bytes());
    block[40..44].copy_from_slice(&stamp.mtime.1.to_le_bytes());
    block[44..48].copy_from_slice(&stamp.ctime.1.to_le_bytes());
}

/// The other delta nodes that a root lists, with their indices.
pub fn other_nodes(root: &Block) -> impl Iterator<Item = (usize, Nid)> + '_ {
    let count = usize::from(root[9]).min(MOST_NODES - 1);
    (0..count).map(|i| (i + 1, Nid(u32_at(root, HEAD + 4 * i)))).filter(|(_, nid)| *nid != Nid(0))
}

/// Records in a root that the file's delta node with index `number` (not 0) is `nid`, or with 0 that there is none.
/// Returns false and changes nothing if the root's entries leave no room for that.
pub fn set_other(root: &mut Block, number: usize, nid: Nid) -> bool {
    let (old, used) = (usize::from(root[9]).min(MOST_NODES - 1), used(root));
    let count = old.max(number);
    if number == 0 || number >= MOST_NODES || HEAD + 4 * count + used > FOOTER {
        return false;
    }
    let from = start(root);
    root.copy_within(from..from + used, HEAD + 4 * count);
    root[HEAD + 4 * old..HEAD + 4 * count].fill(0);
    root[9] = count as u8;
    root[HEAD + 4 * (number - 1)..HEAD + 4 * number].copy_from_slice(&nid.0.to_le_bytes());
    true
}

/// Initializes an empty delta node in a block whose footer is set.
pub fn init(block: &mut Block) {
    block[..FOOTER].fill(0);
    block[8] = VERSION;
}

/// Keeps the entries that `keep` accepts, and appends new ones. Returns false and changes nothing if there is no
/// room.
pub fn rewrite(block: &mut Block, mut keep: impl FnMut(&Entry<'_>) -> bool, new: &[Entry<'_>]) -> bool {
    let mut bytes = Vec::with_capacity(capacity(block));
    let mut count = 0_u16;
    let mut push = |e: &Entry<'_>| {
        bytes.extend_from_slice(&e.block.to_le_bytes());
        bytes.extend_from_slice(&(e.payload.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[e.codec.number(), 0]);
        bytes.extend_from_slice(&e.check.to_le_bytes());
        bytes.extend_from_slice(e.payload);
        count += 1;
    };
    entries(block).filter(|e| keep(e)).for_each(|e| push(&e));
    new.iter().for_each(push);
    if bytes.len() > capacity(block) || new.iter().any(|e| e.payload.len() > longest(e.block, e.codec)) {
        return false;
    }
    let from = start(block);
    block[from..from + bytes.len()].copy_from_slice(&bytes);
    block[from + bytes.len()..FOOTER].fill(0);
    block[4..6].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
    block[6..8].copy_from_slice(&count.to_le_bytes());
    true
}

/// Copies everything in a node except the list of other nodes. Returns false and changes nothing if that leaves no
/// room for the entries.
pub fn copy(to: &mut Block, from: &Block) -> bool {
    let new: Vec<Entry<'_>> = entries(from).collect();
    let fits = rewrite(to, |_| false, &new);
    if fits {
        set_age(to, age(from));
        set_stamp(to, &stamp(from));
    }
    fits
}

fn checksum(seed: u32, block: &Block) -> u32 {
    let f = super::footer(block);
    let c = crc::crc32(seed, &f.ino.0.to_le_bytes());
    let c = crc::crc32(c, &f.nid.0.to_le_bytes());
    crc::crc32(c, &block[4..FOOTER])
}

/// Stores a node's checksum. `seed` is the volume's seed of inode checksums.
pub fn seal(seed: u32, block: &mut Block) {
    let sum = checksum(seed, block);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Checks a whole node: its checksum, that each entry is complete and the only one here for its block, and the
/// counts. Checking the resulting page requires the base.
///
/// # Errors
/// The first fault.
pub fn verify(seed: u32, block: &Block) -> Result<(), FormatError> {
    let bad = |field, value: u64, must| Err(FormatError::Field { structure: "delta node", field, value, must });
    let (stored, computed) = (u32_at(block, 0), checksum(seed, block));
    if stored != computed {
        return Err(FormatError::Checksum { structure: "delta node", stored, computed });
    }
    if block[8] != VERSION || block[10..12] != [0; 2] {
        return bad("version", block[8].into(), "1");
    }
    if usize::from(block[9]) >= MOST_NODES {
        return bad("nodes", block[9].into(), "fewer than 192");
    }
    if age(block) == u32::MAX {
        return bad("age", age(block).into(), "one that a later node can exceed");
    }
    if used(block) > capacity(block) {
        return bad("bytes of entries", used(block) as u64, "what the node has room for");
    }
    let mut walk = entries(block);
    let mut seen: Vec<u32> = walk.by_ref().map(|e| e.block).collect();
    if !walk.rest.is_empty() {
        return bad("entries", walk.rest.len() as u64, "whole");
    }
    if seen.len() != usize::from(u16_at(block, 6)) {
        return bad("number of entries", seen.len() as u64, "what the head says");
    }
    if let Some(e) = entries(block).find(|e| e.payload.len() > longest(e.block, e.codec)) {
        return bad("entries", e.payload.len() as u64, "no longer than their kind may be");
    }
    seen.sort_unstable();
    if let Some(pair) = seen.windows(2).find(|w| w[0] == w[1]) {
        return bad("entries", pair[0].into(), "one for each block");
    }
    Ok(())
}

/// The inode recorded in a delta node and the node's index, if its footer has the offset of a delta node.
pub fn owner(block: &Block) -> Option<(Ino, usize)> {
    let f = super::footer(block);
    Some((f.ino, number(f.offset)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockAddr;
    use crate::node::{Footer, set_footer};

    fn node(offset: u32) -> Box<Block> {
        let mut b = Box::new([0; 4096]);
        let f = Footer {
            nid: Nid(9),
            ino: Ino(7),
            cold: true,
            fsync: false,
            dentry: false,
            offset,
            cp_ver: 0,
            next: BlockAddr(0),
        };
        set_footer(&mut b, &f);
        init(&mut b);
        b
    }

    fn entry(block: u32, payload: &[u8]) -> Entry<'_> {
        Entry { block, codec: Codec::Runs, check: block ^ 0xABCD, payload }
    }

    #[test]
    fn entries_and_the_list_of_nodes_keep_out_of_each_others_way() {
        let mut b = node(FIRST_OFFSET);
        assert!(rewrite(&mut b, |_| true, &[entry(5, b"five"), entry(1_000_000_000, b"far")]));
        assert!(set_other(&mut b, 3, Nid(33)));
        assert!(set_other(&mut b, 1, Nid(11)));
        assert!(rewrite(&mut b, |e| e.block != 5, &[entry(6, &[1; LONGEST])]));
        assert!(set_other(&mut b, MOST_NODES - 1, Nid(63)));
        assert_eq!(other_nodes(&b).collect::<Vec<_>>(), [(1, Nid(11)), (3, Nid(33)), (MOST_NODES - 1, Nid(63))]);
        let found: Vec<(u32, usize)> = entries(&b).map(|e| (e.block, e.payload.len())).collect();
        assert_eq!(found, [(1_000_000_000, 3), (6, LONGEST)]);
        seal(1, &mut b);
        verify(1, &b).unwrap();
        assert!(verify(2, &b).is_err(), "another volume");
    }

    #[test]
    fn what_has_no_room_changes_nothing() {
        let mut b = node(FIRST_OFFSET);
        let fill: Vec<Entry<'_>> = (0..4).map(|i| entry(i, &[7; LONGEST / 5 * 2])).collect();
        assert!(rewrite(&mut b, |_| true, &fill));
        let before = b.clone();
        assert!(!rewrite(&mut b, |_| true, &[entry(9, &[7; LONGEST])]));
        assert!(b == before);
        let rest = capacity(&b) - used(&b) - HEADER;
        assert!(rewrite(&mut b, |_| true, &[entry(9, &vec![7; rest])]));
        assert!(!set_other(&mut b, 1, Nid(1)));
        assert!(rewrite(&mut b, |_| true, &[]), "full to the last byte");
        seal(1, &mut b);
        verify(1, &b).unwrap();
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut b = node(FIRST_OFFSET + 1);
        assert!(rewrite(&mut b, |_| true, &[entry(5, b"five")]));
        set_stamp(&mut b, &Stamp { size: 9, mtime: (1, 2), ctime: (3, 4) });
        set_age(&mut b, 77);
        seal(1, &mut b);
        verify(1, &b).unwrap();
        for bit in 0..8 * FOOTER {
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(1, &b).is_err(), "bit {bit}");
            b[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!((stamp(&b).mtime, stamp(&b).ctime, stamp(&b).size, age(&b)), ((1, 2), (3, 4), 9, 77));
    }

    #[test]
    fn two_entries_for_one_block_and_forged_lengths_are_refused() {
        let mut b = node(FIRST_OFFSET + 1);
        assert!(rewrite(&mut b, |_| true, &[entry(5, b"five"), entry(5, b"again")]));
        seal(1, &mut b);
        assert!(verify(1, &b).is_err());
        for (at, value) in [(4, 0xFF), (5, 0xFF), (6, 9), (8, 2), (9, 200), (HEAD + 4, 200), (HEAD + 6, 77)] {
            let mut b = node(FIRST_OFFSET + 1);
            assert!(rewrite(&mut b, |_| true, &[entry(5, b"five")]));
            b[at] = value;
            seal(1, &mut b);
            assert!(verify(1, &b).is_err(), "byte {at}");
            // Reading ends, whatever the bytes.
            let _ = (entries(&b).count(), other_nodes(&b).count(), capacity(&b), find(&b, 5).is_some());
        }
    }
}
