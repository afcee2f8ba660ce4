//! Do the incrementally updated numbers of the segment table agree with a full count?
//!
//! For tests, and for callers that suspect a volume. Left out on purpose: whether the valid maps themselves are right
//! (`fsck`).

use format::sit::MAP_BYTES;
use format::{SegNo, bits};
use vfs::FreeFragments;
use victim::fragmentation::Fragmentation;

use super::table::SegmentTable;
use crate::segment::Logs;

impl SegmentTable {
    /// Compares counts, the factor f and the free fragments of the first `segments` segments with their valid maps. The
    /// error names the first difference.
    fn audit(&self, segments: u32) -> Result<(), String> {
        let mut pieces = FreeFragments::default();
        let mut run = 0;
        for s in (0..segments).map(SegNo) {
            let (of, map) = (self.segment(s), self.map(s));
            let valid = (0..MAP_BYTES * 8).filter(|&i| bits::msb_test(map, i)).count();
            if usize::from(of.valid) != valid {
                return Err(format!("segment {s}: {} valid blocks kept, {valid} in the map", of.valid));
            }
            let plain = Fragmentation::scan(map);
            if of.fragmentation != plain {
                return Err(format!("segment {s}: {:?} kept, {plain:?} in the map", of.fragmentation));
            }
            let dirty = valid > 0 && valid < 512 && !self.is_log(s);
            if self.is_dirty(s) != dirty {
                return Err(format!("segment {s}: noted as dirty is {}, should be {dirty}", self.is_dirty(s)));
            }
            for i in 0..MAP_BYTES * 8 {
                if bits::msb_test(map, i) {
                    pieces.add(std::mem::take(&mut run));
                } else {
                    run += 1;
                }
            }
        }
        pieces.add(run);
        let kept = self.free_fragments(segments);
        match kept == pieces {
            true => Ok(()),
            false => Err(format!("pieces of free space: {kept:?} kept, {pieces:?} in the maps")),
        }
    }
}

impl Logs {
    /// Compares the numbers kept for every segment with its valid map. The error names the first difference.
    pub(crate) fn audit_segments(&self) -> Result<(), String> {
        self.seg.lock().table.audit(self.ctx.sb.main_segs)
    }
}
