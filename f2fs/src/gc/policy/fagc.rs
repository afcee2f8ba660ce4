//! FAGC: old, with its free space in small pieces, and empty (FAGC TACO'23, section 5.3, Algorithm 2).
//!
//! # Victim
//! Candidates are the oldest units, as many as ATGC takes. In parts of 10,000 each, age, f and
//! emptiness are weighted 40, 40 and 20; the greatest sum wins, then the greatest f, the fewest valid
//! blocks, the oldest. With min and max over the candidates:
//!
//! ```text
//! age = 10,000 * (max_mtime - mtime) / total_time * 40
//! f'  = 10,000 * (f - min_f) / (max_f - min_f) * 40
//! u   = 10,000 * (capacity - valid) / capacity * 20
//! ```
//!
//! The printed line 4 has f in place of f - min_f: then f' passes its weight as soon as min_f is not
//! 0, and age and emptiness hardly count. Where all candidates have one f, f' is 0.
//!
//! # When nothing is worth it
//! The paper says that other schemes clean segments with much free space, where FAGC does not because
//! it finds no suitable victim; it gives no formula. Here: a unit is suitable if more than half of its
//! free blocks lie in fragments (runs under 128 KiB). The free space of all others serves most
//! requests as it is, by the paper's own definition of a fragment, and cleaning would only move it.
//! No suitable unit among the candidates: no cleaning. When space runs short greedy cleans anything.
//!
//! # Target
//! Of the segments of similar age (the window of ATGC's targets) the most fragmented one that has a
//! hole and is not the victim; then the fullest, then the closest in age. Its holes are filled one by
//! one until none is left: the moved blocks take no free segment, and the target's fragments go too.

use super::atgc::{ACCURACY, Old, oldest};
use super::memory::{Ask, Choice, Memory, Tuning};
use super::{Candidate, View};

/// The unit that costs least by Algorithm 2, if one is worth it.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask) -> (Option<Choice>, Memory) {
    let (old, memory) = oldest(view, memory, tuning);
    let Some(old) = old else { return (None, memory) };
    let Some(range) = view.range_of_f(old.cut) else { return (None, memory) };
    let worth = |c: &Candidate| worth(c, &old, range, tuning, ask.unit);
    let best = view.best(old.cut, &|c| match suitable(c, ask.unit) {
        true => [worth(c), c.f.into(), u64::from(u32::MAX - c.valid), u64::MAX - c.mtime],
        false => [0; 4],
    });
    let choice = best.filter(|c| suitable(c, ask.unit)).map(|c| Choice { victim: c, cost: u32::MAX - worth(&c) as u32 });
    (choice, memory)
}

/// More than half of the free blocks lie in fragments.
pub fn suitable(c: &Candidate, unit: u32) -> bool {
    c.loose * 2 > unit * 512 - c.valid
}

fn worth(c: &Candidate, old: &Old, (min_f, max_f): (u32, u32), tuning: &Tuning, unit: u32) -> u64 {
    let all = u64::from(unit) * 512;
    let age = old.age(c.mtime) * u64::from(tuning.fagc_age_weight);
    let f = match u64::from(max_f - min_f) {
        0 => 0,
        range => ACCURACY * u64::from(c.f - min_f) / range * u64::from(tuning.fagc_f_weight),
    };
    let rest = 100 - tuning.fagc_age_weight - tuning.fagc_f_weight;
    let empty = ACCURACY * (all - u64::from(c.valid)) / all * u64::from(rest);
    age + f + empty
}

/// Where the blocks of a victim written at `mtime` go.
pub fn target(view: &dyn View, _memory: &Memory, tuning: &Tuning, mtime: u64) -> Option<Candidate> {
    let n = tuning.candidates(view.count());
    let mut best: Option<Candidate> = None;
    let key = |c: &Candidate| (c.f, c.held, u64::MAX - c.mtime.abs_diff(mtime));
    view.near(mtime, n, n, &mut |c| {
        if c.held < 512 && best.is_none_or(|b| key(&c) > key(&b)) {
            best = Some(c);
        }
    });
    best
}
