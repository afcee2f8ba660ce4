//! Which blocks are valid, and which segments are free, dirty or prefree (freed by the next checkpoint)?
//!
//! A block is *held* if it is valid, was valid at the last checkpoint, or was written since then. Nothing may overwrite
//! a held block before the next checkpoint, because recovery may need it (the kernel's `ckpt_valid_map` plus later
//! writes). So every valid block is held.

use std::collections::BTreeSet;

use format::SegNo;
use format::addr::SecNo;
use format::bits;
use format::sit::{LogType, MAP_BYTES, SitEntry};
use vfs::FreeFragments;
use victim::fragmentation::{self, Fragmentation};

use super::dead::Dead;
use super::word_set::WordSet;
use crate::error::{Error, Result};
use crate::invariant::sums::Sums;

/// The two maps of a segment whose maps are not uniform.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Maps {
    valid: [u8; MAP_BYTES],
    held: [u8; MAP_BYTES],
}

/// The state of one segment.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    /// Valid blocks.
    pub valid: u16,
    /// Held blocks, at least `valid`.
    pub held: u16,
    /// The log that last wrote to it.
    pub log: LogType,
    in_log: bool,
    changed: bool,
    /// True if it is on the list of [`SegmentTable::take_touched`].
    touched: bool,
    /// Fragmentation of its free space.
    pub fragmentation: Fragmentation,
    /// Mean write time of its blocks, in seconds of mounted time.
    pub mtime: u64,
    /// `None` if both maps are all zero, or both all one.
    maps: Option<Box<Maps>>,
}

impl Segment {
    fn maps(&mut self) -> &mut Maps {
        let fill = if self.valid == 512 { 0xFF } else { 0 };
        self.maps.get_or_insert_with(|| Box::new(Maps { valid: [fill; 64], held: [fill; 64] }))
    }
    fn map(&self) -> &[u8; MAP_BYTES] {
        match &self.maps {
            Some(m) => &m.valid,
            None if self.valid == 512 => &[0xFF; MAP_BYTES],
            None => &[0; MAP_BYTES],
        }
    }
    /// Held blocks that are no longer valid.
    fn dropped(&self) -> impl Iterator<Item = u16> {
        let maps = self.maps.as_deref().filter(|_| self.held > self.valid);
        let is_dropped = |m: &Maps, i: usize| bits::msb_test(&m.held, i) && !bits::msb_test(&m.valid, i);
        maps.into_iter().flat_map(move |m| (0..512_u16).filter(move |&i| is_dropped(m, i.into())))
    }
    fn compact(&mut self) {
        if let Some(m) = &mut self.maps {
            m.held = m.valid;
            self.held = self.valid;
            if self.valid == 0 || self.valid == 512 {
                self.maps = None;
            }
        }
    }
    fn age(&mut self, t: u64) {
        self.mtime = match self.mtime {
            0 => t,
            m => (m.saturating_mul(self.valid.into()).saturating_add(t)) / (u64::from(self.valid) + 1),
        };
    }
    /// The SIT entry.
    pub fn to_entry(&self) -> SitEntry {
        SitEntry { log: self.log, valid: self.valid, map: *self.map(), mtime: self.mtime }
    }
}

/// True if there is a valid block before the `free` free blocks that end at block `off`.
fn bounded_left(off: u16, free: u32) -> bool {
    u32::from(off) > free
}
/// True if there is a valid block after the `free` free blocks that begin after block `off`.
fn bounded_right(off: u16, free: u32) -> bool {
    u32::from(off) + free < 511
}

/// All segments of the main area.
#[derive(Clone)]
pub struct SegmentTable {
    segs: Vec<Segment>,
    per_section: u32,
    free: WordSet,
    free_in_section: Vec<u16>,
    free_secs: WordSet,
    dirty: WordSet,
    prefree: WordSet,
    changed: BTreeSet<SegNo>,
    logs: BTreeSet<SegNo>,
    /// Free fragments with a valid block of the same segment on either side.
    inner: FreeFragments,
    /// Valid blocks of all segments.
    sums: Sums,
    /// Segments whose numbers changed since the last `take_touched`; recorded from its first call on.
    touched: Vec<SegNo>,
    watched: bool,
    /// Holes to discard, if holes are discarded.
    pub(crate) dead: Option<Dead>,
}

