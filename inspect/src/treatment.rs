//! Which blocks of a file are worth defragmenting, what does that cost, what does each use of the file save, and after
//! how many uses has it paid off?
//!
//! A [`Use`] is a set of reads: the whole file, or the parts that a recording reads (the idea of FragPicker, Park and
//! Eom, SOSP'21: most blocks that defragmentation moves are never read, or are read in requests that fit). After the
//! move each range is contiguous, and the ranges follow each other; other blocks stay. Prices are those of
//! [`crate::price`].
//!
//! Copying reads the ranges and writes them with their nodes. Sharing ([`How::Share`]) makes the device map the same
//! flash pages at the new address, with one request per extent, and writes only nodes.
//!
//! Left out: a range may cross into a new segment of the log, other programs may write meanwhile, and the checkpoint,
//! which is paid once for many files.

use std::ops::Range;

use device::energy::Energy;

use crate::file::{Extent, Layout, of_runs};
use crate::price::{Cost, Prices, Work};

/// Addresses of file blocks in one direct node.
const PER_NODE: u64 = 1018;

/// A run of a file's blocks, and whether a new stretch begins with it.
pub type Run = (Extent, bool);

/// One range to read, and how often in one use of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Blocks of the file.
    pub blocks: Range<u64>,
    /// How often.
    pub times: u64,
}

/// How blocks are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// They are read and written.
    Copy,
    /// The device maps them at the new address too.
    Share,
}

/// What to move, and the effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Ranges of the file's blocks, in order; each becomes one extent.
    pub ranges: Vec<Range<u64>>,
    /// Stored blocks in them.
    pub blocks: u64,
    /// Extents of the whole file before and after.
    pub extents: (u64, u64),
    /// Cost of the move.
    pub cost: Cost,
    /// Cost of one use of the file, before and after.
    pub uses: (Cost, Cost),
    /// Cost of reading the whole file, before and after.
    pub whole: (Cost, Cost),
}

impl Plan {
    /// What each use saves; 0 if it would cost more.
    pub fn saved(&self) -> Cost {
        let (now, then) = self.uses;
        Cost {
            energy: Energy(now.energy.0.saturating_sub(then.energy.0)),
            time: device::energy::Nanos(now.time.0.saturating_sub(then.time.0)),
        }
    }
    /// Number of uses after which the move has paid off, by energy; `None`: never.
    pub fn pays_after(&self) -> Option<u64> {
        let saved = self.saved().energy.0;
        (saved > 0).then(|| self.cost.energy.0.div_ceil(saved))
    }
}

/// The stretches of a file with several extents; contiguous ones stay.
pub fn fragmented(runs: &[Run]) -> Vec<Range<u64>> {
    let stretches = runs.chunk_by(|_, next| !next.1);
    stretches.filter(|s| pieces(s) > 1).map(|s| s[0].0.from..end(&s[s.len() - 1].0)).collect()
}

/// Parts that are read together and have several extents. Overlapping uses are merged.
pub fn fragmented_parts(runs: &[Run], uses: &[Use]) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = uses.iter().map(|u| &u.blocks).filter(|r| !r.is_empty()).collect();
    sorted.sort_unstable_by_key(|r| (r.start, r.end));
    let mut parts: Vec<Range<u64>> = Vec::new();
    for r in sorted {
        match parts.last_mut() {
            Some(last) if r.start < last.end => last.end = last.end.max(r.end),
            _ => parts.push(r.clone()),
        }
    }
    parts.retain(|part| !fragmented(&clip(runs, part)).is_empty());
    parts
}

fn end(e: &Extent) -> u64 {
    e.from + e.blocks
}

fn pieces(runs: &[Run]) -> usize {
    1 + runs.windows(2).filter(|w| w[0].0.addr + w[0].0.blocks != w[1].0.addr).count()
}

/// The runs in a part of a file. A stretch cut by the range begins anew.
fn clip(runs: &[Run], part: &Range<u64>) -> Vec<Run> {
    let first = runs.partition_point(|(e, _)| end(e) <= part.start);
    let mut out: Vec<Run> = Vec::new();
    for (e, begins) in runs[first..].iter().take_while(|(e, _)| e.from < part.end) {
        let (from, to) = (e.from.max(part.start), end(e).min(part.end));
        let begins = *begins || out.is_empty();
        out.push((Extent { from, addr: e.addr + (from - e.from), blocks: to - from }, begins));
    }
    out
}

