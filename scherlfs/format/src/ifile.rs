//! The inode map, with the address of each inode: a regular file of 8 bytes per inode, by number (Scherl 2004,
//! section 5.3).

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::extent::u48;
use crate::{Addr, BLOCK, Block, Ino};

/// On-disk form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    /// Address of the inode, 48 bits; 0: the number is free.
    pub addr: [u8; 6],
    /// Lower half of its generation; for a free number, of the next one.
    pub generation: U16,
}

/// Entries per block.
pub const ENTRIES: usize = BLOCK / size_of::<RawEntry>();
const _: () = assert!(ENTRIES == 512);

/// A decoded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Address of the inode; `None` if the number is free.
    pub addr: Option<Addr>,
    /// Lower half of its generation.
    pub generation: u16,
}

/// The map block of an inode's entry, and the index in it.
pub fn at(ino: Ino) -> (u64, usize) {
    (u64::from(ino.0) / ENTRIES as u64, ino.0 as usize % ENTRIES)
}

/// Entry `index` of a block; an empty one at or past [`ENTRIES`].
pub fn get(block: &Block, index: usize) -> Place {
    let all: &[RawEntry; ENTRIES] = match FromBytes::ref_from_bytes(block.as_slice()) {
        Ok(all) => all,
        // Cannot happen: a block is 512 entries of 8 bytes, without alignment.
        Err(_) => return Place::default(),
    };
    let Some(raw) = all.get(index) else { return Place::default() };
    let addr = u48(&raw.addr);
    Place { addr: (addr != 0).then_some(Addr(addr)), generation: raw.generation.get() }
}

/// Sets an entry; does nothing at or past [`ENTRIES`].
pub fn set(block: &mut Block, index: usize, place: Place) {
    let mut addr = [0; 6];
    addr.copy_from_slice(&place.addr.unwrap_or_default().0.to_le_bytes()[..6]);
    let raw = RawEntry { addr, generation: place.generation.into() };
    let from = index * size_of::<RawEntry>();
    if let Some(to) = block.get_mut(from..from + size_of::<RawEntry>()) {
        to.copy_from_slice(raw.as_bytes());
    }
}
