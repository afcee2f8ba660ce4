//! Storage of amounts for hundreds of thousands of owners, each with causes, operations and parts.
//!
//! A row is an owner, a cause and a kind of operation. It stores only parts with energy; their set is its shape,
//! and rows share shapes: a device books few different sets of parts. So a row costs an entry in a hash table and
//! eight bytes per part, and a booking costs one lookup. Bookings come in runs, so the last row is cached.
//!
//! Left out: sums, which the ledger keeps or computes ([`super::ledger`]).

use rustc_hash::FxHashMap;

use super::purpose::{Operation, Purpose};
use super::units::{Energy, Part};

const PARTS: usize = Part::ALL.len();
/// The shape with every part.
const ALL: u8 = 1;
/// Unused space is reclaimed when it exceeds this and a quarter of all.
const SPARE: usize = 4096;

/// The parts of a row and their positions.
#[derive(Debug, Clone, Copy)]
struct Shape {
    parts: u32,
    len: u8,
    index: [u8; PARTS],
}

impl Shape {
    fn new(parts: u32) -> Self {
        let mut shape = Shape { parts, len: 0, index: [0; PARTS] };
        for part in Part::ALL.iter().map(|p| *p as usize).filter(|p| parts >> p & 1 == 1) {
            shape.index[part] = shape.len;
            shape.len += 1;
        }
        shape
    }
}

/// Start of a row's amounts, and its shape, in one word: a table in memory has fewer than 2^56 amounts.
#[derive(Debug, Clone, Copy)]
struct Slot(u64);

impl Slot {
    fn new(at: usize, shape: u8) -> Self {
        Slot((at as u64) << 8 | u64::from(shape))
    }
    fn at(self) -> usize {
        (self.0 >> 8) as usize
    }
    fn shape(self) -> usize {
        (self.0 & 255) as usize
    }
}

/// An owner, and cause and operation in one number, so that a key is hashed in two steps.
type Key = (u64, u16);

fn key(p: Purpose) -> Key {
    (p.owner, u16::from(p.cause) << 3 | p.operation as u16)
}

fn purpose((owner, what): Key) -> Purpose {
    Purpose { owner, cause: (what >> 3) as u8, operation: Operation::ALL[usize::from(what & 7)] }
}

/// A part as a bit of a set of parts; 0 if its amount is zero.
pub fn part_of(part: Part, energy: Energy) -> u32 {
    u32::from(energy != Energy::ZERO) << part as u32
}

/// Amounts by purpose and part.
#[derive(Debug, Clone)]
pub struct Table {
    rows: FxHashMap<Key, Slot>,
    last: (Key, Slot),
    amounts: Vec<Energy>,
    shapes: Vec<Shape>,
    /// Amounts that no row uses any more.
    spare: usize,
}

impl Default for Table {
    fn default() -> Self {
        let none = Slot::new(0, 0);
        let shapes = vec![Shape::new(0), Shape::new((1 << PARTS) - 1)];
        // A row without parts needs no space: in an empty table any key may be cached.
        Table { rows: FxHashMap::default(), last: ((0, 0), none), amounts: Vec::new(), shapes, spare: 0 }
    }
}

impl Table {
    /// Adds amounts to a row; `parts` is the set of those that are not zero ([`part_of`]).
    pub fn add(&mut self, purpose: Purpose, parts: u32, amounts: impl IntoIterator<Item = (Part, Energy)>) {
        let slot = self.row(key(purpose), parts);
        let shape = &self.shapes[slot.shape()];
        let row = &mut self.amounts[slot.at()..slot.at() + usize::from(shape.len)];
        for (part, energy) in amounts {
            // A part with a zero amount may have no position.
            if energy != Energy::ZERO {
                row[usize::from(shape.index[part as usize])] += energy;
            }
        }
    }

    /// The row of a key, with space for at least these parts.
    fn row(&mut self, key: Key, parts: u32) -> Slot {
        let (last, slot) = self.last;
        let slot = if last == key { slot } else { *self.rows.entry(key).or_insert(Slot::new(0, 0)) };
        let slot = match self.shapes[slot.shape()].parts & parts == parts {
            true => slot,
            false => self.grow(key, slot, parts),
        };
        self.last = (key, slot);
        slot
    }

