//! In which order does the log use free blocks? Pure functions of the free blocks; the path handles writing, and
//! `clean` moves blocks.
//!
//! - *Threading* (Scherl 2004, section 4.2.2.1) goes from hole to hole in address order. No block is moved.
//! - *Whole* continues at the log's head and then uses only long runs, which copying (4.2.2.2) and the combined
//!   strategy (4.2.2.4) produce. Holes come last, so that no block is lost.
//! - *Plugging* (4.2.2.3) puts each piece to be moved into the smallest hole that fits.

use scherlfs_format::chain::RUNS_MAX;
use scherlfs_format::superblock::PATH_MAX;
use scherlfs_format::{Addr, FIRST, Run};

use crate::space::Blocks;

/// Order of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Way {
    /// Through every hole, by address.
    #[default]
    Threading,
    /// Through runs of at least `least` blocks, by address, and only then through shorter ones.
    Whole {
        /// Blocks.
        least: u64,
    },
    /// Through holes that fit these pieces, in their order; then like `Whole`.
    Plugging {
        /// Size of each piece in blocks.
        pieces: Vec<u64>,
        /// Least length of a run for the log.
        least: u64,
    },
}

/// All free blocks in the order of their use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Runs, none longer than a run on disk can be.
    pub runs: Vec<Run>,
    /// Blocks in the runs before the last resort. Threading has no last resort.
    pub preferred: u64,
}

fn cut(out: &mut Vec<Run>, start: u64, blocks: u64) {
    let mut at = start;
    while at < start + blocks {
        let some = u32::try_from(start + blocks - at).unwrap_or(u32::MAX);
        out.push(Run { start: Addr(at), blocks: some });
        at += u64::from(some);
    }
}

/// The free runs from the log's head on, wrapping at the end of the volume: start, blocks.
fn round(free: &Blocks, head: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let before = free.from(FIRST).take_while(move |(s, _)| *s < head);
    free.from(head).chain(before.map(move |(s, l)| (s, l.min(head - s))))
}

/// The order for a log at `head`.
pub fn order(free: &Blocks, head: u64, way: &Way) -> Order {
    match way {
        Way::Threading => {
            let mut runs = Vec::with_capacity(free.runs() + 1);
            round(free, head).for_each(|(s, l)| cut(&mut runs, s, l));
            Order { preferred: free.count(), runs }
        }
        Way::Whole { least } => whole(free, head, *least),
        Way::Plugging { pieces, least } => {
            let (holes, left) = plug(free, pieces, *least);
            let rest = whole(&left, head, *least);
            let preferred = holes.iter().map(|r| u64::from(r.blocks)).sum::<u64>() + rest.preferred;
            Order { runs: holes.into_iter().chain(rest.runs).collect(), preferred }
        }
    }
}

fn whole(free: &Blocks, head: u64, least: u64) -> Order {
    let (mut runs, mut short) = (Vec::new(), Vec::new());
    for (n, (start, blocks)) in round(free, head).enumerate() {
        // At its head the log continues without a seek, however short the run is.
        let here = n == 0 && start == head;
        cut(if here || blocks >= least { &mut runs } else { &mut short }, start, blocks);
    }
    let preferred = runs.iter().map(|r| u64::from(r.blocks)).sum();
    runs.extend(short);
    Order { runs, preferred }
}

/// A piece that fits no hole is split into parts of at least this fraction.
const SPLIT: u64 = 4;

