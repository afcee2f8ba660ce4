//! How does each of the six logs find its next segment?

use format::sit::LogType;
use format::summary::{self, Summary, SummaryKind};
use format::{Block, SegNo};

use super::Segments;
use crate::error::{Error, Result};

/// A log: its next block, and the owners of the blocks in its segment.
#[derive(Clone)]
pub struct Log {
    /// Its segment.
    pub seg: SegNo,
    /// The next block; 512 if the segment is full and no other was found.
    pub next: u16,
    /// True if it fills holes of a used segment (threaded logging, kernel SSR).
    pub threaded: bool,
    /// Summary of its segment so far.
    pub summary: Box<Block>,
}

impl Log {
    /// True if the log must find a new segment before it can write.
    pub fn is_full(&self) -> bool {
        self.next >= 512
    }
    pub(super) fn record(&mut self, owner: Summary) {
        summary::put(&mut self.summary, self.next.into(), owner);
    }
}

/// The temperatures of segments that a log may fill, nearest first (kernel `get_ssr_segment`): its own; then a hot log
/// goes towards cold, a warm or cold log towards hot.
pub(super) fn threading_order(log: LogType) -> impl Iterator<Item = LogType> {
    let base = if log.is_node() { 3 } else { 0 };
    let own = log.index();
    let reverse = own - base != 0;
    let others = (0..3).map(move |i| base + if reverse { 2 - i } else { i });
    std::iter::once(own).chain(others.filter(move |&i| i != own)).map(|i| LogType::ALL[i])
}

impl Segments {
    /// Moves a log to its next block.
    pub(super) fn advance(&mut self, log: LogType) {
        let l = &mut self.logs[log.index()];
        l.next += 1;
        if l.threaded {
            l.next = self.table.next_hole(l.seg, l.next);
        }
    }

    /// True if a log must find another segment before it can write: its segment is full, or it filled holes before the
    /// volume was mounted append-only.
    pub(super) fn is_spent(&self, log: LogType) -> bool {
        let l = &self.logs[log.index()];
        l.is_full() || (self.only_appends && l.threaded)
    }

    /// Moves every log that cannot continue in its segment to a free section, as far as there are any. A checkpoint
    /// must follow before an fsync: roll-forward starts at the log's position in the checkpoint.
    pub(crate) fn leave_unfit(&mut self) -> Result<()> {
        for log in LogType::ALL {
            if self.only_appends && !self.fits(log) {
                self.leave_section(log)?;
            }
        }
        Ok(())
    }

    /// Moves a log to a free section. If there is none, the log counts as full.
    pub(super) fn leave_section(&mut self, log: LogType) -> Result<()> {
        match self.begin_section(log) {
            Err(Error::Fs(vfs::Error::NoSpace)) => {
                // Treated as a threaded log that found no hole: it does not continue in the next segment of its
                // section.
                let l = &mut self.logs[log.index()];
                (l.next, l.threaded) = (512, true);
                Ok(())
            }
            other => other,
        }
    }

    fn begin_section(&mut self, log: LogType) -> Result<()> {
        let old = self.logs[log.index()].seg;
        let seg = self.table.free_section_after(old).ok_or_else(Error::no_space)?;
        self.close(log)?;
        self.table.take(seg, log);
        self.table.release_log(old);
        self.open(log, seg, 0, false, Box::new([0; 4096]));
        Ok(())
    }

    /// Closes a log's segment and finds another: the next of the same section, a fresh section, or, if fresh ones are
    /// short, the holes of a used segment (kernel `allocate_segment_by_default`).
    pub(super) fn roll(&mut self, log: LogType) -> Result<()> {
        self.close(log)?;
        let l = &self.logs[log.index()];
        let (old, fresh) = (l.seg, !l.threaded);
        self.kept_in_use = self.kept_back();
        let mut found = if fresh { self.table.next_in_section(old) } else { None };
        if found.is_none() && self.need_threading() && self.thread(log)? {
            self.table.release_log(old);
            return Ok(());
        }
        if found.is_none() {
            // Hot data and nodes search from the volume's start, other logs from their position.
            let hint = match log {
                LogType::WarmData | LogType::ColdData => old,
                _ => SegNo(0),
            };
            found = self.table.free_section_after(hint);
        }
        match found {
            Some(seg) => {
                self.table.take(seg, log);
                self.table.release_log(old);
                self.open(log, seg, 0, false, Box::new([0; 4096]));
                Ok(())
            }
            None if !self.only_appends && self.thread(log)? => {
                self.table.release_log(old);
                Ok(())
            }
            None => Err(Error::no_space()),
        }
    }

    /// Moves a log to a fresh, contiguous segment if it filled holes because free segments were few.
    /// [`vfs::Error::NoSpace`] if they still are.
    pub(crate) fn fresh(&mut self, log: LogType) -> Result<()> {
        if self.logs[log.index()].threaded && !self.need_threading() {
            self.roll(log)?;
        }
        let none = self.logs[log.index()].threaded || (self.only_appends && self.lacks_fresh());
        if none { Err(Error::no_space()) } else { Ok(()) }
    }

