//! What of a device can be drawn: which blocks of its segments hold something?
//!
//! Of an F2FS volume these are its valid blocks by segment. Of a mounted directory whose file system does not say which
//! blocks are in use, only those of the files that were looked at are known, and nothing of the others: [`Shows`] says
//! which of the two it is. Stretches of 512 blocks stand in for segments there.

use inspect::File;
use inspect::space::Space;
use inspect::tables::Sit;

/// What a set bit means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// A block in use. A clear bit is a free block.
    Valid,
    /// A block of a file that was looked at. Of a clear bit nothing is known.
    Files,
}

/// The segments of a device.
pub struct Ground<'a> {
    /// Which blocks, by segment.
    pub segments: &'a Sit,
    /// Address of the first segment's first block, in blocks of 4 KiB.
    pub first: u64,
    /// Segments in a section.
    pub per_section: u32,
    /// Mounted time that ages are counted back from; `None` if ages are not known.
    pub now: Option<u64>,
    /// True if it is known which log a segment belongs to.
    pub has_logs: bool,
    /// What a bit means.
    pub shows: Shows,
}

/// The segments of a mounted file system, as far as it tells of them.
pub struct Known {
    /// Which blocks are in use.
    pub segments: Sit,
    /// The same, counted.
    pub space: Space,
    /// Address of the first segment's first block; `None` if it is not known, so that no file is found on them.
    pub first: Option<u64>,
    /// Mounted time that ages are counted back from; `None` if ages are not known.
    pub now: Option<u64>,
    /// True if these are segments of F2FS, with their logs.
    pub has_logs: bool,
}

/// The blocks of files, on a device of so many blocks or more. Of 16 TiB and more only the beginning is drawn.
pub fn of_files(files: &[File], blocks: u64) -> Sit {
    let ends = files.iter().map(|f| f.layout.first_addr.saturating_add(f.layout.span));
    let end = ends.max().unwrap_or(0).max(blocks).min(u32::MAX.into());
    // There are fewer than 2^32 blocks.
    let mut out = Sit::of_blocks(end).unwrap_or_else(|| Sit::new(0));
    for e in files.iter().flat_map(|f| &f.extents) {
        out.fill(e.addr, e.addr.saturating_add(e.blocks));
    }
    out
}

impl Known {
    /// By runs of free blocks, in order, on a device of so many blocks; `None` of 16 TiB and more.
    pub fn of_free(free: &[(u64, u64)], blocks: u64) -> Option<Self> {
        let mut segments = Sit::of_blocks(blocks)?;
        let mut at = 0;
        for &(from, count) in free {
            segments.fill(at, from);
            at = at.max(from.saturating_add(count));
        }
        segments.fill(at, blocks);
        let space = Space::from_sit(&segments, 0);
        Some(Known { segments, space, first: Some(0), now: None, has_logs: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inspect::tables::Segment;

    #[test]
    fn a_device_without_files_has_stretches_all_the_same() {
        let sit = of_files(&[], 1025);
        assert_eq!(sit.segments(), 3);
        assert!(sit.iter().all(|(_, s)| *s == Segment::EMPTY));
    }

    #[test]
    fn what_is_not_free_is_used_and_nothing_lies_behind_the_end() {
        let known = Known::of_free(&[(10, 3), (600, 1), (1020, 5)], 1025).unwrap();
        let space = &known.space;
        assert_eq!((space.segments, space.valid()), (3, 1025 - 9));
        assert_eq!(space.pieces[..4], [1, 0, 1, 1]);
        assert_eq!(space.piece_blocks.iter().sum::<u64>(), 9);
    }
}
