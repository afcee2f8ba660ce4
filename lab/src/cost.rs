//! What did cleaning cost, how much free space did it leave, and what did the work after it cost?
//!
//! The number of cleanings alone means little: a policy that cleans less may free less, and one that cleans more may
//! have cleaned in vain. So each variant with cleaning has four numbers: energy while it was measured, free segments at
//! the end of that, energy of the work after it, and the sum. Left out on purpose: preparation, which all variants
//! share.

use device::energy::Energy;

use crate::result::{Costs, Outcome};
use sim::result::{Phase, Stage};

/// The measure, in the phase after, of the free segments at its start.
pub const HELD: &str = "free_segments_held";

/// The costs from a variant's phases; none without work after.
pub fn of(phases: &[Phase]) -> Option<Costs> {
    let held = phases.iter().find(|p| p.stage == Stage::After)?.measures.get(HELD)?.value;
    let of = |stage| phases.iter().filter(move |p| p.stage == stage);
    let counted = |name: &str| of(Stage::Measured).filter_map(|p| p.measures.get(name)).map(|m| m.value as u64).sum();
    let spent = |stage| -> Energy { of(stage).map(Phase::total).sum() };
    let (measured, after) = (spent(Stage::Measured), spent(Stage::After));
    Some(Costs {
        gcs: counted("gc_count"),
        moved: counted("moved_blocks"),
        held: held as u64,
        measured,
        after,
        in_all: measured + after,
    })
}

/// Column heads for [`rows`].
pub const HEADS: [&str; 7] = ["variant", "GCs", "blocks moved", "free segments held", "measured", "after", "in all"];

/// The cost table: a row for each variant with costs.
pub fn rows(outcome: &Outcome) -> Vec<[String; HEADS.len()]> {
    outcome.variants.iter().filter_map(|v| Some(row(outcome.name_of(v), v.costs.as_ref()?))).collect()
}

fn row(name: String, c: &Costs) -> [String; HEADS.len()] {
    let [gcs, moved, held] = [c.gcs, c.moved, c.held].map(|n| n.to_string());
    let [measured, after, in_all] = [c.measured, c.after, c.in_all].map(|e| e.to_string());
    [name, gcs, moved, held, measured, after, in_all]
}
