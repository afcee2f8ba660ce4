//! What does a policy remember from choice to choice, and which numbers may a user change?
//!
//! Names follow the kernel's: `last_victim` of each mode; `min_mtime`, `max_mtime` and `dirty_max_mtime` of
//! `struct sit_info`; the fields of `struct atgc_management`. All of it lasts from mount to unmount.

use format::SegNo;

use crate::view::{Bounds, Candidate, View, Visit};

/// State that earlier choices left for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Where the next cost-benefit scan starts.
    pub last_victim_cb: SegNo,
    /// Where the next greedy scan starts, for a victim or for a segment to thread into.
    pub last_victim_greedy: SegNo,
    /// Where the next scan by age starts. This matters only between equals.
    pub last_victim_at: SegNo,
    /// The oldest mean write time of a section ever seen, in seconds of mounted time.
    pub min_mtime: u64,
    /// The youngest mean write time ever seen. The caller keeps it at least at the time of the last write.
    pub max_mtime: u64,
    /// The youngest candidate that an age-based choice ever saw.
    pub dirty_max_mtime: u64,
    /// Seconds the volume was mounted before this mount (kernel `elapsed_time`).
    pub elapsed: u64,
}

impl Memory {
    /// The memory at mount: the volume was mounted for `elapsed` seconds before, and the mean write time of
    /// its oldest section is `oldest` (the mean over its segments; sections without valid blocks count too).
    pub fn at_mount(elapsed: u64, oldest: u64) -> Self {
        Memory {
            last_victim_cb: SegNo(0),
            last_victim_greedy: SegNo(0),
            last_victim_at: SegNo(0),
            min_mtime: oldest,
            max_mtime: elapsed,
            dirty_max_mtime: 0,
            elapsed,
        }
    }
    /// Widens the range of known write times to include `mtime`.
    pub(crate) fn see(&mut self, mtime: u64) {
        self.min_mtime = self.min_mtime.min(mtime);
        self.max_mtime = self.max_mtime.max(mtime);
    }
}

/// The numbers that a user may change; the defaults are the kernel's and the papers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Most units that one background choice examines (`max_victim_search`).
    pub max_victim_search: u32,
    /// Least age difference to the youngest, in seconds, for an age-based policy (`atgc_age_threshold`).
    pub age_threshold: u64,
    /// Share of those units that the policy compares, in percent (`atgc_candidate_ratio`).
    pub candidate_ratio: u32,
    /// Least number of units that it compares (`atgc_candidate_count`).
    pub candidate_count: u32,
    /// Weight of age in percent under ATGC; the rest is the weight of invalid blocks (`atgc_age_weight`).
    pub age_weight: u32,
    /// Weight of age in percent under FAGC.
    pub fagc_age_weight: u32,
    /// Weight of fragmentation in percent under FAGC; the rest is the weight of invalid blocks.
    pub fagc_f_weight: u32,
    /// Background cleaning skips units with at least this percentage of valid blocks
    /// (`gc_valid_thresh_ratio`; Linux applies it on zoned volumes only).
    pub too_full: Option<u32>,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            max_victim_search: 4096,
            age_threshold: 604_800,
            candidate_ratio: 20,
            candidate_count: 10,
            age_weight: 60,
            fagc_age_weight: 40,
            fagc_f_weight: 40,
            too_full: None,
        }
    }
}

/// Parameters of one choice.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// True if a writer waits for space.
    pub foreground: bool,
    /// True in urgent mode (kernel `GC_URGENT_HIGH`): the search window is the whole volume.
    pub urgent: bool,
    /// Number of main segments.
    pub end: SegNo,
    /// Segments in a unit.
    pub unit: u32,
    /// Units with invalid blocks that no policy may choose, in ascending order: a unit being cleaned, or one
    /// that shares its section with a log. They are not candidates, but count towards the search window, as
    /// in the kernel.
    pub passed: &'a [SegNo],
}

