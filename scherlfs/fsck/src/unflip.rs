//! Finds a flipped bit by a checksum.
//!
//! A CRC-32 is linear: the effect of a flipped bit depends on its distance from the end of the message, and is
//! different for all bits of a block. So the difference between the stored and the computed checksum identifies the
//! bit, if only one flipped. One random block in 130,000 matches by chance, so callers must also check the fields.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use scherlfs_format::{BLOCK, Block, Ino, checksum};

/// Maps a checksum difference to the distance in bytes from the end of the message, and the bit.
fn table() -> &'static FxHashMap<u32, (usize, u8)> {
    static TABLE: OnceLock<FxHashMap<u32, (usize, u8)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let zero = checksum(&[&[0]]);
        let step: Vec<u32> = (0..=255u8).map(|v| checksum(&[&[v]]) ^ zero).collect();
        let mut out = FxHashMap::default();
        for bit in 0..8u8 {
            let mut change = step[1 << bit];
            for distance in 0..BLOCK {
                out.insert(change, (distance, bit));
                change = (change >> 8) ^ step[(change & 0xff) as usize];
            }
        }
        out
    })
}

/// The block with one bit restored, if that makes its checksum valid. `stored` is the position of the checksum, and
/// the message with checksum `computed` ends before `end`.
fn turn_back(block: &Block, stored: usize, computed: u32, end: usize) -> Option<Box<Block>> {
    let found = u32::from_le_bytes([block[stored], block[stored + 1], block[stored + 2], block[stored + 3]]);
    let change = found ^ computed;
    if change == 0 {
        return None;
    }
    let (byte, bit) = match change.count_ones() {
        // In the checksum itself.
        1 => (stored + (change.trailing_zeros() / 8) as usize, (change.trailing_zeros() % 8) as u8),
        _ => {
            let &(distance, bit) = table().get(&change)?;
            (end.checked_sub(distance + 1)?, bit)
        }
    };
    let mut out = Box::new(*block);
    out[byte] ^= 1 << bit;
    Some(out)
}

fn sealed(block: &Block, at: usize) -> Option<Box<Block>> {
    let computed = checksum(&[&block[..at], &[0; 4], &block[at + 4..]]);
    turn_back(block, at, computed, BLOCK)
}

/// A log block before one bit flipped.
pub(crate) fn of_log(block: &Block) -> Option<Box<Block>> {
    sealed(block, 4)
}

/// A superblock before one bit flipped.
pub(crate) fn of_superblock(block: &Block) -> Option<Box<Block>> {
    sealed(block, BLOCK - 4)
}

/// Block `index` of a directory before one bit flipped.
pub(crate) fn of_directory(block: &Block, ino: Ino, index: u64) -> Option<Box<Block>> {
    let computed = checksum(&[&ino.0.to_le_bytes(), &index.to_le_bytes(), &block[..BLOCK - 4]]);
    turn_back(block, BLOCK - 4, computed, BLOCK - 4)
}

#[cfg(test)]
mod tests {
    use scherlfs_format::chain::{self, Header, Kind};
    use scherlfs_format::directory;
    use scherlfs_format::{Epoch, Seq};

    use super::*;

    #[test]
    fn every_flipped_bit_is_turned_back_and_two_are_not_taken_for_one() {
        let header = Header {
            kind: Kind::Gone,
            epoch: Epoch::new(3, 8),
            attempt: 1,
            seq: Seq(77),
            ino: Ino(0),
            piece: 0,
            pieces: 2,
        };
        let right = chain::write_gone(&header, &[Ino(9), Ino(77)]);
        let mut names = directory::empty();
        directory::insert(&mut names, Ino(9), 1, b"name");
        directory::seal(&mut names, Ino(7), 3);
        assert!(of_log(&right).is_none() && of_directory(&names, Ino(7), 3).is_none());
        for bit in 0..BLOCK * 8 {
            let flip = |block: &Block| {
                let mut block = Box::new(*block);
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert_eq!(of_log(&flip(&right)), Some(right.clone()), "bit {bit}");
            assert_eq!(of_directory(&flip(&names), Ino(7), 3), Some(names.clone()), "bit {bit}");
            let mut two = flip(&right);
            two[(bit / 8 + 9) % BLOCK] ^= 2;
            assert!(of_log(&two).is_none_or(|b| Header::read(&b).is_err() || b == right), "bit {bit}");
        }
    }
}
