//! Cost and benefit: few valid blocks, long unchanged (kernel `GC_CB`), the kernel's default in the
//! background.
//!
//! With u the valid blocks and age the place between the youngest and the oldest section, both in
//! whole percent, the cost is `UINT_MAX - 100 * (100 - u) * age / (100 + u)`. The youngest percent of
//! ages has no benefit and is never chosen. The search is that of [`greedy`](super::greedy).

use super::greedy::search;
use super::memory::{Ask, Choice, Memory, Tuning};
use super::{Candidate, View};

/// The unit with the best ratio of benefit to cost.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let all = ask.foreground || ask.urgent;
    let limit = if all { view.count() } else { view.count().min(tuning.max_victim_search) };
    let mut best: Option<Choice> = None;
    let (mut min, mut max) = (memory.min_mtime, memory.max_mtime);
    memory.next_cost_benefit = search(view, memory.next_cost_benefit, limit, ask, |c| {
        // Each candidate widens the range of ages before its own is taken.
        min = min.min(c.mtime);
        max = max.max(c.mtime);
        let cost = cost(&c, min, max, ask.unit);
        if cost < best.map_or(u32::MAX, |b| b.cost) {
            best = Some(Choice { victim: c, cost });
        }
    });
    (memory.min_mtime, memory.max_mtime) = (min, max);
    (best, memory)
}

/// Kernel `get_cb_cost`.
fn cost(c: &Candidate, min: u64, max: u64, unit: u32) -> u32 {
    let valid = c.valid / unit;
    let u = u64::from(valid * 100 / 512);
    let age = if max == min { 0 } else { 100 - 100 * (c.mtime - min) / (max - min) };
    u32::MAX - (100 * (100 - u.min(100)) * age / (100 + u)) as u32
}
