//! Which segments are of similar age to the moved blocks?
//!
//! As in the kernel's `AT_SSR` (`atssr_lookup_victim`). Segments of one kind that are older than the youngest
//! by the threshold are sorted by age. From the place of the moved block's segment, a search examines the
//! same number of segments as ATGC compares, towards the oldest and then towards the youngest. It skips
//! segments without a block to overwrite and does not count them.
//!
//! In the kernel the start depends on the shape of its tree: the last segment that is no younger, or the next
//! one, whichever lies deeper. Here the search always starts at the former (or at the latter if there is no
//! former), so the far ends of the range may differ by one segment.

use std::ops::Range;

use format::SegNo;
use format::sit::LogType;

use crate::greedy;
use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::oldest::{self, Eligible};
use crate::view::{Among, Bounds, Candidate, View, end_of};

/// The segments of similar age.
#[derive(Debug)]
pub struct Neighbours {
    /// Places among the open segments no younger than the moved blocks; the nearest is the last.
    older: Range<u32>,
    /// The places that follow, towards the youngest.
    younger: Range<u32>,
    /// Older and younger segments whose places are in neither range, see [`oldest::Eligible`].
    more: [Vec<Candidate>; 2],
    /// One second after the youngest candidate ever seen.
    pub max: u64,
    /// Where the scan started: among equals, segments from here on come first.
    first: SegNo,
}

impl Neighbours {
    fn gather(
        view: &dyn View,
        memory: &mut Memory,
        tuning: &Tuning,
        ask: Ask<'_>,
        moved: Moved,
        threshold: u64,
    ) -> Option<Neighbours> {
        let Moved { kind, mtime } = moved;
        let first = greedy::start(memory, kind);
        memory.last_victim_greedy = ask.look_at_all(view, first);
        let before = oldest::see(view, memory)?.before;
        let max = memory.dirty_max_mtime.saturating_add(1);
        let Eligible { sure, more } = oldest::eligible(view, first, before, threshold, memory.dirty_max_mtime);
        let radius = oldest::compared(tuning, sure + more.len() as u32);

        // In age order: the open segments among the `sure` ones, then those of `more`.
        let cut = sure.checked_sub(1).and_then(|n| view.nth_oldest(Among::All, n));
        let end = cut.map_or(0, |cut| view.count_to(Among::Open, cut));
        let nearest = match more.iter().rfind(|c| c.mtime <= mtime).or(more.first().filter(|_| sure == 0)) {
            Some(c) => Some(c.place()),
            None => view.nth_oldest(Among::All, view.count_up_to(mtime).min(sure).saturating_sub(1)),
        };
        let open: Vec<Candidate> = more.into_iter().filter(|c| c.is(Among::Open, ask.unit)).collect();
        let at = |n: u32| match n.checked_sub(end) {
            None => view.nth_oldest(Among::Open, n),
            Some(n) => open.get(n as usize).map(Candidate::place),
        };
        // In the kernel the nearest open segment counts on both sides; here it is in the older range only. If no
        // segment is as old as the moved blocks, the nearest is the oldest of all.
        let no_younger = view.count_to(Among::Open, end_of(mtime)).min(end)
            + open.iter().filter(|c| c.mtime <= mtime).count() as u32;
        let middle = no_younger.max(u32::from(at(0).is_some() && at(0) == nearest));
        let twice = middle > 0 && at(middle - 1) == nearest;
        let older = middle.saturating_sub(radius)..middle;
        let younger = middle..middle.saturating_add(radius - u32::from(twice)).min(end + open.len() as u32);
        let rest = |r: &Range<u32>| {
            let index = |n: u32| n.saturating_sub(end) as usize;
            open[index(r.start)..index(r.end)].to_vec()
        };
        let more = [rest(&older), rest(&younger)];
        let sure = |r: Range<u32>| r.start.min(end)..r.end.min(end);
        Some(Neighbours { older: sure(older), younger: sure(younger), more, max, first })
    }

    /// The best on the older and on the younger side: the highest `rank`, of equals the nearest in age order.
    pub fn best(
        &self,
        view: &dyn View,
        limit: &dyn Fn(&Bounds) -> [u64; 2],
        rank: &dyn Fn(&Candidate) -> [u64; 2],
    ) -> [Option<Candidate>; 2] {
        let turn_of = |seg: SegNo| u64::from(seg < self.first) << 32 | u64::from(seg.0);
        let turn = |c: &Candidate| turn_of(c.seg);
        // Positions in the scan of the first and the last of the segments from `a` to `b`.
        let turns = |(a, b): (SegNo, SegNo)| {
            let early = if b < self.first { a } else { a.max(self.first) };
            let late = if a < self.first { b.min(SegNo(self.first.0 - 1)) } else { b };
            (turn_of(early), turn_of(late))
        };
        let with = |[a, b]: [u64; 2], c, d| [a, b, c, d];
        let late = |c: &Candidate| with(rank(c), c.mtime, turn(c));
        let early = |c: &Candidate| with(rank(c), u64::MAX - c.mtime, u64::MAX - turn(c));
        let older = view.search(Among::Open, self.older.clone(), &|b| with(limit(b), b.mtime.1, turns(b.seg).1), &late);
        let most = |b: &Bounds| with(limit(b), u64::MAX - b.mtime.0, u64::MAX - turns(b.seg).0);
        let younger = view.search(Among::Open, self.younger.clone(), &most, &early);
        let [more_older, more_younger] = &self.more;
        [
            older.into_iter().chain(more_older.iter().copied()).max_by_key(late),
            younger.into_iter().chain(more_younger.iter().copied()).max_by_key(early),
        ]
    }
}

/// The blocks that move.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// Kind of the segment that takes them.
    pub kind: LogType,
    /// Write time of the segment they leave.
    pub mtime: u64,
}

/// A policy's choice among segments of similar age.
pub type Pick = fn(&dyn View, &Neighbours, Moved) -> Option<Choice>;

/// The segment whose holes take the moved blocks. The view holds segments of one kind, and units are segments.
pub fn target(
    pick: Pick,
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    moved: Moved,
) -> (Option<Choice>, Memory) {
    oldest::old_enough(view, memory, tuning, ask, |memory, threshold| {
        pick(view, &Neighbours::gather(view, memory, tuning, ask, moved, threshold)?, moved)
    })
}
