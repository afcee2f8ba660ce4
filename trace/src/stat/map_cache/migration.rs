//! Where did defragmentation or cleaning move blocks, and where would an earlier recorded request find them?
//!
//! A migration log is text, with a line for each run of moved blocks, in order:
//!
//! ```text
//! from,to,blocks
//! 81920,4096,512
//! ```
//!
//! Numbers are blocks of 4 KiB from the beginning of the volume. Empty lines and lines that begin with `#` are skipped.
//!
//! The log describes the data as of the end of the recording. So data that moves twice is found at its last place; data
//! that arrived at a place only later and moves from there was not recorded.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Why a migration log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A line is not a valid move.
    #[error("{}: line {line}: {what}; each line is from,to,blocks in blocks of 4 KiB", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The error.
        what: String,
    },
}

/// Longest line: three numbers.
const LINE: u64 = 128;

/// Disjoint runs by first block: new location and length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Runs(BTreeMap<u64, (u64, u64)>);

impl Runs {
    /// The parts of a range, in order: first block, length, and new location if in a run.
    fn parts(&self, first: u64, blocks: u64) -> Vec<(u64, u64, Option<u64>)> {
        let (mut at, end) = (first, first.saturating_add(blocks));
        let mut out = Vec::new();
        let before = self.0.range(..=first).next_back().map(|(f, _)| *f).unwrap_or(first);
        for (&from, &(to, n)) in self.0.range(before..end) {
            let (from_in, till) = (from.max(at), (from + n).min(end));
            if till <= at {
                continue;
            }
            if from_in > at {
                out.push((at, from_in - at, None));
            }
            out.push((from_in, till - from_in, Some(to + (from_in - from))));
            at = till;
        }
        if at < end {
            out.push((at, end - at, None));
        }
        out
    }

    /// Removes a range; runs that extend beyond it keep the rest.
    fn clear(&mut self, first: u64, blocks: u64) {
        let end = first + blocks;
        let before = self.0.range(..first).next_back().map(|(f, _)| *f).unwrap_or(first);
        let touched: Vec<(u64, (u64, u64))> = self.0.range(before..end).map(|(f, r)| (*f, *r)).collect();
        for (from, (to, n)) in touched {
            if from + n <= first {
                continue;
            }
            self.0.remove(&from);
            if from < first {
                self.0.insert(from, (to, first - from));
            }
            if from + n > end {
                self.0.insert(end, (to + (end - from), from + n - end));
            }
        }
    }

    fn set(&mut self, first: u64, to: u64, blocks: u64) {
        self.clear(first, blocks);
        self.0.insert(first, (to, blocks));
    }
}

/// Where blocks moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// From the original location to the current one.
    now: Runs,
    /// And back.
    origin: Runs,
    /// Number of block moves.
    moved: u64,
}

impl Migration {
    /// Adds a move. Runs beyond 2^63 blocks are cut off there.
    pub fn add(&mut self, from: u64, to: u64, blocks: u64) {
        const END: u64 = 1 << 63;
        let blocks = blocks.min(END.saturating_sub(from)).min(END.saturating_sub(to));
        if blocks == 0 {
            return;
        }
        self.moved = self.moved.saturating_add(blocks);
        let mut moves = Vec::new();
        for (at, n, first) in self.origin.parts(from, blocks) {
            match first {
                Some(first) => moves.push((first, to + (at - from), n)),
                // The original data, unless it has moved away.
                None => moves.extend(
                    self.now
                        .parts(at, n)
                        .into_iter()
                        .filter(|(.., gone)| gone.is_none())
                        .map(|(at, n, _)| (at, to + (at - from), n)),
                ),
            }
        }
        self.origin.clear(from, blocks);
        // The move overwrites data that arrived here, and original data, which is then gone.
        self.origin.clear(to, blocks);
        for (at, n, gone) in self.now.parts(to, blocks) {
            if gone.is_none() {
                self.now.set(at, at, n);
            }
        }
        for (first, to, n) in moves {
            self.now.set(first, to, n);
            self.origin.set(to, first, n);
        }
    }

    /// Reads a log. `start` is the block of the traced device at which the volume begins.
    pub fn read(path: &Path, start: u64) -> Result<Self, MigrationError> {
        let io = |source| MigrationError::Io { path: path.into(), source };
        let mut input = BufReader::new(std::fs::File::open(path).map_err(io)?);
        let mut migration = Migration::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if (&mut input).take(LINE).read_until(b'\n', &mut line).map_err(io)? == 0 {
                break;
            }
            let bad = |what: String| MigrationError::Line { path: path.into(), line: number, what };
            let text = std::str::from_utf8(&line).map_err(|_| bad("no text".into()))?.trim();
            if text.is_empty() || text.starts_with('#') || number == 1 && text == "from,to,blocks" {
                continue;
            }
            let numbers: Result<Vec<u64>, _> = text.split(',').map(|n| n.trim().parse::<u64>()).collect();
            match numbers.as_deref() {
                Ok([from, to, blocks]) => {
                    migration.add(from.saturating_add(start), to.saturating_add(start), *blocks);
                }
                Ok(_) | Err(_) => return Err(bad(format!("{text:?} is not a move"))),
            }
        }
        Ok(migration)
    }

    /// Number of block moves.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The current location of a run of blocks: runs of first block and length, in the order of the data.
    pub fn translate(&self, first: u64, blocks: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (at, n, to) in self.now.parts(first, blocks) {
            let to = to.unwrap_or(at);
            match out.last_mut() {
                Some((last, m)) if *last + *m == to => *m += n,
                _ => out.push((to, n)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_where_it_came_to_rest() {
        let mut m = Migration::default();
        m.add(10, 100, 5);
        m.add(102, 200, 2);
        assert_eq!(m.translate(8, 10), [(8, 2), (100, 2), (200, 2), (104, 1), (15, 3)]);
        // The original data at 102 did not move, although other data moved from there.
        assert_eq!(m.translate(102, 2), [(102, 2)]);
        // Data that arrived at 10 later was not recorded.
        m.add(10, 300, 5);
        assert_eq!(m.translate(10, 1), [(100, 1)]);
        assert_eq!(m.moved(), 12);
    }

    #[test]
    fn every_block_is_where_a_list_of_blocks_has_it() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut m = Migration::default();
            // Original block of the data at each location.
            let mut lies: BTreeMap<u64, u64> = (0..64).map(|b| (b, b)).collect();
            let mut now: BTreeMap<u64, u64> = BTreeMap::new();
            for _ in 0..random(12) {
                let (from, to, n) = (random(50), 64 + random(50), 1 + random(12));
                let (from, to) = if random(3) == 0 { (to, from) } else { (from, to) };
                m.add(from, to, n);
                let data: Vec<Option<u64>> = (from..from + n).map(|b| lies.remove(&b)).collect();
                for (b, origin) in (to..).zip(data) {
                    lies.remove(&b);
                    if let Some(origin) = origin {
                        lies.insert(b, origin);
                        now.insert(origin, b);
                    }
                }
            }
            for block in 0..64 {
                assert_eq!(m.translate(block, 1), [(now.get(&block).copied().unwrap_or(block), 1)]);
            }
            let whole: Vec<u64> = m.translate(0, 64).into_iter().flat_map(|(at, n)| at..at + n).collect();
            assert_eq!(whole, (0..64).map(|b| now.get(&b).copied().unwrap_or(b)).collect::<Vec<_>>());
        }
    }
}
