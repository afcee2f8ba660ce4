//! How is energy printed? One row per item, one column per component.

use device::energy::{Component, Energy};
use serde_json::{Map, Value, json};

use crate::table::{self, Table};

/// One row of a table of joules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The item.
    pub name: String,
    /// The count, if known.
    pub count: Option<u64>,
    /// Its energy, in the order of [`Component::ALL`].
    pub energy: [Energy; Component::ALL.len()],
}

impl Line {
    fn total(&self) -> Energy {
        self.energy.iter().copied().sum()
    }
}

/// A table for people: `what` as head of the names, one column per component, a last row of sums.
pub fn table(what: &str, lines: &[Line]) -> String {
    let mut energy = [Energy::ZERO; Component::ALL.len()];
    for line in lines {
        energy.iter_mut().zip(line.energy).for_each(|(sum, e)| *sum += e);
    }
    let counts = lines.iter().map(|l| l.count).sum::<Option<u64>>();
    let all = Line { name: "all".into(), count: counts, energy };
    let counted = lines.iter().any(|l| l.count.is_some());
    let amounts = Component::ALL.iter().map(|c| c.text()).chain(["all"]).map(|head| table::number(head).least(10));
    let counts = counted.then(|| table::number("count").least(9));
    let mut out = Table::new([table::text(what)].into_iter().chain(counts).chain(amounts));
    for line in lines.iter().chain([&all]) {
        let count = counted.then(|| line.count.map_or(String::new(), |n| n.to_string()));
        let amounts = line.energy.into_iter().chain([line.total()]).map(|e| e.to_string());
        out.cells([line.name.clone()].into_iter().chain(count).chain(amounts));
    }
    out.text()
}

/// A line's energies for machines, in picojoules, by component.
pub fn energies(line: &Line) -> Map<String, Value> {
    let mut row: Map<String, Value> = Component::ALL
        .iter()
        .zip(line.energy)
        .map(|(c, e)| (format!("{}_pj", c.text().to_lowercase()), json!(e.0)))
        .collect();
    row.insert("pj".into(), json!(line.total().0));
    row
}

/// Joules as whole picojoules for machines; a difference may be negative.
pub fn picojoules(joules: f64) -> i64 {
    (joules * 1e12).round() as i64
}

/// Formats nanoseconds for people.
pub fn time(nanos: u64) -> String {
    sim::words::time(nanos).replace('µ', "u")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_is_the_sum_and_columns_are_as_wide_as_they_must() {
        let line = |name: &str, n, e: [u64; 4]| Line { name: name.into(), count: Some(n), energy: e.map(Energy) };
        let lines = [line("read", 2, [1, 2, 3, 4]), line("a long name", 1, [1_000_000, 0, 0, 500])];
        let table = table("operation", &lines);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|r| r.chars().count() == rows[0].chars().count()), "{table}");
        let words: Vec<&str> = rows[3].split_whitespace().collect();
        assert_eq!(words, ["all", "3", "1.00", "uJ", "2.00", "pJ", "3.00", "pJ", "504.00", "pJ", "1.00", "uJ"]);
    }
}
