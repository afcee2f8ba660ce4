//! How are the assumed inputs of a result, and their effect, presented?

use crate::table::{self, Table};
use device::energy::Energy;
use device::energy::profile::{Number, Profile};
use serde_json::{Value, json};
use sim::replay::assumed::{Tried, numbers};
use sim::replay::{GIVEN, Sensitivity};

/// Effects below this percentage are only counted.
const LITTLE: f64 = 0.1;

/// A run's assumptions on one line; `None` if there are none.
pub fn line(profile: &Profile, flushes: u64) -> Option<String> {
    let all = numbers(profile);
    let (given, theirs): (Vec<_>, Vec<_>) = all.iter().partition(|n| n.source == GIVEN);
    let mut parts: Vec<String> = given.iter().map(|n| format!("{} = {}", n.name, amount(n))).collect();
    if flushes > 0 {
        parts.push(format!("{flushes} flushes"));
    }
    if !theirs.is_empty() {
        parts.push(format!("{} numbers of the profile (--sensitivity shows the effect of each)", theirs.len()));
    }
    (!parts.is_empty()).then(|| format!("assumed: {}", parts.join(", ")))
}

/// Formats a number for people; numbers computed by the profile are rounded to significant digits.
fn amount(number: &Number) -> String {
    let value: f64 = format!("{:.5e}", number.value).parse().unwrap_or(number.value);
    format!("{value} {}", number.unit).trim_end().to_owned()
}

/// The names of assumed numbers, for machines.
pub fn names(profile: &Profile) -> Value {
    numbers(profile).into_iter().map(|n| n.name).collect()
}

fn change(of: Energy, total: Energy) -> f64 {
    (of.joules() / total.joules().max(f64::MIN_POSITIVE) - 1.0) * 100.0
}

fn furthest(tried: &Tried, totals: &[Energy], total: Energy) -> f64 {
    tried.runs.iter().flatten().map(|run| change(totals[*run], total).abs()).fold(0.0, f64::max)
}

/// A table of the effects, the largest first.
pub fn table(Sensitivity { tried, totals }: &Sensitivity, total: Energy) -> String {
    let mut order: Vec<&Tried> = tried.iter().filter(|t| furthest(t, totals, total) >= LITTLE).collect();
    order.sort_by(|a, b| furthest(b, totals, total).total_cmp(&furthest(a, totals, total)));
    let changes = ["by half", "by twice"].map(|head| table::number(head).least(9));
    let columns = [table::text("assumed number"), table::number("value").least(14)].into_iter().chain(changes);
    let mut table = Table::new(columns).between(1);
    for t in &order {
        let by = |run: Option<usize>| run.map_or("-".into(), |run| format!("{:+.1} %", change(totals[run], total)));
        table.row(&[&t.number.name, &amount(&t.number), &by(t.runs[0]), &by(t.runs[1])]);
    }
    let mut out = table.text();
    let zero: Vec<&str> = tried.iter().filter(|t| t.number.value == 0.0).map(|t| t.number.name.as_str()).collect();
    let little = tried.len() - order.len() - zero.len();
    if little > 0 {
        out += &format!("\n{little} others change it by less than {LITTLE} %");
    }
    if !zero.is_empty() {
        out += &format!(
            "\nassumed to be 0, so not varied: {}; try other values with --assume NAME=NUMBER",
            zero.join(", ")
        );
    }
    out
}

/// The same for machines.
pub fn json(Sensitivity { tried, totals }: &Sensitivity) -> Value {
    let pj = |run: Option<usize>| run.map(|run| totals[run].0);
    tried
        .iter()
        .map(|t| {
            json!({ "number": t.number.name, "value": t.number.value, "unit": t.number.unit,
                "source": t.number.source, "half_pj": pj(t.runs[0]), "twice_pj": pj(t.runs[1]) })
        })
        .collect()
}
