//! What was spent on a metered device? By cause, by kind of operation and by file, for people and machines.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger, Operation, Part, Range};
use serde_json::{Map, Value, json};
use sim::labels::Cause;

use crate::joules::{self, Line};
use crate::table::{self, Table};

/// Everything spent since a given time.
pub struct Spent {
    /// The name of the device's profile.
    pub profile: String,
    /// The accounts.
    pub ledger: Ledger,
    /// How far the total may be off, since the profile's numbers are.
    pub range: Range<Energy>,
    /// Elapsed device time in nanoseconds.
    pub took: u64,
    /// By cause.
    pub causes: Vec<CauseLine>,
    /// By file; empty if nothing was charged to a file.
    pub files: Vec<FileLine>,
    /// The kind of owner: files or processes.
    pub owners: &'static str,
    /// Event counters of the device.
    pub counters: Vec<(&'static str, u64)>,
}

/// What one cause cost.
pub struct CauseLine {
    /// The key for programs.
    pub key: String,
    /// Its cost, with the text for people as name.
    pub line: Line,
}

/// What one file cost, or all unnamed files together.
pub struct FileLine {
    /// Its inode; `None` if the line covers no single file.
    pub inode: Option<u64>,
    /// What it cost.
    pub line: Line,
}

/// The energy of each cause; `name` gives its meaning.
pub fn by_cause(ledger: &Ledger, name: impl Fn(u8) -> Cause) -> Vec<CauseLine> {
    let energy = |cause| Component::ALL.map(|c| ledger.component_of(c, cause));
    let line = |n| {
        let Cause { key, text } = name(n);
        CauseLine { key, line: Line { name: text, count: None, energy: energy(n) } }
    };
    ledger.causes().map(line).collect()
}

/// What each component spent.
type Amounts = [Energy; Component::ALL.len()];

fn add(sum: &mut Amounts, more: &Amounts) {
    sum.iter_mut().zip(more).for_each(|(sum, e)| *sum += *e);
}

/// The energy of each file: at most `most` files by name, the costliest first; then all remaining files in one line;
/// then `rest`, which belongs to no file, and idle time. The sum equals the ledger's.
///
/// Files with the same `together` name share one line. `name` is called only for the remaining lines.
pub fn by_file(
    ledger: &Ledger,
    most: usize,
    rest: &str,
    together: impl Fn(u64) -> Option<String>,
    mut name: impl FnMut(u64) -> String,
) -> Vec<FileLine> {
    let mut owners = ledger.owners();
    let none = owners.remove(&0).unwrap_or_default();
    let mut groups: BTreeMap<String, (Vec<u64>, Amounts)> = BTreeMap::new();
    let mut files: Vec<(Vec<u64>, Amounts, Option<String>)> = Vec::new();
    for (owner, energy) in owners.into_iter().filter(|(_, e)| e.iter().any(|e| *e != Energy::ZERO)) {
        match together(owner) {
            None => files.push((vec![owner], energy, None)),
            Some(name) => {
                let (inodes, sum) = groups.entry(name).or_default();
                inodes.push(owner);
                add(sum, &energy);
            }
        }
    }
    files.extend(groups.into_iter().map(|(name, (inodes, energy))| (inodes, energy, Some(name))));
    if files.is_empty() {
        return Vec::new();
    }
    files.sort_by_key(|(inodes, energy, _)| (Reverse(energy.iter().copied().sum::<Energy>()), inodes[0]));
    let others = files.split_off(most.min(files.len()));
    let line = |name: String, energy| Line { name, count: None, energy };
    let named = |(inodes, energy, group): (Vec<u64>, Amounts, Option<String>)| match (group, inodes.as_slice()) {
        (Some(name), [_, _, ..]) => {
            let name = format!("{name} ({} inodes)", inodes.len());
            FileLine { inode: None, line: line(name, energy) }
        }
        (group, inodes) => {
            let name = group.unwrap_or_else(|| name(inodes[0]));
            FileLine { inode: Some(inodes[0]), line: line(name, energy) }
        }
    };
    let mut out: Vec<FileLine> = files.into_iter().map(named).collect();
    let mut sum = Amounts::default();
    others.iter().for_each(|(_, energy, _)| add(&mut sum, energy));
    let mut add = |name: String, energy: Amounts| {
        if energy.iter().any(|e| *e != Energy::ZERO) {
            out.push(FileLine { inode: None, line: line(name, energy) });
        }
    };
    add(format!("<{} others>", others.iter().map(|(inodes, ..)| inodes.len()).sum::<usize>()), sum);
    // The ledger books only idle time and work of unspecified cause without cause and owner.
    let waiting = Component::ALL.map(|c| ledger.component_of(c, 0));
    if waiting.iter().zip(&none).all(|(w, n)| w <= n) {
        let mut own = none;
        own.iter_mut().zip(waiting).for_each(|(own, w)| *own = *own - w);
        add(rest.to_owned(), own);
        add("<waiting>".to_owned(), waiting);
    } else {
        add(rest.to_owned(), none);
    }
    out
}

/// The nonzero event counters of a device, one line each, for people.
pub fn counted(counters: &[(&'static str, u64)]) -> String {
    let mut table = Table::new([table::word("").least(24), table::number("").least(11)]);
    counters.iter().filter(|(_, n)| *n > 0).for_each(|(name, n)| table.row(&[name, n]));
    table.text()
}

impl Spent {
    fn operations(&self) -> impl Iterator<Item = (String, u64, Energy)> {
        Operation::ALL
            .into_iter()
            .map(|o| (format!("{o:?}").to_lowercase(), self.ledger.operation(o)))
            .filter(|(_, spent)| spent.operations > 0)
            .map(|(name, spent)| (name, spent.operations, spent.energy))
    }

    /// JSON for machines. Energies are whole picojoules, times whole nanoseconds.
    pub fn json(&self) -> Map<String, Value> {
        let operations: Map<String, Value> =
            self.operations().map(|(name, n, energy)| (name, json!({ "count": n, "pj": energy.0 }))).collect();
        let components: Map<String, Value> =
            Component::ALL.iter().map(|c| (c.text().to_lowercase(), json!(self.ledger.component(*c).0))).collect();
        let parts: Map<String, Value> = Part::ALL
            .iter()
            .filter(|p| self.ledger.part(**p) != Energy::ZERO)
            .map(|p| {
                (
                    serde_json::to_value(p).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default(),
                    json!(self.ledger.part(*p).0),
                )
            })
            .collect();
        let counters: Map<String, Value> = self.counters.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
        let mut out = Map::new();
        out.insert("profile".into(), json!(self.profile));
        out.insert("time_ns".into(), json!(self.took));
        out.insert("total_pj".into(), json!(self.ledger.total().0));
        out.insert("range_pj".into(), json!([self.range.low.0, self.range.high.0]));
        out.insert("joules".into(), json!(self.ledger.total().joules()));
        out.insert("components_pj".into(), components.into());
        out.insert("parts_pj".into(), parts.into());
        let cause = |c: &CauseLine| {
            let mut row = joules::energies(&c.line);
            row.insert("name".into(), json!(c.line.name));
            (c.key.clone(), Value::Object(row))
        };
        out.insert("causes".into(), self.causes.iter().map(cause).collect::<Map<_, _>>().into());
        out.insert("operations".into(), operations.into());
        if !self.files.is_empty() {
            let file = |f: &FileLine| {
                let mut row = joules::energies(&f.line);
                row.insert("file".into(), json!(f.line.name));
                row.insert("inode".into(), json!(f.inode));
                Value::Object(row)
            };
            out.insert("files".into(), self.files.iter().map(file).collect());
        }
        out.insert("model".into(), counters.into());
        out
    }

    /// The total, and how far it may be off, for people.
    pub fn total(&self) -> String {
        format!("{} ({})", self.ledger.total(), self.range)
    }

    /// Tables for people, without a title line.
    pub fn tables(&self) -> String {
        let causes: Vec<Line> = self.causes.iter().map(|c| c.line.clone()).collect();
        let mut out = joules::table("cause", &causes);
        if !self.files.is_empty() {
            let lines: Vec<Line> = self.files.iter().map(|f| f.line.clone()).collect();
            out += &format!("\n\n{}", joules::table(self.owners, &lines));
        }
        let columns =
            [table::word("operation").least(10), table::number("count").least(9), table::number("energy").least(10)];
        let mut operations = Table::new(columns);
        for (name, n, energy) in self.operations() {
            operations.row(&[&name, &n, &energy]);
        }
        out += &format!("\n\n{}", operations.text());
        let counters = counted(&self.counters);
        if counters.is_empty() { out } else { format!("{out}\n\n{counters}") }
    }
}

#[cfg(test)]
mod tests {
    use device::Tag;
    use device::energy::Meter;
    use device::energy::profile::Profile;
    use device::energy::{Bill, Nanos};

    use super::*;

    #[test]
    fn however_few_files_are_named_the_sum_is_the_ledgers() {
        let meter = Meter::new(Profile::find("kirin9000-ufs31").unwrap().host.prices());
        for owner in 0..9 {
            let tag = Tag { cause: 1, owner };
            meter.request(Operation::Write, tag, 1 + owner, Nanos(1000 * owner), &mut Bill::default());
        }
        let mut idle = Bill::default();
        idle.add(Part::Idle, Energy(12_345_678));
        meter.time(Operation::Idle, Tag::default(), Nanos(1000), &mut idle);
        let ledger = meter.ledger();
        for most in [0, 1, 5, 8, 100] {
            let lines = by_file(&ledger, most, "<volume>", |_| None, |n| format!("/{n}"));
            let sum: Energy = lines.iter().flat_map(|f| f.line.energy).sum();
            assert_eq!(sum, ledger.total(), "{most} named");
            let names: Vec<&str> = lines.iter().map(|f| f.line.name.as_str()).collect();
            assert_eq!(names.iter().filter(|n| n.starts_with('/')).count(), most.min(8));
            assert_eq!(names[names.len() - 2..], ["<volume>", "<waiting>"]);
        }
        let first = by_file(&ledger, 1, "<volume>", |_| None, |n| format!("/{n}"));
        assert_eq!((first[0].inode, first[1].line.name.as_str()), (Some(8), "<7 others>"));

        let odd = |n| (n % 2 == 1).then(|| "odd".to_owned());
        let grouped = by_file(&ledger, 3, "<volume>", odd, |n| format!("/{n}"));
        let names: Vec<&str> = grouped.iter().map(|f| f.line.name.as_str()).collect();
        assert_eq!(names, ["odd (4 inodes)", "/8", "/6", "<2 others>", "<volume>", "<waiting>"]);
        assert_eq!(grouped.iter().flat_map(|f| f.line.energy).sum::<Energy>(), ledger.total());
    }
}
