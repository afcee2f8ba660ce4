//! Greedy: which section has the fewest valid blocks? And for a log that fills holes because free segments
//! run short: which segment has the fewest held blocks?
//!
//! Kernel `GC_GREEDY` and `SSR`. The cost of a victim is the number of its valid blocks; the cost of a
//! segment to thread into also counts the blocks that the last checkpoint holds. The scan starts where the
//! last greedy choice ended, and the first of equals wins. In the background a scan examines at most
//! `max_victim_search` units.

use format::SegNo;
use format::sit::LogType;

use crate::memory::{Ask, Choice, Look, Memory, Tuning};
use crate::view::{Bounds, Candidate, View};

/// Searches for the first unit below the bar, which then lowers the bar to its own blocks.
struct Least {
    found: Option<Candidate>,
    bar: u32,
    blocks: fn(&Candidate) -> u32,
}

impl Least {
    fn choice(&self) -> Option<Choice> {
        self.found.map(|victim| Choice { victim, cost: self.bar })
    }
}

impl Look for Least {
    fn hopeless(&self, bounds: &Bounds) -> bool {
        (self.blocks)(&bounds.corner()) >= self.bar
    }
    fn take(&mut self, c: Candidate) {
        let blocks = (self.blocks)(&c);
        if blocks < self.bar {
            (self.found, self.bar) = (Some(c), blocks);
        }
    }
}

/// The unit that is cheapest to empty now; `None` if there are no candidates.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask<'_>) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let from = memory.last_victim_greedy;
    let window = ask.window(view, tuning);
    // Twice the capacity of a unit, which exceeds the cost of every candidate.
    let mut least = Least { found: None, bar: 2 * ask.capacity(), blocks: |c| c.valid };
    memory.last_victim_greedy = if window == ask.total(view) {
        for (a, b) in [(from, ask.end), (SegNo(0), from)] {
            view.emptiest(a, b).into_iter().for_each(|c| least.take(c));
        }
        ask.look_at_all(view, from)
    } else {
        ask.look(view, from, window, &mut least)
    };
    (least.choice(), memory)
}

/// Start of a scan for a segment of this kind: nodes and hot data gather at the start of the volume.
pub(crate) fn start(memory: &Memory, kind: LogType) -> SegNo {
    match kind {
        LogType::WarmData | LogType::ColdData => memory.last_victim_greedy,
        _ => SegNo(0),
    }
}