    #[cold]
    fn grow(&mut self, key: Key, slot: Slot, parts: u32) -> Slot {
        let old = self.shapes[slot.shape()];
        let number = self.shape(old.parts | parts);
        let new = &self.shapes[usize::from(number)];
        let at = self.amounts.len();
        self.amounts.resize(at + usize::from(new.len), Energy::ZERO);
        for part in (0..PARTS).filter(|p| old.parts >> p & 1 == 1) {
            self.amounts[at + usize::from(new.index[part])] = self.amounts[slot.at() + usize::from(old.index[part])];
        }
        self.spare += usize::from(old.len);
        self.rows.insert(key, Slot::new(at, number));
        self.tidy();
        self.rows[&key]
    }

    /// The number of a shape. After 256 shapes, new ones get all parts.
    fn shape(&mut self, parts: u32) -> u8 {
        if let Some(known) = self.shapes.iter().position(|s| s.parts == parts) {
            return known as u8;
        }
        match u8::try_from(self.shapes.len()) {
            Ok(number) => {
                self.shapes.push(Shape::new(parts));
                number
            }
            Err(_) => ALL,
        }
    }

    /// Reclaims unused space if there is much.
    fn tidy(&mut self) {
        if self.spare <= SPARE || self.spare <= self.amounts.len() / 4 {
            return;
        }
        let mut amounts = Vec::with_capacity(self.amounts.len() - self.spare);
        for slot in self.rows.values_mut() {
            let len = usize::from(self.shapes[slot.shape()].len);
            let at = amounts.len();
            amounts.extend_from_slice(&self.amounts[slot.at()..slot.at() + len]);
            *slot = Slot::new(at, slot.shape() as u8);
        }
        self.amounts = amounts;
        self.spare = 0;
        let (key, _) = self.last;
        self.last = (key, self.rows.get(&key).copied().unwrap_or(Slot::new(0, 0)));
    }

    fn cells(&self, slot: Slot) -> impl Iterator<Item = (Part, Energy)> + '_ {
        let shape = &self.shapes[slot.shape()];
        let row = &self.amounts[slot.at()..slot.at() + usize::from(shape.len)];
        Part::ALL.iter().filter(|p| shape.parts >> **p as u32 & 1 == 1).copied().zip(row.iter().copied())
    }

    /// The amounts of a row, in order of parts.
    pub fn row_amounts(&self, purpose: Purpose) -> impl Iterator<Item = (Part, Energy)> + '_ {
        self.rows.get(&key(purpose)).into_iter().flat_map(|slot| self.cells(*slot))
    }

    /// All rows with their amounts, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (Purpose, impl Iterator<Item = (Part, Energy)> + '_)> + '_ {
        self.rows.iter().map(|(key, slot)| (purpose(*key), self.cells(*slot)))
    }

    /// Subtracts another table; empty rows are removed.
    pub fn lessen(&mut self, other: &Table) {
        let Table { rows, amounts, shapes, spare, .. } = self;
        rows.retain(|key, slot| {
            let shape = &shapes[slot.shape()];
            let row = &mut amounts[slot.at()..slot.at() + usize::from(shape.len)];
            for (part, energy) in other.rows.get(key).into_iter().flat_map(|slot| other.cells(*slot)) {
                if shape.parts >> part as u32 & 1 == 1 {
                    let left = &mut row[usize::from(shape.index[part as usize])];
                    *left = *left - energy;
                }
            }
            let some = row.iter().any(|e| *e != Energy::ZERO);
            if !some {
                *spare += row.len();
            }
            some
        });
        let none = Slot::new(0, 0);
        self.last = ((0, 0), self.rows.get(&(0, 0)).copied().unwrap_or(none));
        self.tidy();
    }

    /// True if each amount of this table is in the other.
    fn is_within(&self, other: &Table) -> bool {
        self.rows.iter().all(|(key, slot)| {
            let theirs = other.rows.get(key).map(|slot| other.cells(*slot));
            let mut theirs = theirs.into_iter().flatten().filter(|(_, e)| *e != Energy::ZERO);
            self.cells(*slot).filter(|(_, e)| *e != Energy::ZERO).all(|cell| theirs.any(|other| other == cell))
        })
    }
}

