//! What of a device can be drawn: which blocks of its segments hold something?
//!
//! Of an F2FS volume these are its valid blocks by segment. Of a mounted directory whose file system does not say which
//! blocks are in use, only those of the files that were looked at are known, and nothing of the others: [`Shows`] says
//! which of the two it is. Stretches of 512 blocks stand in for segments there.

use format::{BLOCKS_PER_SEG, SegNo};
use inspect::File;
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

/// Stretches at most: 64 TiB. What lies behind is not drawn.
const MOST: u64 = 1 << 25;

/// The blocks of files, on a device of so many blocks or more.
pub fn of_files(files: &[File], blocks: u64) -> Sit {
    let ends = files.iter().map(|f| f.layout.first_addr.saturating_add(f.layout.span));
    let end = ends.max().unwrap_or(0).max(blocks);
    let per = u64::from(BLOCKS_PER_SEG);
    // OK to cut: MOST has fewer than 32 bits.
    let mut out = Sit::new(end.div_ceil(per).min(MOST) as u32);
    for e in files.iter().flat_map(|f| &f.extents) {
        for block in e.addr..e.addr.saturating_add(e.blocks).min(MOST * per) {
            if let Some(segment) = out.segment_mut(SegNo((block / per) as u32)) {
                segment.log = None;
                segment.set((block % per) as u16);
            }
        }
    }
    out
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
}
