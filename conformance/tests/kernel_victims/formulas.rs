//! Which segment does the kernel choose, by its formulas?
//!
//! Linux 6.1's (`fs/f2fs/gc.c`), written down once more and as simply as can be. Left out: choices made from a state that no
//! recording has, such as the second of two rounds of cleaning.

use std::collections::BTreeSet;

use format::sit::LogType;
use joulefs_conformance::oracle::victims::{Choice, Fixture, Gc, Policy, Purpose, Segment, Step, Victim};

use crate::tree::Tree;

/// One unit of choice: a section, or for a log a segment.
#[derive(Clone, Copy)]
struct Unit {
    first: u32,
    valid: u64,
    mtime: u64,
    /// Looked at, but background cleaning has it already.
    marked: bool,
}

/// What the kernel remembers from one choice to the next while mounted.
#[derive(Default)]
pub struct Memory {
    /// Where the last search of each policy ended; `None` when a search was made of which the state is not known.
    pub last: [Option<u32>; 3],
    /// The youngest age seen by a search by age; `None` as above.
    pub youngest: Option<u64>,
}

const TOP: u64 = u32::MAX as u64;

/// What is dirty, in order of place: sections for cleaning, segments of one log for filling.
fn dirty(fixture: &Fixture, choice: &Choice<'_>, marked: &BTreeSet<u32>) -> Vec<Unit> {
    let state = choice.state;
    let per_section = fixture.volume.segments_per_section;
    let section = |segment: u32| segment / per_section;
    let logs = state.logs.iter().map(|log| log.segment).chain(state.atgc_log).chain(state.pinned_log);
    let busy: Vec<u32> = logs.map(section).collect();
    // What logs filled since is full, or a log's still.
    let filled: Vec<u32> = since(choice).filter(|v| v.purpose != Purpose::Clean).map(|v| v.segment).collect();
    let per = if choice.victim.purpose == Purpose::Clean { per_section } else { 1 };
    // Even a single segment has its whole section's age.
    let age = |segment: u32| {
        let segments = state.segments.iter().skip((section(segment) * per_section) as usize).take(per_section as usize);
        segments.map(|s| s.mtime).sum::<u64>() / u64::from(per_section)
    };
    let units = state.segments.chunks(per as usize).zip((0..).step_by(per as usize));
    units
        .map(|(segments, first): (&[Segment], u32)| {
            let valid = segments.iter().map(|s| u64::from(s.valid)).sum();
            let mtime = age(first);
            let marked = choice.victim.gc == Gc::Background && marked.contains(&section(first));
            (Unit { first, valid, mtime, marked }, segments[0].log)
        })
        .filter(|(unit, log)| {
            unit.valid > 0
                && unit.valid < 512 * u64::from(per)
                && !busy.contains(&section(unit.first))
                && !filled.contains(&unit.first)
                && choice.victim.log.is_none_or(|wanted| wanted == *log)
        })
        .map(|(unit, _)| unit)
        .collect()
}

fn by_age(victim: &Victim) -> bool {
    victim.policy == Policy::AgeThreshold || victim.purpose == Purpose::FillByAge
}

/// The units a search looks at, in order, and where it remembers to have ended.
fn search(fixture: &Fixture, choice: &Choice<'_>, units: &[Unit], last: u32) -> (Vec<Unit>, u32) {
    let urgent = choice.knob("gc_urgent") == Some(1);
    let limited = choice.victim.gc == Gc::Background && !urgent && !by_age(choice.victim);
    let window = choice.knob("max_victim_search").filter(|_| limited).map_or(usize::MAX, |n| n as usize);
    let most = units.len().min(window);
    // Hot data and all nodes are searched from the beginning.
    let from_start = choice.victim.log.is_some_and(|log| log == LogType::HotData || log.is_node());
    let start = if from_start { 0 } else { last };
    let (below, above): (Vec<Unit>, Vec<Unit>) = units.iter().partition(|u| u.first < start);
    let wrapped = above.len() < most;
    let order: Vec<Unit> = above.into_iter().chain(below).take(most).collect();
    let Some(end) = order.last() else { return (order, last) };
    let main = fixture.volume.main_segments;
    // A round trip ends one further than it began, though nothing is looked at there.
    let ended = if (wrapped || last == 0) && end.first <= last { last } else { end.first };
    (order, (ended + choice.victim.unit) % main)
}