/// A block of the main area, counted from its start.
fn block(seg: SegNo, off: u16) -> u64 {
    u64::from(seg.0) * 512 + u64::from(off)
}

impl SegmentTable {
    /// An empty table: everything is free.
    pub fn new(main_segs: u32, per_section: u32) -> Self {
        let sections = main_segs / per_section;
        let mut t = SegmentTable {
            segs: vec![Segment::default(); main_segs as usize],
            per_section,
            free: WordSet::new(main_segs),
            free_in_section: vec![0; sections as usize],
            free_secs: WordSet::new(sections),
            dirty: WordSet::new(main_segs),
            prefree: WordSet::new(main_segs),
            changed: BTreeSet::new(),
            logs: BTreeSet::new(),
            inner: FreeFragments::default(),
            sums: Sums::default(),
            touched: Vec::new(),
            watched: false,
            dead: None,
        };
        for i in 0..main_segs {
            t.put_free(SegNo(i), true);
        }
        t
    }

    /// Loads a SIT entry during mount.
    pub fn load(&mut self, seg: SegNo, e: &SitEntry) {
        let s = &mut self.segs[seg.0 as usize];
        self.sums.sub(s.log, s.valid);
        (s.valid, s.held, s.log, s.mtime) = (e.valid, e.valid, e.log, e.mtime);
        self.sums.add(s.log, s.valid);
        s.maps = (e.valid != 0 && e.valid != 512).then(|| Box::new(Maps { valid: e.map, held: e.map }));
        if s.maps.is_some() {
            s.fragmentation = Fragmentation::scan(&e.map);
            fragmentation::each_run(&e.map, |start, run| {
                if start > 0 && start + run < 512 {
                    self.inner.add(run.into());
                }
            });
        }
        let used = e.valid != 0;
        self.put_free(seg, !used);
        self.dirty.put(seg.0, used && e.valid < 512);
    }

