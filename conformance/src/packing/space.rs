//! How is the free space of a volume laid out, by its segment table?
//!
//! In free segments, and in the runs of free blocks in used segments. Runs shorter than 128 KiB are fragments and have
//! a factor f (FAGC TACO'23, section 5.1). The same code reads both sides.

use std::iter::Sum;
use std::ops::Add;

use device::{BLOCK, BlockDevice, Lba, Tag};
use victim::fragmentation::{FRAGMENT_LIMIT, Fragmentation, each_run};

use super::PackingError;
use judges::oracle::cleaning::segments::{Window, superblock};
use judges::oracle::victims::Segment;

/// The free space of a volume, or of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Segments without a valid block.
    pub free: u64,
    /// Free blocks in the other segments.
    pub inside: u64,
    /// Number of fragments among these.
    pub fragments: u64,
    /// Blocks in them.
    pub loose: u64,
    /// The sum of their factors f.
    pub factor: u64,
}

impl Add for Space {
    type Output = Space;
    fn add(self, o: Space) -> Space {
        Space {
            free: self.free + o.free,
            inside: self.inside + o.inside,
            fragments: self.fragments + o.fragments,
            loose: self.loose + o.loose,
            factor: self.factor + o.factor,
        }
    }
}

impl Sum for Space {
    fn sum<I: Iterator<Item = Space>>(all: I) -> Space {
        all.fold(Space::default(), Space::add)
    }
}

impl Space {
    /// The space in one segment.
    pub fn in_segment(segment: &Segment) -> Space {
        if segment.valid == 0 {
            return Space { free: 1, ..Space::default() };
        }
        let of = Fragmentation::scan(&segment.map);
        let mut fragments = 0;
        each_run(&segment.map, |_, run| fragments += u64::from(run < FRAGMENT_LIMIT));
        let inside = 512 - u64::from(segment.valid);
        Space { free: 0, inside, fragments, loose: of.loose.into(), factor: of.factor.value().into() }
    }

    /// The space on a volume at its last checkpoint.
    ///
    /// # Errors
    /// Device errors; or, as text, why the table cannot be read.
    pub fn on(device: &dyn BlockDevice) -> Result<Space, PackingError> {
        Ok(segments(device)?.iter().map(Space::in_segment).sum())
    }

    /// MiB in fragments.
    pub fn loose_mib(&self) -> f64 {
        self.loose as f64 * BLOCK as f64 / f64::from(1 << 20)
    }
}

/// The segment table of a volume at its last checkpoint.
///
/// # Errors
/// As [`Space::on`].
pub fn segments(device: &dyn BlockDevice) -> Result<Vec<Segment>, PackingError> {
    let read = |at: u32| {
        let mut block = [0; BLOCK];
        device.read(Lba(at.into()), &mut block, Tag::default()).map(|()| block)
    };
    let sb = superblock(|at| read(at.0).map_err(std::io::Error::other)).map_err(PackingError::Table)?;
    let window = Window::of(&sb);
    let mut bytes = Vec::with_capacity(window.blocks() as usize * BLOCK);
    for at in window.ranges().into_iter().flat_map(|(first, n)| first..first + n) {
        bytes.extend(read(at).map_err(|e| PackingError::Table(e.to_string()))?);
    }
    let (_, state) = window.read(&bytes).map_err(PackingError::Table)?;
    Ok(state.segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_32_blocks_are_no_fragments_and_empty_segments_are_free() {
        let mut map = [0xff; 64];
        // Runs of 1, 31 and 32 blocks.
        map[0] = 0x7f;
        map[8..12].copy_from_slice(&[0x80, 0, 0, 0]);
        map[20..24].fill(0);
        let valid = map.iter().map(|byte: &u8| byte.count_ones() as u16).sum();
        let segment = Segment { valid, map, ..Segment::UNUSED };
        let space = Space::in_segment(&segment);
        assert_eq!((space.free, space.fragments, space.loose), (0, 2, 1 + 31));
        assert_eq!(space.inside, u64::from(512 - valid));
        let all: Space = [segment, Segment::UNUSED, segment].iter().map(Space::in_segment).sum();
        assert_eq!((all.free, all.fragments, all.factor), (1, 4, 2 * space.factor));
    }
}
