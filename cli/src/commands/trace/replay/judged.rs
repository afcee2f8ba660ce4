//! How is presented what a comparison says?

use serde_json::Value;
use sim::replay::judged::Judged;
use sim::replay::{Outcome, Point};
use terminal::judged::{self, Run};

use crate::rows::cells::Cells;

fn runs(points: &[Point], outcomes: &[Outcome]) -> Vec<Run> {
    let run = |(point, outcome): (&Point, &Outcome)| Run {
        seed: point.variant.seed,
        total: outcome.total(),
        number: point.number,
        key: point.known.as_ref().map(|known| known.key.clone()),
    };
    points.iter().zip(outcomes).map(run).collect()
}

/// The verdicts as a table, and the reasons below it.
pub fn text(all: &[Judged], points: &[Point], outcomes: &[Outcome]) -> String {
    judged::text(all, &runs(points, outcomes))
}

/// The verdicts for machines.
pub fn json(all: &[Judged], points: &[Point], outcomes: &[Outcome]) -> Value {
    judged::json(all, &runs(points, outcomes))
}

/// The verdicts as rows, one for each configuration.
pub fn cells(all: &[Judged], points: &[Point], outcomes: &[Outcome]) -> Vec<Cells> {
    judged::cells(all, &runs(points, outcomes))
}
