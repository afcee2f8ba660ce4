//! How much energy did a phase spend on each owner?
//!
//! A result lists only the most expensive owners ([`crate::result`]). An account has all of them, and latencies if a
//! recording was replayed. It exists only in memory, for the tables that notebooks read: as text it would be many times
//! longer than the rest of a result.

use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger};
use trace::replay::blocks::Latency;

/// Energy of a component for an owner and a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The owner; 0 for none.
    pub owner: u64,
    /// The cause.
    pub cause: u8,
    /// The component.
    pub component: Component,
    /// The energy.
    pub energy: Energy,
}

/// The account of a phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Sorted by owner, cause and component, without duplicates and zeroes. Empty if owners are unknown.
    amounts: Vec<Amount>,
    /// Paths of owners, as far as known.
    pub names: BTreeMap<u64, String>,
    /// Latencies of recorded requests or calls, by type.
    pub latencies: Vec<Latency>,
}

impl Account {
    /// The account of a whole ledger.
    pub fn from_ledger(ledger: &Ledger) -> Self {
        let amounts = ledger.amounts().map(|(purpose, part, energy)| Amount {
            owner: purpose.owner,
            cause: purpose.cause,
            component: part.component(),
            energy,
        });
        Account { amounts: added(amounts), ..Account::default() }
    }

    /// Its owners, in order.
    pub fn owners(&self) -> impl Iterator<Item = u64> + '_ {
        self.amounts.chunk_by(|a, b| a.owner == b.owner).map(|of| of[0].owner)
    }

    /// Marks the owners as unknown.
    pub fn forget_owners(&mut self) {
        self.amounts.clear();
        self.names.clear();
    }

    /// The amounts; none if owners are unknown.
    pub fn amounts(&self) -> &[Amount] {
        &self.amounts
    }
}

/// Sorts by owner, cause and component, and adds up equal ones.
pub(crate) fn added(amounts: impl Iterator<Item = Amount>) -> Vec<Amount> {
    let mut all: Vec<Amount> = amounts.filter(|a| a.energy != Energy::ZERO).collect();
    all.sort_unstable_by_key(|a| (a.owner, a.cause, a.component as u8));
    all.dedup_by(|next, kept| {
        let same = (next.owner, next.cause, next.component) == (kept.owner, kept.cause, kept.component);
        if same {
            kept.energy += next.energy;
        }
        same
    });
    all.shrink_to_fit();
    all
}
