//! How many blocks does a log move under one cleaner, depending on where it puts each block?
//!
//! A model of the log: segments, and an open segment for each of a placement's logs. The file is filled in order, as the
//! experiment does before it measures, then overwritten batch after batch. The placement chooses a log for each block
//! that is overwritten or moved. After each batch the cleaner empties segments until at most `most` are in use, open ones
//! included.
//!
//! The cleaner is the same for all: cost-benefit (Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", ACM TOCS 10(1), 1992), which F2FS uses by default, with the age of a segment since its first
//! block. It moves fewer blocks than greedy under each placement. It does not know the future, under the oracle either, so
//! only placement differs. Time counts written blocks, moved ones excluded.
//!
//! Left out: nodes, directories, what a checkpoint holds, and moving into holes ([`super::clairvoyant`]).

use std::collections::BTreeMap;

use super::SEGMENT;
use super::overwrites::{Overwrites, is_hot};

/// The death of a block that is not overwritten.
const NEVER: u64 = u64::MAX;

/// Where blocks go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Placement {
    /// Overwritten blocks to one log, moved ones to another: F2FS, for blocks of one file.
    Stock,
    /// Hot and cold blocks apart. Which percentage is hot, and which blocks, is known.
    Classes(u64),
    /// SepBIT (Wang, Li, Lee, Ouyang, Shi, Huang, "Separating Data via Block Invalidation Time Inference for Write
    /// Amplification Reduction in Log-Structured Storage", FAST'22): six classes ([`sepbit_written`], [`sepbit_moved`]).
    /// Lifespans are exact here; the paper's prototype keeps only some.
    SepBit,
    /// By number of moves, up to five: the idea of MiDA (Park, Lee, Kim, Noh, "Lightweight Data Lifetime Classification
    /// Using Migration Counts to Improve Performance and Lifetime of Flash-Based SSDs", APSys'21), from its abstract. As
    /// many logs as SepBIT's.
    Moves,
    /// The time of death is known: blocks that die within the same span of so many writes share a log.
    Oracle(u64),
}

/// The spans that [`oracle`] tries.
const SPANS: [u64; 4] = [4096, 16_384, 32_768, 65_536];

/// The log of the blocks that fill the file: SepBIT's class of new blocks.
const FILLED: u64 = 2;

/// Reclaimed segments of class 1 whose mean lifespan is SepBIT's threshold.
const SEPBIT_SEGMENTS: u64 = 16;

/// SepBIT's class of a written block, by the lifespan of the version that it replaces: 1 if shorter than `threshold`, else
/// (and for new blocks) 2.
fn sepbit_written(lifespan: Option<u64>, threshold: f64) -> u64 {
    if lifespan.is_some_and(|span| (span as f64) < threshold) { 1 } else { 2 }
}

/// SepBIT's class of a moved block: 3 if it comes from class 1, else 4, 5 or 6 by the time since it was written, with limits
/// at 4 and 16 times the threshold.
fn sepbit_moved(from: u64, age: u64, threshold: f64) -> u64 {
    match age as f64 {
        _ if from == 1 => 3,
        age if age < 4.0 * threshold => 4,
        age if age < 16.0 * threshold => 5,
        _ => 6,
    }
}

struct Segment {
    log: u64,
    opened: u64,
    /// In order of appending; some have been overwritten or moved since.
    blocks: Vec<u32>,
    live: u32,
    /// No more blocks are appended.
    closed: bool,
}

/// A block of the file.
#[derive(Clone, Copy)]
struct Block {
    /// Its segment and its number there.
    at: (usize, usize),
    written: u64,
    dies: u64,
    moves: u64,
}

struct Log {
    placement: Placement,
    segments: Vec<Segment>,
    /// The open segment of each log.
    open: BTreeMap<u64, usize>,
    /// Segments to be used again.
    free: Vec<usize>,
    file: Vec<Option<Block>>,
    now: u64,
    moved: u64,
    /// SepBIT's threshold, and sum and number of the lifespans for the next one.
    threshold: f64,
    lifespans: (u64, u64),
}

