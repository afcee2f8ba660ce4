//! When were the joules of a replay spent?
//!
//! The accounts of a run say who spent how much, not when. A [`Timeline`] looks at the ledger now and then while requests
//! are made, a few thousand times however long the recording is: when it has too many looks, it forgets every second one.
//! A request's active energy is on the ledger when the device gets it, its share of the board when it is done.

use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger};

/// A timeline has at most so many looks.
const MOST: usize = 8_192;
/// Nanoseconds between two looks at first.
const FIRST: u64 = 1_000_000;

/// The ledger at a moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// Nanoseconds since the first request.
    pub at: u64,
    /// What was spent up to then, by component in the order of [`Component::ALL`].
    pub components: [Energy; Component::ALL.len()],
    /// The same by owner.
    pub owners: BTreeMap<u64, Energy>,
}

/// Looks at a ledger in order of time.
#[derive(Debug)]
pub struct Timeline {
    looks: Vec<Look>,
    every: u64,
    next: u64,
    of_owners: bool,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { looks: Vec::new(), every: FIRST, next: 0, of_owners: true }
    }
}

impl Timeline {
    /// One that is not told who spent what: there may be many owners, and each look would go through all they did.
    pub fn without_owners() -> Self {
        Timeline { of_owners: false, ..Timeline::default() }
    }

    /// True if it is time for a look.
    pub fn is_due(&self, at: u64) -> bool {
        at >= self.next
    }

    /// Looks.
    pub fn look(&mut self, at: u64, ledger: &Ledger) {
        let components = Component::ALL.map(|c| ledger.component(c));
        let owners = if self.of_owners { ledger.owners() } else { BTreeMap::new() };
        let owners = owners.into_iter().map(|(owner, parts)| (owner, parts.into_iter().sum())).collect();
        self.add(Look { at, components, owners });
    }

    /// Adds a look that somebody took.
    pub(super) fn add(&mut self, look: Look) {
        let at = look.at;
        // Of two looks at one moment the later saw everything.
        self.looks.pop_if(|last| last.at == at);
        self.looks.push(look);
        if self.looks.len() > MOST {
            let mut keep = false;
            self.looks.retain(|_| {
                keep = !keep;
                keep
            });
            self.every *= 2;
        }
        self.next = at.saturating_add(self.every);
    }

    /// Forgets what came after a moment.
    pub(super) fn forget_after(&mut self, at: u64) {
        self.looks.retain(|look| look.at <= at);
        self.next = self.looks.last().map_or(0, |look| look.at.saturating_add(self.every));
    }

    /// All looks.
    pub fn looks(&self) -> &[Look] {
        &self.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recording_has_no_more_looks_than_a_short_one_and_they_are_as_far_apart() {
        let (mut timeline, ledger) = (Timeline::default(), Ledger::default());
        for at in (0..200_000_u64).map(|n| n * FIRST) {
            if timeline.is_due(at) {
                timeline.look(at, &ledger);
            }
        }
        let looks = timeline.looks();
        assert!((MOST / 2..=MOST).contains(&looks.len()), "{}", looks.len());
        let apart: Vec<u64> = looks.windows(2).map(|w| w[1].at - w[0].at).collect();
        assert!(apart.iter().max() <= apart.iter().min().map(|least| least * 2).as_ref(), "{:?}", &apart[..3]);
        assert!(looks[0].at == 0 && looks.last().unwrap().at > 199_000 * FIRST);
    }
}