/// The file after these ranges have moved, one behind the other, to new blocks.
fn after(runs: &[Run], ranges: &[Range<u64>]) -> Vec<Run> {
    // The new blocks follow all others and begin a page of the device's map, like a log that begins a segment.
    let mut to = runs.iter().map(|(e, _)| e.addr + e.blocks).max().unwrap_or(0).next_multiple_of(1 << 20);
    let mut out: Vec<Run> = Vec::new();
    let mut push = |e: Extent, begins: bool| match out.last_mut() {
        Some((last, _)) if !begins && end(last) == e.from && last.addr + last.blocks == e.addr => {
            last.blocks += e.blocks
        }
        _ => out.push((e, begins)),
    };
    for (e, begins) in runs {
        let (mut at, mut begins) = (e.from, *begins);
        while at < end(e) {
            let next = ranges.partition_point(|r| r.end <= at);
            let (stop, moved) = match ranges.get(next) {
                Some(r) if r.start <= at => (r.end.min(end(e)), true),
                Some(r) => (r.start.min(end(e)), false),
                None => (end(e), false),
            };
            let blocks = stop - at;
            let addr = if moved { to } else { e.addr + (at - e.from) };
            to += if moved { blocks } else { 0 };
            push(Extent { from: at, addr, blocks }, std::mem::take(&mut begins));
            at = stop;
        }
    }
    out
}

/// Cost of reading a part.
fn read(runs: &[Run], part: &Range<u64>, prices: &Prices, window: u64) -> Cost {
    prices.read(&Work::as_it_lies(&of_runs(&clip(runs, part), window)))
}

/// One read of the whole file.
pub fn whole() -> Use {
    Use { blocks: 0..u64::MAX, times: 1 }
}

/// Plans the move of these ranges: its cost and its effect on these uses. `window` is the largest read request, in
/// blocks.
pub fn plan(runs: &[Run], ranges: Vec<Range<u64>>, uses: &[Use], how: How, prices: &Prices, window: u64) -> Plan {
    let then = after(runs, &ranges);
    let sum = |runs: &[Run]| uses.iter().map(|u| read(runs, &u.blocks, prices, window).times(u.times)).sum();
    let all = whole().blocks;
    let moved: Vec<Run> = ranges.iter().flat_map(|r| clip(runs, r)).collect();
    let layout = of_runs(&moved, window);
    Plan {
        blocks: layout.blocks,
        extents: (pieces_of_all(runs), pieces_of_all(&then)),
        cost: if layout.blocks == 0 { Cost::default() } else { cost(&layout, &ranges, how, prices, window) },
        uses: (sum(runs), sum(&then)),
        whole: (read(runs, &all, prices, window), read(&then, &all, prices, window)),
        ranges,
    }
}

fn pieces_of_all(runs: &[Run]) -> u64 {
    if runs.is_empty() { 0 } else { pieces(runs) as u64 }
}

fn cost(moved: &Layout, ranges: &[Range<u64>], how: How, prices: &Prices, window: u64) -> Cost {
    let touched = |r: &Range<u64>| (r.start / PER_NODE, (r.end - 1) / PER_NODE);
    let mut nodes: Vec<u64> = ranges.iter().flat_map(|r| touched(r).0..=touched(r).1).collect();
    nodes.dedup();
    // And the inode.
    let nodes = nodes.len() as u64 + 1;
    let node_requests = nodes.div_ceil(window.max(1));
    let map_pages = moved.blocks.div_ceil(1024) + 1;
    let requests = moved.blocks.div_ceil(256);
    match how {
        How::Copy => {
            let write = Work {
                blocks: moved.blocks + nodes,
                requests: requests + node_requests,
                places: ranges.len() as u64 + 1,
                map_pages,
                map_turns: map_pages,
            };
            prices.read(&Work::as_it_lies(moved)) + prices.write(&write)
        }
        How::Share => {
            let of_nodes = Work { blocks: nodes, requests: node_requests, places: 1, map_pages: 1, map_turns: 1 };
            prices.share(&Work::as_it_lies(moved)) + prices.write(&of_nodes)
        }
    }
}

#[cfg(test)]
mod tests {
    use device::energy::profile::Profile;

    use super::*;

    fn run(from: u64, addr: u64, blocks: u64, begins: bool) -> Run {
        (Extent { from, addr, blocks }, begins)
    }

    /// Two stretches: the first has three extents, the second one.
    fn file() -> Vec<Run> {
        vec![run(0, 100, 10, true), run(10, 5000, 10, false), run(20, 90_000, 10, false), run(40, 7000, 20, true)]
    }

