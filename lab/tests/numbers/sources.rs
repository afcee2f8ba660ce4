//! What may be the source of a number?
//!
//! ```text
//! EXPERIMENT: QUANTITY                  number in ours.csv or quoted.csv of experiments/EXPERIMENT
//! paper EXPERIMENT: QUANTITY            the paper's number
//! classes CLASS [, PAPER]               number of published numbers of this class, as in docs/papers.md: rows of one
//!                                       measurement count once; `all`: their total, `rows`: all rows
//! count THING                           number shipped: experiments, profiles, policies, recipes, papers
//! FILE.md: [TABLE |] ROW | COLUMN       a table cell in another document; COLUMN#2 is the second of that name
//! FILE.svg: LABEL                       the value of LABEL in the plot
//! minus S, times NUMBER S, in UNIT S    its negative, its multiple, the same in another unit
//! sum S ; S, difference S ; S           the sum of all; the first minus all others
//! ratio S ; S, increase S ; S           the quotient of two; by how many percent the first is above the second
//! least S ; S, most S ; S               minimum or maximum of several; `*` in QUANTITY or ROW matches anything
//! S ;; S                                like `;`, if the parts contain `;`
//! condition                             not a result: a setting, or a statement by a third party
//! command                               output of a command in the text
//! ```

use std::collections::BTreeMap;
use std::fs;

use lab::plan::{Experiment, SHIPPED};
use lab::published::judge::{Class, Ours, all, count};
use lab::published::papers;

use super::shape::{Found, bare, factor, numbers, row};
use super::{quoted, root};

/// The value of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The number.
    pub number: f64,
    /// Its unit; empty if it has none.
    pub unit: String,
}

impl Value {
    fn in_unit(self, unit: &str) -> Result<Value, String> {
        let factor = factor(&self.unit, unit).ok_or_else(|| format!("{:?} is not in {unit:?}", self.unit))?;
        Ok(Value { number: self.number * factor, unit: unit.into() })
    }
}

/// All stored numbers.
pub struct Sources {
    kept: BTreeMap<String, Vec<(String, Value)>>,
    papers: BTreeMap<String, Vec<(String, Value)>>,
    classes: BTreeMap<String, usize>,
}

/// Whether a text matches a pattern with `*`.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, mut tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(head) else { return false };
    while let Some((part, more)) = tail.split_once('*') {
        let Some(at) = rest.find(part) else { return false };
        (rest, tail) = (&rest[at + part.len()..], more);
    }
    rest.ends_with(tail)
}

impl Sources {
    /// The repository's stored numbers.
    pub fn kept() -> Self {
        let (mut kept, mut published) = (BTreeMap::new(), BTreeMap::new());
        for (name, _) in SHIPPED {
            let e = Experiment::find(name).unwrap();
            let mut rows: Vec<_> =
                e.kept.rows.iter().filter_map(|r| Some((r.quantity.clone(), r.ours?, r.unit.clone()))).collect();
            rows.extend(quoted::rows(name).into_iter().filter_map(|r| Some((r.quantity, r.ours?, r.unit))));
            let of = |(quantity, number, unit): (String, f64, String)| (quantity, Value { number, unit });
            kept.insert((*name).to_owned(), rows.into_iter().map(of).collect());
            published
                .insert((*name).to_owned(), e.paper.into_iter().map(|c| of((c.quantity, c.value, c.unit))).collect());
        }
        Sources { kept, papers: published, classes: classes() }
    }

    /// The number of a source; none for `condition` and `command`.
    pub fn one(&self, source: &str) -> Result<Option<Value>, String> {
        if matches!(source, "condition" | "command") {
            return Ok(None);
        }
        let mut all = self.find(source)?;
        if all.len() != 1 {
            return Err(format!("{} numbers, not one: say `least` or `most`", all.len()));
        }
        Ok(all.pop())
    }

