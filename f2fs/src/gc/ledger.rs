//! May the cleaner spend the joules that the next section costs?
//!
//! A policy that cleans ahead of time bets that the volume will be used as before, and no policy knows that. The ledger
//! bounds what a lost bet costs. Since the mount, the cleaner may have spent
//!
//! ```text
//! J_clean <= J_use / 50 + J_saved
//! ```
//!
//! *J_use* is what all requests cost by the prices of the device, except those of cleaning. *J_saved* is what the requests of users' blocks and their nodes would have cost more on the same volume without
//! cleaning: a copy of the segments that nobody cleans tells ([`crate::segment::shadow`]). It is negative if the
//! cleaned volume needs more requests. So a volume that is used as before pays its cleaning from what earlier cleaning
//! saved, and one that is not loses at most 2 %, whatever comes. (The rule is that of conservative exploration: Wu,
//! Shariff, Lattimore, Szepesvári, Conservative Bandits, ICML 2016.)
//!
//! *J_clean* is what the requests of cleaning cost, and what follows later: writing nodes that only cleaning changed,
//! table entries, discards. Before a section is cleaned its cost is estimated; if the last estimates were too low, the
//! next are higher by as much.
//!
//! What users order at any price (`gc_keep_free`, `gc_urgent`) is not on the ledger. Left out on purpose: what the flash
//! saves or loses by copying less or more inside.

use device::Counts;
use victim::{Candidate, Prices};

use crate::segment::shadow::Saved;
use crate::segment::tally::Placing;

/// The cleaner may always spend this part of the joules in use: one in 50.
const PART: u128 = 50;

/// Joules spent for cleaning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ledger {
    /// What cleaning cost, in pJ.
    spent: u128,
    /// What it was estimated to cost.
    pub estimated: u128,
    sections: u64,
    /// Requests of cleaning.
    requests: Counts,
    /// What the volume had done before the first entry.
    before: Done,
}

/// What a volume did since the mount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// All requests.
    pub requests: Counts,
    /// What the logs placed.
    pub placing: Placing,
    /// What cleaning has saved them.
    pub saved: Saved,
}

/// Joules since the mount, in pJ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// What use cost.
    pub in_use: u128,
    /// What cleaning has saved; negative if it made use dearer.
    pub saved: i128,
    /// What cleaning cost.
    pub spent: u128,
}

fn times(n: u64, price: u64) -> u128 {
    u128::from(n) * u128::from(price)
}

fn price(prices: &Prices, requests: Counts) -> u128 {
    let Counts { reads, writes, blocks_read, blocks_written, discards, flushes, .. } = requests;
    times(reads.saturating_add(writes).saturating_add(discards), prices.request)
        + times(blocks_read, prices.read_block)
        + times(blocks_written, prices.write_block_sequential)
        + times(flushes, prices.flush)
}

/// What a checkpoint costs that only cleaning needs: pack, tables and nodes, between three flushes.
pub(crate) fn checkpoint(prices: &Prices) -> u128 {
    times(6, prices.request) + times(8, prices.write_block_sequential) + times(3, prices.flush)
}

/// What a segment's summary costs that is read when a log continues in its holes, and written when it leaves; about as
/// much as the entries of a segment and its nodes in the tables.
fn summary(prices: &Prices) -> u128 {
    times(2, prices.request) + u128::from(prices.read_block) + u128::from(prices.write_block_sequential)
}

/// What cleaning a unit of `segments` segments costs, if moving its blocks costs `moving`: the owners of its runs are
/// read, its summaries, and entries of tables are written; then it is discarded.
pub(crate) fn estimate(prices: &Prices, moving: u64, victim: &Candidate, segments: u32) -> u128 {
    let runs = victim.valid.min(victim.fragments() + 1);
    let owners = times(runs.into(), prices.request) + times(runs.into(), prices.read_block);
    u128::from(moving) + owners + summary(prices) * 2 * u128::from(segments) + u128::from(prices.request)
}

impl Ledger {
    /// A new account; `done` is what the volume did before, while nothing was saved.
    pub fn none_after(done: &Done) -> Self {
        Ledger { before: *done, ..Ledger::default() }
    }

    /// The account as it stands.
    pub fn account(&self, prices: &Prices, done: &Done) -> Account {
        let used = done.requests - self.before.requests - self.requests;
        let nodes = done.placing.moved_nodes.saturating_sub(self.before.placing.moved_nodes);
        let nodes = times(nodes, prices.write_block_sequential);
        let signed = |n: i64, price: u128| i128::from(n).saturating_mul(price.cast_signed());
        let saved = signed(done.saved.requests, prices.far().into()) + signed(done.saved.opened, summary(prices));
        let later = (summary(prices) + u128::from(prices.request)) * u128::from(self.sections) + nodes;
        Account { in_use: price(prices, used).saturating_sub(later), saved, spent: self.spent + later }
    }

    /// True if the account allows a section that is estimated to cost this much, in pJ.
    pub fn allows(&self, estimate: u128, account: &Account) -> bool {
        // What the sections until now cost for what they were estimated to cost.
        let (spent, estimated) = (account.spent.saturating_add(estimate), self.estimated.saturating_add(estimate));
        let expected = estimate.saturating_mul(spent) / estimated.max(1);
        let allowed = (account.in_use / PART).cast_signed() + account.saved;
        std::env::var("JNOLEDGER").is_ok() || account.spent.saturating_add(expected).cast_signed() <= allowed
    }

    /// A section is cleaned that is estimated to cost this much, in pJ.
    pub fn begin(&mut self, estimate: u128) {
        self.estimated += estimate;
        self.sections += 1;
    }

    /// Enters requests of cleaning.
    pub fn enter(&mut self, prices: &Prices, requests: Counts) {
        self.requests = self.requests + requests;
        self.spent += price(prices, requests);
    }
}
