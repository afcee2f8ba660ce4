//! What is remembered from choice to choice, and the numbers a user may change.
//!
//! Names follow the kernel's: `last_victim` of each mode, `min_mtime`, `max_mtime`,
//! `dirty_max_mtime` of `struct sit_info`, the fields of `struct atgc_management`. All of it lives
//! from mount to unmount.

use format::SegNo;

use crate::view::{Bounds, Candidate, View, Visit};

/// What the choices so far left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Where the next scan by cost and benefit starts.
    pub last_victim_cb: SegNo,
    /// Where the next greedy scan starts; also those for a segment to thread into.
    pub last_victim_greedy: SegNo,
    /// Where the next scan by age starts. It decides between equals only.
    pub last_victim_at: SegNo,
    /// The oldest mean age of a section ever seen, in seconds of mounted time.
    pub min_mtime: u64,
    /// The youngest. Follows the time of the last write: the caller keeps it up.
    pub max_mtime: u64,
    /// The youngest candidate that a choice by age ever saw.
    pub dirty_max_mtime: u64,
    /// Seconds the volume was mounted before this mount (kernel `elapsed_time`).
    pub elapsed: u64,
}

impl Memory {
    /// At mount: `elapsed` seconds mounted before, the oldest section `oldest` (the mean over its
    /// segments, of sections without valid blocks too).
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
    /// Takes an age into account that a choice looked at.
    pub(crate) fn see(&mut self, mtime: u64) {
        self.min_mtime = self.min_mtime.min(mtime);
        self.max_mtime = self.max_mtime.max(mtime);
    }
}

/// Numbers a user may change; the defaults are the kernel's and the papers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Units looked at for one choice in the background (`max_victim_search`).
    pub max_victim_search: u32,
    /// Seconds by which a unit must be older than the youngest to be chosen by age
    /// (`atgc_age_threshold`).
    pub age_threshold: u64,
    /// How many of those are compared, in percent of their number (`atgc_candidate_ratio`).
    pub candidate_ratio: u32,
    /// At least so many are (`atgc_candidate_count`).
    pub candidate_count: u32,
    /// Weight of age in percent under ATGC; the rest is the weight of invalid blocks
    /// (`atgc_age_weight`).
    pub age_weight: u32,
    /// Weight of age in percent under FAGC.
    pub fagc_age_weight: u32,
    /// Weight of fragmentation in percent under FAGC; what is left is the weight of invalid blocks.
    pub fagc_f_weight: u32,
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
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Somebody waits for space.
    pub foreground: bool,
    /// Cleaning was told to hurry (kernel `GC_URGENT_HIGH`): no search window.
    pub urgent: bool,
    /// Number of main segments.
    pub end: SegNo,
    /// Segments in a unit.
    pub unit: u32,
    /// Units with invalid blocks that may not be chosen and are no candidates, in ascending order: being
    /// cleaned, or shared with a log. The kernel counts them as looked at.
    pub passed: &'a [SegNo],
}

impl<'a> Ask<'a> {
    /// In the background, without hurry.
    pub const fn background(end: SegNo, unit: u32) -> Self {
        Ask { foreground: false, urgent: false, end, unit, passed: &[] }
    }
    /// How many units one choice looks at.
    pub(crate) fn window(&self, view: &dyn View, tuning: &Tuning) -> u32 {
        match self.foreground || self.urgent {
            true => self.total(view),
            false => self.total(view).min(tuning.max_victim_search),
        }
    }
    /// How many there are to look at.
    pub(crate) fn total(&self, view: &dyn View) -> u32 {
        view.count() + self.passed.len() as u32
    }
    /// Blocks in a unit.
    pub(crate) fn capacity(&self) -> u32 {
        512 * self.unit
    }
    /// Looks at units from `from` to the end and then from the start to `from`, at most `window` of
    /// them. Returns where the next scan starts: behind the last unit looked at, or one unit behind
    /// `from` if that lies before it.
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
    /// Where the next scan starts if this one began at `from` and looks at all there is.
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
    /// Behind `(wrapped, seg)`, the last unit looked at.
    pub(crate) fn after(&self, from: SegNo, at: Option<(bool, SegNo)>) -> SegNo {
        let next = match at {
            None => return from,
            Some((true, _)) => from,
            Some((false, seg)) => seg,
        };
        SegNo((next.0 + self.unit) % self.end.0.max(1))
    }
}

/// Who looks for the best unit.
pub(crate) trait Look {
    /// True if nothing within the bounds could be chosen or leave anything behind.
    fn hopeless(&self, bounds: &Bounds) -> bool;
    /// Looks at a unit.
    fn take(&mut self, c: Candidate);
}

/// A scan under way.
struct Scan<'a> {
    /// Units still to look at.
    left: u32,
    /// The last one looked at, and whether it lies before the start.
    at: Option<(bool, SegNo)>,
    wrapped: bool,
    /// Those to come that may not be chosen.
    passed: &'a [SegNo],
    look: &'a mut dyn Look,
}

impl Scan<'_> {
    fn count(&mut self, seg: SegNo, units: u32) -> bool {
        self.left = self.left.saturating_sub(units);
        self.at = Some((self.wrapped, seg));
        self.left > 0
    }
    /// Passes over the next unit that may not be chosen, if it lies before `seg`.
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

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The unit.
    pub victim: Candidate,
    /// Its cost; lower is better. For the kernel's policies what its tracepoint `f2fs_get_victim` prints.
    pub cost: u32,
}