    /// Finds a segment for every full log. It may be a segment that the checkpoint about to be written frees: nothing
    /// is written there before that checkpoint is durable. If there are too few of these, none is taken: no checkpoint
    /// follows, and a log must not be in a segment that is still needed.
    pub(crate) fn seat_full_logs(&mut self) -> Result<()> {
        let mut without = Vec::new();
        for log in LogType::ALL {
            if !self.is_spent(log) {
                continue;
            }
            match self.roll(log) {
                Err(Error::Fs(vfs::Error::NoSpace)) => without.push(log),
                other => other?,
            }
        }
        let places = match self.only_appends {
            true => self.table.emptied_sections().count(),
            false => self.table.prefree_segments() as usize,
        };
        if places < without.len() {
            return Err(Error::no_space());
        }
        for log in without {
            let old = self.logs[log.index()].seg;
            let seg = match self.only_appends {
                true => self.table.emptied_sections().next(),
                false => self.table.first_prefree(),
            };
            let seg = seg.ok_or_else(Error::no_space)?;
            self.table.take(seg, log);
            self.table.release_log(old);
            self.open(log, seg, 0, false, Box::new([0; 4096]));
        }
        Ok(())
    }

    /// Passes on a log's summary for writing.
    fn close(&mut self, log: LogType) -> Result<()> {
        let l = &self.logs[log.index()];
        let block = l.summary.clone();
        let seg = l.seg;
        self.summaries.store(&self.dev, &self.sb, seg, block)
    }

    fn open(&mut self, log: LogType, seg: SegNo, next: u16, threaded: bool, mut summary: Box<Block>) {
        let kind = if log.is_node() { SummaryKind::Node } else { SummaryKind::Data };
        summary::set_kind(&mut summary, kind);
        self.logs[log.index()] = Log { seg, next, threaded, summary };
    }

    /// Starts to fill the holes of a used segment of a suitable temperature: blocks that are free now and were free at
    /// the last checkpoint.
    fn thread(&mut self, log: LogType) -> Result<bool> {
        for kind in threading_order(log) {
            let view = &self.candidates.to_fill(&mut self.table)[kind.index()];
            let Some(seg) = self.chooser.threading(view, kind) else { continue };
            let summary = self.summaries.load(&*self.dev, &self.sb, seg)?;
            let next = self.table.next_hole(seg, 0);
            self.table.take_threaded(seg, log);
            self.tally.open();
            self.open(log, seg, next, true, summary);
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileSystem;

    use super::*;
    use crate::rig::*;
    use crate::{Mode, MountOptions, Volume};

    #[test]
    fn logs_that_filled_holes_leave_them_where_a_volume_only_appends_and_a_sync_after_that_survives_a_cut() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let files: Vec<_> = (0..700).map(|n| file(&vol, &format!("f{n}"))).collect();
        let large = file(&vol, "large");
        write(&vol, large, 0, &blocks(1200));
        vol.sync().unwrap();
        (0..1200).step_by(2).for_each(|n| write(&vol, large, n * 4096, &blocks(1)));
        for n in (0..700).step_by(2) {
            vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
            vol.forget(files[n], 1);
        }
        vol.sync().unwrap();
        {
            let mut seg = vol.logs.seg.lock();
            seg.threads_always = true;
            for log in [LogType::HotData, LogType::WarmNode] {
                seg.roll(log).unwrap();
                assert!(seg.logs[log.index()].threaded, "{log:?}");
            }
        }
        write(&vol, large, 0, &blocks(1));
        vol.unmount().unwrap();

        let options = MountOptions { mode: Mode::Lfs, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), vol.ctx.clock.clone(), options).unwrap();
        let threaded = |vol: &Volume| vol.logs.seg.lock().logs.iter().any(|log| log.threaded);
        assert!(threaded(&vol), "as the checkpoint has it");
        write(&vol, large, 4096, &blocks(3));
        vol.fsync(large, false).unwrap();
        assert!(!threaded(&vol));
        // Power cut.
        let left = std::sync::Arc::new(dev.fork());
        let found = Volume::mount(left.clone(), vol.ctx.clock.clone(), MountOptions::default()).unwrap();
        assert!(read(&found, large)[4096..4 * 4096] == blocks(3));
        judge(&left, &found);
        judge(&dev, &vol);
    }

    #[test]
    fn a_log_threads_into_its_own_temperature_first_and_never_across_data_and_nodes() {
        let order = |l| threading_order(l).map(LogType::index).collect::<Vec<_>>();
        assert_eq!(order(LogType::HotData), [0, 1, 2]);
        assert_eq!(order(LogType::WarmData), [1, 2, 0]);
        assert_eq!(order(LogType::ColdNode), [5, 4, 3]);
    }
}
