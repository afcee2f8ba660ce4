//! When was the energy of a replay spent?
//!
//! An account shows how much each owner spent, not when. A [`Timeline`] samples the ledger during the replay, a few
//! thousand times however long the recording is: when it is full, it drops every second sample. A request's active
//! energy is booked when the device gets it, its share of the board when it is done.

use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger};

/// Most samples in a timeline.
const MOST: usize = 8_192;
/// Initial nanoseconds between samples.
const FIRST: u64 = 1_000_000;

/// A sample of the ledger.
#[derive(Debug, Clone)]
pub struct Look {
    /// Nanoseconds since the first request.
    pub at: u64,
    /// Energy so far, by component in the order of [`Component::ALL`].
    pub components: [Energy; Component::ALL.len()],
    /// The same by owner.
    pub owners: BTreeMap<u64, Energy>,
}

/// Samples of a ledger in order of time.
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
    /// A timeline without owners: there may be many, and each sample would go through all their amounts.
    pub fn without_owners() -> Self {
        Timeline { of_owners: false, ..Timeline::default() }
    }

    /// True if a sample is due.
    pub fn is_due(&self, at: u64) -> bool {
        at >= self.next
    }

    /// Takes a sample.
    pub fn look(&mut self, at: u64, ledger: &Ledger) {
        let components = Component::ALL.map(|c| ledger.component(c));
        let owners = if self.of_owners { ledger.owners() } else { BTreeMap::new() };
        let owners = owners.into_iter().map(|(owner, parts)| (owner, parts.into_iter().sum())).collect();
        self.add(Look { at, components, owners });
    }

    /// Adds a sample taken elsewhere.
    pub(super) fn add(&mut self, look: Look) {
        let at = look.at;
        // Of two samples at one moment, keep the later.
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

    /// Drops samples after a moment.
    pub(super) fn forget_after(&mut self, at: u64) {
        self.looks.retain(|look| look.at <= at);
        self.next = self.looks.last().map_or(0, |look| look.at.saturating_add(self.every));
    }

    /// All samples.
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
