//! The set of free blocks.
//!
//! Runs in address order; neighbours are joined. Pure bookkeeping: [`crate::path`] chooses the next run, and
//! [`crate::marks`] holds the blocks that the next checkpoint frees.

use std::collections::BTreeMap;

use scherlfs_format::{Addr, Run};

/// A set of blocks, as runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl Blocks {
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
    /// The runs in order, split to the maximum length of a run on disk.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().flat_map(|(&start, &len)| cut(start, len))
    }
    /// The runs at or after a block, in order; the first is cut off at that block.
    pub fn from(&self, at: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let split = self.runs.range(..at).next_back().filter(|(s, l)| **s + **l > at).map(|(s, l)| (at, *s + *l - at));
        split.into_iter().chain(self.runs.range(at..).map(|(s, l)| (*s, *l)))
    }
    /// The parts of a range in the set: start, blocks.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.from(start).take_while(move |(s, _)| *s < end).map(move |(s, l)| (s, l.min(end - s)))
    }
    /// True if the set contains a block.
    pub fn contains(&self, at: Addr) -> bool {
        self.runs.range(..=at.0).next_back().is_some_and(|(s, l)| at.0 < s + l)
    }
    /// Adds blocks that are not in the set. If one is, returns false and adds nothing: then two places claim it.
    pub fn add(&mut self, start: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        let before = self.runs.range(..start).next_back().map(|(s, l)| (*s, *l));
        let after = self.runs.range(start..).next().map(|(s, l)| (*s, *l));
        if before.is_some_and(|(s, l)| s + l > start) || after.is_some_and(|(s, _)| s < start + len) {
            return false;
        }
        let (mut from, mut to) = (start, start + len);
        if let Some((s, l)) = before
            && s + l == start
        {
            self.runs.remove(&s);
            from = s;
        }
        if let Some((s, l)) = after
            && s == to
        {
            self.runs.remove(&s);
            to = s + l;
        }
        self.runs.insert(from, to - from);
        self.count += len;
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
        let Some((&s, &l)) = self.runs.range(..=start).next_back() else { return false };
        if s + l < start + len {
            return false;
        }
        self.runs.remove(&s);
        if s < start {
            self.runs.insert(s, start - s);
        }
        if s + l > start + len {
            self.runs.insert(start + len, s + l - start - len);
        }
        self.count -= len;
        true
    }
    /// Adds another set; false if the two overlap.
    pub fn add_all(&mut self, other: &Blocks) -> bool {
        other.runs.iter().fold(true, |all, (&s, &l)| self.add(s, l) && all)
    }
    /// Adds ordered runs that do not touch each other; false if one of their blocks is already in the set. For many
    /// runs it walks along both instead of searching for each.
    pub fn add_spans(&mut self, spans: &[(u64, u64)]) -> bool {
        if spans.len() < self.runs.len() / 16 {
            return spans.iter().fold(true, |all, &(s, l)| self.add(s, l) && all);
        }
        let (mut whole, mut joined) = (true, Vec::<(u64, u64)>::with_capacity(self.runs.len() + spans.len()));
        let mut add = |(start, len): (u64, u64)| match joined.last_mut() {
            Some((s, l)) if *s + *l == start => *l += len,
            Some((s, l)) if *s + *l > start => whole = false,
            _ => joined.push((start, len)),
        };
        let mut more = spans.iter().copied().peekable();
        for run in std::mem::take(&mut self.runs) {
            while let Some(span) = more.next_if(|span| span.0 < run.0) {
                add(span);
            }
            add(run);
        }
        more.for_each(add);
        self.count = joined.iter().map(|(_, len)| len).sum();
        // Built from ordered runs without a search.
        self.runs = joined.into_iter().collect();
        whole
    }
}

/// A run split to lengths that fit on disk.
pub(crate) fn cut(start: u64, len: u64) -> impl Iterator<Item = Run> {
    // Two free runs on disk must not touch, as these pieces do. No volume has a contiguous free run of 2^32 blocks
    // (16 TiB): mkfs leaves a block out to prevent one.
    let step = u64::from(u32::MAX);
    (0..len.div_ceil(step)).map(move |n| Run {
        start: Addr(start + n * step),
        blocks: u32::try_from((len - n * step).min(step)).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device::Rng;

    use super::*;

    #[test]
    fn runs_are_what_a_plain_set_is() {
        let (mut rng, mut ours, mut plain) = (Rng::new(7), Blocks::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let (start, len) = (rng.below(300), rng.below(12));
            let range = start..start + len;
            if rng.below(2) == 0 {
                let free = range.clone().all(|b| !plain.contains(&b));
                assert_eq!(ours.add(start, len), free);
                if free {
                    plain.extend(range);
                }
            } else {
                let all = range.clone().all(|b| plain.contains(&b));
                assert_eq!(ours.take(start, len), all);
                if all {
                    range.for_each(|b| _ = plain.remove(&b));
                }
            }
            assert_eq!(ours.count(), plain.len() as u64);
        }
        let blocks: Vec<u64> = ours.iter().flat_map(|r| r.addrs().map(|a| a.0)).collect();
        assert_eq!(blocks, plain.iter().copied().collect::<Vec<_>>());
        let joined: Vec<_> = ours.iter().collect();
        assert!(joined.windows(2).all(|w| w[0].end() < w[1].start), "neighbours are one run");
        assert!((0..300).all(|b| ours.contains(Addr(b)) == plain.contains(&b)));
        let from: Vec<u64> = ours.from(150).flat_map(|(s, l)| s..s + l).collect();
        assert_eq!(from, plain.range(150..).copied().collect::<Vec<_>>());
    }
}