/// The first with the least cost, below the bar.
fn least(costs: impl Iterator<Item = (u32, u64)>, bar: u64) -> Vec<(u32, u64)> {
    let mut best = None;
    let mut bar = bar;
    for (first, cost) in costs {
        if cost < bar {
            (best, bar) = (Some((first, cost)), cost);
        }
    }
    best.into_iter().collect()
}

fn cost_benefit(fixture: &Fixture, choice: &Choice<'_>, order: &[Unit]) -> Vec<(u32, u64)> {
    let per = u64::from(fixture.volume.segments_per_section);
    let sections = choice.mount.state.segments.chunks(per as usize);
    let min = sections.map(|s| s.iter().map(|s| s.mtime).sum::<u64>() / per).min().unwrap_or(0);
    // The time of the last write; nothing was written since the state.
    let mut max = choice.mount.time(choice.state.uptime.max(choice.mount.uptime.1) / 100);
    let costs = order.iter().map(|unit| {
        max = max.max(unit.mtime);
        let u = unit.valid / per * 100 / 512;
        let age = if max == min { 0 } else { 100 - 100 * (unit.mtime - min) / (max - min) };
        (unit.first, TOP - 100 * (100 - u) * age / (100 + u))
    });
    least(costs.collect::<Vec<_>>().into_iter(), TOP)
}

/// Those old enough, as they were found; how many of them are looked at; the oldest of all.
fn tree(choice: &Choice<'_>, order: &[Unit], youngest: &mut u64) -> (Vec<Unit>, usize, u64) {
    let knob = |name| choice.knob(name).expect("every mount names its knobs");
    let mut oldest = u64::MAX;
    let mut tree = Vec::new();
    // The youngest so far: what is looked at before anything younger is not old enough.
    for unit in order {
        oldest = oldest.min(unit.mtime);
        *youngest = (*youngest).max(unit.mtime);
        if *youngest - unit.mtime >= knob("atgc_age_threshold") {
            tree.push(*unit);
        }
    }
    let most = knob("atgc_candidate_count").max(knob("atgc_candidate_ratio") * tree.len() as u64 / 100);
    (tree, most as usize, oldest)
}

fn age_threshold(fixture: &Fixture, choice: &Choice<'_>, order: &[Unit], youngest: &mut u64) -> Vec<(u32, u64)> {
    let (mut tree, most, oldest) = tree(choice, order, youngest);
    tree.sort_by_key(|unit| unit.mtime);
    let weight = choice.knob("atgc_age_weight").expect("every mount names its knobs");
    let capacity = 512 * u64::from(fixture.volume.segments_per_section);
    let end = *youngest + 1;
    let span = end - oldest;
    let scale = (u64::MAX / span / 100).min(10_000);
    let mut best: Option<(u32, u64, u64)> = None;
    // One is looked at even when none may be.
    for unit in tree.iter().take(most.max(1)) {
        let age = scale * (end - unit.mtime) / span * weight;
        let cost = TOP - (age + scale * (capacity - unit.valid) / capacity * (100 - weight));
        if best.is_none_or(|(_, least, aged)| cost < least || cost == least && age > aged) {
            best = Some((unit.first, cost, age));
        }
    }
    best.map(|(first, cost, _)| (first, cost)).into_iter().collect()
}

/// Where what a segment of age `source` holds goes: outwards from the last node on the way down the kernel's tree.
fn fill_by_age(choice: &Choice<'_>, order: &[Unit], source: u64, youngest: &mut u64) -> Option<(u32, u64)> {
    let (old, most, _) = tree(choice, order, youngest);
    let mut balanced = Tree::default();
    old.iter().for_each(|unit| balanced.insert(unit.mtime));
    // By age, and of one age in the order of insertion: the tree from left to right.
    let mut sorted: Vec<usize> = (0..old.len()).collect();
    sorted.sort_by_key(|&n| old[n].mtime);
    let nearest = balanced.last_on_the_way_to(source)?;
    let start = sorted.iter().position(|&n| n == nearest)?;
    let end = i128::from(*youngest + 1);
    let older = sorted[..=start].iter().rev().take(most.max(1));
    let younger = sorted[start..].iter().take(most.max(1));
    let mut best: Option<(u32, u64, i128)> = None;
    for unit in older.chain(younger).map(|&n| &old[n]) {
        // An age is compared with a time here; it decides between equals only.
        let near = end - (i128::from(source) - (end - i128::from(unit.mtime))).abs();
        let cost = TOP - unit.valid;
        if best.is_none_or(|(_, least, nearest)| cost < least || cost == least && near > nearest) {
            best = Some((unit.first, cost, near));
        }
    }
    best.map(|(first, cost, _)| (first, cost))
}