    fn find(&self, source: &str) -> Result<Vec<Value>, String> {
        let split = |rest: &str| -> Result<Vec<Value>, String> {
            let between = if rest.contains(" ;; ") { " ;; " } else { " ; " };
            let parts: Result<Vec<_>, _> = rest.split(between).map(|s| self.find(s)).collect();
            Ok(parts?.concat())
        };
        if let Some(rest) = source.strip_prefix("minus ") {
            let negative = |v: Value| Value { number: -v.number, unit: v.unit };
            return Ok(self.find(rest)?.into_iter().map(negative).collect());
        }
        if let Some((times, rest)) = source.strip_prefix("times ").and_then(|rest| rest.split_once(' ')) {
            let times: f64 = times.parse().map_err(|e| format!("times {times:?}: {e}"))?;
            let multiple = |v: Value| Value { number: times * v.number, unit: v.unit };
            return Ok(self.find(rest)?.into_iter().map(multiple).collect());
        }
        if let Some((unit, rest)) = source.strip_prefix("in ").and_then(|rest| rest.split_once(' ')) {
            return self.find(rest)?.into_iter().map(|v| v.in_unit(unit)).collect();
        }
        for (word, sign) in [("sum ", 1.0), ("difference ", -1.0)] {
            if let Some(rest) = source.strip_prefix(word) {
                let mut all = split(rest)?.into_iter();
                let first = all.next().ok_or("nothing is there")?;
                let add = |sum: Value, v: Value| {
                    let unit = sum.unit.clone();
                    Ok(Value { number: sum.number + sign * v.in_unit(&unit)?.number, unit })
                };
                return all.try_fold(first, add).map(|v| vec![v]);
            }
        }
        for (word, most) in [("least ", false), ("most ", true)] {
            if let Some(rest) = source.strip_prefix(word) {
                let mut all = split(rest)?;
                all.sort_by(|a, b| a.number.total_cmp(&b.number));
                let chosen = if most { all.pop() } else { all.into_iter().next() };
                return chosen.map(|v| vec![v]).ok_or_else(|| "nothing is there".into());
            }
        }
        for (word, percent) in [("ratio ", false), ("increase ", true)] {
            if let Some(rest) = source.strip_prefix(word) {
                let [a, b] =
                    <[Value; 2]>::try_from(split(rest)?).map_err(|all| format!("{} numbers, not two", all.len()))?;
                if a.unit != b.unit {
                    return Err(format!("{:?} and {:?} cannot be compared", a.unit, b.unit));
                }
                let ratio = a.number / b.number;
                let (number, unit) = if percent { (100.0 * (ratio - 1.0), "%") } else { (ratio, "") };
                return Ok(vec![Value { number, unit: unit.into() }]);
            }
        }
        if let Some(rest) = source.strip_prefix("classes ") {
            return self.classes.get(rest).map(counted).ok_or_else(|| format!("no class {rest:?}"));
        }
        if let Some(thing) = source.strip_prefix("count ") {
            return shipped(thing).as_ref().map(counted).ok_or_else(|| format!("nothing counts {thing:?}"));
        }
        let (from, what) = source.split_once(": ").ok_or_else(|| format!("{source:?} is no source"))?;
        if from.ends_with(".svg") {
            return label(from, what);
        }
        if from.ends_with(".md") {
            return cells(from, what);
        }
        let (all, name) = from.strip_prefix("paper ").map_or((&self.kept, from), |name| (&self.papers, name));
        let rows = all.get(name).ok_or_else(|| format!("no experiment {name:?}"))?;
        let found: Vec<_> = rows.iter().filter(|(quantity, _)| fits(what, quantity)).map(|(_, v)| v.clone()).collect();
        if found.is_empty() { Err(format!("experiments/{name} has no {what:?}")) } else { Ok(found) }
    }
}

fn counted(n: &usize) -> Vec<Value> {
    vec![Value { number: *n as f64, unit: String::new() }]
}

/// The number of each class, for all papers and for each.
fn classes() -> BTreeMap<String, usize> {
    let papers = papers().unwrap();
    let judged = all(&papers, &Ours::kept().unwrap());
    let mut out = BTreeMap::new();
    let mut add = |end: &str, of: BTreeMap<Class, usize>| {
        out.insert(format!("all{end}"), of.values().sum());
        out.extend(of.into_iter().map(|(class, n)| (format!("{}{end}", class.text()), n)));
    };
    add("", count(judged.iter().flatten()));
    papers.iter().zip(&judged).for_each(|(p, judged)| add(&format!(", {}", p.short), count(judged)));
    out.insert("rows".into(), judged.iter().map(Vec::len).sum());
    out
}