/// For each piece the smallest hole that fits, and the remaining free blocks. A piece that fits nowhere goes where
/// the log goes. Before a path block is due, a single block is inserted for it, so that pieces keep their fit.
fn plug(free: &Blocks, pieces: &[u64], least: u64) -> (Vec<Run>, Blocks) {
    let mut left = free.clone();
    let mut by_size: std::collections::BTreeSet<(u64, u64)> =
        free.from(FIRST).filter(|(_, l)| *l < least).map(|(s, l)| (l, s)).collect();
    let mut holes: Vec<Run> = Vec::new();
    let mut take = |blocks: u64, by_size: &mut std::collections::BTreeSet<(u64, u64)>| -> Option<Run> {
        let (len, start) = by_size.range((blocks, 0)..).next().copied()?;
        by_size.remove(&(len, start));
        if len > blocks {
            by_size.insert((len - blocks, start + blocks));
        }
        left.take(start, blocks);
        Some(Run { start: Addr(start), blocks: u32::try_from(blocks).unwrap_or(u32::MAX) })
    };
    let mut due = PATH_MAX;
    for &piece in pieces {
        let mut rest = piece;
        while rest > 0 {
            if holes.len() + 1 == due {
                let Some(one) = take(1, &mut by_size) else { return (holes, left) };
                holes.push(one);
                due += RUNS_MAX;
            }
            // Pieces that fit nowhere are split, but into few parts.
            let Some(&(largest, _)) = by_size.last() else { break };
            if largest < rest && largest * SPLIT < piece {
                break;
            }
            let part = rest.min(largest);
            let Some(run) = take(part, &mut by_size) else { break };
            holes.push(run);
            rest -= part;
        }
    }
    (holes, left)
}

#[cfg(test)]
impl Way {
    /// Most runs that it splits, besides the one at the log's head.
    pub fn cuts(&self) -> usize {
        match self {
            Way::Plugging { pieces, .. } => pieces.len() + pieces.len() * SPLIT as usize / (PATH_MAX - 1) + 2,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    fn runs(order: &Order) -> Vec<(u64, u32)> {
        order.runs.iter().map(|r| (r.start.0, r.blocks)).collect()
    }

    fn blocks(all: &[(u64, u64)]) -> Blocks {
        let mut free = Blocks::default();
        all.iter().for_each(|(s, l)| assert!(free.add(*s, *l)));
        free
    }

    #[test]
    fn threading_takes_every_hole_by_address_and_whole_keeps_the_short_ones_for_last() {
        let free = blocks(&[(10, 3), (100, 64), (200, 5), (300, 80), (500, 2)]);
        let order = |head, way| super::order(&free, head, &way);
        assert_eq!(runs(&order(202, Way::Threading)), [(202, 3), (300, 80), (500, 2), (10, 3), (100, 64), (200, 2)]);
        let found = order(202, Way::Whole { least: 64 });
        assert_eq!(runs(&found), [(202, 3), (300, 80), (100, 64), (500, 2), (10, 3), (200, 2)]);
        assert_eq!(found.preferred, 147);
        assert_eq!(order(150, Way::Whole { least: 64 }).preferred, 94, "what is behind the log is 50 long");
    }

    #[test]
    fn a_piece_gets_the_smallest_hole_it_fits_into() {
        let free = blocks(&[(10, 3), (100, 64), (200, 5), (300, 80), (500, 2)]);
        let way = Way::Plugging { pieces: vec![2, 4, 3, 7], least: 64 };
        let found = super::order(&free, 300, &way);
        // 7 fits no hole: it goes where the log goes, and the block left over by 4 comes last.
        assert_eq!(runs(&found), [(500, 2), (200, 4), (10, 3), (300, 80), (100, 64), (204, 1)]);
    }

    #[test]
    fn every_way_leads_through_every_free_block_once() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut free = Blocks::default();
            for _ in 0..rng.below(400) {
                free.add(FIRST + rng.below(9000), 1 + rng.below(120));
            }
            let pieces = (0..rng.below(300)).map(|_| rng.below(20)).collect();
            for way in [Way::Threading, Way::Whole { least: 32 }, Way::Plugging { pieces, least: 32 }] {
                let found = super::order(&free, FIRST + rng.below(9000), &way);
                let mut left = free.clone();
                assert!(found.runs.iter().all(|r| left.take(r.start.0, r.blocks.into())), "{way:?}");
                assert_eq!(left.count(), 0);
                assert!(found.runs.len() <= free.runs() + way.cuts() + 1, "{way:?}");
            }
        }
    }
}
