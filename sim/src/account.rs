//! What did each owner cost, of all that a phase has?
//!
//! A result names the owners that cost most ([`crate::result`]); this has every one, and how long requests took where a
//! recording of them was replayed. It is in memory alone, for the rows that notebooks read: as text it would be many times as
//! long as all the rest of a result.

use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger};
use trace::replay::blocks::Latency;

/// What a component spent for an owner and a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// For whom; 0 is nobody in particular.
    pub owner: u64,
    /// Why.
    pub cause: u8,
    /// Who.
    pub component: Component,
    /// How much.
    pub energy: Energy,
}

/// The account of a phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// In order of owner, cause and component; each once, and none of nothing. Empty where owners are not ours.
    amounts: Vec<Amount>,
    /// The paths of those owners that are known.
    pub names: BTreeMap<u64, String>,
    /// How long requests or calls took, by kind, where they were recorded.
    pub latencies: Vec<Latency>,
}

impl Account {
    /// Of everything in a ledger.
    pub fn of(ledger: &Ledger) -> Self {
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

    /// Says that nobody knows for whom it was.
    pub fn forget_owners(&mut self) {
        self.amounts.clear();
        self.names.clear();
    }

    /// Its amounts; none where owners are not known.
    pub fn amounts(&self) -> &[Amount] {
        &self.amounts
    }
}

/// In order of owner, cause and component; those of the same become one.
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
