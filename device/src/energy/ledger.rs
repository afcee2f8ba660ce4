//! How many joules were spent, by component, by cause, by owner and by kind of operation?

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::units::{Component, Energy, Part};
use crate::Tag;

/// The kinds of things that cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A remap.
    Remap,
    /// Time without requests.
    Idle,
    /// Computation.
    Work,
}

impl Operation {
    /// All, in order.
    pub const ALL: [Operation; 7] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Discard,
        Operation::Remap,
        Operation::Idle,
        Operation::Work,
    ];
}

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

/// Everything spent since a moment. Every amount is in each of the three accounts: by part and cause,
/// by owner and component, by operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    causes: Box<[[Energy; PARTS]]>,
    owners: FxHashMap<u64, [Energy; COMPONENTS]>,
    operations: [Spent; Operation::ALL.len()],
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            causes: vec![[Energy::ZERO; PARTS]; 256].into(),
            owners: FxHashMap::default(),
            operations: Default::default(),
        }
    }
}

impl Ledger {
    /// Books one operation.
    pub(super) fn book(&mut self, operation: Operation, tag: Tag, amounts: &[(Part, Energy)]) {
        self.operations[operation as usize].operations += 1;
        self.add(operation, tag, amounts);
    }

    /// Books more of an operation that is booked.
    pub(super) fn add(&mut self, operation: Operation, tag: Tag, amounts: &[(Part, Energy)]) {
        let cause = &mut self.causes[usize::from(tag.cause)];
        let owner = self.owners.entry(tag.owner).or_default();
        let kind = &mut self.operations[operation as usize];
        for &(part, energy) in amounts {
            cause[part as usize] += energy;
            owner[part.component() as usize] += energy;
            kind.energy += energy;
        }
    }

    /// Moves the amount that one operation booked on `from` to several owners, in equal shares for each time they are
    /// named; the remainder goes to the last.
    pub(super) fn divide(&mut self, from: u64, owners: &[u64], amounts: &[(Part, Energy)]) {
        let Some((last, others)) = owners.split_last() else { return };
        for &(part, energy) in amounts {
            let c = part.component() as usize;
            let share = Energy(energy.0 / owners.len() as u64);
            let mut left = energy;
            let booked = &mut self.owners.entry(from).or_default()[c];
            *booked = *booked - energy;
            for owner in others {
                self.owners.entry(*owner).or_default()[c] += share;
                left = left - share;
            }
            self.owners.entry(*last).or_default()[c] += left;
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
        self.owners.get(&owner).copied().unwrap_or_default()
    }
    /// The owners that cost anything, in order.
    pub fn owners(&self) -> BTreeMap<u64, [Energy; COMPONENTS]> {
        self.owners.iter().map(|(o, e)| (*o, *e)).collect()
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
        for (owner, now) in &mut out.owners {
            lessen(now, &earlier.owner(*owner));
        }
        out.owners.retain(|_, e| e.iter().any(|e| *e != Energy::ZERO));
        for (now, then) in out.operations.iter_mut().zip(&earlier.operations) {
            now.energy = now.energy - then.energy;
            now.operations -= then.operations;
        }
        out
    }
}
