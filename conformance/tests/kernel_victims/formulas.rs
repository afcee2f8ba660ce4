//! Which segment does the kernel choose, by its formulas?
//!
//! A second, as simple as possible implementation of Linux 6.1 (`fs/f2fs/gc.c`). Left out: choices that depend on state
//! missing from recordings (`situation`).

use format::sit::LogType;
use judges::oracle::victims::{Gc, Policy, Purpose};

use super::situation::{Scene, Unit, by_age, oldest_at_mount};
use super::tree::Tree;

/// The kernel's state between choices while mounted.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Where each policy's last search ended.
    pub last: [u32; 5],
    /// The youngest age found by a search by age.
    pub youngest: u64,
}

const TOP: u64 = u32::MAX as u64;

/// The units that a search examines, in order, and the position it stores as its end.
fn search(scene: &Scene<'_>, last: u32) -> (Vec<Unit>, u32) {
    let victim = scene.choice.victim;
    let limited = victim.gc == Gc::Background && !scene.urgent() && !by_age(victim);
    let window = scene.choice.knob("max_victim_search").filter(|_| limited).map_or(usize::MAX, |n| n as usize);
    let most = scene.units.len().min(window);
    // Hot data and all nodes are searched from the beginning.
    let from_start = victim.log.is_some_and(|log| log == LogType::HotData || log.is_node());
    let start = if from_start { 0 } else { last };
    let (below, above): (Vec<Unit>, Vec<Unit>) = scene.units.iter().partition(|u| u.first < start);
    let wrapped = above.len() < most;
    let mut order: Vec<Unit> = above.into_iter().chain(below).take(most).collect();
    let Some(end) = order.last() else { return (order, last) };
    let main = scene.fixture.volume.main_segments;
    // A full round ends one further than it began, though that unit is not examined.
    let ended = if (wrapped || last == 0) && end.first <= last { last } else { end.first };
    order.retain(|unit| !unit.marked);
    (order, (ended + victim.unit) % main)
}

/// The first with the lowest cost, if below the bar.
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

fn cost_benefit(scene: &Scene<'_>, order: &[Unit]) -> Vec<(u32, u64)> {
    let per = u64::from(scene.per_section());
    let min = oldest_at_mount(scene.fixture, scene.choice.mount);
    let mut max = scene.now();
    let costs = order.iter().map(|unit| {
        max = max.max(unit.mtime);
        let u = unit.valid / per * 100 / 512;
        let age = if max == min { 0 } else { 100 - 100 * (unit.mtime - min) / (max - min) };
        (unit.first, TOP - 100 * (100 - u) * age / (100 + u))
    });
    least(costs.collect::<Vec<_>>().into_iter(), TOP)
}

/// The sufficiently old units, in the order found; how many of them are examined; the oldest age.
fn tree(scene: &Scene<'_>, order: &[Unit], youngest: &mut u64) -> (Vec<Unit>, usize, u64) {
    let mut oldest = u64::MAX;
    let mut tree = Vec::new();
    // The youngest so far: a unit examined before any younger one is not old enough.
    for unit in order {
        oldest = oldest.min(unit.mtime);
        *youngest = (*youngest).max(unit.mtime);
        if !scene.refused(unit) && *youngest - unit.mtime >= scene.knob("atgc_age_threshold") {
            tree.push(*unit);
        }
    }
    let most = scene.knob("atgc_candidate_count").max(scene.knob("atgc_candidate_ratio") * tree.len() as u64 / 100);
    // At least one is examined, even if the limit is zero.
    (tree, most.max(1) as usize, oldest)
}

fn age_threshold(scene: &Scene<'_>, order: &[Unit], youngest: &mut u64) -> Vec<(u32, u64)> {
    let (mut tree, most, oldest) = tree(scene, order, youngest);
    tree.sort_by_key(|unit| unit.mtime);
    let weight = scene.knob("atgc_age_weight");
    let capacity = 512 * u64::from(scene.per_section());
    let end = *youngest + 1;
    let span = end - oldest;
    let scale = (u64::MAX / span / 100).min(10_000);
    let mut best: Option<(u32, u64, u64)> = None;
    for unit in tree.iter().take(most) {
        let age = scale * (end - unit.mtime) / span * weight;
        let cost = TOP - (age + scale * (capacity - unit.valid) / capacity * (100 - weight));
        if best.is_none_or(|(_, least, aged)| cost < least || cost == least && age > aged) {
            best = Some((unit.first, cost, age));
        }
    }
    best.map(|(first, cost, _)| (first, cost)).into_iter().collect()
}