impl Log {
    fn new(placement: Placement, blocks: u32) -> Log {
        Log {
            placement,
            segments: Vec::new(),
            open: BTreeMap::new(),
            free: Vec::new(),
            file: vec![None; blocks as usize],
            now: 0,
            moved: 0,
            threshold: f64::INFINITY,
            lifespans: (0, 0),
        }
    }

    /// Segments in use.
    fn used(&self) -> u32 {
        (self.segments.len() - self.free.len()) as u32
    }

    /// Writes a block, which the write number `dies` will overwrite.
    fn write(&mut self, n: u32, dies: u64) {
        let old = self.file[n as usize];
        if let Some(old) = old {
            self.leave(old.at.0);
        }
        let log = match self.placement {
            Placement::Stock | Placement::Moves => 0,
            Placement::Classes(percent) => is_hot(n, percent).into(),
            Placement::SepBit => sepbit_written(old.map(|old| self.now - old.written), self.threshold),
            Placement::Oracle(span) => dies / span,
        };
        self.append(n, log, Block { at: (0, 0), written: self.now, dies, moves: 0 });
        self.now += 1;
    }

    /// Moves a block.
    fn relocate(&mut self, n: u32, block: Block, from: u64) {
        let moves = block.moves + 1;
        let log = match self.placement {
            Placement::Stock => 1,
            Placement::Classes(percent) => is_hot(n, percent).into(),
            Placement::SepBit => sepbit_moved(from, self.now - block.written, self.threshold),
            Placement::Moves => moves.min(5),
            Placement::Oracle(span) => block.dies / span,
        };
        self.append(n, log, Block { moves, ..block });
        self.moved += 1;
    }

    fn append(&mut self, n: u32, log: u64, block: Block) {
        let now = self.now;
        let (segments, free) = (&mut self.segments, &mut self.free);
        let seg = *self.open.entry(log).or_insert_with(|| {
            let new = Segment { log, opened: now, blocks: Vec::new(), live: 0, closed: false };
            match free.pop() {
                Some(seg) => {
                    segments[seg] = new;
                    seg
                }
                None => {
                    segments.push(new);
                    segments.len() - 1
                }
            }
        });
        let segment = &mut self.segments[seg];
        self.file[n as usize] = Some(Block { at: (seg, segment.blocks.len()), ..block });
        segment.blocks.push(n);
        segment.live += 1;
        if segment.blocks.len() == SEGMENT as usize {
            self.close(log);
        }
    }

    /// Closes a log's open segment.
    fn close(&mut self, log: u64) {
        if let Some(seg) = self.open.remove(&log) {
            self.segments[seg].closed = true;
        }
    }

    /// Counts a live block less in a segment, and frees the segment if it is closed and that was its last.
    fn leave(&mut self, seg: usize) {
        let now = self.now;
        let segment = &mut self.segments[seg];
        segment.live -= 1;
        if segment.live > 0 || !segment.closed {
            return;
        }
        if segment.log == 1 {
            self.lifespans = (self.lifespans.0 + now - segment.opened, self.lifespans.1 + 1);
            if self.lifespans.1 == SEPBIT_SEGMENTS {
                self.threshold = self.lifespans.0 as f64 / SEPBIT_SEGMENTS as f64;
                self.lifespans = (0, 0);
            }
        }
        (segment.blocks, segment.closed) = (Vec::new(), false);
        self.free.push(seg);
    }

    /// The closed segment with the highest benefit for its cost; none if none has a dead block.
    fn victim(&self) -> Option<usize> {
        let worth = |s: &Segment| {
            let age = (self.now - s.opened) as f64;
            f64::from(SEGMENT - s.live) * age / f64::from(SEGMENT + s.live)
        };
        let some = self.segments.iter().enumerate().filter(|(_, s)| s.closed && s.live < SEGMENT);
        some.max_by(|(n, a), (m, b)| worth(a).total_cmp(&worth(b)).then(m.cmp(n))).map(|(n, _)| n)
    }