/// Compares amounts independent of their position; zero equals absent.
impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.is_within(other) && other.is_within(self)
    }
}
impl Eq for Table {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Rng;

    fn parts_of(amounts: &[(Part, Energy)]) -> u32 {
        amounts.iter().fold(0, |parts, (part, energy)| parts | part_of(*part, *energy))
    }

    /// A table and a plain model of it, after the same random bookings.
    fn both(seed: u64, owners: u64, bookings: u64) -> (Table, BTreeMap<(Purpose, Part), u64>) {
        let (mut table, mut model, mut rng) = (Table::default(), BTreeMap::new(), Rng::new(seed));
        for _ in 0..bookings {
            let operation = Operation::ALL[rng.index(Operation::ALL.len())];
            let purpose = Purpose { owner: rng.below(owners), cause: rng.below(3) as u8 * 100, operation };
            let mut amounts: Vec<(Part, Energy)> = Vec::new();
            for part in Part::ALL {
                if rng.below(4) == 0 {
                    amounts.push((*part, Energy(rng.below(3) * rng.below(1 << 40))));
                }
            }
            table.add(purpose, parts_of(&amounts), amounts.iter().copied());
            for (part, energy) in amounts.into_iter().filter(|(_, e)| *e != Energy::ZERO) {
                *model.entry((purpose, part)).or_default() += energy.0;
            }
        }
        (table, model)
    }

    fn flat(table: &Table) -> BTreeMap<(Purpose, Part), u64> {
        let cells = table.rows().flat_map(|(purpose, cells)| cells.map(move |(part, e)| ((purpose, part), e.0)));
        cells.filter(|(_, e)| *e != 0).collect()
    }

    #[test]
    fn a_table_holds_what_a_plain_map_holds_with_more_shapes_than_it_numbers_and_after_it_was_tidied() {
        for (seed, owners, bookings) in [(1, 3, 500), (2, 40, 40_000), (3, 5_000, 60_000)] {
            let (table, model) = both(seed, owners, bookings);
            assert!(flat(&table) == model, "seed {seed}");
            assert!(table.shapes.len() <= 256 && table.spare <= SPARE.max(table.amounts.len() / 4));
            let purpose = model.keys().next_back().unwrap().0;
            let of: u64 = table.row_amounts(purpose).map(|(_, e)| e.0).sum();
            assert_eq!(of, model.iter().filter(|((p, _), _)| *p == purpose).map(|(_, e)| e).sum::<u64>());
            if owners == 5_000 {
                assert_eq!(table.shapes.len(), 256, "too few shapes to try the last");
            }
        }
    }

    #[test]
    fn tables_are_equal_by_what_was_booked_and_differences_are_exact() {
        let (earlier, was) = both(9, 50, 3_000);
        let (same, _) = both(9, 50, 3_000);
        let (other, _) = both(8, 50, 3_000);
        assert!(earlier == same && earlier != other && earlier != Table::default());
        let (mut both_of, mut sum) = (earlier.clone(), was.clone());
        for (purpose, cells) in other.rows() {
            let cells: Vec<_> = cells.collect();
            both_of.add(purpose, parts_of(&cells), cells.iter().copied());
            cells.iter().for_each(|(part, e)| *sum.entry((purpose, *part)).or_default() += e.0);
        }
        sum.retain(|_, e| *e != 0);
        assert!(flat(&both_of) == sum);
        both_of.lessen(&earlier);
        assert!(both_of == other);
        both_of.lessen(&other);
        assert_eq!(both_of.rows().count(), 0);
        // Later bookings use separate rows.
        let purpose = Purpose { owner: 0, cause: 0, operation: Operation::Read };
        both_of.add(purpose, 1, [(Part::ALL[0], Energy(5))]);
        assert_eq!(flat(&both_of).into_values().collect::<Vec<_>>(), [5]);
    }
}
