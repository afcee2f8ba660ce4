//! May the cleaner spend the joules that the next section costs?
//!
//! A policy that cleans ahead of time bets that the volume will be used as before, and no policy knows that. The ledger
//! bounds what a lost bet costs. Since the mount, the cleaner may have spent
//!
//! ```text
//! J_clean <= J_use / 60 + J_saved
//! ```
//!
//! *J_use* is what all requests cost by the prices of the device, except those of cleaning. *J_saved* is what the requests
//! for users' blocks and their nodes would have cost more without cleaning. It is taken from a shadow of the segments
//! that is never cleaned ([`crate::segment::shadow`]), and is negative if the cleaned volume needs more requests. So a
//! volume that is used as before pays for its cleaning from what earlier cleaning saved, and any other loses about 2 % at
//! most. (The rule is that of conservative exploration: Wu, Shariff, Lattimore, Szepesvári, Conservative Bandits, ICML
//! 2016.)
//!
//! *J_clean* is what the requests of cleaning cost, and what follows later: writing nodes that only cleaning changed,
//! table entries, discards. Before a section is cleaned its cost is estimated; if the last estimates were too low, the
//! next are higher by as much.
//!
//! The first sections may be worth nothing: logs fill holes until more sections are free than are kept back. So cleaning
//! begins when the account allows as many as are missing.
//!
//! What users order at any price (`gc_keep_free`, `gc_urgent`) is not on the ledger. Left out on purpose: what the flash
//! saves or loses by copying less or more inside.

use device::Counts;
use victim::Prices;

use crate::segment::shadow::Saved;
use crate::segment::tally::Placing;

/// The cleaner may always spend this part of the joules in use: one in 60. The first section may cost more than was
/// estimated, so the bound is somewhat higher.
const PART: u128 = 60;

/// Joules spent for cleaning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ledger {
    /// What cleaning cost, in pJ.
    spent: u128,
    /// What it was estimated to cost.
    estimated: u128,
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
        .saturating_add(times(blocks_read, prices.read_block))
        .saturating_add(times(blocks_written, prices.write_block_sequential))
        .saturating_add(times(flushes, prices.flush))
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