/// The segment with the most holes for a log of this kind. The view holds only segments of that kind, and
/// units are segments.
pub fn choose_to_thread(
    view: &dyn View,
    memory: &Memory,
    tuning: &Tuning,
    ask: Ask<'_>,
    kind: LogType,
) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    if ask.total(view) == 0 {
        return (None, memory);
    }
    let mut least = Least { found: None, bar: ask.capacity(), blocks: |c| c.held };
    let from = start(&memory, kind);
    memory.last_victim_greedy = ask.look(view, from, ask.window(view, tuning), &mut least);
    (least.choice(), memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::Plain;

    fn c(seg: u32, valid: u32) -> Candidate {
        Candidate { seg: SegNo(seg), valid, held: valid + 1, mtime: 0, f: 0, loose: 0 }
    }
    fn at(last: u32) -> Memory {
        Memory { last_victim_greedy: SegNo(last), ..Memory::at_mount(0, 0) }
    }
    const TEN: Ask<'_> = Ask { foreground: true, urgent: false, end: SegNo(10), unit: 1, passed: &[] };

    /// `SEGMENT:VALID ...`, where the scan starts: victim, and where the next starts.
    fn chosen(state: &[(u32, u32)], last: u32, ask: Ask<'_>) -> (Option<u32>, u32) {
        let view = Plain::new(ask.unit, state.iter().map(|&(s, v)| c(s, v)).collect());
        let (choice, memory) = choose(&view, &at(last), &Tuning::default(), ask);
        let (all, again) = choose(&view, &at(last), &Tuning { max_victim_search: 1000, ..Tuning::default() }, ask);
        assert_eq!((choice, memory), (all, again));
        (choice.map(|c| c.victim.seg.0), memory.last_victim_greedy.0)
    }

    #[test]
    fn the_emptiest_wins_and_of_equals_the_first_from_the_start_of_the_scan() {
        let state = [(3, 9), (5, 4), (7, 4), (8, 6)];
        assert_eq!(chosen(&state, 0, TEN), (Some(5), 9));
        assert_eq!(chosen(&state, 6, TEN), (Some(7), 7));
        assert_eq!(chosen(&state, 9, TEN), (Some(5), 0));
        assert_eq!(chosen(&[], 4, TEN), (None, 4));
    }

    #[test]
    fn a_scan_over_all_ends_behind_the_last_or_one_behind_its_start() {
        assert_eq!(chosen(&[(3, 9), (8, 6)], 0, TEN), (Some(8), 9));
        assert_eq!(chosen(&[(3, 9), (9, 6)], 0, TEN), (Some(9), 0));
        // Units remain behind the start: no wrap.
        assert_eq!(chosen(&[(5, 9), (7, 6)], 4, TEN), (Some(7), 8));
        // Wrapped.
        assert_eq!(chosen(&[(3, 2), (7, 6)], 4, TEN), (Some(3), 5));
        assert_eq!(chosen(&[(3, 2)], 4, TEN), (Some(3), 5));
    }

    #[test]
    fn units_that_may_not_be_chosen_move_the_scan_on() {
        let ask = Ask { passed: &[SegNo(2), SegNo(8)], ..TEN };
        assert_eq!(chosen(&[(3, 9)], 0, ask), (Some(3), 9));
        assert_eq!(chosen(&[(5, 9)], 4, ask), (Some(5), 5));
        assert_eq!(chosen(&[], 4, ask), (None, 5));
    }

    #[test]
    fn the_background_looks_at_a_window_and_goes_on_behind_it() {
        let state: Vec<_> = [(0, 9), (2, 8), (4, 7), (6, 6), (8, 1)].map(|(s, v)| c(s, v)).into();
        let view = Plain::new(1, state);
        let tuning = Tuning { max_victim_search: 2, ..Tuning::default() };
        let ask = Ask { foreground: false, ..TEN };
        let mut memory = at(0);
        let mut chosen = Vec::new();
        for _ in 0..4 {
            let (choice, next) = choose(&view, &memory, &tuning, ask);
            chosen.push((choice.map(|c| (c.victim.seg.0, c.cost)), next.last_victim_greedy.0));
            memory = next;
        }
        assert_eq!(chosen, [(Some((2, 8)), 3), (Some((6, 6)), 7), (Some((8, 1)), 8), (Some((8, 1)), 9)]);
        // In urgent mode it examines all units.
        let (choice, _) = choose(&view, &at(0), &tuning, Ask { urgent: true, ..ask });
        assert_eq!(choice.map(|c| c.victim.seg.0), Some(8));
        // Skipped units count towards the window.
        let passed = Ask { passed: &[SegNo(1)], ..ask };
        let (choice, next) = choose(&view, &at(0), &tuning, passed);
        assert_eq!((choice.map(|c| c.victim.seg.0), next.last_victim_greedy.0), (Some(0), 2));
    }

    #[test]
    fn sections_are_stepped_over_whole() {
        let ask = Ask { end: SegNo(12), unit: 4, ..TEN };
        assert_eq!(chosen(&[(0, 700), (8, 600)], 0, ask), (Some(8), 0));
        assert_eq!(chosen(&[(0, 500), (8, 600)], 4, ask), (Some(0), 8));
    }

    #[test]
    fn a_log_threads_into_the_segment_that_holds_least_and_never_into_one_that_is_full_of_held_blocks() {
        let threads = |held: &[(u32, u32)], last, kind| {
            let view = Plain::new(1, held.iter().map(|&(s, h)| Candidate { held: h, ..c(s, 1) }).collect());
            let (choice, memory) = choose_to_thread(&view, &at(last), &Tuning::default(), TEN, kind);
            (choice.map(|c| (c.victim.seg.0, c.cost)), memory.last_victim_greedy.0)
        };
        assert_eq!(threads(&[(2, 30), (5, 20), (7, 20)], 6, LogType::WarmData), (Some((7, 20)), 7));
        // From the start of the volume.
        assert_eq!(threads(&[(2, 30), (5, 20), (7, 20)], 6, LogType::HotData), (Some((5, 20)), 8));
        assert_eq!(threads(&[(2, 30), (5, 20), (7, 20)], 6, LogType::WarmNode), (Some((5, 20)), 8));
        assert_eq!(threads(&[(2, 512)], 0, LogType::ColdData), (None, 3));
        assert_eq!(threads(&[], 6, LogType::HotData), (None, 6));
    }
}
