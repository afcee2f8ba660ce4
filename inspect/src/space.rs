//! How full, how old and how fragmented are the segments?
//!
//! Free space is counted in the nine piece sizes of FAGC TACO'23, Table 3, over the whole main area: a piece is the
//! longest run of neighbouring blocks that the SIT does not mark as valid. The factor f of a segment is that of
//! Algorithm 1: over its runs of X free blocks shorter than 32, the sum of 126 x 127 / X.

use format::BLOCKS_PER_SEG;
use format::sit::LogType;

use crate::tables::{Segment, Sit};

/// Number of piece sizes.
pub const LEVELS: usize = 9;
/// The largest f: every second block is free.
pub const MAX_FRAGMENTATION: f64 = 256.0 * 126.0 * 127.0;
/// Runs of at least this many blocks are not fragments: 128 KiB.
const FRAGMENT: u32 = 32;

/// The segments of one log.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OfLog {
    /// Segments with a valid block.
    pub segments: u64,
    /// Valid blocks.
    pub valid: u64,
    /// Segments without a free block.
    pub full: u64,
    /// Sum of the factors f.
    pub fragmentation: f64,
    /// Sum of the ages, in seconds of mounted time.
    pub age: u64,
}

/// Free and used space of a volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Space {
    /// Segments.
    pub segments: u64,
    /// Segments without a valid block.
    pub free_segments: u64,
    /// Partly valid segments by tenths of their blocks: up to 10 %, up to 20 % and so on. Full ones are left out.
    pub tenths: [u64; 10],
    /// By log: hot, warm, cold data; hot, warm, cold nodes; invalid type.
    pub logs: [OfLog; 7],
    /// Pieces of free space: one block, two, up to four and so on to 128, and larger.
    pub pieces: [u64; LEVELS],
    /// Blocks in these pieces.
    pub piece_blocks: [u64; LEVELS],
    /// Ages of segments with a valid block, in seconds of mounted time: the youngest, a quarter, half, three quarters, the
    /// oldest.
    pub ages: [u64; 5],
}

/// The runs of free blocks among the first `end` blocks of a segment: first block and length.
fn runs(segment: &Segment, end: u16) -> impl Iterator<Item = (u16, u16)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = (at..end).find(|o| !segment.has(*o))?;
        at = (from..end).find(|o| segment.has(*o)).unwrap_or(end);
        Some((from, at - from))
    })
}

/// What a run of free blocks adds to the factor f.
fn share(run: u16) -> f64 {
    if u32::from(run) < FRAGMENT { 126.0 * 127.0 / f64::from(run) } else { 0.0 }
}

/// The factor f of a segment.
pub fn fragmentation(segment: &Segment) -> f64 {
    Look::examine(segment).fragmentation
}

/// The free space of one segment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Look {
    /// The factor f.
    pub fragmentation: f64,
    /// Runs of free blocks.
    pub runs: u16,
    /// Length of the longest run, in blocks.
    pub longest: u16,
    /// Free blocks in runs shorter than 128 KiB.
    pub loose: u16,
}

impl Look {
    /// Examines a segment.
    pub fn examine(segment: &Segment) -> Self {
        runs(segment, BLOCKS_PER_SEG as u16).fold(Look::default(), |mut look, (_, run)| {
            look.fragmentation += share(run);
            look.runs += 1;
            look.longest = look.longest.max(run);
            look.loose += if u32::from(run) < FRAGMENT { run } else { 0 };
            look
        })
    }
}

impl Space {
    /// Counts a table. Ages are relative to `now`, in seconds of mounted time.
    pub fn from_sit(sit: &Sit, now: u64) -> Space {
        let mut out = Space::default();
        let mut ages = Vec::new();
        // Length so far of the piece that reached the end of the previous segment.
        let mut open = 0_u64;
        for (number, segment) in sit.iter() {
            let blocks = sit.blocks_of(number);
            out.segments += 1;
            if segment.valid == 0 {
                out.free_segments += 1;
                open += u64::from(blocks);
                continue;
            }
            let mut factor = 0.0;
            if segment.has(0) {
                out.piece(std::mem::take(&mut open));
            }
            for (from, len) in runs(segment, blocks) {
                factor += share(len);
                let whole = u64::from(len) + if from == 0 { std::mem::take(&mut open) } else { 0 };
                if from + len == blocks {
                    open = whole;
                } else {
                    out.piece(whole);
                }
            }
            let age = now.saturating_sub(segment.mtime);
            ages.push(age);
            let log = &mut out.logs[segment.log.map_or(6, LogType::index)];
            log.segments += 1;
            log.valid += u64::from(segment.valid);
            log.fragmentation += factor;
            log.age = log.age.saturating_add(age);
            if segment.valid == blocks {
                log.full += 1;
            } else {
                out.tenths[usize::from(segment.valid - 1) * 10 / BLOCKS_PER_SEG as usize] += 1;
            }
        }
        out.piece(open);
        ages.sort_unstable();
        if let Some(last) = ages.len().checked_sub(1) {
            out.ages = [0, 1, 2, 3, 4].map(|k| ages[last * k / 4]);
        }
        out
    }

    fn piece(&mut self, blocks: u64) {
        if blocks > 0 {
            let level = (blocks.next_power_of_two().trailing_zeros() as usize).min(LEVELS - 1);
            self.pieces[level] += 1;
            self.piece_blocks[level] += blocks;
        }
    }

    /// Valid blocks.
    pub fn valid(&self) -> u64 {
        self.logs.iter().map(|l| l.valid).sum()
    }
    /// Segments with a valid block.
    pub fn used(&self) -> u64 {
        self.segments - self.free_segments
    }
    /// Mean factor f of the segments with a valid block; 0 if there is none.
    pub fn mean_fragmentation(&self) -> f64 {
        let all: f64 = self.logs.iter().map(|l| l.fragmentation).sum();
        if self.used() == 0 { 0.0 } else { all / self.used() as f64 }
    }
}
