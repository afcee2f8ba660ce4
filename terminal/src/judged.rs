//! How is presented what a comparison says, of replays and of an experiment's variants?

use device::energy::Energy;
use serde_json::{Value, json};
use sim::replay::judged::{Judged, percents};

use crate::output;
use crate::rows::cells::Cells;
use crate::table::{self, Table};

/// One of the compared runs, which [`Judged::runs`] names by their index.
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Its energy.
    pub total: Energy,
    /// Its number among the rows.
    pub number: usize,
    /// Its key there, if it has one.
    pub key: Option<String>,
}

fn seeds(judged: &Judged, runs: &[Run]) -> Vec<u64> {
    judged.runs.iter().map(|run| runs[*run].seed).collect()
}

/// The verdicts as a table, and the reasons below it.
pub fn text(all: &[Judged], runs: &[Run]) -> String {
    let most = all.iter().map(|j| j.runs.len()).max().unwrap_or(1);
    let mut heads = vec![table::text("compared").least(8), table::number("mean").least(11)];
    heads.extend([table::number("difference").least(10), table::number("95 % interval").least(16)]);
    heads.extend([table::number("90 % by prices").least(16), table::text("")]);
    let mut table = Table::new(heads);
    for judged in all {
        let (difference, interval) = judged.difference.map(|d| d.texts()).unwrap_or_default();
        let prices = judged.at_other_prices.map_or(String::new(), |range| percents(range.low, range.high));
        let (mean, verdict) = (judged.mean.to_string(), judged.verdict.text().to_owned());
        table.cells([judged.name.clone(), mean, difference, interval, prices, verdict]);
    }
    let mut out = table.text();
    if most > 1 {
        let seeds = seeds(&all[0], runs);
        let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
        out += &format!(
            "\n{most} seeds ({}); a difference is the mean over pairs of runs with equal seeds; the tables below are of \
             the first seed",
            list.join(", ")
        );
    }
    for judged in all {
        judged.won.iter().for_each(|won| out += &format!("\n{}: {won}", judged.name));
        judged.why.iter().for_each(|why| out += &format!("\n{}: {}", judged.name, output::plain(why)));
    }
    out
}

/// The verdicts for machines.
pub fn json(all: &[Judged], runs: &[Run]) -> Value {
    all.iter()
        .map(|j| {
            json!({
                "name": j.name,
                "against": j.against,
                "seeds": seeds(j, runs),
                "total_pj": j.runs.iter().map(|run| runs[*run].total.0).collect::<Vec<_>>(),
                "mean_pj": j.mean.0,
                "difference_percent": j.difference.map(|d| d.mean),
                "interval_percent": j.difference.and_then(|d| d.interval).map(|(low, high)| [low, high]),
                "price_range_percent": j.at_other_prices.map(|range| [range.low, range.high]),
                "verdict": j.verdict.text(),
                "won": j.won,
                "why": j.why,
            })
        })
        .collect()
}

/// The verdicts as rows, one for each configuration.
pub fn cells(all: &[Judged], runs: &[Run]) -> Vec<Cells> {
    let lines = |lines: &[String]| (!lines.is_empty()).then(|| lines.join("\n"));
    let row = |j: &Judged| {
        let interval = j.difference.and_then(|d| d.interval);
        let seeds: Vec<String> = seeds(j, runs).iter().map(u64::to_string).collect();
        let first = &runs[j.runs[0]];
        let cells = [
            ("run", json!(first.number)),
            ("key", json!(first.key)),
            ("name", json!(j.name)),
            ("against", json!(j.against)),
            ("seeds", json!(seeds.join(","))),
            ("mean_pj", json!(j.mean.0)),
            ("difference_percent", json!(j.difference.map(|d| d.mean))),
            ("interval_low_percent", json!(interval.map(|(low, _)| low))),
            ("interval_high_percent", json!(interval.map(|(_, high)| high))),
            ("price_range_low_percent", json!(j.at_other_prices.map(|range| range.low))),
            ("price_range_high_percent", json!(j.at_other_prices.map(|range| range.high))),
            ("verdict", json!(j.verdict.text())),
            ("won", json!(lines(&j.won))),
            ("why", json!(lines(&j.why))),
        ];
        cells.map(|(name, value)| (name.to_owned(), value)).to_vec()
    };
    all.iter().map(row).collect()
}