impl<'a> Ask<'a> {
    /// In the background, not urgent.
    pub const fn background(end: SegNo, unit: u32) -> Self {
        Ask { foreground: false, urgent: false, end, unit, passed: &[] }
    }
    /// Most units that one choice examines.
    pub(crate) fn window(&self, view: &dyn View, tuning: &Tuning) -> u32 {
        match self.foreground || self.urgent {
            true => self.total(view),
            false => self.total(view).min(tuning.max_victim_search),
        }
    }
    /// Number of candidates and `passed` units.
    pub(crate) fn total(&self, view: &dyn View) -> u32 {
        view.count() + self.passed.len() as u32
    }
    /// Blocks in a unit.
    pub(crate) fn capacity(&self) -> u32 {
        512 * self.unit
    }
    /// Examines units from `from` to the end of the volume, then from its start to `from`, at most `window`
    /// of them. Returns where the next scan starts: behind the last unit examined, or one unit behind `from`
    /// if that unit lies before `from`.
    pub(crate) fn look(&self, view: &dyn View, from: SegNo, window: u32, look: &mut dyn Look) -> SegNo {
        let mut scan = Scan { left: window, at: None, wrapped: false, passed: self.passed, look };
        for (wrapped, a, b) in [(false, from, self.end), (true, SegNo(0), from)] {
            let among = |seg: SegNo| self.passed.partition_point(|&p| p < seg);
            scan.passed = &self.passed[among(a)..among(b).max(among(a))];
            scan.wrapped = wrapped;
            if scan.left > 0 {
                view.walk(a, b, &mut scan);
            }
            while scan.left > 0 && scan.pass(b) {}
        }
        self.after(from, scan.at)
    }
    /// Where the next scan starts if this one began at `from` and examined every unit.
    pub(crate) fn look_at_all(&self, view: &dyn View, from: SegNo) -> SegNo {
        let wrapped = self.passed.first().is_some_and(|&p| p < from) || {
            let mut any = false;
            view.scan(SegNo(0), from, &mut |_| {
                any = true;
                false
            });
            any
        };
        let last = view.last().max(self.passed.last().copied());
        self.after(from, last.map(|l| (wrapped, l)))
    }
    /// The place behind `(wrapped, seg)`, the last unit examined.
    pub(crate) fn after(&self, from: SegNo, at: Option<(bool, SegNo)>) -> SegNo {
        let next = match at {
            None => return from,
            Some((true, _)) => from,
            Some((false, seg)) => seg,
        };
        SegNo((next.0 + self.unit) % self.end.0.max(1))
    }
}

/// A search for the best unit, driven by a scan.
pub(crate) trait Look {
    /// True if no unit within the bounds could be chosen or change the memory: the scan skips them.
    fn hopeless(&self, bounds: &Bounds) -> bool;
    /// Examines a unit.
    fn take(&mut self, c: Candidate);
}

/// State of a scan.
struct Scan<'a> {
    /// Units it may still examine.
    left: u32,
    /// The last unit examined, and whether it lies before the start.
    at: Option<(bool, SegNo)>,
    wrapped: bool,
    /// Units ahead that no policy may choose.
    passed: &'a [SegNo],
    look: &'a mut dyn Look,
}

impl Scan<'_> {
    fn count(&mut self, seg: SegNo, units: u32) -> bool {
        self.left = self.left.saturating_sub(units);
        self.at = Some((self.wrapped, seg));
        self.left > 0
    }
    /// Counts the next unit that no policy may choose, if it lies before `seg`.
    fn pass(&mut self, seg: SegNo) -> bool {
        let Some((&first, rest)) = self.passed.split_first().filter(|(p, _)| **p < seg) else { return false };
        self.passed = rest;
        self.count(first, 1);
        true
    }
}

impl Visit for Scan<'_> {
    fn passes(&mut self, bounds: &Bounds, count: u32, last: SegNo) -> bool {
        let pass = self.passed.is_empty() && count < self.left && self.look.hopeless(bounds);
        if pass {
            self.count(last, count);
        }
        pass
    }
    fn visit(&mut self, c: Candidate) -> bool {
        while self.left > 0 && self.pass(c.seg) {}
        if self.left == 0 {
            return false;
        }
        self.look.take(c);
        self.count(c.seg, 1)
    }
}

/// What a policy chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The unit.
    pub victim: Candidate,
    /// Its cost; lower is better. For the kernel's policies the number in the tracepoint `f2fs_get_victim`.
    pub cost: u32,
}
