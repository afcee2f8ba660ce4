//! Where does age-based cleaning move blocks?
//!
//! It moves them into the holes of a used segment of similar age, through a separate log (kernel
//! `CURSEG_ALL_DATA_ATGC`). So old blocks stay with old ones, and cleaning uses no free segment. This log exists only
//! in memory: no checkpoint records it, its summary is an ordinary one, and a segment that it leaves empty is free. The
//! policy chooses the segment to fill ([`Chooser`]).
//!
//! Other policies append to the cold log, as writers do.
//!
//! [`Chooser`]: victim::Chooser

use format::sit::LogType;
use format::summary::{self, Summary, SummaryKind};
use format::{BlockAddr, SegNo};
use victim::similar::Moved;

use super::log::Log;
use super::{Placed, Segments};
use crate::error::{Error, Result};

impl Segments {
    /// Moves a data block to the log of moved blocks. `old` is its address. Its contents keep their age.
    pub(crate) fn allocate_moved(&mut self, owner: Summary, old: BlockAddr) -> Result<Placed> {
        let (from, old_off) = self.place(old)?;
        let (kind, mtime) = {
            let s = self.table.segment(from);
            (s.log, s.mtime)
        };
        if self.moved.as_ref().is_none_or(Log::is_full) {
            self.open_moved(kind, mtime)?;
        }
        let Some(log) = &mut self.moved else { return Err(Error::no_space()) };
        let (seg, off) = (log.seg, log.next);
        log.record(owner);
        log.next += 1;
        let next = log.next;
        let kind = self.table.segment(seg).log;
        self.check_free(seg, off)?;
        self.table.set_valid(seg, off, kind, mtime)?;
        // Only the new segment's age changes, by the age of the contents (kernel `update_segment_mtime`).
        self.table.clear_valid(from, old_off, None)?;
        let next = self.table.next_hole(seg, next);
        if let Some(log) = &mut self.moved {
            log.next = next;
        }
        let here = self.sb.seg_start(seg).plus(off.into());
        let threaded = self.moved.as_ref().is_some_and(|log| log.threaded);
        self.tally.place_moved(here, threaded);
        self.follow_relocate(old, here);
        Ok(Placed { addr: here, next: BlockAddr::NULL })
    }

    /// Finds the next segment for the log of moved blocks: the rest of its section, the holes of a segment of similar
    /// age, or a fresh cold segment.
    fn open_moved(&mut self, kind: LogType, mtime: u64) -> Result<()> {
        let begun = self.moved.as_ref().filter(|l| !l.threaded).map(|l| l.seg);
        let rest = begun.and_then(|seg| self.table.next_in_section(seg));
        if let Some(seg) = rest {
            // Logs open only segments of sections that are completely free.
            self.close_moved()?;
            self.open_fresh(seg);
            return Ok(());
        }
        self.close_moved()?;
        if let Some(seg) = self.target(kind, mtime) {
            let next = self.table.next_hole(seg, 0);
            if next < 512 {
                let summary = self.summaries.load(&*self.dev, &self.sb, seg)?;
                let log = self.table.segment(seg).log;
                self.table.take_threaded(seg, log);
                self.tally.open_moved();
                self.moved = Some(Log { seg, next, threaded: true, summary });
                return Ok(());
            }
        }
        let hint = self.logs[LogType::ColdData.index()].seg;
        let seg = self.table.free_section_after(hint).ok_or_else(Error::no_space)?;
        self.open_fresh(seg);
        Ok(())
    }

    fn open_fresh(&mut self, seg: SegNo) {
        self.table.take(seg, LogType::ColdData);
        let mut summary = Box::new([0; 4096]);
        summary::set_kind(&mut summary, SummaryKind::Data);
        self.moved = Some(Log { seg, next: 0, threaded: false, summary });
    }

    /// A used segment of similar age, preferably of the same temperature.
    fn target(&mut self, kind: LogType, mtime: u64) -> Option<SegNo> {
        let order = super::log::threading_order(kind);
        let Segments { table, chooser, candidates, .. } = self;
        let views = candidates.to_fill(table);
        order.into_iter().find_map(|kind| chooser.target(&views[kind.index()], Moved { kind, mtime }))
    }

    /// Closes the log of moved blocks; its segment becomes an ordinary one.
    fn close_moved(&mut self) -> Result<()> {
        let Some(log) = self.moved.take() else { return Ok(()) };
        self.table.release_log(log.seg);
        self.summaries.store(&self.dev, &self.sb, log.seg, log.summary)
    }

    /// Prepares the log for a checkpoint: stores its summary where every reader looks, and leaves an empty segment.
    pub(crate) fn save_moved(&mut self) -> Result<()> {
        let Some(log) = &self.moved else { return Ok(()) };
        if self.table.segment(log.seg).valid == 0 {
            return self.close_moved();
        }
        let (seg, summary) = (log.seg, log.summary.clone());
        self.summaries.store(&self.dev, &self.sb, seg, summary)
    }
}
