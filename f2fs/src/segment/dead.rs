//! Which holes does the device still store, in segments that are in use?
//!
//! A checkpoint adds the runs of blocks that it freed, a log that fills a hole removes them, and discards take them,
//! longest first. A run that was freed before the mount is not known here; `Volume::trim` finds it in the valid maps.
//!
//! Left out on purpose: whole segments, which their checkpoint discards, and when to discard (`crate::trim`).

use std::collections::{BTreeMap, BTreeSet};

/// Free blocks of the main area that are not discarded yet, as runs without a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dead {
    /// First block and length.
    runs: BTreeMap<u64, u64>,
    /// The same by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Dead {
    /// Adds freed blocks.
    pub fn add(&mut self, mut first: u64, mut blocks: u64) {
        if let Some((&start, &len)) = self.runs.range(..first).next_back()
            && start + len == first
        {
            self.remove(start, len);
            (first, blocks) = (start, len + blocks);
        }
        if let Some(&len) = self.runs.get(&(first + blocks)) {
            self.remove(first + blocks, len);
            blocks += len;
        }
        self.insert(first, blocks);
    }

    /// Leaves blocks out that are written again, or discarded otherwise.
    pub fn leave_out(&mut self, first: u64, blocks: u64) {
        let end = first + blocks;
        while let Some((&start, &len)) = self.runs.range(..end).next_back().filter(|(start, len)| *start + *len > first)
        {
            self.remove(start, len);
            if start < first {
                self.insert(start, first - start);
            }
            if start + len > end {
                self.insert(end, start + len - end);
            }
        }
    }

    /// Length of the longest run.
    pub fn longest(&self) -> u64 {
        self.by_length.last().map_or(0, |(len, _)| *len)
    }

    /// Takes the longest run, if it has at least `at_least` blocks: its first block and its length.
    pub fn take(&mut self, at_least: u64) -> Option<(u64, u64)> {
        let (len, first) = *self.by_length.last().filter(|(len, _)| *len >= at_least)?;
        self.remove(first, len);
        Some((first, len))
    }

    fn insert(&mut self, first: u64, blocks: u64) {
        self.runs.insert(first, blocks);
        self.by_length.insert((blocks, first));
    }

    fn remove(&mut self, first: u64, blocks: u64) {
        self.runs.remove(&first);
        self.by_length.remove(&(blocks, first));
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    #[test]
    fn runs_are_those_of_a_set_of_blocks() {
        let (mut rng, mut dead, mut set) = (Rng::new(1), Dead::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let (first, blocks) = (rng.below(200), 1 + rng.below(20));
            let all = first..first + blocks;
            match rng.below(3) {
                // Only blocks that were in use are freed.
                0 if all.clone().all(|b| !set.contains(&b)) => {
                    set.extend(all);
                    dead.add(first, blocks);
                }
                1 => {
                    set.retain(|b| !all.contains(b));
                    dead.leave_out(first, blocks);
                }
                _ => {
                    let longest = dead.longest();
                    if let Some((first, len)) = dead.take(blocks) {
                        assert!(len == longest && len >= blocks);
                        (first..first + len).for_each(|b| assert!(set.remove(&b)));
                    } else {
                        assert!(longest < blocks);
                    }
                }
            }
            let known: BTreeSet<u64> = dead.runs.iter().flat_map(|(first, len)| *first..first + len).collect();
            assert_eq!(known, set);
            let apart = |a: (&u64, &u64), b: (&u64, &u64)| a.0 + a.1 < *b.0;
            assert!(dead.runs.iter().zip(dead.runs.iter().skip(1)).all(|(a, b)| apart(a, b)), "{dead:?}");
            assert_eq!(dead.runs.len(), dead.by_length.len());
        }
    }
}
