//! Which files are opened in sequence? (Scherl 2004, section 4.1.4: grouping files by use.)
//!
//! Successive opens are counted as edges of a graph. Its partition is approximated greedily: edges are accepted
//! from the most frequent on, unless a file would get two predecessors or two successors, or a circle would close.
//! Pure: works on numbers, without files.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use scherlfs_format::Ino;

/// Most edges kept.
const EDGES: usize = 65_536;
/// Least number of successive opens of two files that belong together.
const LEAST: u32 = 2;

/// Statistics of opens.
#[derive(Debug, Default)]
pub struct Accesses {
    last: Option<Ino>,
    edges: FxHashMap<(Ino, Ino), u32>,
    /// Number of counted opens.
    pub opens: u64,
}

impl Accesses {
    /// Records an open.
    pub fn opened(&mut self, ino: Ino) {
        let before = self.last.replace(ino);
        let Some(before) = before.filter(|b| *b != ino) else { return };
        self.opens += 1;
        if self.edges.len() >= EDGES && !self.edges.contains_key(&(before, ino)) {
            // Single occurrences are dropped and the rest halved, so that habits can change.
            self.edges.retain(|_, n| {
                *n /= 2;
                *n > 0
            });
        }
        *self.edges.entry((before, ino)).or_default() += 1;
    }

    /// Chains of files opened in sequence, the most frequent first.
    pub fn chains(&self) -> Vec<Vec<Ino>> {
        let mut edges: Vec<(u32, Ino, Ino)> =
            self.edges.iter().filter(|(_, n)| **n >= LEAST).map(|((a, b), n)| (*n, *a, *b)).collect();
        edges.sort_unstable_by_key(|(n, a, b)| (std::cmp::Reverse(*n), *a, *b));
        let (mut next, mut before) = (BTreeMap::new(), BTreeMap::new());
        let mut chain_of = BTreeMap::new();
        for &(_, a, b) in &edges {
            let taken = next.contains_key(&a) || before.contains_key(&b);
            if taken || root(&mut chain_of, a) == root(&mut chain_of, b) {
                continue;
            }
            let (from, to) = (root(&mut chain_of, a), root(&mut chain_of, b));
            chain_of.insert(from, to);
            next.insert(a, b);
            before.insert(b, a);
        }
        // Ordered by the most frequent edge of each.
        let mut done = std::collections::BTreeSet::new();
        let linked = edges.into_iter().filter(|(_, a, b)| next.get(a) == Some(b));
        let mut chains = Vec::new();
        for (_, a, _) in linked {
            if !done.insert(root(&mut chain_of, a)) {
                continue;
            }
            let mut head = a;
            while let Some(&earlier) = before.get(&head) {
                head = earlier;
            }
            chains.push(std::iter::successors(Some(head), |at| next.get(at).copied()).collect());
        }
        chains
    }
}

/// The chain of a file, identified by the last joined one.
fn root(chain_of: &mut BTreeMap<Ino, Ino>, ino: Ino) -> Ino {
    let mut at = ino;
    while let Some(&up) = chain_of.get(&at) {
        at = up;
    }
    // Path compression.
    if at != ino {
        chain_of.insert(ino, at);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(order: &[u32]) -> Vec<Vec<u32>> {
        let mut accesses = Accesses::default();
        order.iter().for_each(|n| accesses.opened(Ino(*n)));
        accesses.chains().into_iter().map(|c| c.into_iter().map(|i| i.0).collect()).collect()
    }

    #[test]
    fn files_that_are_opened_in_turn_are_a_chain_and_chance_makes_none() {
        assert_eq!(opened(&[10, 11, 12, 10, 11, 12]), [[10, 11, 12]]);
        assert_eq!(opened(&[10, 11, 12, 13]), Vec::<Vec<u32>>::new());
        // 20 -> 21 is the most frequent; 21 -> 10 closes no circle, 12 -> 20 would.
        let order = [20, 21, 20, 21, 20, 21, 10, 11, 20, 21, 10, 11];
        assert_eq!(opened(&order), [[20, 21, 10, 11]]);
    }

    #[test]
    fn no_file_is_in_two_chains_and_no_chain_is_a_circle() {
        let mut rng = device::Rng::new(3);
        let order: Vec<u32> = (0..20_000).map(|_| rng.below(60) as u32).collect();
        let chains = opened(&order);
        let mut all: Vec<u32> = chains.iter().flatten().copied().collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert!(n > 10 && all.len() == n, "{chains:?}");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_habits_outlive_chance() {
        let mut accesses = Accesses::default();
        (0..50).for_each(|n| accesses.opened(Ino(n % 2 + 10)));
        (100..200_000).for_each(|n| accesses.opened(Ino(n)));
        assert!(accesses.edges.len() <= EDGES);
        assert_eq!(accesses.chains(), [[Ino(10), Ino(11)]]);
    }
}
