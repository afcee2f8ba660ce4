//! Greedy: the unit with the fewest valid blocks (kernel `GC_GREEDY`), and the segment whose holes a
//! log fills when free segments are short (kernel `SSR`).
//!
//! Ties go to the first from where the last search ended, wrapping around once. In the background no
//! more than [`Tuning::max_victim_search`] candidates are looked at, and the next search goes on
//! behind them, so that this is the best of a window and not of the volume.

use format::SegNo;
use format::sit::LogType;

use super::memory::{Ask, Choice, Memory, Tuning};
use super::{Candidate, View};

/// Blocks of a segment.
const SEGMENT: u32 = 512;

/// The cheapest unit to empty now.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask) -> (Option<Choice>, Memory) {
    // Kernel `get_max_cost`: nothing dearer is ever chosen.
    let bar = 2 * SEGMENT * ask.unit;
    let mut memory = *memory;
    let start = memory.next_greedy;
    if searches_all(view, tuning, ask) {
        // The first of the emptiest from `start` on, then from the beginning up to it.
        let after = view.emptiest(start, ask.end);
        let before = view.emptiest(SegNo(0), start);
        let best = match (after, before) {
            (Some(a), Some(b)) if b.valid < a.valid => Some(b),
            (a, b) => a.or(b),
        };
        memory.next_greedy = end_of_full_search(view, start, ask);
        let choice = best.filter(|c| c.valid < bar).map(|c| Choice { victim: c, cost: c.valid });
        return (choice, memory);
    }
    let mut best: Option<Choice> = None;
    memory.next_greedy = search(view, start, tuning.max_victim_search, ask, |c| {
        if c.valid < best.map_or(bar, |b| b.cost) {
            best = Some(Choice { victim: c, cost: c.valid });
        }
    });
    (best, memory)
}

/// The segment a log of `kind` threads into: of candidates of that kind the one with the fewest blocks
/// held by the last checkpoint.
pub fn choose_to_thread(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask,
    kind: LogType,
) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    // Hot data and nodes begin at the beginning of the volume.
    let start = match kind {
        LogType::WarmData | LogType::ColdData => memory.next_greedy,
        _ => SegNo(0),
    };
    let limit = match ask.urgent {
        true => view.count(),
        false => tuning.max_victim_search.min(view.count()),
    };
    let mut best: Option<Choice> = None;
    let next = search_from(view, start, memory.next_greedy, limit, ask, |c| {
        if c.held < best.map_or(SEGMENT, |b| b.cost) {
            best = Some(Choice { victim: c, cost: c.held });
        }
    });
    memory.next_greedy = next;
    (best, memory)
}

fn searches_all(view: &dyn View, tuning: &Tuning, ask: Ask) -> bool {
    ask.foreground || ask.urgent || view.count() <= tuning.max_victim_search
}

/// Where a search over all candidates leaves off, as [`search`] would say.
fn end_of_full_search(view: &dyn View, start: SegNo, ask: Ask) -> SegNo {
    let mut last = None;
    // The last one looked at: the greatest below `start`, or of all if there is none below.
    last_below(view, start, &mut last);
    let wrapped = last.is_some();
    if last.is_none() {
        last_below(view, ask.end, &mut last);
    }
    match last {
        Some(seg) => next_start(seg, start, wrapped, ask),
        None => SegNo(0),
    }
}

fn last_below(view: &dyn View, end: SegNo, last: &mut Option<SegNo>) {
    // From the end in growing steps: the last candidate is near it on any volume in use.
    let mut span = 1024;
    loop {
        let from = SegNo(end.0.saturating_sub(span));
        view.scan(from, end, &mut |c| {
            *last = Some(c.seg);
            true
        });
        if last.is_some() || from.0 == 0 {
            return;
        }
        span = span.saturating_mul(4);
    }
}

/// Kernel `f2fs_get_victim`: where the next search begins after one that reached its limit at `seg`.
fn next_start(seg: SegNo, start: SegNo, wrapped: bool, ask: Ask) -> SegNo {
    let next = if wrapped && seg <= start { start.0 + ask.unit } else { seg.0 + ask.unit };
    SegNo(next % ask.end.0.max(1))
}

/// Looks at `limit` candidates from `start` on, wrapping around once; says where the next search begins.
pub(super) fn search(view: &dyn View, start: SegNo, limit: u32, ask: Ask, each: impl FnMut(Candidate)) -> SegNo {
    search_from(view, start, start, limit, ask, each)
}

/// The same for a search that begins at `start` while the last one ended at `last`.
fn search_from(
    view: &dyn View,
    start: SegNo,
    last: SegNo,
    limit: u32,
    ask: Ask,
    mut each: impl FnMut(Candidate),
) -> SegNo {
    let mut seen = 0;
    let mut reached = None;
    if limit == 0 {
        return last;
    }
    view.scan(start, ask.end, &mut |c| {
        seen += 1;
        each(c);
        if seen >= limit {
            reached = Some(c.seg);
        }
        reached.is_none()
    });
    if let Some(seg) = reached {
        return next_start(seg, last, last.0 == 0, ask);
    }
    // Behind the end the search goes on at the beginning, up to where the last one ended.
    view.scan(SegNo(0), last, &mut |c| {
        seen += 1;
        each(c);
        if seen >= limit {
            reached = Some(c.seg);
        }
        reached.is_none()
    });
    match reached {
        Some(seg) => next_start(seg, last, true, ask),
        None => SegNo(0),
    }
}
