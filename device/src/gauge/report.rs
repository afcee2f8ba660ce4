//! Report of the energy spent, by component and operation, for people and machines.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::watch::{Sample, Times};
use crate::BLOCK;
use crate::energy::{Component, Energy, Ledger, Operation, Part};

/// The [`Tag::cause`](crate::Tag::cause) for a kind of operation. Time without requests has cause 0.
pub(super) fn cause(operation: Operation) -> u8 {
    match operation {
        Operation::Idle => 0,
        Operation::Read => 1,
        Operation::Write => 2,
        Operation::Flush => 3,
        Operation::Discard => 4,
        Operation::Remap => 5,
        Operation::Work => 6,
    }
}

/// Meaning of the causes of a metered device's requests, for recordings.
pub const CAUSES: &[(u8, &str)] =
    &[(0, "idle"), (1, "read"), (2, "write"), (3, "flush"), (4, "discard"), (5, "remap"), (6, "work")];

/// The ledger of a metered device at one moment.
#[derive(Debug, Clone)]
pub struct Report {
    /// The profile's name.
    pub profile: String,
    /// True if requests take as long as on the device.
    pub paced: bool,
    /// The device's size.
    pub blocks: u64,
    /// The energy spent. Causes are kinds of operations.
    pub ledger: Ledger,
    /// The device's time.
    pub times: Times,
    /// Counters of the model.
    pub counters: Vec<(&'static str, u64)>,
    /// Energy spent at earlier moments, oldest first.
    pub timeline: Vec<Sample>,
}

/// A kind of operation and its total cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The kind.
    pub operation: Operation,
    /// Their number.
    pub count: u64,
    /// Their energy, in the order of [`Component::ALL`].
    pub energy: [Energy; Component::ALL.len()],
}

/// The serialized name of a unit variant.
fn key(of: impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(s)) => s,
        // Unit variants are strings.
        _ => String::new(),
    }
}

fn components(energy: [Energy; Component::ALL.len()]) -> Value {
    Component::ALL.iter().zip(energy).map(|(c, e)| (key(c), json!(e.0))).collect::<Map<_, _>>().into()
}

impl Report {
    /// The kinds of operations that occurred.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        Operation::ALL.into_iter().filter_map(|operation| {
            let count = self.ledger.operation(operation).operations;
            let energy = Component::ALL.map(|c| self.ledger.component_of(c, cause(operation)));
            (count > 0).then_some(Row { operation, count, energy })
        })
    }

    /// Report for machines. Energies are whole picojoules, times whole nanoseconds of the device.
    pub fn json(&self) -> Value {
        let ledger = &self.ledger;
        let by_component = Component::ALL.map(|c| ledger.component(c));
        let parts: Map<String, Value> = Part::ALL
            .iter()
            .filter(|p| ledger.part(**p) != Energy::ZERO)
            .map(|p| (key(p), json!(ledger.part(*p).0)))
            .collect();
        let operations: Map<String, Value> = self
            .rows()
            .map(|row| {
                let work = self.times.work[row.operation as usize];
                let value = json!({
                    "count": row.count,
                    "bytes": work.blocks.saturating_mul(BLOCK as u64),
                    "time_ns": work.busy.0,
                    "pj": ledger.operation(row.operation).energy.0,
                    "components_pj": components(row.energy),
                });
                (key(row.operation), value)
            })
            .collect();
        let line: Vec<Value> = self
            .timeline
            .iter()
            .map(|(at, energy)| json!({ "at_ns": at.0, "components_pj": components(*energy) }))
            .collect();
        let counters: Map<String, Value> = self.counters.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
        json!({
            "profile": self.profile,
            "paced": self.paced,
            "bytes": self.blocks.saturating_mul(BLOCK as u64),
            "time_ns": self.times.elapsed.0,
            "total_pj": ledger.total().0,
            "components_pj": components(by_component),
            "parts_pj": parts,
            "operations": operations,
            "model": counters,
            "timeline": line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_cause_of_its_own_and_its_name() {
        let mut named: Vec<(u8, String)> = Operation::ALL.iter().map(|o| (cause(*o), key(o))).collect();
        named.sort();
        let named: Vec<(u8, &str)> = named.iter().map(|(n, t)| (*n, t.as_str())).collect();
        assert_eq!(named, CAUSES);
    }
}
