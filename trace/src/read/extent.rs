//! Which sectors contain these bytes?

use crate::OtherCounts;
use crate::block::SECTOR;
use crate::names::count;

/// The first sector and the number of sectors of a byte range. A range that is not aligned is widened to whole sectors,
/// and counted in `others`. `None` on overflow.
pub(crate) fn sectors(from: u64, bytes: u64, others: &mut OtherCounts) -> Option<(u64, u64)> {
    let end = from.checked_add(bytes)?;
    let first = from / SECTOR;
    if bytes == 0 {
        return Some((first, 0));
    }
    if !from.is_multiple_of(SECTOR) || !end.is_multiple_of(SECTOR) {
        count(others, "requests not in whole sectors");
    }
    Some((first, end.div_ceil(SECTOR) - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_widened_outward_and_that_is_counted() {
        let mut others = OtherCounts::new();
        assert_eq!(sectors(1024, 512, &mut others), Some((2, 1)));
        assert_eq!(sectors(1000, 0, &mut others), Some((1, 0)));
        assert!(others.is_empty());
        assert_eq!(sectors(1023, 2, &mut others), Some((1, 2)));
        assert_eq!(sectors(1024, 1, &mut others), Some((2, 1)));
        assert_eq!(sectors(0, u64::MAX, &mut others), Some((0, u64::MAX / 512 + 1)));
        assert_eq!(others["requests not in whole sectors"], 3);
        assert_eq!(sectors(1, u64::MAX, &mut others), None);
    }
}
