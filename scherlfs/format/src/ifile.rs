//! The inode map: where each inode is. A regular file of 8 bytes for each inode, by number (Scherl 2004, section 5.3).

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::extent::u48;
use crate::{Addr, BLOCK, Block, Ino};

/// On disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    /// Where the inode is, 48 bits; 0: the number is free.
    pub addr: [u8; 6],
    /// The lower half of its generation; of a free number the generation that comes next.
    pub generation: U16,
}

/// Entries of a block.
pub const ENTRIES: usize = BLOCK / size_of::<RawEntry>();
const _: () = assert!(ENTRIES == 512);

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Where the inode is; `None`: the number is free.
    pub addr: Option<Addr>,
    /// The lower half of its generation.
    pub generation: u16,
}

/// The block of the map and the entry in it.
pub fn at(ino: Ino) -> (u64, usize) {
    (u64::from(ino.0) / ENTRIES as u64, ino.0 as usize % ENTRIES)
}

/// Entry `index` (below [`ENTRIES`]; beyond, none) of a block.
pub fn get(block: &Block, index: usize) -> Place {
    let all: &[RawEntry; ENTRIES] = match FromBytes::ref_from_bytes(block.as_slice()) {
        Ok(all) => all,
        // OK to leave: a block is 512 entries of 8 bytes, which have no alignment.
        Err(_) => return Place::default(),
    };
    let Some(raw) = all.get(index) else { return Place::default() };
    let addr = u48(&raw.addr);
    Place { addr: (addr != 0).then_some(Addr(addr)), generation: raw.generation.get() }
}

/// Puts an entry; beyond [`ENTRIES`] nothing is put.
pub fn put(block: &mut Block, index: usize, place: Place) {
    let mut addr = [0; 6];
    addr.copy_from_slice(&place.addr.unwrap_or_default().0.to_le_bytes()[..6]);
    let raw = RawEntry { addr, generation: place.generation.into() };
    let from = index * size_of::<RawEntry>();
    if let Some(to) = block.get_mut(from..from + size_of::<RawEntry>()) {
        to.copy_from_slice(raw.as_bytes());
    }
}
