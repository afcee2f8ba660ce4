//! Where did the joules of a replay go? By path for calls, by process for requests.

use sim::flame::Depth;
use sim::replay::{Done, Outcome};

use crate::flame::{Graph, names};

/// A run's flame graph.
pub fn graph(of: &Outcome, depth: Depth) -> Graph {
    let ledger = &of.run.ledger;
    let flame = match &of.done {
        Done::Blocks(on) => names::of_processes(ledger, depth, &on.names),
        Done::Calls(done) => names::of_volume(ledger, depth, &*done.volume),
    };
    Graph { name: of.name.clone(), flame, took: of.run.took }
}
