//! Which bars does the report draw for an outcome?

use device::energy::{Component, Energy};
use sim::plots::{Bar, KINDS, PlotError, stacked};
use sim::result::{Phase, cause_text};
use volume::Kind;

use crate::result::Outcome;

/// Energy of each phase by component.
pub(super) fn by_component(o: &Outcome) -> Result<String, PlotError> {
    let bars =
        bars(o, |p| Component::ALL.iter().enumerate().map(|(i, c)| (i, p.component(*c).millijoules())).collect());
    stacked("energy by component", &bars, &Component::ALL.map(Component::text))
}

/// Energy of each phase by cause, the smaller causes combined.
pub(super) fn by_cause(o: &Outcome) -> Result<String, PlotError> {
    let mut causes: Vec<(Kind, u8)> = o.phases().flat_map(|(_, p)| p.spent.iter().map(|s| (p.fs, s.cause))).collect();
    causes.sort_unstable();
    causes.dedup();
    let spent = |p: &Phase, (fs, c): (Kind, u8)| if p.fs == fs { p.cause(c) } else { Energy::ZERO };
    let share = |p: &Phase, c| spent(p, c).0 as f64 / p.total().0.max(1) as f64;
    let largest = |c: &(Kind, u8)| o.phases().map(|(_, p)| share(p, *c)).fold(0.0, f64::max);
    // Stable, so that equal causes stay in order.
    causes.sort_by(|a, b| largest(b).total_cmp(&largest(a)));
    let named = causes.len().min(if causes.len() > KINDS { KINDS - 1 } else { KINDS });
    let mut names: Vec<_> = causes.iter().take(named).map(|(fs, c)| cause_text(*fs, *c)).collect();
    if causes.len() > named {
        names.push("the rest");
    }
    let bars =
        bars(o, |p| causes.iter().enumerate().map(|(i, c)| (i.min(named), spent(p, *c).millijoules())).collect());
    stacked("energy by cause", &bars, &names)
}

fn bars(o: &Outcome, pieces: impl Fn(&Phase) -> Vec<(usize, f64)>) -> Vec<Bar> {
    o.phases()
        .filter(|(_, p)| p.total().0 > 0)
        .map(|(v, p)| {
            let megabytes = p.bytes as f64 / 1_048_576.0;
            let scale = if p.bytes > 0 { 1.0 / megabytes } else { 1.0 };
            let name = match o.variants.len() {
                1 => p.name.clone(),
                _ => format!("{}, {}", o.name_of(v), p.name),
            };
            let name = if p.bytes > 0 { name } else { format!("{name} (mJ)") };
            Bar { name, pieces: pieces(p).into_iter().map(|(k, e)| (k, e * scale)).collect() }
        })
        .collect()
}
