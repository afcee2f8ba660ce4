//! Into how many fragments is the free space divided?
//!
//! The segment table counts the fragments inside segments as blocks change. Fragments that touch a segment's edge are
//! joined on request, which visits each segment.

use format::SegNo;
use vfs::FreeFragments;
use victim::fragmentation;

use super::table::SegmentTable;
use crate::segment::Logs;

impl SegmentTable {
    /// The free fragments of the whole main area.
    pub(crate) fn free_fragments(&self, segments: u32) -> FreeFragments {
        let mut out = *self.inner_fragments();
        let mut run = 0;
        for n in 0..segments {
            match self.segment(SegNo(n)).valid {
                0 => run += 512,
                512 => out.add(std::mem::take(&mut run)),
                _ => {
                    // `None` would mean that all blocks are free, but this segment has a valid one.
                    let (lead, trail) = fragmentation::edges(self.map(SegNo(n))).unwrap_or((512, 0));
                    out.add(run + u64::from(lead));
                    run = trail.into();
                }
            }
        }
        out.add(run);
        out
    }
}

impl Logs {
    /// The current free fragments.
    pub(crate) fn free_fragments(&self) -> FreeFragments {
        self.seg.lock().table.free_fragments(self.ctx.sb.main_segs)
    }
}

#[cfg(test)]
mod tests {
    use format::sit::LogType;

    use super::*;

    /// The fragments, found block by block.
    fn plainly(table: &SegmentTable, segments: u32) -> FreeFragments {
        let mut out = FreeFragments::default();
        let mut run = 0;
        for n in 0..segments * 512 {
            if table.is_valid(SegNo(n / 512), (n % 512) as u16) {
                out.add(std::mem::take(&mut run));
            } else {
                run += 1;
            }
        }
        out.add(run);
        out
    }

    #[test]
    fn pieces_reach_across_segments_and_end_at_valid_blocks() {
        let mut table = SegmentTable::new(6, 1);
        let mut rng = device::Rng::new(4);
        for seg in [0, 2, 3, 5] {
            table.take(SegNo(seg), LogType::WarmData);
            for off in 0..512 {
                // Segment 3 is full, the others have runs of all lengths.
                if seg == 3 || rng.chance(1, 1 + u64::from(off) / 16) {
                    table.set_valid(SegNo(seg), off, LogType::WarmData, 1).unwrap();
                }
            }
        }
        let found = table.free_fragments(6);
        assert_eq!(found, plainly(&table, 6));
        assert_eq!(found.total_blocks(), (0..6).map(|n| 512 - u64::from(table.segment(SegNo(n)).valid)).sum::<u64>());
        assert!(found.total() > 100 && found.count[8] >= 2, "{found:?}");
        let none = SegmentTable::new(6, 1).free_fragments(6);
        assert_eq!((none.count, none.capacity), ([0, 0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 6 * 512]));
    }
}