    fn prices() -> Prices {
        Prices::from_profile(&Profile::find("kirin9000-ufs31").unwrap())
    }

    #[test]
    fn only_stretches_in_several_pieces_move() {
        assert_eq!(fragmented(&file()), [0..30]);
        let plan = plan(&file(), fragmented(&file()), &[whole()], How::Copy, &prices(), 128);
        assert_eq!((plan.blocks, plan.extents), (30, (4, 2)));
        assert!(plan.saved().energy > Energy::ZERO && plan.pays_after().is_some_and(|n| n > 1));
        assert_eq!(plan.uses, plan.whole);
    }

    #[test]
    fn a_file_in_one_piece_is_never_worth_it() {
        let one = [run(0, 10, 50, true)];
        let plan = plan(&one, fragmented(&one), &[whole()], How::Copy, &prices(), 128);
        assert_eq!((plan.ranges.len(), plan.blocks, plan.cost, plan.pays_after()), (0, 0, Cost::default(), None));
    }

    #[test]
    fn packed_clusters_that_follow_each_other_are_one_piece() {
        // Blocks 1 and 2 of a cluster of four, then 5 and 6 of the next.
        assert!(fragmented(&[run(1, 10, 2, true), run(5, 12, 2, false)]).is_empty());
        assert_eq!(fragmented(&[run(1, 10, 2, true), run(5, 13, 2, false)]), [1..7]);
    }

    #[test]
    fn parts_that_are_read_together_move_and_the_rest_stays() {
        let uses = |list: &[(Range<u64>, u64)]| -> Vec<Use> {
            list.iter().map(|(blocks, times)| Use { blocks: blocks.clone(), times: *times }).collect()
        };
        // Two overlap, one is adjacent, one is contiguous on disk, one lies past the end.
        let uses = uses(&[(8..14, 3), (12..15, 1), (15..18, 2), (40..60, 9), (100..120, 1), (4..4, 1)]);
        assert_eq!(fragmented_parts(&file(), &uses), [8..15]);
        let plan = plan(&file(), fragmented_parts(&file(), &uses), &uses, How::Copy, &prices(), 128);
        assert_eq!((plan.blocks, plan.extents), (7, (4, 5)));
        assert!(plan.uses.1 < plan.uses.0, "a use is cheaper");
        assert!(plan.whole.1 > plan.whole.0, "reading all of it is not");
    }

    #[test]
    fn moved_blocks_are_complete_and_unique() {
        let mut rng = device::Rng::new(4);
        for _ in 0..300 {
            let (mut at, mut runs) = (0, Vec::new());
            for _ in 0..1 + rng.below(12) {
                let hole = rng.chance(1, 4);
                at += if hole { 1 + rng.below(9) } else { 0 };
                let blocks = 1 + rng.below(20);
                runs.push(run(at, rng.below(1 << 20), blocks, hole || runs.is_empty()));
                at += blocks;
            }
            let uses: Vec<Use> = (0..rng.below(6))
                .map(|_| (rng.below(at), 1 + rng.below(30)))
                .map(|(from, n)| Use { blocks: from..from + n, times: 1 })
                .collect();
            let ranges = if rng.chance(1, 2) { fragmented(&runs) } else { fragmented_parts(&runs, &uses) };
            let then = after(&runs, &ranges);
            let blocks = |runs: &[Run]| runs.iter().flat_map(|(e, _)| e.from..end(e)).collect::<Vec<_>>();
            assert_eq!(blocks(&runs), blocks(&then));
            for r in &ranges {
                let holes = clip(&then, r).iter().filter(|(_, begins)| *begins).count();
                assert_eq!(pieces(&clip(&then, r)), 1.max(pieces(&clip(&then, r)).min(holes.max(1))), "{r:?}");
            }
            if ranges == fragmented(&runs) {
                assert!(fragmented(&then).is_empty(), "{runs:?} becomes {then:?}");
            }
        }
    }

    #[test]
    fn sharing_costs_less_than_copying_long_pieces_and_more_requests_than_few() {
        let long: Vec<Run> = (0..8).map(|n| run(n * 200, (7 - n) * 5000, 200, n == 0)).collect();
        let of = |how| plan(&long, fragmented(&long), &[whole()], how, &prices(), 128).cost.energy;
        assert!(of(How::Share).0 * 5 < of(How::Copy).0, "{} {}", of(How::Share), of(How::Copy));
    }
}
