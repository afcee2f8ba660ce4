//! How did a phase of an experiment spend its energy, as a flame graph?
//!
//! For the most expensive inodes, a result has energy by inode, cause and part, and known paths. If it has none (a
//! recording of a device, whose owners are foreign), the graph begins with the cause.

use std::collections::BTreeMap;

use super::{Amounts, Depth, Flame, Place};
use crate::result::{DELETED, Phase};

/// Frame for owner 0 of a phase.
pub const REST: &str = "<no file, waiting, and files that are not named>";
/// Frame for everything if owners are unknown.
pub const ALL: &str = "<all>";

/// Builds the flame graph of a phase. The totals are equal.
pub fn flame(phase: &Phase) -> Flame {
    if phase.owned.is_empty() {
        let sums = phase.spent.iter().map(|s| (phase.cause_text(s.cause).to_owned(), s.part, s.energy));
        return Flame::from_sums(Place::unnamed(ALL), Depth::Components, sums);
    }
    let mut out = Flame::default();
    let mut by_owner: BTreeMap<u64, Amounts> = BTreeMap::new();
    for o in &phase.owned {
        let cause = out.number(phase.cause_text(o.cause).to_owned());
        by_owner.entry(o.owner).or_default().add((cause, o.part), o.energy);
    }
    for (owner, amounts) in by_owner {
        out.add(place(phase, owner), amounts);
    }
    out
}

fn place(phase: &Phase, owner: u64) -> Place {
    match phase.files.get(&owner).map(String::as_str) {
        _ if owner == 0 => Place::unnamed(REST),
        None => Place::unnamed(&format!("<inode {owner}>")),
        Some(DELETED) => Place::unnamed(&format!("<deleted inode {owner}>")),
        Some(path) => Place::path(path.as_bytes(), "", is_above(phase, path)),
    }
}

/// True if another of the phase's files lies below this path. The result does not mark directories as such.
fn is_above(phase: &Phase, path: &str) -> bool {
    phase.files.values().any(|other| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use device::energy::profile::Profile;
    use device::energy::{Bill, Energy, Meter, Nanos, Operation};
    use device::{Counting, Memory, Tag};

    use super::super::folded;
    use super::*;
    use crate::result::Raw;

    /// A phase in which many inodes wrote, each more than the previous, for three causes.
    fn phase(inodes: u64) -> Phase {
        let meter = Meter::new(Profile::find("kirin9000-ufs31").unwrap().host.prices());
        for owner in 0..inodes {
            for cause in 1..4 {
                let bytes = (1 + owner) * 4096 * u64::from(cause);
                meter.request(Operation::Write, Tag { cause, owner }, bytes, Nanos(1000), &mut Bill::default());
            }
        }
        let ledger = meter.ledger();
        let counts = Counting::new(Memory::new(1)).snapshot();
        let raw =
            Raw { ledger: &ledger, counts: &counts, counters: BTreeMap::new(), took: Nanos(1), timeline: Vec::new() };
        Phase::new("overwrites", 4096, raw)
    }

    #[test]
    fn every_picojoule_of_a_phase_is_below_its_file_and_cause() {
        let mut phase = phase(40);
        let name = |n: u64, path: &str| (n, path.to_owned());
        phase.files = [name(39, "/a/b"), name(38, "/a"), name(37, DELETED), name(36, "/c;d")].into();
        let flame = flame(&phase);
        assert_eq!(flame.total(), phase.total());
        let places: BTreeMap<String, Energy> = flame.places().into_iter().collect();
        let of = |owner: u64| phase.owners.iter().find(|(o, _)| *o == owner).unwrap().1;
        assert_eq!(places["/;a;b"], of(39));
        assert_eq!(places["/;a;<directory>"], of(38));
        assert_eq!(places["<deleted inode 37>"], of(37));
        assert_eq!(places["/;c\\x3bd"], of(36));
        assert_eq!(places["<inode 35>"], of(35));
        assert_eq!(places[REST], of(0));
        assert_eq!(places.len(), phase.owners.len());
        for cause in 1..4 {
            let spent: Energy =
                flame.stacks().filter(|(s, _)| s.contains(&phase.cause_text(cause))).map(|(_, energy)| energy).sum();
            assert_eq!(spent, phase.cause(cause), "{}", phase.cause_text(cause));
        }
        let mut text = Vec::new();
        folded::write(&flame, &mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains(&format!("/;a;b;{};CPU ", phase.cause_text(1))));
    }

    #[test]
    fn without_owners_there_are_causes() {
        let mut phase = phase(3);
        phase.owned.clear();
        let flame = flame(&phase);
        assert_eq!(flame.total(), phase.total());
        assert_eq!(flame.places(), [(ALL.to_owned(), phase.total())]);
    }
}