/// Choices since the state.
fn since<'f>(choice: &Choice<'f>) -> impl Iterator<Item = &'f Victim> {
    let chosen = |step: &'f Step| if let Step::Victim(v) = step { Some(v) } else { None };
    choice.before.iter().rev().filter_map(chosen).take(choice.since).collect::<Vec<_>>().into_iter().rev()
}

/// Sections that background cleaning has chosen: those of the state, and since.
fn marked(fixture: &Fixture, choice: &Choice<'_>) -> BTreeSet<u32> {
    let mut marked: BTreeSet<u32> = choice.state.marked.iter().copied().collect();
    for victim in since(choice).filter(|v| v.purpose == Purpose::Clean) {
        let section = victim.segment / fixture.volume.segments_per_section;
        match victim.gc {
            Gc::Background => marked.insert(section),
            Gc::Foreground => marked.remove(&section),
        };
    }
    marked
}

/// Whether the last round of cleaning left dirty blocks of directories.
fn moves_directories(choice: &Choice<'_>) -> bool {
    let ends =
        choice.before.iter().rev().filter_map(|step| if let Step::End(round) = step { Some(round) } else { None });
    let counters = ends.take(1).flat_map(|round| &round.counters);
    counters.into_iter().any(|(name, value)| name == "dents" && *value > 0)
}

/// The choices that the kernel may make by formula: none or one, more where the recording does not say which segment of a
/// section is emptied. `None` if too little is known of what it was made from.
pub fn expected(fixture: &Fixture, choice: &Choice<'_>, memory: &mut Memory) -> Option<Vec<(u32, u64)>> {
    let victim = choice.victim;
    let slot = victim.policy as usize;
    let per = fixture.volume.segments_per_section;
    let marked = marked(fixture, choice);
    if victim.gc == Gc::Foreground && victim.purpose == Purpose::Clean {
        // What is marked goes first, unpriced.
        if let Some(section) = marked.first() {
            return Some(vec![(section * per, 2 * 512 * u64::from(per))]);
        }
    }
    let cleaned: Vec<u32> = since(choice).filter(|v| v.purpose == Purpose::Clean).map(|v| v.segment).collect();
    let known = match victim.purpose {
        Purpose::Clean => choice.since == 0,
        // What fills one segment writes nodes too, and makes the rest of its section older or younger.
        Purpose::Fill => {
            choice.since == 0 || per == 1 && cleaned.is_empty() && !victim.log.is_some_and(LogType::is_node)
        }
        Purpose::FillByAge => cleaned.len() == 1 && (choice.since == 1 || per == 1),
    };
    let last = memory.last[slot].filter(|_| known);
    let Some(last) = last else {
        memory.last[slot] = None;
        if by_age(victim) {
            memory.youngest = None;
        }
        return None;
    };
    let units = dirty(fixture, choice, &marked);
    let (order, ended) = search(fixture, choice, &units, last);
    memory.last[slot] = Some(ended);
    let order: Vec<Unit> = order.into_iter().filter(|unit| !unit.marked).collect();
    let valid = || order.iter().map(|u| (u.first, u.valid));
    let explained = match (victim.purpose, victim.policy) {
        (Purpose::Clean, Policy::Greedy) => least(valid(), 2 * 512 * u64::from(per)),
        (Purpose::Clean, Policy::CostBenefit) => cost_benefit(fixture, choice, &order),
        (Purpose::Clean, Policy::AgeThreshold) => age_threshold(fixture, choice, &order, memory.youngest.as_mut()?),
        (Purpose::Fill, _) => least(valid(), 512),
        (Purpose::FillByAge, _) => {
            let youngest = memory.youngest.as_mut()?;
            // Which of a section's segments filled the log is not told.
            let first = (cleaned.first()? / per * per) as usize;
            let sources = choice.state.segments[first..first + per as usize].iter().filter(|s| s.valid > 0);
            sources.flat_map(|source| fill_by_age(choice, &order, source.mtime, youngest)).collect()
        }
    };
    // Blocks of directories go another way, which makes the segment they leave younger.
    (victim.purpose != Purpose::FillByAge || !moves_directories(choice)).then_some(explained)
}