    /// Empties segments until at most `most` are in use; false if that cannot be.
    fn clean(&mut self, most: u32) -> bool {
        while self.used() > most {
            let Some(victim) = self.victim() else { return false };
            let from = self.segments[victim].log;
            for (place, n) in self.segments[victim].blocks.clone().into_iter().enumerate() {
                if let Some(block) = self.file[n as usize].filter(|block| block.at == (victim, place)) {
                    self.relocate(n, block, from);
                    self.leave(victim);
                }
            }
        }
        true
    }
}

/// For each write of the file and of the batches, the number of the write that replaces it.
fn deaths(work: &Overwrites) -> Vec<u64> {
    let writes: Vec<u32> = (0..work.blocks).chain(work.batches.iter().flatten().copied()).collect();
    let mut next = vec![NEVER; work.blocks as usize];
    let mut deaths = vec![NEVER; writes.len()];
    for (n, b) in writes.into_iter().enumerate().rev() {
        deaths[n] = std::mem::replace(&mut next[b as usize], n as u64);
    }
    deaths
}

/// Blocks moved so that at most `most` segments are in use after each batch; none if that cannot be.
pub(super) fn moved(work: &Overwrites, most: &[u32], placement: Placement) -> Option<u64> {
    let mut deaths = deaths(work).into_iter();
    let mut log = Log::new(placement, work.blocks);
    for (n, dies) in (0..work.blocks).zip(&mut deaths) {
        log.append(n, FILLED, Block { at: (0, 0), written: log.now, dies, moves: 0 });
        log.now += 1;
    }
    log.close(FILLED);
    for (batch, most) in work.batches.iter().zip(most) {
        batch.iter().zip(&mut deaths).for_each(|(n, dies)| log.write(*n, dies));
        if !log.clean(*most) {
            return None;
        }
    }
    Some(log.moved)
}

