//! Which segments are of similar age to what moves?
//!
//! As the kernel's `AT_SSR` (`atssr_lookup_victim`): segments of one kind that are older than the
//! youngest by the threshold stand in order of age; from the place of the moved block's segment as
//! many as ATGC compares are looked at towards the oldest, then as many towards the youngest. Those
//! without a block to overwrite are skipped and do not count.
//!
//! Where the kernel starts depends on the shape of its tree: at the last segment that is no younger
//! or at the next, whichever lies deeper. Here it is always the former (the latter if there is none),
//! so the far ends of the range may differ by one segment.

use std::ops::Range;

use format::SegNo;
use format::sit::LogType;

use super::memory::{Ask, Choice, Memory, Tuning};
use super::oldest::{self, Eligible};
use super::plain::Plain;
use super::{Among, Bounds, Candidate, View, end_of, greedy};

/// Segments of similar age, as places among those that are open.
#[derive(Debug)]
pub struct Neighbours {
    /// No younger than what moves, the nearest last.
    older: Range<u32>,
    /// From there on towards the youngest.
    younger: Range<u32>,
    /// One second after the youngest candidate ever seen.
    pub max: u64,
    /// Where the scan started: of equals those from here on come first.
    first: SegNo,
    /// Instead of the view, where its order is not the scan's.
    list: Option<Plain>,
}

impl Neighbours {
    fn gather(
        view: &dyn View,
        memory: &mut Memory,
        tuning: &Tuning,
        ask: Ask<'_>,
        kind: LogType,
        mtime: u64,
        threshold: u64,
    ) -> Option<Neighbours> {
        let first = greedy::start(memory, kind);
        memory.last_victim_greedy = ask.look_at_all(view, first);
        let seen = oldest::see(view, memory)?;
        let max = memory.dirty_max_mtime.saturating_add(1);
        let Eligible { sure, more } = oldest::eligible(view, first, seen.before, threshold, memory.dirty_max_mtime);
        if more.is_empty() {
            return Self::around(view, tuning, sure, mtime, max, first, None);
        }
        let mut all = more;
        view.by_age(Among::All, 0..sure, &mut |c| all.push(c));
        let list = Plain::new(ask.unit, all);
        Self::around(&list.clone(), tuning, list.count(), mtime, max, first, Some(list))
    }

    fn around(
        view: &dyn View,
        tuning: &Tuning,
        eligible: u32,
        mtime: u64,
        max: u64,
        first: SegNo,
        list: Option<Plain>,
    ) -> Option<Neighbours> {
        let radius = oldest::compared(tuning, eligible);
        let end = view.count_to(Among::Open, view.nth_oldest(Among::All, eligible.checked_sub(1)?)?);
        let before = view.count_up_to(mtime).min(eligible);
        let here = view.count_to(Among::Open, end_of(mtime)).min(end);
        // The nearest counts on both sides, if it is open; here it is in the older range only.
        let nearest = view.nth_oldest(Among::All, before.saturating_sub(1));
        let open = |n: u32| end > n && view.nth_oldest(Among::Open, n) == nearest;
        let (older, twice) = match before {
            0 => (0..u32::from(open(0)), open(0)),
            _ => (here.saturating_sub(radius)..here, here > 0 && open(here - 1)),
        };
        let start = older.end;
        let younger = start..start.saturating_add(radius - u32::from(twice)).min(end);
        Some(Neighbours { older, younger, max, first, list })
    }

    /// The best on the older and on the younger side: highest by `rank`, of equals the nearest in the
    /// order of age.
    pub fn best(
        &self,
        view: &dyn View,
        limit: &dyn Fn(&Bounds) -> [u64; 2],
        rank: &dyn Fn(&Candidate) -> [u64; 2],
    ) -> [Option<Candidate>; 2] {
        let view = self.list.as_ref().map_or(view, |l| l as &dyn View);
        let turn = |c: &Candidate| u64::from(c.seg < self.first) << 32 | u64::from(c.seg.0);
        let with = |[a, b]: [u64; 2], c, d| [a, b, c, d];
        let older = view.search(Among::Open, self.older.clone(), &|b| with(limit(b), b.mtime.1, u64::MAX), &|c| {
            with(rank(c), c.mtime, turn(c))
        });
        let younger =
            view.search(Among::Open, self.younger.clone(), &|b| with(limit(b), u64::MAX - b.mtime.0, u64::MAX), &|c| {
                with(rank(c), u64::MAX - c.mtime, u64::MAX - turn(c))
            });
        [older, younger]
    }
}

/// What moves.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// The kind of segment it is moved to.
    pub kind: LogType,
    /// When its segment was written.
    pub mtime: u64,
}

/// Chooses among the neighbours; once more without the threshold if there are none and the volume
/// itself is younger.
pub(super) fn choose(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    moved: Moved,
    pick: impl Fn(&Neighbours) -> Option<Choice>,
) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    if ask.total(view) == 0 {
        return (None, memory);
    }
    let mut threshold = tuning.age_threshold;
    loop {
        let near = Neighbours::gather(view, &mut memory, tuning, ask, moved.kind, moved.mtime, threshold);
        match near.and_then(|n| pick(&n)) {
            None if memory.elapsed < threshold => threshold = 0,
            found => return (found, memory),
        }
    }
}