/// Where a search for similar age begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the last node on the path down the kernel's tree.
    Tree,
    /// At the last that is no younger, or if there is none, at the oldest.
    NoYounger,
}

/// Where the blocks of a segment with some age may go.
#[derive(Debug, PartialEq, Eq)]
pub struct Similar {
    /// Index of the start in the order of age.
    pub start: usize,
    /// Indexes that are examined in the order of age: equally many on both sides of the start, as far as they exist.
    pub places: std::ops::RangeInclusive<usize>,
    /// The best: its index, segment and cost.
    pub best: (usize, u32, u64),
}

/// Where the blocks of a segment with age `source` go: searches outwards from `start`.
fn fill_by_age(scene: &Scene<'_>, order: &[Unit], source: u64, start: Start, youngest: &mut u64) -> Option<Similar> {
    let (old, most, _) = tree(scene, order, youngest);
    // By age, equal ages in order of insertion: the tree from left to right.
    let mut sorted: Vec<usize> = (0..old.len()).collect();
    sorted.sort_by_key(|&n| old[n].mtime);
    let start = match start {
        Start::Tree => {
            let mut balanced = Tree::default();
            old.iter().for_each(|unit| balanced.insert(unit.mtime));
            let nearest = balanced.last_on_the_way_to(source)?;
            sorted.iter().position(|&n| n == nearest)?
        }
        Start::NoYounger => sorted.iter().rposition(|&n| old[n].mtime <= source).unwrap_or(0),
    };
    let last = sorted.len().checked_sub(1)?;
    let places = (start + 1).saturating_sub(most)..=(start + most - 1).min(last);
    let end = i128::from(*youngest + 1);
    // With `kernel/patches`, the target may be the most fragmented segment instead of the fullest.
    let most_fragmented = scene.choice.knob("gc_frag_target") == Some(1);
    let worth = |unit: &Unit| match most_fragmented {
        true => (u64::from(scene.fragmentation(unit.first, 1).0), unit.valid),
        false => (unit.valid, 0),
    };
    let mut best: Option<(usize, i128)> = None;
    for place in (*places.start()..=start).rev().chain(start..=*places.end()) {
        let unit = &old[sorted[place]];
        // The kernel compares an age with a time; it only decides between equals.
        let near = match most_fragmented {
            true => -i128::from(source.abs_diff(unit.mtime)),
            false => end - (i128::from(source) - (end - i128::from(unit.mtime))).abs(),
        };
        let fuller = |at: usize| worth(unit).cmp(&worth(&old[sorted[at]]));
        if best.is_none_or(|(at, nearest)| fuller(at).is_gt() || fuller(at).is_eq() && near > nearest) {
            best = Some((place, near));
        }
    }
    let (place, _) = best?;
    let unit = &old[sorted[place]];
    Some(Similar { start, places, best: (place, unit.first, TOP - worth(unit).0) })
}

/// [`fill_by_age`] for this choice.
pub fn similar(scene: &Scene<'_>, memory: &Memory, source: u64, start: Start) -> Option<Similar> {
    let (order, _) = search(scene, memory.last[scene.choice.victim.policy as usize]);
    fill_by_age(scene, &order, source, start, &mut memory.youngest.clone())
}

/// The possible choices by formula: none or one; more if the recording does not show which segment of a section is
/// emptied.
pub fn expected(scene: &Scene<'_>, memory: &mut Memory) -> Vec<(u32, u64)> {
    let victim = scene.choice.victim;
    let slot = victim.policy as usize;
    let (order, ended) = search(scene, memory.last[slot]);
    memory.last[slot] = ended;
    let valid = || order.iter().map(|u| (u.first, u.valid));
    match (victim.purpose, victim.policy) {
        (Purpose::Clean, Policy::Greedy) => least(valid(), 2 * 512 * u64::from(scene.per_section())),
        (Purpose::Clean, Policy::CostBenefit) => cost_benefit(scene, &order),
        (Purpose::Clean, Policy::AgeThreshold) => age_threshold(scene, &order, &mut memory.youngest),
        // For these, the only formula is their implementation in crate `victim`.
        (Purpose::Clean, Policy::Fagc) => {
            memory.youngest = order.iter().map(|unit| unit.mtime).fold(memory.youngest, u64::max);
            Vec::new()
        }
        (Purpose::Clean, Policy::Joule) => Vec::new(),
        (Purpose::Fill, _) => least(valid(), 512),
        (Purpose::FillByAge, _) => {
            let mut fill = |&source| fill_by_age(scene, &order, source, Start::Tree, &mut memory.youngest);
            scene.sources.iter().filter_map(&mut fill).map(|s| (s.best.1, s.best.2)).collect()
        }
    }
}
