//! Bitmaps in the two bit orders F2FS uses.
//!
//! Most significant bit first: SIT valid maps, SIT and NAT version bitmaps. Least significant bit first: dentry
//! bitmaps, the full and empty maps of nat_bits. A bit index may come from a disk, so reads past the end return
//! `false` and writes past the end do nothing.

/// Tests bit `i`, most significant bit of each byte first.
#[inline]
pub fn msb_test(map: &[u8], i: usize) -> bool {
    map.get(i / 8).is_some_and(|b| b & (0x80 >> (i % 8)) != 0)
}

/// Sets or clears bit `i`, most significant bit first; returns its old value.
#[inline]
pub fn msb_put(map: &mut [u8], i: usize, on: bool) -> bool {
    put(map, i, 0x80 >> (i % 8), on)
}

/// Tests bit `i`, least significant bit of each byte first.
#[inline]
pub fn lsb_test(map: &[u8], i: usize) -> bool {
    map.get(i / 8).is_some_and(|b| b & (1 << (i % 8)) != 0)
}

/// Sets or clears bit `i`, least significant bit first; returns its old value.
#[inline]
pub fn lsb_put(map: &mut [u8], i: usize, on: bool) -> bool {
    put(map, i, 1 << (i % 8), on)
}

#[inline]
fn put(map: &mut [u8], i: usize, mask: u8, on: bool) -> bool {
    let Some(b) = map.get_mut(i / 8) else { return false };
    let old = *b & mask != 0;
    if on {
        *b |= mask;
    } else {
        *b &= !mask;
    }
    old
}

/// Number of set bits.
pub fn count(map: &[u8]) -> u32 {
    map.iter().map(|b| b.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_orders_count_from_the_two_ends_of_a_byte() {
        let mut map = [0; 2];
        assert!(!msb_put(&mut map, 1, true) && !msb_put(&mut map, 8, true));
        assert_eq!(map, [0x40, 0x80]);
        assert!(msb_test(&map, 1) && msb_test(&map, 8) && !msb_test(&map, 6));
        assert!(msb_put(&mut map, 8, false));
        assert!(!lsb_put(&mut map, 1, true) && !lsb_put(&mut map, 15, true));
        assert_eq!(map, [0x42, 0x80]);
        assert!(lsb_test(&map, 1) && lsb_test(&map, 6) && lsb_test(&map, 15) && !lsb_test(&map, 8));
        assert_eq!(count(&map), 3);
    }

    #[test]
    fn bits_past_the_end_are_clear_and_stay_so() {
        let mut map = [0xFF; 2];
        for i in [16, 17, usize::MAX] {
            assert!(!msb_test(&map, i) && !lsb_test(&map, i));
            assert!(!msb_put(&mut map, i, true) && !lsb_put(&mut map, i, false));
        }
        assert_eq!(map, [0xFF; 2]);
    }
}