fn shipped(thing: &str) -> Option<usize> {
    let files = |dir: &str, end: &str| {
        let all = fs::read_dir(root().join(dir)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        all.filter(|name| name.ends_with(end)).count()
    };
    Some(match thing {
        "experiments" => SHIPPED.len(),
        "profiles" => device::energy::profile::SHIPPED.len(),
        "policies" => victim::Policy::ALL.len(),
        "recipes" => files("recipes", ".toml"),
        "recordings" => files("recordings", ".rec"),
        "papers" => papers().unwrap().len(),
        _ => return None,
    })
}

/// The values of a label in a flame graph.
fn label(file: &str, label: &str) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))?;
    let at = text.find(&format!(">{label}: ")).ok_or_else(|| format!("{file} has no {label:?}"))?;
    let of = numbers(text[at + label.len() + 1..].split('<').next().unwrap_or_default());
    of.first().and_then(value).map(|v| vec![v]).ok_or_else(|| format!("{file}: {label:?} has no number"))
}

fn value(found: &Found) -> Option<Value> {
    let number = found.text.replace(',', "").parse().ok()?;
    Some(Value { number, unit: found.unit.clone() })
}

/// The cells of a document's tables.
fn cells(file: &str, what: &str) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))?;
    let parts: Vec<_> = what.split(" | ").collect();
    let (table, wanted, column) = match parts.as_slice() {
        [row, column] => (None, *row, *column),
        [table, row, column] => (Some(*table), *row, *column),
        _ => return Err(format!("{what:?} is not TABLE | ROW | COLUMN")),
    };
    let (column, nth) = column.split_once('#').map_or((column, 1), |(name, n)| (name, n.parse().unwrap_or(1)));
    let (mut heading, mut head, mut found) = (String::new(), None::<Vec<String>>, Vec::new());
    for line in text.lines() {
        if !line.trim_start().starts_with('|') {
            head = None;
            if line.starts_with('#') {
                heading = line.trim_start_matches(['#', ' ']).to_owned();
            }
            continue;
        }
        let cells: Vec<String> = row(0, line).into_iter().map(|(_, cell)| bare(cell)).collect();
        let Some(head) = &head else {
            head = Some(cells);
            continue;
        };
        let here = table.is_none_or(|t| t == heading || head.first().is_some_and(|first| first == t));
        let at = head.iter().enumerate().filter(|(_, name)| *name == column).map(|(n, _)| n).nth(nth - 1);
        let (true, Some(at), Some(first)) = (here, at, cells.first()) else { continue };
        if fits(wanted, first)
            && let Some(mut v) = cells.get(at).and_then(|cell| value(numbers(cell).first()?))
        {
            let unit = head.iter().position(|name| name == "unit").and_then(|n| cells.get(n));
            if let Some(unit) = unit.filter(|_| v.unit.is_empty()) {
                v.unit.clone_from(unit);
            }
            found.push(v);
        }
    }
    if found.is_empty() {
        return Err(format!("{file} has no table with this row and column"));
    }
    // Without a table name, only the first table counts.
    if !wanted.contains('*') {
        found.truncate(1);
    }
    Ok(found)
}

#[test]
fn a_star_stands_for_anything() {
    assert!(fits("a*c*e", "abcde") && fits("abc", "abc") && fits("a*", "a") && fits("*c", "abc"));
    assert!(!fits("a*d", "abc") && !fits("abc", "abcd") && !fits("b*", "abc"));
}

#[test]
fn sources_are_rows_cells_labels_and_counts() {
    let sources = Sources::kept();
    let one = |source: &str| sources.one(source).map(|v| v.map(|v| (format!("{:.3}", v.number), v.unit)));
    let is = |number: &str, unit: &str| Ok(Some((number.to_owned(), unit.to_owned())));
    assert_eq!(one("microdrive-table31: power when idle"), is("222.000", "mW"));
    assert_eq!(one("paper microdrive-table31: seek: energy of an average one"), is("7.640", "mJ"));
    assert_eq!(one("minus most microdrive-table31: power*"), is("-222.000", "mW"));
    assert_eq!(
        one("increase microdrive-table31: power when idle ; microdrive-table31: power in standby"),
        is("263.934", "%")
    );
    assert_eq!(
        one("in W sum microdrive-table31: power when idle ; microdrive-table31: power in standby"),
        is("0.283", "W")
    );
    assert_eq!(
        one("times 2 difference microdrive-table31: power when idle ; microdrive-table31: power in standby"),
        is("322.000", "mW")
    );
    assert_eq!(one("docs/papers.md: ✗ contradicts | all"), one("classes contradicts"));
    assert_eq!(one("count policies"), is("6.000", ""));
    assert!(one("microdrive-table31: power*").is_err() && one("docs/papers.md: nothing | all").is_err());
    assert_eq!(one("condition"), Ok(None));
}
