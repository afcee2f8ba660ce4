//! A set of blocks that are added one by one from all over the volume, as a bitmap.
//!
//! Random updates replace single blocks. Each costs two bit reads and one bit write here, where [`crate::space`],
//! which holds ordered runs, would search several times. Iteration is slower: parts are sorted first.

use rustc_hash::FxHashMap;
use scherlfs_format::Run;

use crate::space::cut;

/// Words in a part.
const WORDS: u64 = 64;
/// Blocks in a part.
const PART: u64 = WORDS * 64;

/// The blocks of a part that are in the set; `None`: all.
type Part = Option<Box<[u64; WORDS as usize]>>;

/// A set of blocks.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    parts: FxHashMap<u64, Part>,
    count: u64,
    runs: usize,
}

/// The words of a range in its part: index and bit mask.
fn words(start: u64, end: u64) -> impl Iterator<Item = (usize, u64)> {
    let last = end.div_ceil(64);
    (start / 64..last).map(move |word| {
        let (from, to) = (start.max(word * 64) % 64, end.min(word * 64 + 64) - word * 64);
        ((word % WORDS) as usize, (u64::MAX >> (64 - (to - from))) << from)
    })
}

/// A range, split at part boundaries: the part, and the subrange.
fn by_part(start: u64, len: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = start.saturating_add(len);
    (start / PART..end.div_ceil(PART)).map(move |n| (n, start.max(n * PART), end.min(n * PART + PART)))
}

impl Marks {
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Number of runs, with neighbours joined.
    pub fn runs(&self) -> usize {
        self.runs
    }
    /// True if the set contains a block.
    pub fn contains(&self, at: u64) -> bool {
        match self.parts.get(&(at / PART)) {
            None => false,
            Some(None) => true,
            Some(Some(bits)) => bits[(at % PART / 64) as usize] >> (at % 64) & 1 == 1,
        }
    }

    /// True for each neighbour of a range that is in the set.
    fn neighbours(&self, start: u64, len: u64) -> (bool, bool) {
        (start.checked_sub(1).is_some_and(|before| self.contains(before)), self.contains(start.saturating_add(len)))
    }

    /// Adds a range of blocks. If one of them is already in the set (it has two owners), returns false and adds nothing.
    pub fn add(&mut self, start: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        let taken = |(n, from, to)| match self.parts.get(&n) {
            None => false,
            Some(None) => true,
            Some(Some(bits)) => words(from, to).any(|(word, mask)| bits[word] & mask != 0),
        };
        if by_part(start, len).any(taken) {
            return false;
        }
        let (before, behind) = self.neighbours(start, len);
        for (n, from, to) in by_part(start, len) {
            if to - from == PART {
                self.parts.insert(n, None);
            } else if let Some(bits) = self.parts.entry(n).or_insert_with(|| Some(Box::new([0; WORDS as usize]))) {
                words(from, to).for_each(|(word, mask)| bits[word] |= mask);
            }
        }
        self.count += len;
        self.runs = self.runs + 1 - usize::from(before) - usize::from(behind);
        true
    }

    /// Adds a run.
    pub fn add_run(&mut self, run: Run) -> bool {
        self.add(run.start.0, run.blocks.into())
    }

    /// Removes blocks that are all in the set. If one is not, returns false and removes nothing.
    pub fn take(&mut self, start: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        let lacks = |(n, from, to)| match self.parts.get(&n) {
            None => true,
            Some(None) => false,
            Some(Some(bits)) => words(from, to).any(|(word, mask)| bits[word] & mask != mask),
        };
        if by_part(start, len).any(lacks) {
            return false;
        }
        let (before, behind) = self.neighbours(start, len);
        for (n, from, to) in by_part(start, len) {
            if to - from == PART {
                self.parts.remove(&n);
            } else if let Some(part) = self.parts.get_mut(&n) {
                let bits = part.get_or_insert_with(|| Box::new([u64::MAX; WORDS as usize]));
                words(from, to).for_each(|(word, mask)| bits[word] &= !mask);
            }
        }
        self.count -= len;
        self.runs = self.runs - 1 + usize::from(before) + usize::from(behind);
        true
    }

    /// The runs in order, as first block and length.
    pub fn spans(&self) -> Vec<(u64, u64)> {
        let mut order: Vec<u64> = self.parts.keys().copied().collect();
        order.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(self.runs);
        let mut add = |start: u64, len: u64| match out.last_mut() {
            Some((s, l)) if *s + *l == start => *l += len,
            _ => out.push((start, len)),
        };
        for n in order {
            let Some(Some(bits)) = self.parts.get(&n) else {
                add(n * PART, PART);
                continue;
            };
            for (word, &bits) in bits.iter().enumerate() {
                let (begin, mut at, mut left) = (n * PART + word as u64 * 64, 0, bits);
                while left != 0 {
                    at += u64::from(left.trailing_zeros());
                    let ones = u64::from((bits >> at).trailing_ones());
                    add(begin + at, ones);
                    at += ones;
                    left = if at < 64 { bits >> at } else { 0 };
                }
            }
        }
        out
    }

    /// The runs in order, split to the maximum length of a run on disk.
    pub fn iter(&self) -> impl Iterator<Item = Run> {
        self.spans().into_iter().flat_map(|(start, len)| cut(start, len))
    }

    /// Empties it.
    pub fn clear(&mut self) {
        *self = Marks::default();
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;
    use scherlfs_format::Addr;

    use super::*;
    use crate::space::Blocks;

    /// A range; sometimes one with whole parts, or at their boundaries.
    fn range(rng: &mut Rng) -> (u64, u64) {
        match rng.below(8) {
            0 => (rng.below(3 * PART), rng.below(3 * PART)),
            1 => (PART * rng.below(4), PART * (1 + rng.below(2))),
            2 => (PART * (1 + rng.below(3)) - rng.below(70), rng.below(140)),
            _ => (rng.below(6 * PART), rng.below(9)),
        }
    }

    #[test]
    fn it_holds_what_a_set_of_runs_holds() {
        for seed in 0..20 {
            let (mut rng, mut marks, mut blocks) = (Rng::new(seed), Marks::default(), Blocks::default());
            for _ in 0..600 {
                let (start, len) = range(&mut rng);
                let fits = if rng.below(3) > 0 {
                    [marks.add(start, len), blocks.add(start, len)]
                } else {
                    // A part of the set, so that a removal succeeds.
                    let some = blocks.within(start, start + len.max(1)).next().unwrap_or((start, len));
                    [marks.take(some.0, some.1), blocks.take(some.0, some.1)]
                };
                assert_eq!(fits[0], fits[1], "seed {seed}: {start} {len}");
                assert_eq!((marks.count(), marks.runs()), (blocks.count(), blocks.runs()), "seed {seed}");
                assert_eq!(marks.iter().collect::<Vec<_>>(), blocks.iter().collect::<Vec<_>>(), "seed {seed}");
                let at = rng.below(6 * PART);
                assert_eq!(marks.contains(at), blocks.contains(Addr(at)));
            }
        }
    }
}
