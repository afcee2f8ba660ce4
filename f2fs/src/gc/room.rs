//! How is room made for blocks that must be contiguous?
//!
//! While too few sections are free, logs fill holes, and defragmentation is impossible. Cleaning turns holes into free
//! sections: moved blocks fill other holes. One call cleans one section as the foreground does, with the checkpoint that frees
//! it, so that the caller can report progress, and stop.
//!
//! Left out: whether it pays (the caller decides by [`Room::moves`]).

use vfs::Room;

use crate::error::{Error, Result};
use crate::gc::Cleaning;
use crate::pack::Reason;

impl Cleaning {
    /// What is missing to write `blocks` blocks to fresh segments. If anything is and `clean` is set, cleans one
    /// section.
    pub(crate) fn room_for_blocks(&self, blocks: u64, clean: bool) -> Result<Room> {
        let mut room = self.missing_room(blocks);
        if !clean || room.short == 0 {
            return Ok(room);
        }
        let before = self.ctx.counters.moved_blocks();
        // Empty segments only wait for a checkpoint and cost nothing else.
        if self.logs.seg.lock().table.prefree_segments() > 0 {
            self.checkpoint(Reason::Running)?;
        } else if !self.clean_in_foreground()? {
            return Err(Error::no_space());
        }
        let moved = self.ctx.counters.moved_blocks() - before;
        room = self.missing_room(blocks);
        room.moved = moved;
        Ok(room)
    }

    fn missing_room(&self, blocks: u64) -> Room {
        let seg = self.logs.seg.lock();
        let per = u64::from(self.ctx.sb.segs_per_sec) * 512;
        let short = seg.short_of_fresh(blocks);
        let mut valid: Vec<u64> = (0..self.ctx.sb.main_segs / self.ctx.sb.segs_per_sec)
            .map(format::addr::SecNo)
            .filter(|s| seg.table.section(*s).any(|s| seg.table.is_dirty(s)))
            .map(|s| seg.table.section(s).map(|s| u64::from(seg.table.segment(s).valid)).sum())
            .filter(|valid| *valid < per)
            .collect();
        valid.sort_unstable();
        Room { short, moves: valid.iter().take(short as usize).sum(), moved: 0 }
    }
}
