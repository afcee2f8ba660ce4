//! Where did the joules of a replay go? By path for calls, by process for requests.

use sim::flame::Depth;
use sim::replay::judged::Judged;
use sim::replay::{Done, Outcome, Point};

use crate::flame::{Graph, names};

/// The flame graphs of these runs, by index; each is compared with its control of the same seed, if that is among them.
pub fn graphs(shown: &[usize], points: &[Point], outcomes: &[Outcome], judged: &[Judged], depth: Depth) -> Vec<Graph> {
    let seed = |run: &usize| points[*run].variant.seed;
    let control = |run: &usize| {
        let against = judged.iter().find(|j| j.runs.contains(run))?.against.as_ref()?;
        let control = &judged.iter().find(|j| j.name == *against)?.runs;
        let same = control.iter().find(|c| seed(c) == seed(run)).or(control.first())?;
        shown.iter().position(|n| n == same)
    };
    shown.iter().map(|run| Graph { control: control(run), ..graph(&outcomes[*run], depth) }).collect()
}

fn graph(of: &Outcome, depth: Depth) -> Graph {
    let ledger = &of.run.ledger;
    let flame = match &of.done {
        Done::Blocks(on) => names::of_processes(ledger, depth, &on.names),
        Done::Calls(done) => names::of_volume(ledger, depth, &*done.volume),
    };
    Graph { name: of.name.clone(), flame, took: of.run.took, control: None }
}
