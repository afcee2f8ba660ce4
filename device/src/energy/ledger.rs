//! How many joules were spent, by component, by cause, by owner and by kind of operation?
//!
//! Left out: how amounts are kept for many owners ([`super::table`]).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::pauses::{Pause, Pauses};
use super::purpose::{Operation, Purpose, Work};
use super::table::{self, Table};
use super::units::{Component, Energy, Nanos, Part};
use crate::Tag;

/// Energy and number of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// The energy.
    pub energy: Energy,
    /// The operations.
    pub operations: u64,
}

const PARTS: usize = Part::ALL.len();
const COMPONENTS: usize = Component::ALL.len();

/// All energy spent since a moment: a table by owner, cause, operation and part, from which every account is
/// derived. Two of its sums are maintained because they are small and read often: by part and cause, and by
/// operation. Each amount is in all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    table: Table,
    causes: Box<[[Energy; PARTS]]>,
    operations: [Spent; Operation::ALL.len()],
    idle: Nanos,
    pauses: Pauses,
    worked: [Nanos; Work::ALL.len()],
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            table: Table::default(),
            causes: vec![[Energy::ZERO; PARTS]; 256].into(),
            operations: Default::default(),
            idle: Nanos::default(),
            pauses: Pauses::default(),
            worked: Default::default(),
        }
    }
}

impl Ledger {
    /// Books one operation. Its blocks belong to `owners`: each pays an equal share per occurrence, and the last
    /// also pays the remainder. If `owners` is empty, the tag's owner pays.
    pub(super) fn book(&mut self, operation: Operation, tag: Tag, owners: &[u64], amounts: &[(Part, Energy)]) {
        self.operations[operation as usize].operations += 1;
        self.add(operation, tag, owners, amounts);
    }

    /// Counts time without requests.
    pub(super) fn waited(&mut self, time: Nanos) {
        self.idle += time;
    }

    /// Counts what the device reports of its pauses.
    pub(super) fn rested(&mut self, pauses: &[Pause]) {
        pauses.iter().for_each(|pause| self.pauses.report(*pause));
    }

    /// Counts the time of some work.
    pub(super) fn worked(&mut self, work: Work, busy: Nanos) {
        self.worked[work as usize] += busy;
    }

    /// Adds more energy to a booked operation.
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
        // The shares of a run of the same owner are booked in one step.
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

    /// Total energy.
    pub fn total(&self) -> Energy {
        self.operations.iter().map(|s| s.energy).sum()
    }
    /// Energy of a component.
    pub fn component(&self, c: Component) -> Energy {
        Part::ALL.iter().filter(|p| p.component() == c).map(|p| self.part(*p)).sum()
    }
    /// Energy of a part.
    pub fn part(&self, part: Part) -> Energy {
        self.causes.iter().map(|c| c[part as usize]).sum()
    }
    /// Energy of a part for a cause.
    pub fn part_for(&self, part: Part, cause: u8) -> Energy {
        self.causes[usize::from(cause)][part as usize]
    }
    /// Energy of a component for a cause.
    pub fn component_of(&self, c: Component, cause: u8) -> Energy {
        Part::ALL.iter().filter(|p| p.component() == c).map(|p| self.part_for(*p, cause)).sum()
    }
    /// Energy for a cause.
    pub fn cause(&self, cause: u8) -> Energy {
        self.causes[usize::from(cause)].iter().copied().sum()
    }
    /// The causes with costs, in order.
    pub fn causes(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|c| self.cause(*c) != Energy::ZERO)
    }
    /// Energy for an owner, by component in the order of [`Component::ALL`].
    pub fn owner(&self, owner: u64) -> [Energy; COMPONENTS] {
        let mut out = [Energy::ZERO; COMPONENTS];
        for cause in self.causes() {
            for operation in Operation::ALL {
                let row = self.table.row_amounts(Purpose { owner, cause, operation });
                row.for_each(|(part, energy)| out[part.component() as usize] += energy);
            }
        }
        out
    }
    /// Energy for each owner with bookings, in order, by component in the order of [`Component::ALL`].
    pub fn owners(&self) -> BTreeMap<u64, [Energy; COMPONENTS]> {
        let mut out: FxHashMap<u64, [Energy; COMPONENTS]> = FxHashMap::default();
        for (purpose, row) in self.table.rows() {
            let owner = out.entry(purpose.owner).or_default();
            row.for_each(|(part, energy)| owner[part.component() as usize] += energy);
        }
        out.into_iter().collect()
    }
    /// Every amount with its purpose and part, in no order. Their sum is [`total`](Self::total).
    pub fn amounts(&self) -> impl Iterator<Item = (Purpose, Part, Energy)> + '_ {
        let cells = self.table.rows().flat_map(|(purpose, row)| row.map(move |(part, e)| (purpose, part, e)));
        cells.filter(|(.., energy)| *energy != Energy::ZERO)
    }
    /// All purposes, in no order, without duplicates. There may be millions.
    pub fn purposes(&self) -> impl Iterator<Item = Purpose> + '_ {
        self.table.rows().map(|(purpose, _)| purpose)
    }
    /// Energy of each part for a purpose, in order of parts.
    pub fn spent_for(&self, purpose: Purpose) -> impl Iterator<Item = (Part, Energy)> + '_ {
        self.table.row_amounts(purpose).filter(|(_, energy)| *energy != Energy::ZERO)
    }
    /// Energy and count of a kind of operation.
    pub fn operation(&self, o: Operation) -> Spent {
        self.operations[o as usize]
    }

    /// Time without requests.
    pub fn idle(&self) -> Nanos {
        self.idle
    }

    /// The device's pauses.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// How long the processor did this work.
    pub fn busy(&self, work: Work) -> Nanos {
        self.worked[work as usize]
    }

    /// The same amounts by part and operation, without owners and causes: what ranges need.
    pub fn sums(&self) -> Ledger {
        let mut out = Ledger {
            operations: self.operations,
            idle: self.idle,
            pauses: self.pauses.clone(),
            worked: self.worked,
            ..Ledger::default()
        };
        for (purpose, part, energy) in self.amounts() {
            out.causes[0][part as usize] += energy;
            let purpose = Purpose { owner: 0, cause: 0, operation: purpose.operation };
            out.table.add(purpose, table::part_of(part, energy), std::iter::once((part, energy)));
        }
        out
    }

    /// The difference to `earlier`, a state of the same ledger.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let lessen = |a: &mut [Energy], b: &[Energy]| a.iter_mut().zip(b).for_each(|(a, b)| *a = *a - *b);
        let mut out = self.clone();
        for (now, then) in out.causes.iter_mut().zip(&earlier.causes) {
            lessen(now, then);
        }
        out.idle = out.idle.since(earlier.idle);
        out.pauses = out.pauses.since(&earlier.pauses);
        for (now, then) in out.worked.iter_mut().zip(earlier.worked) {
            *now = now.since(then);
        }
        out.table.lessen(&earlier.table);
        for (now, then) in out.operations.iter_mut().zip(&earlier.operations) {
            now.energy = now.energy - then.energy;
            now.operations -= then.operations;
        }
        out
    }
}
