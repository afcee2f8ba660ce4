//! What can be drawn of a device: which blocks of its segments are in use?
//!
//! For an F2FS volume these are its valid blocks by segment. For a mounted directory whose file system does not report
//! used blocks, only the blocks of the examined files are known: [`Shows`] distinguishes the two. There, ranges of 512
//! blocks stand in for segments.

use inspect::File;
use inspect::space::Space;
use inspect::tables::Sit;

/// The meaning of a set bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// A block in use. A clear bit is a free block.
    Valid,
    /// A block of an examined file. A clear bit means unknown.
    Files,
}

/// The segments of a device.
pub struct Ground<'a> {
    /// Block bits by segment.
    pub segments: &'a Sit,
    /// Address of the first segment's first block, in blocks of 4 KiB.
    pub first: u64,
    /// Segments in a section.
    pub per_section: u32,
    /// Current mounted time, the reference for ages; `None` if ages are unknown.
    pub now: Option<u64>,
    /// True if the logs of segments are known.
    pub has_logs: bool,
    /// The meaning of a bit.
    pub shows: Shows,
}

/// The segments of a mounted file system, as far as it reports them.
pub struct Known {
    /// Bits of blocks in use.
    pub segments: Sit,
    /// The same as counts.
    pub space: Space,
    /// Address of the first segment's first block; `None` if unknown, so that files cannot be located in segments.
    pub first: Option<u64>,
    /// Current mounted time, the reference for ages; `None` if ages are unknown.
    pub now: Option<u64>,
    /// True if these are segments of F2FS, with their logs.
    pub has_logs: bool,
}

/// The blocks of files, on a device of at least `blocks` blocks. At 16 TiB and more, only the beginning is drawn.
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
    /// From runs of free blocks, in order, on a device of `blocks` blocks; `None` at 16 TiB and more.
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