    /// The state of a segment.
    pub fn segment(&self, seg: SegNo) -> &Segment {
        &self.segs[seg.0 as usize]
    }
    /// Sections without a used segment.
    pub fn free_sections(&self) -> u32 {
        self.free_secs.len()
    }
    /// Segments without a valid block that have no log and do not wait for a checkpoint.
    pub fn free_segments(&self) -> u32 {
        self.free.len()
    }
    /// Prefree segments: the next checkpoint frees them.
    pub fn prefree_segments(&self) -> u32 {
        self.prefree.len()
    }
    /// The first prefree segment.
    pub fn first_prefree(&self) -> Option<SegNo> {
        self.prefree.next(0).map(SegNo)
    }
    /// The first segments of sections that the next checkpoint frees.
    pub fn emptied_sections(&self) -> impl Iterator<Item = SegNo> {
        let gone = |seg: SegNo| self.prefree.has(seg.0) || self.free.has(seg.0);
        let sections = (0..self.segs.len() as u32 / self.per_section).map(SecNo);
        sections.filter(move |sec| self.section(*sec).all(gone)).map(|sec| SegNo(sec.0 * self.per_section))
    }
    /// True if the segment is dirty: used, with invalid blocks, and without a log.
    pub fn is_dirty(&self, seg: SegNo) -> bool {
        self.dirty.has(seg.0)
    }
    /// Number of dirty segments.
    pub fn dirty_count(&self) -> u32 {
        self.dirty.len()
    }
    /// The segments logs write to.
    pub fn logs(&self) -> impl Iterator<Item = SegNo> {
        self.logs.iter().copied()
    }
    /// True if the segment is one a log writes to.
    pub fn is_log(&self, seg: SegNo) -> bool {
        self.segs[seg.0 as usize].in_log
    }
    /// True if block `off` is valid.
    pub fn is_valid(&self, seg: SegNo, off: u16) -> bool {
        let s = &self.segs[seg.0 as usize];
        match &s.maps {
            Some(m) => bits::msb_test(&m.valid, off.into()),
            None => s.valid == 512,
        }
    }
    /// True if block `off` must not be overwritten before the next checkpoint.
    pub fn is_held(&self, seg: SegNo, off: u16) -> bool {
        let s = &self.segs[seg.0 as usize];
        match &s.maps {
            Some(m) => bits::msb_test(&m.held, off.into()),
            None => s.valid == 512,
        }
    }
    /// Valid blocks of all segments.
    pub fn sums(&self) -> Sums {
        self.sums
    }
    /// The same, recounted over all segments.
    pub(crate) fn sums_anew(&self) -> Sums {
        let mut sums = Sums::default();
        self.segs.iter().for_each(|s| sums.add(s.log, s.valid));
        sums
    }
    /// The valid map, most significant bit first.
    pub fn map(&self, seg: SegNo) -> &[u8; MAP_BYTES] {
        self.segs[seg.0 as usize].map()
    }
    /// Free fragments inside a segment, between valid blocks.
    pub(super) fn inner_fragments(&self) -> &FreeFragments {
        &self.inner
    }
    /// The segments whose numbers changed since the last call, each once, in no order; the first call returns every
    /// segment with valid blocks.
    pub fn take_touched(&mut self) -> Vec<SegNo> {
        if !std::mem::replace(&mut self.watched, true) {
            return (0..self.segs.len() as u32).map(SegNo).filter(|&s| self.segment(s).valid > 0).collect();
        }
        let out = std::mem::take(&mut self.touched);
        for &seg in &out {
            self.segs[seg.0 as usize].touched = false;
        }
        out
    }
    /// The first block from `from` on that is not held; 512 if there is none.
    pub fn next_hole(&self, seg: SegNo, from: u16) -> u16 {
        let s = &self.segs[seg.0 as usize];
        match &s.maps {
            Some(m) => (from..512).find(|&i| !bits::msb_test(&m.held, i.into())).unwrap_or(512),
            None if s.valid == 512 => 512,
            None => from,
        }
    }

    /// Marks block `off` as written by a log.
    pub fn set_valid(&mut self, seg: SegNo, off: u16, log: LogType, age: u64) -> Result<()> {
        let s = &mut self.segs[seg.0 as usize];
        s.age(age);
        let m = s.maps();
        let (before, after) = fragmentation::around(&m.valid, off);
        if bits::msb_put(&mut m.valid, off.into(), true) {
            return Err(Error::corrupt(format_args!("segment {seg}, block {off}: handed out twice (log {log:?})")));
        }
        if let Some(dead) = &mut self.dead {
            dead.leave_out(block(seg, off), 1);
        }
        if !bits::msb_put(&mut m.held, off.into(), true) {
            s.held += 1;
        }
        s.fragmentation.split(before, after);
        s.valid += 1;
        self.sums.add(s.log, 1);
        let left = bounded_left(off, before);
        let right = bounded_right(off, after);
        if left && right {
            self.inner.remove(u64::from(before + 1 + after));
        }
        if left {
            self.inner.add(before.into());
        }
        if right {
            self.inner.add(after.into());
        }
        self.note_change(seg);
        Ok(())
    }

    /// Refuses a block that is not valid.
    pub fn check_valid(&self, seg: SegNo, off: u16) -> Result<()> {
        match self.is_valid(seg, off) {
            true => Ok(()),
            false => Err(Error::corrupt(format_args!(
                "segment {seg}, block {off}: given up but not valid in the segment table"
            ))),
        }
    }

