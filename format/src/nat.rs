//! The node address table: the address of each node.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, BlockAddr, Ino, Nid};

/// Entries in one NAT block.
pub const NAT_ENTRIES: u32 = 455;

/// One entry on disk (`f2fs_nat_entry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatEntry {
    /// Incremented when the node is freed.
    pub version: u8,
    /// The inode the node belongs to.
    pub ino: U32,
    /// Its address.
    pub block_addr: U32,
}
const _: () = assert!(size_of::<RawNatEntry>() == 9);

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NatEntry {
    /// Version of this nid: incremented when the node is freed; data summaries record it.
    pub version: u8,
    /// The inode the node belongs to.
    pub ino: Ino,
    /// Address of the node; [`BlockAddr::NULL`] if the nid is free.
    pub addr: BlockAddr,
}

impl From<RawNatEntry> for NatEntry {
    fn from(r: RawNatEntry) -> Self {
        NatEntry { version: r.version, ino: Ino(r.ino.get()), addr: BlockAddr(r.block_addr.get()) }
    }
}
impl From<NatEntry> for RawNatEntry {
    fn from(e: NatEntry) -> Self {
        RawNatEntry { version: e.version, ino: e.ino.0.into(), block_addr: e.addr.0.into() }
    }
}

/// The NAT block and the index of the entry for `nid`.
#[inline]
pub fn position(nid: Nid) -> (u32, usize) {
    (nid.0 / NAT_ENTRIES, (nid.0 % NAT_ENTRIES) as usize)
}

/// Entry `i` of a NAT block; `i` at or past [`NAT_ENTRIES`] gives an empty entry.
pub fn get(block: &Block, i: usize) -> NatEntry {
    if i >= NAT_ENTRIES as usize {
        return NatEntry::default();
    }
    let entry = RawNatEntry::ref_from_prefix(&block[i * 9..]).ok();
    entry.map_or(NatEntry::default(), |(raw, _)| NatEntry::from(*raw))
}

/// Writes entry `i` of a NAT block; does nothing past the end.
pub fn put(block: &mut Block, i: usize, entry: NatEntry) {
    if i < NAT_ENTRIES as usize {
        block[i * 9..i * 9 + 9].copy_from_slice(RawNatEntry::from(entry).as_bytes());
    }
}
