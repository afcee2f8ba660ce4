//! The results of a replay as rows ([`crate::rows`]). The row of a run: [`runs`].

mod runs;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use device::energy::{Component, Draws, Energy};
use serde_json::json;
use sim::replay::{Known, Outcome, Point};
use trace::replay::blocks::Latency;

use crate::rows::cells::Cells;
use crate::rows::{self, Amount};
use crate::{Failure, output};

/// The version of the schema.
const SCHEMA: (&str, &str) = ("joulefs.replay", "2");

/// A run and its result.
struct Run<'a> {
    point: &'a Point,
    known: &'a Known,
    outcome: &'a Outcome,
}

impl rows::Run for Run<'_> {
    fn begin(&self) -> (usize, &str, &str) {
        (self.point.number, &self.known.key, self.point.name())
    }

    fn energy(&self, tell: &mut dyn FnMut(&Amount<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut sums: BTreeMap<(u64, u8), [Energy; Component::ALL.len()]> = BTreeMap::new();
        for (purpose, part, energy) in self.outcome.run.ledger.amounts() {
            sums.entry((purpose.owner, purpose.cause)).or_default()[part.component() as usize] += energy;
        }
        let words = self.outcome.cause();
        let (mut last, mut owner_name) = (None, String::new());
        for ((owner, number), energies) in sums {
            if last.replace(owner) != Some(owner) {
                owner_name = output::plain(&self.outcome.owner(owner));
            }
            let cause = words(number);
            for (component, energy) in Component::ALL.into_iter().zip(energies).filter(|(_, e)| *e != Energy::ZERO) {
                tell(&Amount { owner, owner_name: &owner_name, number, cause: &cause, component, energy })?;
            }
        }
        Ok(())
    }

    fn timeline(&self) -> Vec<(u64, [Energy; Component::ALL.len()])> {
        self.outcome.timeline.looks().iter().map(|look| (look.at, look.components)).collect()
    }

    fn latencies(&self) -> &[Latency] {
        self.outcome.latencies()
    }
}

/// Writes the files into a directory, creating it if needed. `judged` are the rows of a comparison, if it is one.
pub fn write(
    recording: &Path,
    points: &[Point],
    outcomes: &[Outcome],
    judged: &[Cells],
    dir: &Path,
) -> Result<(), Failure> {
    let all = points.iter().zip(outcomes);
    let all: Vec<Run<'_>> =
        all.filter_map(|(point, outcome)| Some(Run { point, known: point.known.as_ref()?, outcome })).collect();
    let cells = all.iter().map(|run| runs::cells(recording, run)).collect::<Result<Vec<_>, _>>()?;
    let prices: Vec<Cells> = all.iter().flat_map(prices).collect();
    let mut more = vec![("prices", &prices[..])];
    match judged.is_empty() {
        // Verdicts of an earlier comparison do not belong to this run.
        true => drop(std::fs::remove_file(dir.join("comparison.parquet"))),
        false => more.push(("comparison", judged)),
    }
    rows::write_with(dir, SCHEMA, &all, &cells, &more)
}

/// What a run costs in each draw of the profile's numbers. In a draw, runs on one device pay the same prices.
fn prices(run: &Run<'_>) -> Vec<Cells> {
    let (number, key, name) = rows::Run::begin(run);
    let draws = Draws::of(&run.outcome.profile, &run.outcome.run.ledger);
    let row = |(draw, pj): (usize, &f64)| {
        let cells = [("run", json!(number)), ("key", json!(key)), ("name", json!(name))];
        let cells = cells.into_iter().chain([("draw", json!(draw)), ("pj", json!(pj.max(0.0) as u64))]);
        cells.map(|(name, value)| (name.to_owned(), value)).collect()
    };
    draws.totals().iter().enumerate().map(row).collect()
}