    /// Marks block `off` as invalid. If `age` is `Some`, it counts for the segment's age.
    pub fn clear_valid(&mut self, seg: SegNo, off: u16, age: Option<u64>) -> Result<()> {
        self.check_valid(seg, off)?;
        let s = &mut self.segs[seg.0 as usize];
        if let Some(age) = age {
            s.age(age);
        }
        let m = s.maps();
        let (before, after) = fragmentation::around(&m.valid, off);
        bits::msb_put(&mut m.valid, off.into(), false);
        s.fragmentation.join(before, after);
        s.valid -= 1;
        self.sums.sub(s.log, 1);
        let left = bounded_left(off, before);
        let right = bounded_right(off, after);
        if left {
            self.inner.remove(before.into());
        }
        if right {
            self.inner.remove(after.into());
        }
        if left && right {
            self.inner.add(u64::from(before + 1 + after));
        }
        self.note_change(seg);
        self.relocate(seg);
        Ok(())
    }

    /// Marks block `off` as valid: recovery found that it was written after the checkpoint. An error if it is valid
    /// already.
    pub fn adopt(&mut self, seg: SegNo, off: u16, log: LogType, age: u64) -> Result<()> {
        if self.segs[seg.0 as usize].valid == 0 && !self.is_log(seg) {
            self.segs[seg.0 as usize].log = log;
        }
        self.put_free(seg, false);
        self.set_valid(seg, off, log, age)?;
        self.relocate(seg);
        Ok(())
    }

    /// Holds block `off`: nothing overwrites it before the next checkpoint.
    pub fn hold(&mut self, seg: SegNo, off: u16) {
        self.put_free(seg, false);
        let s = &mut self.segs[seg.0 as usize];
        if !bits::msb_put(&mut s.maps().held, off.into(), true) {
            s.held += 1;
        }
        self.note_change(seg);
        self.relocate(seg);
    }

    /// Opens a free segment for a log.
    pub fn take(&mut self, seg: SegNo, log: LogType) {
        self.put_free(seg, false);
        self.enter(seg, log);
    }
    /// Opens a used segment for a threaded log.
    pub fn take_threaded(&mut self, seg: SegNo, log: LogType) {
        self.enter(seg, log);
    }
    /// At mount: the log is in this segment according to the checkpoint.
    pub fn resume(&mut self, seg: SegNo, log: LogType) {
        self.put_free(seg, false);
        self.dirty.put(seg.0, false);
        self.logs.insert(seg);
        let s = &mut self.segs[seg.0 as usize];
        s.in_log = true;
        if s.log != log {
            self.sums.sub(s.log, s.valid);
            s.log = log;
            self.sums.add(s.log, s.valid);
            self.note_change(seg);
        }
    }
    fn enter(&mut self, seg: SegNo, log: LogType) {
        self.logs.insert(seg);
        let s = &mut self.segs[seg.0 as usize];
        s.in_log = true;
        self.sums.sub(s.log, s.valid);
        s.log = log;
        self.sums.add(s.log, s.valid);
        self.dirty.put(seg.0, false);
        self.prefree.put(seg.0, false);
        self.note_change(seg);
    }
    /// Closes a log's segment.
    pub fn release_log(&mut self, seg: SegNo) {
        self.logs.remove(&seg);
        self.segs[seg.0 as usize].in_log = false;
        self.note_change(seg);
        self.relocate(seg);
    }

    /// The segment after `seg`, if it is in the same section and free.
    pub fn next_in_section(&self, seg: SegNo) -> Option<SegNo> {
        let next = seg.0 + 1;
        (!next.is_multiple_of(self.per_section) && self.free.has(next)).then_some(SegNo(next))
    }
    /// First segment of a free section after the one of `hint`, wrapping around.
    pub fn free_section_after(&self, hint: SegNo) -> Option<SegNo> {
        let from = hint.0 / self.per_section;
        let sec = self.free_secs.next(from).or_else(|| self.free_secs.next(0))?;
        Some(SegNo(sec * self.per_section))
    }
    /// Segments of a section.
    pub fn section(&self, sec: SecNo) -> impl Iterator<Item = SegNo> + use<> {
        let first = sec.0 * self.per_section;
        (first..first + self.per_section).map(SegNo)
    }