/// Blocks moved under the oracle, with the best span.
pub(super) fn oracle(work: &Overwrites, most: &[u32]) -> Option<u64> {
    SPANS.into_iter().filter_map(|span| moved(work, most, Placement::Oracle(span))).min()
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    fn work(blocks: u32, batches: &[std::ops::Range<u32>]) -> Overwrites {
        Overwrites { blocks, batches: batches.iter().map(|b| b.clone().collect()).collect() }
    }

    /// So many percent of the overwrites go to so many percent of the blocks; every block is overwritten twice on average.
    fn skewed(blocks: u32, [writes, hot]: [u64; 2], seed: u64) -> Overwrites {
        let mut rng = Rng::new(seed);
        let [hot, cold]: [Vec<u32>; 2] = [true, false].map(|h| (0..blocks).filter(|b| is_hot(*b, hot) == h).collect());
        let batch = |_| {
            let mut batch = std::collections::BTreeSet::new();
            while batch.len() < 1024 {
                let class = if rng.below(100) < writes { &hot } else { &cold };
                batch.insert(class[rng.index(class.len())]);
            }
            batch.into_iter().collect()
        };
        Overwrites { blocks, batches: (0..blocks / 512).map(batch).collect() }
    }

    #[test]
    fn a_moved_block_costs_a_segment_of_its_own_unless_it_may_share_one() {
        // Three segments of the file; the first loses 300 of its 512 blocks to a fourth.
        let w = work(1536, &[0..300]);
        for placement in [Placement::Stock, Placement::SepBit, Placement::Moves, Placement::Oracle(4096)] {
            assert_eq!(moved(&w, &[4], placement), Some(0), "{placement:?}");
        }
        // 212 blocks move. Nothing overwrites those, nor the 300, so the oracle puts all into one segment.
        assert_eq!(moved(&w, &[3], Placement::Oracle(4096)), Some(212));
        assert_eq!(moved(&w, &[3], Placement::Stock), None);
        assert_eq!(moved(&w, &[2], Placement::Oracle(4096)), None);
    }

    #[test]
    fn of_two_segments_the_older_is_emptied_although_it_is_fuller() {
        // The first segment keeps 212 blocks, the second, 512 writes younger, 202.
        let mut w = work(1536, &[0..300]);
        w.batches[0].extend(512..822);
        // Worth: 300 / 724 x 2146 against 310 / 714 x 1634.
        assert_eq!(moved(&w, &[4], Placement::Oracle(4096)), Some(212));
    }

    #[test]
    fn a_block_dies_by_the_write_that_replaces_it() {
        assert_eq!(deaths(&work(3, &[1..2, 1..3])), [NEVER, 3, 5, 4, NEVER, NEVER]);
    }

    #[test]
    fn the_classes_of_sepbit_are_the_papers() {
        let written = [(Some(99), 1), (Some(100), 2), (None, 2)];
        written.into_iter().for_each(|(lifespan, class)| assert_eq!(sepbit_written(lifespan, 100.0), class));
        let moved = [(1, 5000, 3), (2, 399, 4), (2, 400, 5), (4, 1599, 5), (6, 1600, 6), (3, 0, 4)];
        moved.into_iter().for_each(|(from, age, class)| assert_eq!(sepbit_moved(from, age, 100.0), class));
        assert_eq!([sepbit_written(Some(1 << 40), f64::INFINITY), sepbit_moved(2, 1 << 40, f64::INFINITY)], [1, 4]);
    }

    #[test]
    fn the_threshold_of_sepbit_is_the_mean_lifespan_of_sixteen_segments_of_class_1() {
        let mut log = Log::new(Placement::SepBit, 512);
        (0..512).for_each(|n| log.append(n, FILLED, Block { at: (0, 0), written: 0, dies: NEVER, moves: 0 }));
        for round in 0..17 {
            // The first round replaces blocks of class 2.
            assert_eq!((log.threshold, log.lifespans.1), (f64::INFINITY, u64::from(round.max(1u32) - 1)));
            (0..512).for_each(|n| log.write(n, NEVER));
        }
        // From a segment's first write to the one that replaces its last block.
        assert_eq!(log.threshold, 1023.0);
    }

    #[test]
    fn who_knows_more_moves_less() {
        for seed in 1..=6 {
            let w = skewed(40_960, [80, 20], seed);
            let most = vec![92; w.batches.len()];
            let of = |placement| moved(&w, &most, placement).unwrap();
            let [stock, classes] = [Placement::Stock, Placement::Classes(20)].map(of);
            let oracle = oracle(&w, &most).unwrap();
            assert!(oracle < classes && classes < stock, "{oracle}, {classes}, {stock}");
        }
    }

    #[test]
    fn sepbit_gains_the_more_the_more_skewed_the_overwrites_are() {
        let saved = |skew| {
            let w = skewed(163_840, skew, 1);
            let most = vec![370; w.batches.len()];
            let of = |placement| moved(&w, &most, placement).unwrap() as f64;
            1.0 - of(Placement::SepBit) / of(Placement::Stock)
        };
        let [even, some, much] = [[20, 20], [80, 20], [95, 5]].map(saved);
        assert!(even < 0.05 && some > even && much > 0.1 && much > some, "{even:.3}, {some:.3}, {much:.3}");
    }

    #[test]
    fn the_oracle_is_never_behind_on_other_courses_either() {
        let mut rng = Rng::new(9);
        for _ in 0..20 {
            let blocks = 20_480 + 1024 * rng.below(20) as u32;
            let batch = |_| {
                // A stretch of the file, of any length.
                let from = rng.below(u64::from(blocks) - 1) as u32;
                let length = 1 + rng.below(u64::from(blocks - from).min(4096)) as u32;
                let step = 1 + rng.index(7);
                (from..from + length).step_by(step).collect()
            };
            let w = Overwrites { blocks, batches: (0..60).map(batch).collect() };
            let most = vec![blocks / SEGMENT + 14; 60];
            let stock = moved(&w, &most, Placement::Stock).unwrap();
            let oracle = oracle(&w, &most).unwrap();
            assert!(oracle <= stock, "{oracle} against {stock}, {blocks} blocks");
        }
    }
}
