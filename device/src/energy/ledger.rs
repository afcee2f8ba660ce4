//! How many joules were spent, by component, by cause, by owner and by kind of operation?
//!
//! Left out: how amounts are kept for many owners ([`super::table`]).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::purpose::{Operation, Purpose};
use super::table::{self, Table};
use super::units::{Component, Energy, Part};
use crate::Tag;

/// How much, and in how many operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// The energy.
    pub energy: Energy,
    /// The operations.
    pub operations: u64,
}

const PARTS: usize = Part::ALL.len();
const COMPONENTS: usize = Component::ALL.len();

/// Everything spent since a moment: a table by owner, cause, operation and part, from which every account is read.
///
/// Two sums of it are kept along, since they are small and asked for often: by part and cause, and by operation. Each
/// amount is in all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    table: Table,
    causes: Box<[[Energy; PARTS]]>,
    operations: [Spent; Operation::ALL.len()],
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            table: Table::default(),
            causes: vec![[Energy::ZERO; PARTS]; 256].into(),
            operations: Default::default(),
        }
    }
}

impl Ledger {
    /// Books one operation. Its blocks belong to `owners`, of which each pays an equal share for each time it is named, and
    /// the last what does not divide; to the tag's owner if none are named.
    pub(super) fn book(&mut self, operation: Operation, tag: Tag, owners: &[u64], amounts: &[(Part, Energy)]) {
        self.operations[operation as usize].operations += 1;
        self.add(operation, tag, owners, amounts);
    }

    /// Books more of an operation that is booked.
    pub(super) fn add(&mut self, operation: Operation, tag: Tag, owners: &[u64], amounts: &[(Part, Energy)]) {
        let cause = &mut self.causes[usize::from(tag.cause)];
        let kind = &mut self.operations[operation as usize];
        let mut parts = 0;
        for &(part, energy) in amounts {
            cause[part as usize] += energy;
            kind.energy += energy;
            parts |= table::part_of(part, energy);
        }
        let purpose = |owner| Purpose { owner, cause: tag.cause, operation };
        if owners.iter().all(|o| *o == tag.owner) {
            return self.table.add(purpose(tag.owner), parts, amounts.iter().copied());
        }
        let all = owners.len() as u64;
        let share = |energy: Energy| Energy(energy.0 / all);
        let mut named = 0;
        // Of a run of the same owner the shares are booked at once.
        for run in owners.chunk_by(|a, b| a == b) {
            let times = run.len() as u64;
            named += times;
            let of_run = |energy: Energy| match named == all {
                true => energy - share(energy).times(all - times),
                false => share(energy).times(times),
            };
            let amounts = amounts.iter().map(|(part, energy)| (*part, of_run(*energy)));
            self.table.add(
                purpose(run[0]),
                amounts.clone().fold(0, |parts, (part, energy)| parts | table::part_of(part, energy)),
                amounts,
            );
        }
    }

    /// Everything.
    pub fn total(&self) -> Energy {
        self.operations.iter().map(|s| s.energy).sum()
    }
    /// What a component spent.
    pub fn component(&self, c: Component) -> Energy {
        Part::ALL.iter().filter(|p| p.component() == c).map(|p| self.part(*p)).sum()
    }
    /// What a part spent.
    pub fn part(&self, part: Part) -> Energy {
        self.causes.iter().map(|c| c[part as usize]).sum()
    }
    /// What a part spent for a cause.
    pub fn of(&self, part: Part, cause: u8) -> Energy {
        self.causes[usize::from(cause)][part as usize]
    }
    /// What a component spent for a cause.
    pub fn component_of(&self, c: Component, cause: u8) -> Energy {
        Part::ALL.iter().filter(|p| p.component() == c).map(|p| self.of(*p, cause)).sum()
    }
    /// What was spent for a cause.
    pub fn cause(&self, cause: u8) -> Energy {
        self.causes[usize::from(cause)].iter().copied().sum()
    }
    /// The causes that cost anything, in order.
    pub fn causes(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|c| self.cause(*c) != Energy::ZERO)
    }
    /// What was spent for an owner, by component in the order of [`Component::ALL`].
    pub fn owner(&self, owner: u64) -> [Energy; COMPONENTS] {
        let mut out = [Energy::ZERO; COMPONENTS];
        for cause in self.causes() {
            for operation in Operation::ALL {
                let row = self.table.of(Purpose { owner, cause, operation });
                row.for_each(|(part, energy)| out[part.component() as usize] += energy);
            }
        }
        out
    }
    /// What was spent for each owner that something was booked on, in order, by component in the order of
    /// [`Component::ALL`].
    pub fn owners(&self) -> BTreeMap<u64, [Energy; COMPONENTS]> {
        let mut out: FxHashMap<u64, [Energy; COMPONENTS]> = FxHashMap::default();
        for (purpose, row) in self.table.rows() {
            let owner = out.entry(purpose.owner).or_default();
            row.for_each(|(part, energy)| owner[part.component() as usize] += energy);
        }
        out.into_iter().collect()
    }
    /// Every amount, in no order: what it was spent for, and by which part. Their sum is [`total`](Self::total).
    pub fn amounts(&self) -> impl Iterator<Item = (Purpose, Part, Energy)> + '_ {
        let cells = self.table.rows().flat_map(|(purpose, row)| row.map(move |(part, e)| (purpose, part, e)));
        cells.filter(|(.., energy)| *energy != Energy::ZERO)
    }
    /// What was spent for anything, in no order; each once. There may be millions.
    pub fn purposes(&self) -> impl Iterator<Item = Purpose> + '_ {
        self.table.rows().map(|(purpose, _)| purpose)
    }
    /// What each part spent for a purpose, in order of parts.
    pub fn spent_for(&self, purpose: Purpose) -> impl Iterator<Item = (Part, Energy)> + '_ {
        self.table.of(purpose).filter(|(_, energy)| *energy != Energy::ZERO)
    }
    /// What a kind of operation cost.
    pub fn operation(&self, o: Operation) -> Spent {
        self.operations[o as usize]
    }

    /// What was spent after `earlier`, a state of the same ledger.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let lessen = |a: &mut [Energy], b: &[Energy]| a.iter_mut().zip(b).for_each(|(a, b)| *a = *a - *b);
        let mut out = self.clone();
        for (now, then) in out.causes.iter_mut().zip(&earlier.causes) {
            lessen(now, then);
        }
        out.table.lessen(&earlier.table);
        for (now, then) in out.operations.iter_mut().zip(&earlier.operations) {
            now.energy = now.energy - then.energy;
            now.operations -= then.operations;
        }
        out
    }
}