    /// Number of segments whose SIT entries changed since the last checkpoint.
    pub fn changed_count(&self) -> usize {
        self.changed.len()
    }
    /// Segments whose SIT entry changed since the last checkpoint.
    pub fn changed(&self) -> impl Iterator<Item = SegNo> {
        self.changed.iter().copied()
    }

    /// After a durable checkpoint: frees blocks that it does not need. Returns the freed segments.
    pub fn commit(&mut self) -> Vec<SegNo> {
        for seg in std::mem::take(&mut self.changed) {
            let s = &mut self.segs[seg.0 as usize];
            s.changed = false;
            if let Some(dead) = &mut self.dead {
                s.dropped().for_each(|off| dead.add(block(seg, off), 1));
            }
            s.compact();
            self.touch(seg);
        }
        let freed: Vec<SegNo> = self.prefree.iter().map(SegNo).collect();
        for &seg in &freed {
            self.prefree.put(seg.0, false);
            self.put_free(seg, true);
            if let Some(dead) = &mut self.dead {
                dead.leave_out(block(seg, 0), 512);
            }
        }
        freed
    }

    /// Puts a segment on the list of [`SegmentTable::take_touched`].
    pub(crate) fn touch(&mut self, seg: SegNo) {
        let s = &mut self.segs[seg.0 as usize];
        if self.watched && !s.touched {
            s.touched = true;
            self.touched.push(seg);
        }
    }

    /// A copy that lists its own changes.
    pub(super) fn apart(&self) -> SegmentTable {
        let mut copy = self.clone();
        copy.watched = false;
        copy.dead = None;
        for seg in std::mem::take(&mut copy.touched) {
            copy.segs[seg.0 as usize].touched = false;
        }
        copy
    }

    fn note_change(&mut self, seg: SegNo) {
        self.touch(seg);
        let s = &mut self.segs[seg.0 as usize];
        if !s.changed {
            s.changed = true;
            self.changed.insert(seg);
        }
    }

    /// Classifies a segment as dirty, prefree, or neither.
    fn relocate(&mut self, seg: SegNo) {
        let s = &self.segs[seg.0 as usize];
        if s.in_log {
            return;
        }
        let valid = s.valid;
        self.prefree.put(seg.0, valid == 0);
        self.dirty.put(seg.0, valid > 0 && valid < 512);
    }

    fn put_free(&mut self, seg: SegNo, free: bool) {
        if self.free.put(seg.0, free) == free {
            return;
        }
        let sec = seg.0 / self.per_section;
        let n = &mut self.free_in_section[sec as usize];
        *n = if free { *n + 1 } else { *n - 1 };
        let whole = u32::from(*n) == self.per_section;
        self.free_secs.put(sec, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_given_up_since_the_checkpoint_is_no_hole_before_the_next() {
        let mut t = SegmentTable::new(8, 1);
        t.take(SegNo(2), LogType::WarmData);
        for off in 0..4 {
            t.set_valid(SegNo(2), off, LogType::WarmData, 1).unwrap();
        }
        t.release_log(SegNo(2));
        t.clear_valid(SegNo(2), 1, Some(1)).unwrap();
        assert_eq!(t.next_hole(SegNo(2), 0), 4);
        t.commit();
        assert_eq!(t.next_hole(SegNo(2), 0), 1);
    }

    #[test]
    fn an_emptied_segment_is_free_only_after_the_checkpoint() {
        let mut t = SegmentTable::new(8, 2);
        t.take(SegNo(0), LogType::WarmData);
        t.set_valid(SegNo(0), 0, LogType::WarmData, 1).unwrap();
        t.release_log(SegNo(0));
        t.clear_valid(SegNo(0), 0, Some(1)).unwrap();
        assert_eq!((t.free_segments(), t.free_sections()), (7, 3));
        assert_eq!(t.commit(), [SegNo(0)]);
        assert_eq!((t.free_segments(), t.free_sections()), (8, 4));
    }
}