/// What cleaning a unit of `segments` segments costs, if moving its blocks costs `moving`: summaries are read and
/// written, and entries of tables; then it is discarded. Nodes that may have to be read for the addresses are left out:
/// [`Ledger::allows`] corrects estimates by what earlier sections cost.
pub(crate) fn estimate(prices: &Prices, moving: u64, segments: u32) -> u128 {
    u128::from(moving) + summary(prices) * 2 * u128::from(segments) + u128::from(prices.request)
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
        let saved = signed(done.saved.requests, prices.far().into());
        let saved = saved.saturating_add(signed(done.saved.opened, summary(prices)));
        let each = summary(prices) + u128::from(prices.request);
        let later = each.saturating_mul(self.sections.into()).saturating_add(nodes);
        let spent = self.spent.saturating_add(later);
        Account { in_use: price(prices, used).saturating_sub(later), saved, spent }
    }

    /// True if the account allows a section that is estimated to cost this much, in pJ.
    pub fn allows(&self, estimate: u128, account: &Account) -> bool {
        // What the sections until now cost for what they were estimated to cost; the first costs a quarter more.
        let first = estimate.saturating_add(estimate / 4);
        let (spent, estimated) = (account.spent.saturating_add(first), self.estimated.saturating_add(estimate));
        let expected = estimate.saturating_mul(spent) / estimated.max(1);
        let allowed = (account.in_use / PART).cast_signed().saturating_add(account.saved);
        account.spent.saturating_add(expected).min(i128::MAX.cast_unsigned()).cast_signed() <= allowed
    }

    /// A section is cleaned that is estimated to cost this much, in pJ.
    pub fn begin(&mut self, estimate: u128) {
        self.estimated += estimate;
        self.sections += 1;
    }

    /// Sections begun until now.
    pub fn sections(&self) -> u64 {
        self.sections
    }

    /// Enters requests of cleaning; those that a user has `ordered` are neither use nor spent.
    pub fn enter(&mut self, prices: &Prices, requests: Counts, ordered: bool) {
        self.requests = self.requests + requests;
        if !ordered {
            self.spent = self.spent.saturating_add(price(prices, requests));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        read_block: 1,
        write_block_sequential: 2,
        write_block_random: 2,
        request: 100,
        flush: 1000,
        copy_inside: 0,
        spare: 0,
        padding: 0,
    };

    /// A volume that made this many write requests of a block.
    fn used(writes: u64) -> Done {
        let requests = Counts { writes, blocks_written: writes, ..Counts::default() };
        Done { requests, ..Done::default() }
    }

    fn allows(ledger: &Ledger, estimate: u128, done: &Done) -> bool {
        ledger.allows(estimate, &ledger.account(&PRICES, done))
    }

    #[test]
    fn nothing_may_be_spent_before_the_volume_is_used_and_then_a_part_of_what_use_costs() {
        let ledger = Ledger::default();
        assert!(!allows(&ledger, 1, &Done::default()));
        // 600 requests of 102 pJ; the first estimate counts for a quarter more.
        assert!(allows(&ledger, 816, &used(600)) && !allows(&ledger, 817, &used(600)));
        // What was before the account does not count.
        assert!(!allows(&Ledger::none_after(&used(600)), 1, &used(600)));
    }

    #[test]
    fn what_cleaning_saved_may_be_spent_again_and_what_it_cost_the_logs_may_not() {
        let saved = |requests, opened| Done { saved: Saved { requests, opened }, ..used(600) };
        let ledger = Ledger::default();
        assert!(allows(&ledger, 976, &saved(2, 0)) && !allows(&ledger, 977, &saved(2, 0)));
        assert!(allows(&ledger, 656, &saved(-2, 0)) && !allows(&ledger, 657, &saved(-2, 0)));
        // Two requests, a block read and one written.
        assert!(allows(&ledger, 979, &saved(0, 1)) && !allows(&ledger, 980, &saved(0, 1)));
        assert!(!allows(&ledger, 1, &saved(-11, 0)));
    }

    #[test]
    fn what_cleaning_requested_is_spent_and_no_use() {
        let mut ledger = Ledger::default();
        ledger.begin(500);
        let of_cleaning =
            Counts { reads: 1, blocks_read: 7, writes: 1, blocks_written: 9, flushes: 1, ..Counts::default() };
        ledger.enter(&PRICES, of_cleaning, false);
        let done = Done { requests: used(500).requests + of_cleaning, ..Done::default() };
        let account = ledger.account(&PRICES, &done);
        // Later: the section's entries in the tables, its discard, and the nodes.
        let later = 203 + 100;
        assert_eq!((account.in_use, account.spent), (51_000 - later, 100 + 7 + 100 + 18 + 1000 + later));
        let nodes = Placing { moved_nodes: 10, ..Placing::default() };
        let more = ledger.account(&PRICES, &Done { placing: nodes, ..done });
        assert_eq!((more.in_use + 20, more.spent), (account.in_use, account.spent + 20));
        // The same once more, on order.
        ledger.enter(&PRICES, of_cleaning, true);
        let done = Done { requests: done.requests + of_cleaning, ..done };
        assert_eq!(ledger.account(&PRICES, &done), account);
    }

    #[test]
    fn estimates_grow_if_sections_cost_more_than_was_estimated_and_shrink_if_they_cost_less() {
        for (estimated, cost) in [(100, 1000), (1000, 100)] {
            let mut ledger = Ledger { spent: cost, ..Ledger::default() };
            ledger.begin(estimated);
            let account = Account { in_use: 60 * 2000, saved: 0, spent: cost };
            let most = (1..3000).take_while(|n| ledger.allows(*n, &account)).count();
            // The last estimate counts as much as those before.
            assert_eq!(cost > estimated, most < 1000, "{most}");
        }
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        let all = u64::MAX;
        let prices = Prices {
            read_block: all,
            write_block_sequential: all,
            write_block_random: all,
            request: all,
            flush: all,
            ..PRICES
        };
        let requests = Counts { reads: all, writes: all, blocks_read: all, flushes: all, ..Counts::default() };
        let saved = Saved { requests: i64::MIN, opened: i64::MIN };
        let mut ledger = Ledger::default();
        ledger.begin(u128::from(all));
        ledger.enter(&prices, requests, false);
        let account = ledger.account(&prices, &Done { requests, saved, ..Done::default() });
        assert!(!ledger.allows(u128::from(all), &account));
    }
}
